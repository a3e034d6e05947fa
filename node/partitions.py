"""Partitions of GPUs that are made for a claim and removed after it: the interface of their maker.

The door that prepares claims decides which partition is made; the vendor's code makes it (``PartitionMaker``). A
partition is known by its owner, the UID of the claim that it is made for, so that making it twice makes it once, and
what a crash has left can be found and removed.
"""

from __future__ import annotations

import re
from typing import Protocol

from node.inventory.model import Device, PartitionShape
from node.values import Value, value


@value
class Partition(Value):
    """A partition of the GPU ``gpu`` (its device name), made or to be made for ``owner``.

    ``uuid``: of the MIG device, empty before it is made.
    """

    owner: str
    gpu: str
    gpu_uuid: str
    shape: PartitionShape
    uuid: str = ""

    @property
    def device(self) -> str:
        """Its device name."""
        return partition_name(self.gpu, self.shape)


def partition_name(gpu: str, shape: PartitionShape) -> str:
    """The device name of a partition of the GPU of this name, a DNS label: ``mig-<pci>-<start>-<size>-p<profile>``."""
    return f"mig-{gpu.removeprefix('gpu-')}-{shape.start}-{shape.size}-p{shape.profile_id}"


_NAME = r"mig-(.+)-\d+-\d+-p\d+"


def whole_of_partition(name: str) -> str:
    """The name of the GPU of which a partition of this device name is made; empty for any other device's name."""
    found = re.fullmatch(_NAME, name)
    return f"gpu-{found[1]}" if found else ""


@value
class MigLayout(Value):
    """How GPUs are divided: an instance of each profile; without ``enabled``, MIG mode is off.

    ``gpus``: the driver's numbers of the GPUs, None for all. ``models``: PCI device and vendor ids such as
    ``0x233010de``, empty for any.
    """

    profiles: tuple[str, ...]
    enabled: bool = True
    gpus: tuple[int, ...] | None = None
    models: tuple[str, ...] = ()


@value
class PartitionsRemoved(Value):
    """The MIG devices with these UUIDs were removed on purpose: nobody needs a report that they are gone."""

    uuids: frozenset[str]


class PartitionError(Exception):
    """A partition cannot be made or removed: ``device`` is the GPU's name, ``reason`` what the driver or policy says.

    ``pending``: it can once something ends, which ``reason`` names; so asking again helps.
    """

    def __init__(self, device: str, reason: str, *, pending: bool = False) -> None:
        super().__init__(f"{device}: {reason}")
        self.device = device
        self.reason = reason
        self.pending = pending


class PartitionMaker(Protocol):
    """Makes and removes partitions. Every call blocks as long as the driver does, so call it in a thread.

    Safe against a crash between any two calls of the driver: what is about to be made is on disk before.
    """

    @property
    def fault(self) -> str:
        """Why the partitions of an earlier process are unknown, and so never removed; empty if they are known."""

    def make(self, gpu: Device, shape: PartitionShape, owner: str) -> Partition:
        """The partition of this shape for this owner, which exists when the call returns; turns MIG mode on if needed.

        Asked again for the same owner and shape, the same one. Raises ``PartitionError``.
        """

    def remove(self, owner: str) -> tuple[Partition, ...]:
        """Remove the partitions of this owner and return them; nothing if it has none. Raises ``PartitionError``."""

    def leave_partitioning(self, gpu: Device) -> None:
        """Turn MIG mode off, so that the GPU can be given whole. Raises ``PartitionError`` while it has instances."""

    def sweep(self, owners: frozenset[str]) -> tuple[Partition, ...]:
        """Remove what was made for owners that are not among these, unless somebody uses it; returns what went."""

    def made(self) -> tuple[Partition, ...]:
        """Every partition on record that an owner has or had."""
