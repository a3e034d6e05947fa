"""Many pods and claims that want the same devices at once, and what becomes of them.

The truth about who has a device is told by the containers: each locks a file on the host for every GPU that it sees,
which only one of them can. Pods belong to Jobs, so that whoever loses is made anew without a person. Nothing here knows
how ostler decides.
"""

from __future__ import annotations

import http.client
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster.dra.claims import CLAIMS, SLICES, devices, request, template
from tests.cluster.ledger.holding import PROGRAM, ContainerHolding
from tests.cluster.ledger.idleness import Idleness
from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import PODS, container, phase

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GPU = "nvidia.com/gpu"
PLUGIN, CLAIM, NAME = "plugin", "claim", "name"
"""How a pod asks: the plugin's resource, a claim, or the resource name that a class serves as well."""
AWAY = (OSError, http.client.HTTPException, ApiRefused)
"""What an API server that is away, or has just started, answers."""

_GPUS = "/dev/nvidia[0-9]*"


@dataclass(slots=True)
class StormOutcome:
    """What was seen. ``doubles``: a device and who came second; ``failed``: pods by their reason.

    ``idle``: most seconds that a device was free while pods waited: in no container, allocated to no claim, not given
    to a bound pod; ``unused``: of those that are only in no container. ``evicted``: pods that taints evicted.
    """

    ran: int = 0
    doubles: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    idle: float = 0.0
    unused: float = 0.0
    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)


