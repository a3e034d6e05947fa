"""A storm in which pods are deleted by force, evicted, and left to end, while parts of the cluster are killed.

Pods come one after the other, more at a time than there are devices, so that each device that the kubelet or the
scheduler takes for free is allocated again at once. Their program is a first process that no SIGTERM ends, so it
outlives its pod's object by its grace period. Who judges is ``overlaps``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from tests.cluster.dra.claims import CLAIMS, claim, devices, request
from tests.cluster.ledger.shims import slow_to_end
from tests.cluster.ledger.storm import AWAY, CLAIM, PLUGIN, Storm
from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import PODS, phase

AT_ONCE = 20
"""Pods that there are at a time, for eight devices."""
SHARED = "shared"
"""A claim that two pods use."""
ROUND = 0.15
"""Seconds between two rounds of deletions and creations."""


class ForcedStorm:
    """``kill``: kills a part by its name and starts it again."""

    def __init__(self, api: RigApi, node: RigNode, storm: Storm, random: Random, kill: Callable[[str], None]) -> None:
        self._api = api
        self._node = node
        self._storm = storm
        self._random = random
        self._kill = kill
        self._stopped = threading.Event()
        self.created = 0
        self.ended: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def rage(self, pods: int, victims: Sequence[str] = ()) -> None:
        """Create so many pods; kill each victim in turn, evenly spread; return when all pods have ended."""
        left = list(victims)
        every = pods / (len(left) + 1)
        while not self._stopped.wait(ROUND):
            if left and self.created >= every * (len(victims) - len(left) + 1):
                self._kill(left.pop(0))
            try:
                there = self._api.items(f"{PODS}?labelSelector=storm")
                self._end_some(there)
                self._create_some(min(AT_ONCE - len(there), pods - self.created))
            except AWAY:
                continue
            if self.created >= pods and not there:
                self._forget_claims()
                return

    def _create_some(self, number: int) -> None:
        while number > 0:
            way = self._random.choices((PLUGIN, CLAIM, SHARED), (5, 4, 1))[0]
            number -= self._create_shared() if way == SHARED else self._create(way)

    def holder(self, name: str, way: str) -> str:
        """Create a pod that has one GPU for a long time, and for four seconds more when it is to end; its name."""
        self._api.create(PODS, self._pod(name, way, 600.0, 1, grace=4))
        return name

    def _create(self, way: str, name: str = "", of: str = "") -> int:
        count = 2 if not of and self._random.random() < 0.15 else 1
        name = name or f"forced-{self.created}-{way}"
        seconds, grace = self._random.choice((0.3, 2.0, 20.0, 20.0)), self._random.choice((0, 2, 4))
        body = self._pod(name, way, seconds, count, grace=grace)
        spec = body["spec"]
        if of:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": of}]
        if way == PLUGIN and self._random.random() < 0.2:
            main = spec["containers"][0]
            spec["initContainers"] = [{**main, "name": "first", "command": [*main["command"][:3], "0.2"]}]
        self._api.create(PODS, body)
        self.created += 1
        return 1

    def _pod(self, name: str, way: str, seconds: float, count: int, *, grace: int) -> Object:
        template = self._storm.job("unused", way, seconds, count)["spec"]["template"]
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        spec = {**template["spec"], "terminationGracePeriodSeconds": grace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _create_shared(self) -> int:
        name = f"shared-{self.created}"
        self._api.create(CLAIMS, claim(name, devices(request())))
        return sum(self._create(CLAIM, f"{name}--{number}", name) for number in range(2))

    def _end_some(self, pods: Sequence[Object]) -> None:
        for one in pods:
            name, dice = one["metadata"]["name"], self._random.random()
            if phase(one) in {"Succeeded", "Failed"}:
                self.reasons[one["status"].get("reason", phase(one))] += 1
                self._delete(name, "ended", 0)
            elif phase(one) == "Running" and dice < 0.15:
                if self._random.random() < 0.3:
                    slow_to_end(self._node, name, self._random.choice((1.0, 2.5)))
                self._delete(name, "forced", 0)
            elif phase(one) == "Running" and dice < 0.18:
                self._evict(name)
            elif phase(one) == "Pending" and one["spec"].get("nodeName") and dice < 0.02:
                self._delete(name, "forced early", 0)

    def _delete(self, name: str, how: str, grace: int) -> None:
        self.ended[how] += 1
        self._api.delete(f"{PODS}/{name}", grace)
        self._forget_claim(name)

    def _evict(self, name: str) -> None:
        self.ended["evicted"] += 1
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        with suppress(ApiRefused):
            self._api.create(f"{PODS}/{name}/eviction", body)
        self._forget_claim(name)

    def _forget_claims(self) -> None:
        for one in self._api.items(CLAIMS):
            self._api.delete(f"{CLAIMS}/{one['metadata']['name']}", None)

    def _forget_claim(self, pod: str) -> None:
        """A claim that pods share goes when one of them does; the others keep it until they end."""
        of = pod.rpartition("--")[0]
        if of:
            self._api.delete(f"{CLAIMS}/{of}", None)
