"""GPUs in parts: NVIDIA's MIG profiles as the manual lists them, and a maker of partitions that keeps its own books."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from node.inventory.model import (
    Attribute,
    AttributeValue,
    Capacity,
    Device,
    DeviceKind,
    NodeRole,
    PartitionShape,
    sorted_attributes,
)
from node.partitions import Partition, PartitionError
from node.rules import Doors, Rule, Selector
from node.values import replace
from tests.making.devices import SHARED, gpu, node

MIB = 1 << 20
RULE = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)), Doors.DRA, partitions=True)
_DIMENSIONS = ("multiprocessors", "copyEngines", "decoders", "jpegEngines", "ofaEngines")


def shapes(
    profile: str, number: int, size: int, starts: tuple[int, ...], memory: int, *amounts: int
) -> tuple[PartitionShape, ...]:
    """The shapes of one profile; ``memory`` in MiB, ``amounts`` in the order of ``_DIMENSIONS``."""
    capacity = [("memory", memory * MIB), *zip(_DIMENSIONS, amounts, strict=False)]
    found = tuple(Capacity(name, amount) for name, amount in sorted(capacity))
    return tuple(PartitionShape(profile, number, start, size, found) for start in starts)


H100 = (
    *shapes("1g.10gb", 19, 1, (0, 1, 2, 3, 4, 5, 6), 9984, 16, 1, 1, 1, 0),
    *shapes("1g.10gb+me", 20, 1, (0, 1, 2, 3, 4, 5, 6), 9984, 16, 1, 1, 1, 1),
    *shapes("1g.20gb", 15, 2, (0, 2, 4, 6), 20096, 26, 1, 1, 1, 0),
    *shapes("2g.20gb", 14, 2, (0, 2, 4), 20096, 32, 2, 2, 2, 0),
    *shapes("3g.40gb", 9, 4, (0, 4), 40448, 60, 3, 3, 3, 0),
    *shapes("4g.40gb", 5, 4, (0,), 40448, 64, 4, 4, 4, 0),
    *shapes("7g.80gb", 0, 8, (0,), 81153, 132, 8, 7, 7, 1),
)
A30 = (
    *shapes("1g.6gb", 14, 1, (0, 1, 2, 3), 5836, 14, 1, 0, 0, 0),
    *shapes("1g.6gb+me", 21, 1, (0, 1, 2, 3), 5836, 14, 1, 1, 1, 1),
    *shapes("2g.12gb", 5, 2, (0, 2), 11672, 28, 2, 2, 0, 0),
    *shapes("4g.24gb", 0, 4, (0,), 23344, 56, 4, 4, 1, 1),
)


def parted(
    number: int, made_of: tuple[PartitionShape, ...] = H100, *, mig: bool = False, arch: str = "Hopper"
) -> Device:
    """GPU number ``number``, of which these partitions can be made; ``mig``: its MIG mode is on."""
    attributes: list[tuple[str, AttributeValue]] = [
        ("architecture", arch),
        ("driverVersion", "575.57.8"),
        ("migCapable", True),
        ("migEnabled", mig),
        ("productName", "NVIDIA H100 80GB HBM3"),
        ("resource.kubernetes.io/pciBusID", f"0000:{number}b:00.0"),
        ("type", "gpu"),
        ("uuid", f"GPU-{number}"),
    ]
    return gpu(
        number,
        partitions=made_of,
        attributes=sorted_attributes(attributes),
        capacity=(Capacity("memory", 81559 * MIB),),
    )


def instance(whole: Device, shape: PartitionShape, uuid: str = "") -> Device:
    """The MIG device of this shape, as the inventory names it once it exists."""
    place = f"{whole.name.removeprefix('gpu-')}-{shape.start}-{shape.size}"
    uuid = uuid or f"MIG-{place}-{shape.profile_id}"
    number = shape.start * 8 + shape.profile_id % 8
    facts = [(each.name, each.value) for each in whole.attributes if each.name not in ("type", "uuid", "migEnabled")]
    return Device(
        name=f"mig-{place}",
        kind=DeviceKind.MIG,
        vendor="nvidia",
        uuid=uuid,
        index=f"{whole.index}:{shape.start}",
        pci_address=whole.pci_address,
        parent=whole.name,
        attributes=sorted_attributes(
            [
                *facts,
                ("type", "mig"),
                ("uuid", uuid),
                ("parentUUID", whole.uuid),
                ("profile", shape.profile),
                ("gpuInstanceProfileID", shape.profile_id),
                ("placementStart", shape.start),
                ("placementSize", shape.size),
            ]
        ),
        capacity=shape.capacity,
        nodes=(
            *whole.nodes_of(NodeRole.DEVICE),
            node(f"/dev/nvidia-caps/nvidia-cap{number}1", NodeRole.CAPABILITY),
            node(f"/dev/nvidia-caps/nvidia-cap{number}2", NodeRole.CAPABILITY),
            *SHARED,
        ),
    )


def in_mode(whole: Device, *, mig: bool) -> Device:
    """The GPU with its MIG mode on or off."""
    others = [each for each in whole.attributes if each.name != "migEnabled"]
    attributes = tuple(sorted([*others, Attribute("migEnabled", mig)], key=lambda each: each.name))
    return replace(whole, attributes=attributes)


class FakeHardware:
    """GPUs with MIG, and a maker of partitions on them; both outlive the process in files of ``folder``.

    ``reached``: called with the name of every step of the maker's, so that tests can end the process there. ``busy``:
    UUIDs of instances that somebody uses. ``refuses``: raised by the next calls. ``gates``: calls about a GPU, by
    name, wait for them, and sweeps for ``sweeping``.
    """

    def __init__(self, folder: Path, gpus: Iterable[Device], reached: Callable[[str], None] = lambda _: None) -> None:
        self._path = folder / "hardware.json"
        self.gpus = tuple(gpus)
        self.reached = reached
        self.busy: set[str] = set()
        self.refuses: PartitionError | None = None
        self.fault = ""
        self.gates: dict[str, threading.Event] = {}
        self.sweeping: threading.Event | None = None
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)

    def _state(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"modes": {}, "instances": [], "journal": [], "number": 0}
        return dict(json.loads(self._path.read_text()))

    def _write(self, state: dict[str, Any], step: str) -> None:
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(state))
        written.replace(self._path)
        self.reached(step)

    def devices(self) -> tuple[Device, ...]:
        """What the inventory sees of it now."""
        with self._lock:
            state = self._state()
        seen = [in_mode(each, mig=state["modes"].get(each.name, False)) for each in self.gpus]
        by_name = {each.name: each for each in seen}
        made = [
            instance(by_name[each["gpu"]], _shape(by_name[each["gpu"]], each), each["uuid"])
            for each in state["instances"]
            if each["gpu"] in by_name
        ]
        return tuple(sorted([*seen, *made], key=lambda each: each.name))

    @property
    def instances(self) -> list[str]:
        """The UUIDs of all instances that exist."""
        with self._lock:
            return [each["uuid"] for each in self._state()["instances"]]

    def put(self, gpu: Device, shape: PartitionShape, uuid: str) -> None:
        """Somebody else makes an instance."""
        with self._lock:
            state = self._state()
            state["modes"][gpu.name] = True
            state["instances"].append({"gpu": gpu.name, "start": shape.start, "id": shape.profile_id, "uuid": uuid})
            self._write(state, "")

    def make(self, gpu: Device, shape: PartitionShape, owner: str) -> Partition:
        self._wait(gpu.name)
        with self._lock:
            self._check()
            place = {"gpu": gpu.name, "start": shape.start, "id": shape.profile_id}
            state = self._state()
            known = [each for each in state["journal"] if place.items() <= each.items() and each["owner"] == owner]
            if not known:
                state["journal"].append({**place, "owner": owner, "uuid": ""})
                self._write(state, "make: intended")
            state["modes"][gpu.name] = True
            self._write(state, "make: mode")
            found = [each for each in state["instances"] if place.items() <= each.items()]
            if any(not each["uuid"].startswith("MIG-made") for each in found):
                state["journal"] = [each for each in state["journal"] if each["owner"] != owner or each["uuid"]]
                self._write(state, "")
                raise PartitionError(gpu.name, "insufficient resources: another instance is there", pending=True)
            if not found:
                state["number"] += 1
                found = [{**place, "uuid": f"MIG-made-{state['number']}"}]
                state["instances"] += found
                self._write(state, "make: instance")
            for each in state["journal"]:
                if place.items() <= each.items() and each["owner"] == owner:
                    each["uuid"] = found[0]["uuid"]
            self._write(state, "make: recorded")
            return Partition(owner, gpu.name, gpu.uuid or "", shape, found[0]["uuid"])

    def remove(self, owner: str) -> tuple[Partition, ...]:
        with self._lock:
            self._check()
            state = self._state()
            gone = self._partitions(state, owner)
            places = [each for each in state["journal"] if each["owner"] == owner]
            for place in places:
                there = [each for each in state["instances"] if _at(each) == _at(place)]
                same = [each for each in there if each["uuid"].startswith("MIG-made")]
                if any(each["uuid"] in self.busy for each in same):
                    raise PartitionError(place["gpu"], "its instance is used by process 4711", pending=True)
                state["instances"] = [each for each in state["instances"] if each not in same]
                self._write(state, "remove: instance")
                state["journal"].remove(place)
                self._write(state, "remove: forgotten")
            return gone

    def leave_partitioning(self, gpu: Device) -> None:
        self._wait(gpu.name)
        with self._lock:
            self._check()
            state = self._state()
            if any(each["gpu"] == gpu.name for each in state["instances"]):
                raise PartitionError(gpu.name, "it has MIG instances", pending=True)
            state["modes"][gpu.name] = False
            self._write(state, "leave: mode")

    def sweep(self, owners: frozenset[str]) -> tuple[Partition, ...]:
        if self.sweeping is not None:
            self.sweeping.wait(10)
        with self._lock:
            left = {each["owner"] for each in self._state()["journal"]} - owners
            return tuple(gone for owner in sorted(left) for gone in self.remove(owner))

    def made(self) -> tuple[Partition, ...]:
        with self._lock:
            state = self._state()
            return tuple(
                each for owner in {e["owner"]: 1 for e in state["journal"]} for each in self._partitions(state, owner)
            )

    def _partitions(self, state: dict[str, Any], owner: str) -> tuple[Partition, ...]:
        by_name = {each.name: each for each in self.gpus}
        return tuple(
            Partition(
                owner, each["gpu"], by_name[each["gpu"]].uuid or "", _shape(by_name[each["gpu"]], each), each["uuid"]
            )
            for each in state["journal"]
            if each["owner"] == owner and each["gpu"] in by_name
        )

    def _wait(self, gpu: str) -> None:
        if gpu in self.gates:
            self.gates[gpu].wait(10)

    def _check(self) -> None:
        if self.refuses is not None:
            raise self.refuses


def _at(place: dict[str, Any]) -> tuple[Any, ...]:
    return place["gpu"], place["start"], place["id"]


def _shape(gpu: Device, place: dict[str, Any]) -> PartitionShape:
    return next(each for each in gpu.partitions if (each.start, each.profile_id) == (place["start"], place["id"]))
