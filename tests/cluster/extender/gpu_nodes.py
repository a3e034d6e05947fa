"""Nodes with kubelets, containerd and agents on recorded GPUs, gangs on them, and what their containers hold.

No two nodes have a UUID in common, and the numbers of the device files are not those of the GPUs: on node N they are
moved on by N. So what a container sees says which GPUs of which node it has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.request import urlopen

import yaml

from tests.cluster.door.container import STAY, Seen, seen
from tests.cluster.dra.claims import DRIVER, SLICES, Claims, user
from tests.cluster.extender.stage import ISOLATION, ExtenderStage, cells
from tests.cluster.rig.agent import RECORDED, NodeAgent, configuration, forget, wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import PODS, RigPods, phase, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"
GPUS = 8
HARDWARE = "h100-sxm-8"
DEVICES, ALLOCATED = "ostler.dev/pod-devices", "ostler.dev/pod-allocated-devices"
GRACE = 30
PINNED = "claims"
_OUTCOME = re.compile(r'^ostler_pod_records_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)
_UUID = re.compile(r"GPU-[0-9a-f]{2}")
_MINOR = re.compile(r"^      minor: (\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Gpus:
    """A node's GPUs as its recording has them: UUIDs and device files by the driver's number."""

    uuids: tuple[str, ...]
    files: tuple[str, ...]

    def numbers_of_uuids(self, uuids: Sequence[str]) -> tuple[int, ...]:
        """The driver's numbers of these; an unknown one is a ValueError."""
        return tuple(sorted(map(self.uuids.index, uuids)))

    def numbers_of_files(self, files: Sequence[str]) -> tuple[int, ...]:
        """The driver's numbers of these; an unknown one is a ValueError."""
        return tuple(sorted(map(self.files.index, files)))


@dataclass(frozen=True, slots=True)
class _Held:
    """What the container of a pod holds, by what it sees, and what the pod's annotations name."""

    node: str
    numbers: tuple[int, ...]
    annotations: Mapping[str, str] = field(repr=False)


def node_cell(name: str, pinned: str = "") -> Object:
    """The cell of a node, its second island first: the plugin by itself would begin with the first one.

    ``pinned``: makes the first island a pinned cell.
    """
    islands: list[Object] = [
        {"cellChildren": [{"cellAddress": str(number)} for number in numbers]} for numbers in (range(4, 8), range(4))
    ]
    if pinned:
        islands[1]["pinnedCellId"] = pinned
    return {"cellType": "NODE", "cellAddress": name, "cellChildren": islands}


def whole(count: int) -> Object:
    """So many whole nodes of a virtual cluster."""
    return {"cellType": "NODE", "cellNumber": count}


def recording(number: int) -> str:
    """The recorded node of this number, from 1."""
    text = (RECORDED / f"{HARDWARE}.yaml").read_text()
    text = _UUID.sub(f"GPU-{number:02x}", text)
    return _MINOR.sub(lambda found: f"      minor: {(int(found[1]) + number) % GPUS}", text)


def gpus_of(text: str) -> _Gpus:
    """The GPUs of a recording. NVML numbers them by PCI address, and so must the recording."""
    found = yaml.safe_load(text)["facts"]["nvml"]["gpus"]
    assert [each["index"] for each in found] == list(range(GPUS))
    assert sorted(found, key=lambda each: each["bus_id"]) == found
    return _Gpus(tuple(each["uuid"] for each in found), tuple(f"/dev/nvidia{each['minor']}" for each in found))