class Storm:
    """A folder of the node for what containers tell, and Jobs that use it.

    The GPUs' device files are numbered as their names are sorted, as in the recordings that are used here.
    """

    def __init__(self, api: RigApi, node: RigNode, gpus: int) -> None:
        self._api = api
        self._gpus = [f"nvidia{number}" for number in range(gpus)]
        self._stopped = threading.Event()
        self._failed: dict[str, str] = {}
        self._evicted: set[str] = set()
        self._names: set[str] = set()
        self._idle, self._unused = Idleness(self._gpus), Idleness(self._gpus)
        folder = node.folder / "storm"
        shutil.rmtree(folder, ignore_errors=True)
        self._holding = ContainerHolding(folder, self._gpus)

    def job(self, name: str, how: str, seconds: float, count: int = 1, **spec: Any) -> Object:
        """A Job of one pod that has ``count`` GPUs for so long."""
        asked = {GPU: count} if how != CLAIM else {}
        main = container("main", resources=asked)
        main["command"] = [f"/storm/{PROGRAM}", _GPUS, "/storm", f"{seconds:.1f}"]
        main["volumeMounts"] = [{"name": "storm", "mountPath": "/storm"}]
        pod: Object = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "dnsPolicy": "Default",
            "restartPolicy": "Never",
            "containers": [main],
            "volumes": [{"name": "storm", "hostPath": {"path": str(self._holding.folder)}}],
        }
        if how == CLAIM:
            main["resources"]["claims"] = [{"name": "gpu"}]
            pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": f"gpus-{count}"}]
        labels = {"storm": how, "gpus": str(count)}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {"backoffLimit": 30, "template": {"metadata": {"labels": labels}, "spec": pod}, **spec},
        }

    def templates(self) -> list[Object]:
        """The templates that its pods' claims are made from."""
        return [template(f"gpus-{count}", devices(request(count=count))) for count in (1, 2)]

    def create(self, how_many: int, random: Random, ways: tuple[str, ...] = (PLUGIN, CLAIM)) -> None:
        """Create so many Jobs, most for one GPU, some for two."""
        for number in range(how_many):
            how = random.choice(ways)
            count = 2 if random.random() < 0.15 else 1
            seconds = random.choice((0.1, 0.5, 1.0, 2.0))
            self._api.create(JOBS, self.job(f"storm-{number}-{how}", how, seconds, count))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at pods and devices all the while."""
        thread = threading.Thread(target=self._watch, name="storm", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def unfinished(self) -> list[str]:
        """Jobs that have not succeeded yet; an API server that is away tells nothing."""
        return [
            f"{one['metadata']['name']} {one.get('status', {})}"
            for one in self._api.items(JOBS)
            if not one.get("status", {}).get("succeeded")
        ]

    def wait(self, seconds: float) -> list[str]:
        """Wait until every Job has succeeded, for so long; those that have not."""
        until = time.monotonic() + seconds
        left = ["not looked at"]
        while left and time.monotonic() < until:
            self._stopped.wait(1.0)
            try:
                left = self.unfinished()
            except AWAY:
                continue
        return left

    def outcome(self) -> StormOutcome:
        """What was seen."""
        return StormOutcome(
            ran=len(self._holding.ran()),
            doubles=self._holding.doubles(),
            failed=Counter(self._failed.values()),
            evicted=len(self._evicted),
            idle=self._idle.worst,
            unused=self._unused.worst,
        )

    def remove(self) -> None:
        """Delete the Jobs with their pods."""
        for one in self._api.items(JOBS):
            self._api.delete(f"{JOBS}/{one['metadata']['name']}?propagationPolicy=Background")
        for one in self._api.items(PODS):
            self._api.wait_gone(f"{PODS}/{one['metadata']['name']}")
        for one in self._api.items(CLAIMS):
            self._api.wait_gone(f"{CLAIMS}/{one['metadata']['name']}")

    def _watch(self) -> None:
        while not self._stopped.wait(0.5):
            try:
                pods = self._api.items(f"{PODS}?labelSelector=storm&fieldSelector=status.phase!=Succeeded")
                claimed = self._claimed()
            except AWAY:
                # The API server is away: nobody can be scheduled, and no device is kept from anybody.
                self._unused.nobody_waits()
                self._idle.nobody_waits()
                continue
            self._look(pods, claimed)

    def _look(self, pods: list[Object], claimed: set[str]) -> None:
        for one in pods:
            status = one.get("status", {})
            if phase(one) == "Failed":
                self._failed[one["metadata"]["uid"]] = why(status)
            if any(
                condition.get("reason") == "DeletionByDeviceTaintManager" for condition in status.get("conditions", ())
            ):
                self._evicted.add(one["metadata"]["uid"])
        given = sum(_count(one) for one in pods if _is_given(one))
        self._look_at_devices(time.time(), [_count(one) for one in pods if _waits(one)], claimed, given)

    def _claimed(self) -> set[str]:
        """Device files of what claims are allocated."""
        self._names |= {d["name"] for one in self._api.items(SLICES) for d in one["spec"].get("devices") or ()}
        number = {name: f"nvidia{number}" for number, name in enumerate(sorted(self._names))}
        return {
            number[result["device"]]
            for claim in self._api.items(CLAIMS)
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
            if result["device"] in number
        }

    def _look_at_devices(self, now: float, waiting: list[int], claimed: set[str], given: int) -> None:
        # By the files' times as well: most containers come and go between two looks.
        held, ended = self._holding.held(), self._holding.last_used()
        self._unused.look(now, waiting, held, ended)
        taken = held | claimed
        unclaimed, untaken = len(self._gpus) - len(claimed), len(self._gpus) - len(taken)
        # Who has begun holds its devices, and of the others nobody knows which they get.
        self._idle.look(now, waiting, taken, ended, min(untaken, max(0, untaken - unclaimed + given)))


def _waits(pod: Object) -> bool:
    return phase(pod) == "Pending" and not pod["spec"].get("nodeName")


def _count(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["gpus"])


def _is_given(pod: Object) -> bool:
    """Whether the scheduler counts devices of the plugin's as the pod's: it is bound and not told to be over."""
    by_claim = pod["spec"].get("resourceClaims") or pod["status"].get("extendedResourceClaimStatus")
    return phase(pod) in {"Pending", "Running"} and "nodeName" in pod["spec"] and not by_claim


def why(status: Object) -> str:
    """Why a pod has failed: evicted, its device was held, the kubelet had none left, or what the status says."""
    if any(condition.get("type") == "DisruptionTarget" for condition in status.get("conditions", ())):
        return "evicted"
    if "held through the" in status.get("message", ""):
        return "its device is held"
    if "requested number of devices unavailable" in status.get("message", "").lower():
        return "no device is left"
    return str(status.get("reason", "exit"))
