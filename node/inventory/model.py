"""Devices as both doors see them, and the immutable snapshot that carries them.

Invariants: a snapshot's devices are sorted by name and names are unique; a device's attributes and capacities are
sorted by name; nothing here changes after it is made. A snapshot has everything that a response to the kubelet needs,
so that no response touches NVML, disk or network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from operator import itemgetter

from node.health.state import Health
from node.inventory.facts import DriverFiles
from node.topology.model import Topology
from node.values import Value, quick, value

_NUMBERS = re.compile(r"\d+")


class DeviceKind(StrEnum):
    """What a device is; also the first part of its name."""

    GPU = "gpu"
    MIG = "mig"
    """An instance of an NVIDIA GPU in MIG mode."""
    PARTITION = "partition"
    """A further compute partition of an AMD GPU."""
    NIC = "nic"
    """A network function: physical, virtual or subfunction, whatever driver it has."""
    RDMA = "rdma"
    """A function that is an InfiniBand or other RDMA adapter first (by its PCI class)."""


NIC_KINDS = (DeviceKind.NIC, DeviceKind.RDMA)
"""The kinds that rules, memory and topology treat as NICs."""


@value
class Version(Value):
    """A strict semantic version (three numbers without leading zeros), as DRA version attributes demand."""

    text: str

    @classmethod
    def parse(cls, raw: str) -> Version | None:
        """The first three numbers of ``raw``: 550.107.02 gives 550.107.2, 8.0 gives 8.0.0; None without a number."""
        numbers = [int(number) for number in _NUMBERS.findall(raw)[:3]]
        if not numbers:
            return None
        return cls(".".join(str(number) for number in (*numbers, 0, 0)[:3]))

    def __str__(self) -> str:
        return self.text


AttributeValue = str | int | bool | Version


@value
class Attribute(Value):
    """A typed fact about a device, under the name that DRA attributes use (lower camel case)."""

    name: str
    value: AttributeValue


@value
class Capacity(Value):
    """An amount that a device has: bytes for memory, a count for everything else."""

    name: str
    value: int


class NodeRole(StrEnum):
    """What a device node is for."""

    DEVICE = "device"
    """The device itself, such as /dev/nvidia0."""
    CAPABILITY = "capability"
    """The right to use one MIG instance, such as /dev/nvidia-caps/nvidia-cap12."""
    RENDER = "render"
    """Graphics nodes of the same function, such as /dev/dri/renderD128."""
    RDMA = "rdma"
    """The function's RDMA device, such as /dev/infiniband/uverbs0, and what comes with it (rdma_cm)."""
    CONTROL = "control"
    """Shared by all devices of the vendor, such as /dev/nvidiactl."""
    AUXILIARY = "auxiliary"
    """Given only where an option asks for it, such as /dev/gdrdrv or an IMEX channel."""


@value
class DeviceNode(Value):
    """A device file by the path a container sees; ``major`` and ``minor`` are None when the host lacks it.

    ``on_host``: its path on the host where that is another one (/dev/vfio/noiommu-7 for /dev/vfio/7). ``by_numbers``:
    the host lacks the file, and the driver shows the numbers that it would have, so that a container can get it.
    """

    path: str
    role: NodeRole
    kind: str = "c"
    major: int | None = None
    minor: int | None = None
    on_host: str | None = None
    by_numbers: bool = False

    @property
    def present(self) -> bool:
        """Whether the file was found on the host."""
        return self.major is not None and not self.by_numbers


