"""What one conflict costs: a device is given through both doors in one moment, and the loser's pods are counted.

Two GPUs, of which a pod has one for all the time; the kubelet tells the node's status as rarely as it does by default.
For a pod that loses, a claim takes the other GPU, and the pod's controller is made in the moment in which the claim has
it. What the scheduler knows of the node's GPUs is by then up to ten seconds old. For a claim that loses, a scheduler
that is late gives it the GPU that the pod has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from bench.doors.figures import CLAIM, JOB, LOSERS, PATCHED, REPLICA_SET, cost_figures
from bench.doors.stage import DoorsStage, stage, use_default_period
from tests.cluster.dra.claims import Claims, allocated, template, user
from tests.cluster.ledger.by_hand import GATE, JOBS, ByHand
from tests.cluster.ledger.looking import untainted
from tests.cluster.ledger.storm import GPU
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.pods import PODS, RigPods, phase, simple
from tests.cluster.rig.processes import wait_until

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
PERIOD = 10.0
"""Seconds between two reports of a node's status, by default."""
LIMIT = 120.0
TRIES = 8
BACKOFF_LIMIT = 6
"""How often a Job tries by default."""


class Conflicts:
    """Conflicts one after the other on one node, whose status is reported each ``period`` seconds."""

    def __init__(self, made: DoorsStage, chance: Random, period: float = PERIOD) -> None:
        self._made = made
        self._period = period
        self._api = made.cluster.api
        self._chance = chance
        self._pods = RigPods(self._api)
        self._claims = Claims(self._api)
        self._hand = ByHand(self._api, made.node, self._pods)

    def prepare(self) -> None:
        """The pod that has one of the GPUs for all the time."""
        self._claims.create(template("one"))
        self._pods.run(simple("holder", resources={GPU: 1}))
        wait_until("the holder's GPU is known", lambda: len(untainted(self._claims.slices())) == 1)

    def pod_loses(self, loser: str) -> tuple[int, float]:
        """Pods that failed, and seconds from the end of the claim's pod until the loser's runs.

        Where the loser's pod was faster, so that the claim lost, it is done again.
        """
        for _ in range(TRIES):
            if self._claim_was_first(loser):
                break
            self.clean()
        else:
            raise AssertionError(f"in none of {TRIES} conflicts the claim was before the pod")
        wait_allocatable(self._api, self._made.node, GPU, 1)
        self._settled(loser)
        began = time.monotonic()
        self._hand.delete("winner")
        wait_until("the loser runs", lambda: any(phase(one) == "Running" for one in self._mine()), LIMIT)
        seconds = time.monotonic() - began
        # Only now: a pod that waited a moment ago may have failed all the same.
        return len(self._failed()), seconds

    def _claim_was_first(self, loser: str) -> bool:
        """Whether the claim's pod has the device; else the loser's has."""
        (device,) = untainted(self._claims.slices())
        winner = self._hand.next_pod(self._hand.job("winner", user("winner", own="one", **GATE)))
        self._hand.allocate(winner, device)
        # Anywhere between two reports of the node's status.
        time.sleep(self._chance.uniform(0, self._period))
        name = self._hand.let_go(winner)
        self._pods.wait(name, "is bound", lambda one: "nodeName" in one["spec"])
        self._control(loser)

        def found() -> str:
            pod = self._api.find(f"{PODS}/{name}")
            # One that lost is evicted, and may be gone by now.
            return "Failed" if pod is None or "deletionTimestamp" in pod["metadata"] else phase(pod)

        wait_until("the claim has won or lost", lambda: found() in {"Running", "Failed"}, LIMIT)
        return found() == "Running"

    def claim_loses(self) -> tuple[int, float]:
        """Pods that were evicted, and seconds from the loser's start until its controller's next pod runs."""
        holder = {"holder"}
        names = {one["device"] for one in self._made.agent.ask("holds")["devices"] if _has(one, holder)}
        (device,) = names
        job = self._hand.job(CLAIM, _marked(user(CLAIM, own="one", **GATE)))
        first = self._hand.next_pod(job)
        self._hand.allocate(first, device)
        began = time.monotonic()
        name = self._hand.let_go(first)
        self._api.wait_gone(f"{PODS}/{name}", LIMIT)
        second = self._hand.next_pod(job, first)
        self._pods.wait_phase(self._hand.let_go(second), "Running", LIMIT)
        seconds = time.monotonic() - began
        assert device not in allocated(self._claims.of_pod(self._pods.get(second["metadata"]["name"])))
        return 1, seconds

    def clean(self) -> None:
        """Only the holder is left, and the other GPU is at both doors."""
        self.remove()
        for one in self._pods.all():
            if one["metadata"]["name"] != "holder":
                self._api.delete(f"{PODS}/{one['metadata']['name']}")
        wait_until("the holder alone is left", lambda: len(self._pods.on_disk(self._made.node)) == 1, LIMIT)
        wait_until("one GPU is free", lambda: len(untainted(self._claims.slices())) == 1, LIMIT)
        wait_allocatable(self._api, self._made.node, GPU, 2, LIMIT)

    def remove(self) -> None:
        """Take the controllers away, which would make further pods."""
        for one in self._api.items(REPLICA_SETS):
            self._api.delete(f"{REPLICA_SETS}/{one['metadata']['name']}")
        self._hand.remove()

    def _control(self, loser: str) -> None:
        pod = _marked(simple(loser, resources={GPU: 1}))
        if loser == JOB:
            self._hand.job(JOB, pod, backoffLimit=BACKOFF_LIMIT)
            return
        pod["spec"].pop("restartPolicy")
        labels = pod["metadata"]["labels"]
        template_ = {"metadata": {"labels": labels}, "spec": pod["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template_}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": REPLICA_SET}, "spec": spec}
        self._api.create(REPLICA_SETS, body)

    def _settled(self, loser: str) -> None:
        """Return when the loser's controller has a pod that waits, or that has the device against all expectation."""

        def settled() -> bool:
            waiting = [one for one in self._mine() if phase(one) == "Pending"]
            job = self._api.find(f"{JOBS}/{JOB}") if loser == JOB else None
            gave_up = job is not None and any(one["type"] == "Failed" for one in job["status"].get("conditions", ()))
            return bool(waiting) or gave_up or any(phase(one) == "Running" for one in self._mine())

        wait_until(f"a pod of the {loser} waits", settled, LIMIT)

    def _mine(self) -> list[Object]:
        return self._api.items(f"{PODS}?labelSelector=loses")

    def _failed(self) -> list[Object]:
        return [one for one in self._mine() if phase(one) == "Failed"]


