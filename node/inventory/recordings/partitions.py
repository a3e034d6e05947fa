"""Partitions of a recorded node's GPUs: created, removed and shown as on hardware.

The recording belongs to somebody else and is not changed: the partitions are in the state folder, and the recorded
source adds them to its facts. As on hardware they survive the agent, and an overlapping placement is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from node.files import FileError, JsonValue, ReadFailed, read_record, write_record
from node.inventory.facts import CapabilityFile, DeviceFile, GpuFacts, MigFacts, NodeFacts, SysfsFacts
from node.inventory.model import Capacity, Device, PartitionShape
from node.partitions import Partition, PartitionError
from node.values import replace

log = logging.getLogger("ostler.partitions")

SCHEMA = "recorded-partitions/v1"
FILE = "recorded-partitions.json"
_CAPABILITIES = 236
"""The major number of /dev/nvidia-caps files; the kernel gives another one at every boot."""
_MIB = 1 << 20


class RecordedPartitions:
    """Implements ``node.partitions.PartitionMaker``; ``folder``: where it keeps what was made."""

    fault = ""
    """The partitions made are the record itself: if it is unusable, nothing remains of them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        try:
            found = read_record(self._path, SCHEMA)
        except ReadFailed:
            found = None  # Another user's file: a command that only reads the node sees it without partitions.
        except FileError as error:
            log.warning("%s; the recorded node has no partitions at first", error)
            found = None
        data = found if isinstance(found, dict) else {}
        modes, made = data.get("modes"), data.get("made")
        self._modes = {gpu: on is True for gpu, on in modes.items()} if isinstance(modes, dict) else {}
        entries = [_partition(each) for each in made] if isinstance(made, list) else []
        self._made = tuple(each for each in entries if each is not None)

    def make(self, gpu: Device, shape: PartitionShape, owner: str) -> Partition:
        """See ``PartitionMaker``."""
        import uuid  # Only few recorded nodes get partitions.

        gpu_uuid = gpu.uuid or ""
        with self._lock:
            for each in self._made:
                if each.gpu_uuid != gpu_uuid:
                    continue
                if (each.owner, each.shape.place) == (owner, shape.place):
                    return each
                if each.shape.start < shape.start + shape.size and shape.start < each.shape.start + each.shape.size:
                    reason = f"{each.device} takes memory slices of {shape.profile} at {shape.start}"
                    raise PartitionError(gpu.name, reason, pending=True)
            name = uuid.uuid5(uuid.NAMESPACE_OID, f"{gpu_uuid}/{shape.profile_id}/{shape.start}/{owner}")
            made = Partition(owner, gpu.name, gpu_uuid, shape, f"MIG-{name}")
            self._write(gpu.name, {**self._modes, gpu_uuid: True}, (*self._made, made))
        return made

    def remove(self, owner: str) -> tuple[Partition, ...]:
        """See ``PartitionMaker``."""
        return self._drop(lambda each: each.owner == owner)

    def leave_partitioning(self, gpu: Device) -> None:
        """See ``PartitionMaker``."""
        with self._lock:
            there = [each.device for each in self._made if each.gpu_uuid == gpu.uuid]
            if there:
                raise PartitionError(gpu.name, f"it has the partitions {', '.join(there)}", pending=True)
            self._write(gpu.name, {**self._modes, gpu.uuid or "": False}, self._made)

    def sweep(self, owners: frozenset[str]) -> tuple[Partition, ...]:
        """See ``PartitionMaker``; no process uses a recorded GPU."""
        return self._drop(lambda each: each.owner not in owners)

    def made(self) -> tuple[Partition, ...]:
        """See ``PartitionMaker``."""
        return self._made

    def shown(self, facts: NodeFacts) -> NodeFacts:
        """The recorded facts with these partitions."""
        if facts.nvml is None or not self._modes:
            return facts
        made, modes = self._made, self._modes
        gpus = tuple(_with_partitions(gpu, made, modes) for gpu in facts.nvml.gpus)
        sysfs = facts.sysfs
        if sysfs is not None:
            sysfs = _with_capabilities(sysfs, {gpu.uuid: gpu.minor for gpu in gpus}, made)
        return replace(facts, nvml=replace(facts.nvml, gpus=gpus), sysfs=sysfs)

    def _drop(self, goes: Callable[[Partition], bool]) -> tuple[Partition, ...]:
        with self._lock:
            gone = tuple(each for each in self._made if goes(each))
            if gone:
                self._write(gone[0].gpu, self._modes, tuple(each for each in self._made if each not in gone))
        return gone

    def _write(self, gpu: str, modes: dict[str, bool], made: tuple[Partition, ...]) -> None:
        data: JsonValue = {"modes": dict(modes), "made": [_json(each) for each in made]}
        try:
            write_record(self._path, SCHEMA, data, durable=False)
        except FileError as error:
            raise PartitionError(gpu, f"{error}; check the state folder and its disk", pending=True) from error
        self._modes, self._made = modes, made


