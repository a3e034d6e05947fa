"""Pods that get interfaces, and where the interfaces are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from tests.cluster.dra.claims import NIC_CLASS, allocated, devices, request, template, user
from tests.cluster.dra.conftest import GPUS, DraStage
from tests.cluster.interfaces.stand_ins import MOVING, StandInLink, StandIns
from tests.cluster.rig.agent import OSTLER, NodeAgent
from tests.cluster.rig.api import ApiRefused, Object
from tests.cluster.rig.pods import FOREVER, PODS, phase
from tests.cluster.rig.processes import PATIENCE, wait_until

LOOK = "ip -o address; cat /var/run/ostler/interfaces/*.json; echo over;"
"""What a pod writes when it starts: its interfaces, and the file that says which it got."""


class Moving:
    """An agent on a node with stand-ins, and pods with a NIC each, and a GPU if there are any, from a template."""

    def __init__(
        self, stage: DraStage, made: StandIns, config: Object | None = None, program: tuple[str, ...] = OSTLER
    ) -> None:
        self.stage = stage
        self.stand_ins = made
        self.resources = (MOVING, GPUS) if made.gpus else (MOVING,)
        self.agent: NodeAgent = stage.run_driver(
            made.recorded, *self.resources, program=program, dra={"deviceMetadata": ["v1beta1"]}
        )
        # What the node had, to which it has to come back.
        self.before = made.on_node()
        stage.claims.wait_slices(len(made.names) + made.gpus)
        requests = [request(NIC_CLASS, "nic"), *([request()] if made.gpus else [])]
        stage.claims.create(template("nic", devices(*requests, config=[config] if config else ())))

    def standby(self) -> NodeAgent:
        """A second agent that waits for the end of the first."""
        second = self.stage.run_driver(self.stand_ins.recorded, *self.resources, start=False, name="standby")
        second.spawn()
        wait_until("the standby waits", lambda: "standby" in second.process.output, alive=second.process.died)
        return second

    def create(self, name: str, then: str = FOREVER, **spec: Any) -> str:
        """Create a pod with a NIC; it writes what it sees, and runs on."""
        return self.stage.pods.create(user(name, f"{LOOK} {then}", own="nic", **spec))

    def run(self, name: str, then: str = FOREVER, timeout: float = PATIENCE) -> str:
        """Create a pod and wait until it runs with its interface; what it wrote."""
        self.create(name, then)
        return self.wait_interface(name, timeout)

    def wait_interface(self, name: str, timeout: float = PATIENCE, *, nudged: bool = False) -> str:
        """What a pod wrote once it runs: whatever happens, none does without its interface.

        ``nudged``: the kubelet does not wait ten seconds before it tries again what has failed.
        """
        if nudged:
            wait_until(f"pod {name} runs", lambda: self._nudge(name), timeout)
        self.stage.pods.wait_phase(name, "Running", timeout)
        looked: list[str] = []

        def has_looked() -> bool:
            # Once alone: a container that is started again has not written anything yet.
            looked[:] = [self._written(name)]
            return "over" in looked[0]

        wait_until(f"{name} has looked", has_looked, timeout)
        (seen,), interface = looked, self.interface_of(name)
        assert f" {interface} " in seen, f"pod {name} runs without {interface}: {seen}"
        assert f'"name": "{interface}"' in seen
        return seen

    def _nudge(self, name: str) -> bool:
        """Whether the pod runs; if not, change its annotations once a second, at which the kubelet tries again."""
        found = self.stage.pods.get(name)
        if phase(found) == "Running":
            return True
        now = str(int(time.time()))
        if found["metadata"].get("annotations", {}).get("nudged") != now:
            change = {"metadata": {"annotations": {"nudged": now}}}
            self.stage.cluster.api.request("PATCH", f"{PODS}/{name}", change, "application/merge-patch+json")
        return False

    def _written(self, name: str) -> str:
        """What the pod's container wrote; nothing while the kubelet or the container is not there."""
        try:
            return str(self.stage.cluster.api.get(f"{PODS}/{name}/log"))
        except ApiRefused:
            return ""

    def interface_of(self, pod: str) -> str:
        """The interface of the NIC that a pod's claim has, as the node calls it."""
        (device,) = allocated(self.stage.claims.of_pod(self.stage.pods.get(pod)))
        return self.interfaces()[device]

    def interfaces(self) -> Mapping[str, str]:
        """The names of all interfaces by their devices."""
        ordered = sorted(self.stand_ins.names, key=lambda name: int(name.rpartition("n")[2]))
        return {f"nic-0000-{16 + index:02x}-00-0": name for index, name in enumerate(ordered)}

    def wait_back(self, timeout: float = PATIENCE) -> None:
        """Return when the node has every interface back as it was."""

        def back() -> bool:
            return self.stand_ins.on_node() == self.before

        wait_until(f"interfaces are back: {sorted(self.before)}", back, timeout)


def inside(seen: str) -> dict[str, list[str]]:
    """Addresses by interface, from what ``ip -o address`` wrote."""
    found: dict[str, list[str]] = {}
    for line in seen.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] in {"inet", "inet6"}:
            found.setdefault(words[1], []).append(words[3])
    return found


def guard(seen: str) -> Any:
    """The file that says which interfaces the claim got."""
    return json.loads(seen[seen.index("{") : seen.index("over")])


def as_on_node(link: StandInLink) -> tuple[str, int, tuple[str, ...]]:
    """What a pod gets of an interface unless its claim says otherwise."""
    return link.address, link.mtu, link.addresses