@value
class PartitionShape(Value):
    """A partition that can be made of a GPU: a MIG profile at one of its placements.

    ``profile`` as the driver names it (``1g.10gb+me``); ``profile_id``: the driver's id of the GPU instance profile.
    ``start``, ``size``: the memory slices of the GPU that it takes. ``capacity``: what the partition has, named as the
    capacity of an existing MIG device is.
    """

    profile: str
    profile_id: int
    start: int
    size: int
    capacity: tuple[Capacity, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Profile id and start: no two partitions of a GPU have both in common."""
        return self.profile_id, self.start


@value
class PeerLink(Value):
    """Direct links of a GPU that are up: how many to the GPU at ``peer`` (a PCI address), or to switches if None."""

    peer: str | None
    count: int


@quick
@value
class Device(Value):
    """One thing that can be given to a container.

    ``name``: kind, PCI address and MIG placement as a DNS label, stable across reboots (``gpu-0000-3b-00-0``).
    ``index``: the driver's own number (``0``, for a MIG device ``0:1``), None where it has none.
    ``parent``: name of the device that this one is a part of.
    ``nodes``: its device nodes and those it shares with its siblings.
    ``location``: its path below /sys/devices, the place in the PCIe tree; empty when unknown. ``direct``: that of its
    Data Direct function, the second face of a NIC, by which it reaches GPUs; empty where the NIC itself does that.
    ``links``: NVLink or XGMI, of whole GPUs.
    ``host_use``: what the node itself needs it for, in words (``carries the default route``); empty for nothing.
    ``partitions``: what can be made of a whole GPU, whether its MIG mode is on or not.
    """

    name: str
    kind: DeviceKind
    vendor: str
    uuid: str | None = None
    index: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    parent: str | None = None
    health: Health = field(default_factory=Health)
    attributes: tuple[Attribute, ...] = ()
    capacity: tuple[Capacity, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    location: str = ""
    direct: str = ""
    links: tuple[PeerLink, ...] = ()
    host_use: str = ""
    partitions: tuple[PartitionShape, ...] = ()

    def attribute(self, name: str) -> AttributeValue | None:
        """The value of an attribute, None when the device has none of that name."""
        for attribute in self.attributes:  # Not a generator: this is asked thousands of times for each view.
            if attribute.name == name:
                return attribute.value
        return None

    def text(self, name: str) -> str:
        """The value of a text attribute, empty when absent."""
        value = self.attribute(name)
        return value if isinstance(value, str) else ""

    def nodes_of(self, *roles: NodeRole) -> tuple[DeviceNode, ...]:
        """The device nodes that have one of these roles, in the device's order."""
        return tuple(node for node in self.nodes if node.role in roles)


GONE = "gone from "
"""How the reason begins for a device that is only shown because it was there not long ago."""


def is_gone(device: Device) -> bool:
    """Whether the device is only shown because it was there not long ago."""
    return not device.health.usable and device.health.reason.startswith(GONE)


class SourceState(StrEnum):
    """The result of a source's last read."""

    OK = "ok"
    WAITING = "waiting"
    """What it reads is not there yet (a driver not loaded): no error; it is read again with back-off."""
    FAILED = "failed"
    """What it reads does not answer as it should; earlier facts are kept."""


@value
class SourceStatus(Value):
    """The status of a source, with the reason in one sentence."""

    name: str
    state: SourceState
    detail: str = ""


@value
class Host(Value):
    """What responses to the kubelet need to know of the node besides its devices.

    ``cdi_devices``: qualified names that CDI specs of others define (``nvidia.com/gpu=GPU-...``). ``cdi_fault``: why
    our own CDI specs are not on disk, in words; empty when they are. ``rdma_exclusive``: an RDMA device works in the
    one network namespace that it is in (``rdma system`` says). ``mps_faults``: names of devices that MPS cannot share
    at the moment, with the reason. ``virtual_functions``: names of physical functions that lack the virtual ones that
    the configuration asks for, with what is to be said of them.
    """

    cdi_devices: frozenset[str] = frozenset()
    driver_files: DriverFiles | None = None
    cdi_fault: str = ""
    rdma_exclusive: bool = False
    mps_faults: tuple[tuple[str, str], ...] = ()
    virtual_functions: tuple[tuple[str, str], ...] = ()


@value
class Snapshot(Value):
    """All devices and facts of the node at one moment; ``generation`` grows by one with every change.

    ``former``: UUID and PCI address of GPUs that were replaced since the boot.
    """

    generation: int = 0
    devices: tuple[Device, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    host: Host = field(default_factory=Host)
    topology: Topology = field(default_factory=Topology)
    former: tuple[tuple[str, str], ...] = ()

    def device(self, name: str) -> Device | None:
        """The device of that name."""
        return next((device for device in self.devices if device.name == name), None)

    def find(self, device: str) -> Device:
        """The device of that name or UUID; raises ``UnknownDevice``."""
        found = self.device(device) or next((each for each in self.devices if each.uuid == device), None)
        if found is None:
            raise UnknownDevice(device)
        return found


@value
class SnapshotJudged(Value):
    """A new snapshot with verdicts in its devices' health is the newest one."""

    snapshot: Snapshot


class UnknownDevice(Exception):
    """No device of this node has that name or UUID."""

    def __init__(self, device: str) -> None:
        super().__init__(f"this node has no device {device!r}; 'ostler devices' lists those that it has")


def sorted_attributes(attributes: Iterable[tuple[str, AttributeValue | None]]) -> tuple[Attribute, ...]:
    """Attributes in order of their names, without those whose value is None or an empty text."""
    kept = ((name, value) for name, value in attributes if value is not None and value != "")
    return tuple(Attribute(name, value) for name, value in sorted(kept, key=itemgetter(0)))


def sorted_capacity(capacity: Iterable[tuple[str, int | None]]) -> tuple[Capacity, ...]:
    """Capacities in order of their names, without those that are unknown."""
    kept = ((name, value) for name, value in capacity if value is not None)
    return tuple(Capacity(name, value) for name, value in sorted(kept, key=itemgetter(0)))