def _with_partitions(gpu: GpuFacts, made: Iterable[Partition], modes: Mapping[str, bool]) -> GpuFacts:
    on = modes.get(gpu.uuid or "")
    if on is None:
        return gpu
    own = [each for each in made if each.gpu_uuid == gpu.uuid]
    first = len(gpu.mig_devices)
    there = (*gpu.mig_devices, *(_instance(each, first + number, gpu.name or "") for number, each in enumerate(own)))
    return replace(gpu, mig_mode=int(on), mig_pending=int(on), mig_devices=there if on else ())


def _instance(partition: Partition, index: int, model: str) -> MigFacts:
    shape = partition.shape
    amounts = {each.name: each.value for each in shape.capacity}
    slices = int(shape.profile.partition("g")[0])
    return MigFacts(
        index,
        uuid=partition.uuid,
        name=f"{model} MIG {shape.profile}",
        gpu_instance=_number(shape),
        compute_instance=0,
        gpu_instance_profile=shape.profile_id,
        placement_start=shape.start,
        placement_size=shape.size,
        gpu_slices=slices,
        compute_slices=slices,
        memory_mib=amounts.get("memory", 0) // _MIB or None,
        multiprocessors=amounts.get("multiprocessors"),
        copy_engines=amounts.get("copyEngines"),
        decoders=amounts.get("decoders"),
        encoders=amounts.get("encoders"),
        jpeg_engines=amounts.get("jpegEngines"),
        ofa_engines=amounts.get("ofaEngines"),
    )


def _number(shape: PartitionShape) -> int:
    """The number of its GPU instance; no two begin at one place."""
    return shape.start + 1


def _with_capabilities(
    sysfs: SysfsFacts, minors: Mapping[str | None, int | None], made: Iterable[Partition]
) -> SysfsFacts:
    files, nodes = list(sysfs.nvidia_capabilities), list(sysfs.device_files)
    for each in made:
        gpu, number = minors.get(each.gpu_uuid), _number(each.shape)
        if gpu is None:
            continue
        base = 1000 + 100 * gpu + 2 * number
        for minor, path in (
            (base, f"gpu{gpu}/mig/gi{number}/access"),
            (base + 1, f"gpu{gpu}/mig/gi{number}/ci0/access"),
        ):
            files.append(CapabilityFile(path, minor))
            nodes.append(DeviceFile(f"/dev/nvidia-caps/nvidia-cap{minor}", "c", _CAPABILITIES, minor))
    return replace(sysfs, nvidia_capabilities=tuple(files), device_files=tuple(nodes))


def _json(partition: Partition) -> JsonValue:
    shape = partition.shape
    return {
        "owner": partition.owner,
        "gpu": partition.gpu,
        "gpuUUID": partition.gpu_uuid,
        "uuid": partition.uuid,
        "profile": shape.profile,
        "profileID": shape.profile_id,
        "start": shape.start,
        "size": shape.size,
        "capacity": {each.name: each.value for each in shape.capacity},
    }


def _partition(data: JsonValue) -> Partition | None:
    match data:
        case {
            "owner": str(owner),
            "gpu": str(gpu),
            "gpuUUID": str(gpu_uuid),
            "uuid": str(found),
            "profile": str(profile),
            "profileID": int(profile_id),
            "start": int(start),
            "size": int(size),
            "capacity": dict(capacity),
        }:
            amounts = tuple(Capacity(name, amount) for name, amount in capacity.items() if isinstance(amount, int))
            return Partition(owner, gpu, gpu_uuid, PartitionShape(profile, profile_id, start, size, amounts), found)
        case _:
            return None
