"""Nodes with kubelets, containerd and agents on recorded GPUs, gangs on them, and what their containers hold.

No two nodes have a UUID in common, and the numbers of the device files are not those of the GPUs: on node N they are
moved on by N. So what a container sees says which GPUs of which node it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.cluster.door.container import LOOK, Seen, seen
from tests.cluster.dra.claims import DRIVER, SLICES, user
from tests.cluster.extender.stage import ISOLATION, ExtenderStage, cells
from tests.cluster.rig.agent import RECORDED, NodeAgent, configuration, forget, wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import Cluster
from tests.cluster.rig.node import Node
from tests.cluster.rig.pods import PODS, Pods, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"
GPUS = 8
HARDWARE = "h100-sxm-8"
DEVICES, ALLOCATED = "ostler.dev/pod-devices", "ostler.dev/pod-allocated-devices"
STAY = f"{LOOK}\ntrap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
"""Unlike a shell that waits for ``sleep``, this one ends at once when it is told to."""
GRACE = 30
_UUID = re.compile(r"GPU-[0-9a-f]{2}")
_MINOR = re.compile(r"^      minor: (\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpus:
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
class Held:
    """What the container of a pod holds, by what it sees, and what the pod's annotations name."""

    node: str
    numbers: tuple[int, ...]
    annotations: Mapping[str, str] = field(repr=False)


def node_cell(name: str) -> Object:
    """The cell of a node, its second island first: the plugin by itself would begin with the first one."""
    islands = [{"cellChildren": [{"cellAddress": str(n)} for n in numbers]} for numbers in (range(4, 8), range(4))]
    return {"cellType": "NODE", "cellAddress": name, "cellChildren": islands}


def recording(number: int) -> str:
    """The recorded node of this number, from 1."""
    text = (RECORDED / f"{HARDWARE}.yaml").read_text()
    text = _UUID.sub(f"GPU-{number:02x}", text)
    return _MINOR.sub(lambda found: f"      minor: {(int(found[1]) + number) % GPUS}", text)


def gpus_of(text: str) -> Gpus:
    """The GPUs of a recording. NVML numbers them by PCI address, and so must the recording."""
    found = yaml.safe_load(text)["facts"]["nvml"]["gpus"]
    assert [each["index"] for each in found] == list(range(GPUS))
    assert sorted(found, key=lambda each: each["bus_id"]) == found
    return Gpus(tuple(each["uuid"] for each in found), tuple(f"/dev/nvidia{each['minor']}" for each in found))


class GpuNodes(ExtenderStage):
    """All nodes of the cluster, their GPUs offered through ``door``."""

    def __init__(self, cluster: Cluster, door: str, configuration: Object | None = None) -> None:
        self.nodes = {node.name: node for node in cluster.nodes}
        super().__init__(cluster, configuration or cells([node_cell(name) for name in self.nodes]), GPU)
        self.pods = Pods(cluster.api)
        self._door = door
        self._recorded = {node.name: recording(number) for number, node in enumerate(cluster.nodes, 1)}
        self.gpus = {name: gpus_of(text) for name, text in self._recorded.items()}
        self.agents: dict[str, NodeAgent] = {}

    def build(self) -> None:
        """Start everything; the nodes side by side."""
        for node in self.nodes.values():
            self.agents[node.name] = self._agent(node)
        super().build()
        self.wait_offered(*self.nodes)

    def strike(self) -> None:
        """Take everything down but the nodes."""
        super().strike()
        for name, agent in self.agents.items():
            agent.stop()
            forget(self.nodes[name])

    def wait_offered(self, *names: str) -> None:
        """Return when these nodes offer all of their GPUs."""
        for name in names:
            wait_allocatable(self.api, self.nodes[name], GPU, GPUS)
            if self._door != "plugin":
                wait_until(f"{name} publishes its GPUs", lambda name=name: self._published(name) == GPUS)  # type: ignore[misc]

    def _published(self, name: str) -> int:
        path = f"{SLICES}?fieldSelector=spec.driver={DRIVER},spec.nodeName={name}"
        return sum(len(one["spec"].get("devices", ())) for one in self.api.items(path))

    def _agent(self, node: Node) -> NodeAgent:
        path = node.folder / "recorded.yaml"
        path.write_text(self._recorded[node.name])
        kubernetes = {"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "recordedDevices": "on"}
        resource = {"name": GPU, "door": self._door, "devices": {"kind": "gpu"}}
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

    def claiming(self, name: str, template: str, devices: int, **more: Any) -> str:
        """Create a pod that has its devices by a claim from this template; its name."""
        pod = user(name, STAY, own=template, terminationGracePeriodSeconds=GRACE)
        return self.submit(pod, name, 1, devices, **more)

    def held(self, name: str) -> Held:
        """What the pod's container holds, as soon as it runs; by environment, device files and annotations alike."""
        running = self.pods.wait_phase(name, "Running", 120)
        node = running["spec"]["nodeName"]
        inside = seen(self.pods, name)
        numbers = self.gpus[node].numbers_of_files(_files(inside))
        if not running["spec"].get("resourceClaims"):
            told = inside.env["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert self.gpus[node].numbers_of_uuids(told) == numbers, f"{name} sees {told} and {_files(inside)}"
        return Held(node, numbers, running["metadata"]["annotations"])

    def recorded(self, name: str) -> Held:
        """The same once the agent has noted what the pod got; its annotations must name what the container holds."""
        found = self.held(name)
        gpus = self.gpus[found.node]

        def noted(pod: Object) -> bool:
            return ALLOCATED in pod["metadata"]["annotations"]

        pod = self.pods.wait(name, "has a note of its devices", noted)
        annotations = pod["metadata"]["annotations"]
        assert tuple(sorted(map(int, annotations[ISOLATION].split(",")))) == found.numbers, name
        assert gpus.numbers_of_uuids(annotations[ALLOCATED].split(",")) == found.numbers, name
        if DEVICES in annotations:
            assert gpus.numbers_of_uuids(annotations[DEVICES].split(",")) == found.numbers, name
        return Held(found.node, found.numbers, annotations)

    def clear(self) -> None:
        """Remove all pods, and return when the kubelets have ended them."""
        for found in self.api.items(PODS):
            self.api.delete(f"{PODS}/{found['metadata']['name']}", None)
        wait_until("no pod is left", lambda: not self.api.items(PODS))


def _files(inside: Seen) -> list[str]:
    """The device files of whole GPUs that a container has."""
    return sorted(path for path in inside.below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal())
