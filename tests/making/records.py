"""Pods with recorded devices, and resources whose devices have the driver's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from plugin.preferred import PlacementMap
from plugin.record_choice import ContainerSizes
from plugin.records import PodRecord, RecordBook

GPU = "nvidia.com/gpu"
ALL = [f"g{number}" for number in range(8)]
"""The ids of eight GPUs."""


def numbered(count: int) -> dict[str, OfferedDevice]:
    """So many GPUs ``g0`` … by id, four on each NUMA node."""
    return {f"g{n}": OfferedDevice(f"g{n}", _gpu(n), healthy=True) for n in range(count)}


def _gpu(number: int) -> Device:
    return Device(f"gpu-{number}", DeviceKind.GPU, "nvidia", f"g{number}", str(number), numa_node=number // 4)


def record(
    name: str,
    *devices: str,
    sizes: Sequence[int] = (),
    before: Sequence[int] = (),
    bound: int = 0,
    namespace: str = "team",
    indices: Sequence[int] = (),
    allocated: Sequence[str] = (),
    is_asking: bool = False,
) -> PodRecord:
    """The record of a pod whose only container asks for as many devices as are recorded, unless ``sizes`` are given."""
    asked = ContainerSizes(tuple(sizes) or (len(devices or indices),), tuple(before))
    return PodRecord(
        f"uid-{name}",
        namespace,
        name,
        f"2026-01-01T00:00:{bound:02}Z",
        "2026-01-01T00:00:00Z",
        {GPU: asked},
        devices,
        tuple(indices),
        tuple(allocated),
        is_asking,
    )


def book(*records: PodRecord, count: int = 8, ground: PlacementMap | None = None) -> RecordBook:
    """A book that knows these, and so many GPUs."""
    made = RecordBook()
    made.offered(GPU, numbered(count), ground or PlacementMap())
    made.replaced(records)
    return made
