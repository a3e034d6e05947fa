"""What tests see of holds: the agent's word, the slices' and the kubelet's, and what a container has."""

from __future__ import annotations

from collections.abc import Iterable

from tests.cluster.door.container import Seen, seen
from tests.cluster.dra.claims import published
from tests.cluster.rig.agent import NodeAgent
from tests.cluster.rig.api import Object
from tests.cluster.rig.pods import RigPods

OTHER_DOOR = "ostler.dev/other-door"


def held(agent: NodeAgent, door: str = "") -> dict[str, Object]:
    """The first hold of every device that is held (through ``door``), as ``ostler holds`` tells it."""
    devices = agent.ask("holds").get("devices", [])
    return {one["device"]: one["holds"][0] for one in devices if one["holds"] and door in {"", one["holds"][0]["door"]}}


def holders(agent: NodeAgent, door: str) -> set[str]:
    """Who has devices through ``door``; a pod is known some time after its devices."""
    return {hold.get("holder", "") for hold in held(agent, door).values()}


def withheld(agent: NodeAgent, door: str) -> dict[str, Object]:
    """What is withheld from a door, as ``ostler holds`` tells it."""
    devices = agent.ask("holds").get("devices", [])
    return {one["device"]: each for one in devices for each in one["withheld"] if each["door"] == door}


def taints(slices: Iterable[Object]) -> dict[str, dict[str, str]]:
    """By device the effects of its taints by their keys; devices without any are there, too."""
    return {
        name: {taint["key"]: taint["effect"] for taint in device.get("taints", ())}
        for name, device in published(slices).items()
    }


def untainted(slices: Iterable[Object]) -> set[str]:
    """Devices that the scheduler may give to claims."""
    return {name for name, those in taints(slices).items() if not those}


def files_of(agent: NodeAgent) -> dict[str, str]:
    """By device file the name of the device, of whole GPUs."""
    return {
        entry["path"]: one["name"]
        for one in agent.ask("devices")["devices"]
        for entry in one["nodes"]
        if entry["role"] == "device" and _is_gpu(entry["path"])
    }


def gpus(inside: Seen) -> set[str]:
    """The device files of whole GPUs."""
    return {path for path in inside.below("/dev/nvidia") if _is_gpu(path)}


def had_by(pods: RigPods, agent: NodeAgent, pod: str) -> set[str]:
    """Names of the GPUs that a container sees."""
    names = files_of(agent)
    return {names[path] for path in gpus(seen(pods, pod))}


def _is_gpu(path: str) -> bool:
    return path.removeprefix("/dev/nvidia").isdecimal()