def _marked(pod: Object) -> Object:
    pod["metadata"]["labels"] = {"loses": "yes"}
    return pod


def _has(device: Object, names: set[str]) -> bool:
    return any(hold["holder"].rpartition("/")[2] in names for hold in device["holds"])


def costs(rounds: int, chance: Random, say: Callable[[str], None]) -> dict[str, float]:
    """So many conflicts of each kind."""
    figures: dict[str, float] = {}
    for patched in (False, True):
        with stage("l4-2", 2, patch_allocatable=patched) as made:
            use_default_period(made)
            conflicts = Conflicts(made, chance)
            conflicts.prepare()
            for loser in LOSERS:
                if (loser == PATCHED) is patched:
                    figures |= _cost(conflicts, loser, rounds, say)
    return figures


def _cost(conflicts: Conflicts, loser: str, rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    failed, recovered = [], []
    for number in range(rounds):
        say(f"conflict {number + 1} of {rounds}: {loser}")
        pods, seconds = conflicts.claim_loses() if loser == CLAIM else conflicts.pod_loses(loser)
        failed.append(pods)
        recovered.append(seconds)
        conflicts.clean()
    print(f"\n{loser}: failed pods {failed}, seconds {[round(each, 1) for each in recovered]}")
    return cost_figures(loser, failed, recovered)