class GpuNodes(ExtenderStage):
    """All nodes of the cluster; one virtual cluster, ``team``, owns their GPUs.

    ``door``: through which they are offered. At both doors the first island of the last node belongs to another virtual
    cluster, ``claims``, whose pods use claims.
    """

    def __init__(self, cluster: RigCluster, door: str) -> None:
        self.nodes = {node.name: node for node in cluster.nodes}
        self.door = door
        names = list(self.nodes)
        self.whole = len(names) - (1 if self.has_claims else 0)
        """Nodes that belong to the team as a whole."""
        self.islands = 2 * len(names) - (1 if self.has_claims else 0)
        super().__init__(cluster, self.configuration(team=[whole(self.whole)]), GPU)
        self.pods = RigPods(cluster.api)
        self.claims = Claims(cluster.api)
        self._recorded = {node.name: recording(number) for number, node in enumerate(cluster.nodes, 1)}
        self.gpus = {name: gpus_of(text) for name, text in self._recorded.items()}
        self.agents: dict[str, NodeAgent] = {}
        self._lost: set[str] = set()

    @property
    def has_claims(self) -> bool:
        """Whether claims get GPUs."""
        return self.door != "plugin"

    @property
    def last(self) -> str:
        """The node that belongs to the claims in part."""
        return list(self.nodes)[-1]

    def configuration(self, **teams: Sequence[Object]) -> Object:
        """The cells, of which virtual clusters own these; the team owns the island beside that of the claims."""
        pinned = {self.last: PINNED} if self.has_claims else {}
        owned = {name: {"virtualCells": list(those)} for name, those in teams.items()}
        if self.has_claims:
            owned["team"]["virtualCells"].append({"cellType": "NODE.QUAD", "cellNumber": 1})
            owned["claims"] = {"pinnedCells": [{"pinnedCellId": PINNED}]}
        return cells([node_cell(name, pinned.get(name, "")) for name in self.nodes], **owned)

    def build(self) -> None:
        """Start everything; the nodes side by side."""
        for node in self.nodes.values():
            self.agents[node.name] = self._agent(node)
        super().build()
        self.wait_offered(*self.nodes)

    def strike(self) -> None:
        """Take everything down but the nodes."""
        for name in list(self._lost):
            self.bring_back(name)
        super().strike()
        for name, agent in self.agents.items():
            agent.stop()
            forget(self.nodes[name])
        # The kubelet takes half a minute.
        self.claims.delete_slices()

    def wait_offered(self, *names: str) -> None:
        """Return when these nodes offer all of their GPUs, except those that claims have."""
        claimed = sum(one["spec"].get("resourceClaims") is not None for one in self.pods.all())
        for name in names:
            wait_allocatable(self.api, self.nodes[name], GPU, GPUS - (2 * claimed if name == self.last else 0))
            if self.has_claims:
                wait_until(f"{name} publishes its GPUs", partial(self._publishes_all, name))

    def _publishes_all(self, name: str) -> bool:
        path = f"{SLICES}?fieldSelector=spec.driver={DRIVER},spec.nodeName={name}"
        return sum(len(one["spec"].get("devices", ())) for one in self.api.items(path)) == GPUS

    def _agent(self, node: RigNode) -> NodeAgent:
        path = node.folder / "recorded.yaml"
        path.write_text(self._recorded[node.name])
        kubernetes = {"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "recordedDevices": "on"}
        resource = {"name": GPU, "door": self.door, "devices": {"kind": "gpu"}}
        document = configuration(HARDWARE, resource, kubernetes=kubernetes, inventory={"recorded": str(path)})
        agent = NodeAgent(node, document)
        agent.spawn()
        return agent

    def gang(self, name: str, pods: int, devices: int, **more: Any) -> list[str]:
        """Create a gang whose pods have devices of the plugin; their names."""
        return [
            self.submit(
                simple(f"{name}-{number}", STAY, {GPU: devices}, terminationGracePeriodSeconds=GRACE),
                name, pods, devices, **more,
            )
            for number in range(pods)
        ]  # fmt: skip

    def claiming(self, name: str, template: str, devices: int) -> str:
        """Create a pod that has its devices by a claim from this template, in the claims' island; its name."""
        pod = user(name, STAY, own=template, terminationGracePeriodSeconds=GRACE)
        return self.submit(pod, name, 1, devices, team="claims", pinnedCellId=PINNED)

    def create_plain(self, name: str, template: str) -> str:
        """Create a pod with a claim that the ordinary scheduler allocates; its name."""
        return self.pods.create(user(name, STAY, own=template, terminationGracePeriodSeconds=GRACE))

    def wait_unschedulable(self, name: str, text: str) -> None:
        """Return when a pod waits, and its condition has this text."""

        def waits(pod: Object) -> bool:
            return any(
                one["type"] == "PodScheduled" and one["status"] == "False" and text in one.get("message", "")
                for one in pod["status"].get("conditions", ())
            )

        self.pods.wait(name, f"waits for {text!r}", waits)

    def held(self, name: str) -> _Held:
        """What the pod's container holds, as soon as it runs; by environment, device files and annotations alike."""
        running = self.pods.wait_phase(name, "Running", 120)
        node = running["spec"]["nodeName"]
        inside = seen(self.pods, name)
        numbers = self.gpus[node].numbers_of_files(_files(inside))
        if not running["spec"].get("resourceClaims"):
            told = inside.env["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert self.gpus[node].numbers_of_uuids(told) == numbers, f"{name} sees {told} and {_files(inside)}"
        return _Held(node, numbers, running["metadata"].get("annotations", {}))

    def exact(self, *names: str) -> dict[str, _Held]:
        """What each pod holds: what its binding named, or what the annotations name since a swap of equal pods."""
        found = {name: self._noted(name) for name in names}
        for name, held in found.items():
            gpus, annotations = self.gpus[held.node], held.annotations
            assert _numbers(annotations[ISOLATION]) == held.numbers, name
            assert gpus.numbers_of_uuids(annotations[ALLOCATED].split(",")) == held.numbers, name
            # Nodes publish UUIDs for claims alone.
            assert (DEVICES in annotations) == self.has_claims, name
            if self.has_claims:
                assert gpus.numbers_of_uuids(annotations[DEVICES].split(",")) == held.numbers, name
        return found

    def _noted(self, name: str) -> _Held:
        """What the pod's container holds, with the annotations that the agent has left."""
        found = self.held(name)

        def has_note(pod: Object) -> bool:
            # When equal pods are swapped, what the binding named is corrected as well.
            annotations = pod["metadata"]["annotations"]
            return ALLOCATED in annotations and _numbers(annotations[ISOLATION]) == found.numbers

        pod = self.pods.wait(name, f"has a note of its devices, {found.numbers}", has_note)
        return _Held(found.node, found.numbers, pod["metadata"]["annotations"])

    def lose(self, name: str) -> None:
        """Cut a node's power, and return when the controllers have noticed."""
        self._lost.add(name)
        self.nodes[name].power_off()

        def is_lost(node: Object) -> bool:
            return any(one["type"] == "Ready" and one["status"] != "True" for one in node["status"]["conditions"])

        self.api.wait(f"/api/v1/nodes/{name}", "is not ready", is_lost, 120)

    def bring_back(self, name: str) -> None:
        """Start a lost node again, and return when it offers its GPUs."""
        node = self.nodes[name]
        node.power_on()
        node.start_kubelet()
        node.wait_ready(self.api)
        self.agents[name].spawn()
        self.wait_offered(name)
        self._lost.discard(name)

    def running(self) -> list[str]:
        """The pods that run and are not being ended."""
        return [
            one["metadata"]["name"]
            for one in self.pods.all()
            if phase(one) == "Running" and "deletionTimestamp" not in one["metadata"]
        ]

    def end(self, *names: str) -> None:
        """Delete pods as their owner would, and return when the kubelets have ended them."""
        for name in names:
            self.api.delete(f"{PODS}/{name}", None)
        for name in names:
            self.api.wait_gone(f"{PODS}/{name}")

    def outcomes(self) -> Counter[str]:
        """How many pods the kubelets gave what was recorded for them, by the agents' metrics."""
        found: Counter[str] = Counter()
        for name in self.agents:
            with urlopen(f"http://{self.nodes[name].address}:9410/metrics", timeout=60) as answer:
                text = answer.read().decode()
            for outcome, count in _OUTCOME.findall(text):
                found[outcome] += int(float(count))
        return found

    def clear(self) -> None:
        """Remove all pods, and return when the kubelets have ended them."""
        self.end(*(one["metadata"]["name"] for one in self.pods.all()))
        self.claims.delete_all()


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of an annotation, sorted."""
    return tuple(sorted(map(int, text.split(","))))


def _files(inside: Seen) -> list[str]:
    """The device files of whole GPUs that a container has."""
    return sorted(path for path in inside.below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal())
