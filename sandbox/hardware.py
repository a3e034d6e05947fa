"""Recorded hardware that can break: a private copy of a recorded node in which GPUs and NICs fail and come back.

The fault is written where a real one would show, in the facts, so that the agent meets it through the same code as on
real hardware; and everywhere it would show: a physical function takes its virtual ones and their interfaces along. What
is gone from the bus is gone from every list; only NVML still lists a GPU that it has opened before, as lost. The copy
is replaced whole, because the agent may read it at any moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from node.files import write_whole
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.net_facts import RdmaDevice
from node.inventory.nvidia.vendor import NVIDIA
from node.inventory.pci import address_label, pci_address
from node.inventory.recordings.source import MAX_RECORDING, dump, read
from node.inventory.vendors import VENDORS
from node.opening import read_regular

_NETWORK = "0x02"
_DISPLAY, _ACCELERATOR = "0x03", "0x12"
_WITHOUT_NVML = frozenset(vendor.pci_vendor for vendor in VENDORS if vendor.source != "nvml")
_REPRESENTOR = re.compile(r"(?:c[0-9]+)?pf[0-9]+(?:vf|sf)[0-9]+")
LOST = "GPU_IS_LOST"
"""NVML's error for a GPU that fell off the bus."""


class NoSuchPart(LookupError):
    """No GPU or NIC of the recorded node has this name."""

    def __init__(self, wanted: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no GPU or NIC {wanted!r} on this node; known: {', '.join(known) or 'none'}")


class NotPossible(Exception):
    """This cannot happen to that part."""


@dataclass(frozen=True, slots=True)
class HardwarePart:
    """A GPU or NIC: its PCI address, what people call it, and the names that it is found by.

    ``port``: address of the function whose link it has, for a virtual function without an interface on the host.
    """

    address: str
    label: str
    gpu: bool
    names: frozenset[str]
    port: str | None = None

    def __str__(self) -> str:
        return f"{'GPU' if self.gpu else 'NIC'} {self.label}"


class RecordedHardware:
    """A copy of the recorded node ``original`` at ``copy``."""

    def __init__(self, original: Path, copy: Path) -> None:
        self._recording = read(original)
        self.path = copy
        self.parts = tuple(_parts(self._recording.facts))
        self._damages: dict[str, Damage] = {}
        self._errors: dict[str, str] = {}
        self._undamaged = read_regular(original, MAX_RECORDING, links=True)
        write_whole(copy, self._undamaged)

    @property
    def name(self) -> str:
        """Name of the recorded node."""
        return self._recording.name

    def find(self, wanted: str) -> HardwarePart:
        """The part with this PCI address or device name; a GPU also by index or UUID (its own or a MIG device's).

        A NIC also by the name of its interface or RDMA device. Raises NoSuchPart.
        """
        for part in self.parts:
            if wanted in part.names:
                return part
        raise NoSuchPart(wanted, tuple(part.label for part in self.parts))

    def breakable(self, names: Iterable[str]) -> HardwarePart | None:
        """The first of these devices that can fail: a GPU, or the port that one has its link from; None if none can."""
        for name in names:
            try:
                # A subfunction has its parent's name, and its link.
                part = self.find(name.partition("-sf")[0])
                return part if part.port is None else self.find(part.port)
            except NoSuchPart:
                continue
        return None

    def fail(self, part: HardwarePart | int, error: str = LOST) -> None:
        """Break it: every call about an NVIDIA GPU fails with ``error``, another GPU loses its driver, a NIC its link.

        An int is the GPU of that index. Raises NotPossible for a NIC without a link of its own.
        """
        broken = self._part(part)
        if broken.port is not None:
            raise NotPossible(f"{broken} has no link of its own; it goes down with its port {broken.port}")
        self._errors[broken.address] = error
        self._set(broken, Damage.LOST if broken.gpu else Damage.DOWN)

    def unplug(self, part: HardwarePart | int) -> None:
        """Take it off the bus, a NIC along with its virtual functions."""
        self._set(self._part(part), Damage.GONE)

    def take(self, part: HardwarePart) -> None:
        """Move a NIC's interface out of the host's network namespace, as a pod does. Raises NotPossible for GPUs."""
        if part.gpu:
            raise NotPossible(f"{part} has no interface that a pod could take")
        self._set(part, Damage.TAKEN)

    def heal(self, part: HardwarePart | int) -> None:
        """Whatever happened to it, it is as it was."""
        address = self._part(part).address
        self._damages.pop(address, None)
        self._errors.pop(address, None)
        self._write()

    def _part(self, part: HardwarePart | int) -> HardwarePart:
        return self.find(str(part)) if isinstance(part, int) else part

    def _set(self, part: HardwarePart, damage: Damage) -> None:
        self._damages[part.address] = damage
        self._write()

    def _write(self) -> None:
        if not self._damages:
            write_whole(self.path, self._undamaged)
            return
        recording = self._recording
        text = dump(
            damaged(recording.facts, self._damages, self._errors),
            name=recording.name,
            description=recording.description,
            recorded_at=recording.recorded_at,
        )
        write_whole(self.path, text.encode())


def _parts(facts: NodeFacts) -> Iterator[HardwarePart]:
    """GPUs first, then NICs, each in the order of its driver or address."""
    for gpu in facts.nvml.gpus if facts.nvml is not None else ():
        address = pci_address(gpu.bus_id) or ""
        migs = {mig.uuid for mig in gpu.mig_devices}
        yield _gpu(gpu.index, address, {gpu.uuid, *migs})
    functions = facts.sysfs.pci if facts.sysfs is not None else ()
    for index, function in enumerate(each for each in functions if _is_gpu(each)):
        yield _gpu(index, function.address, set())
    for function in functions:
        if function.class_code.startswith(_NETWORK):
            yield _nic(function, facts)


def _is_gpu(function: PciFunction) -> bool:
    return function.vendor in _WITHOUT_NVML and function.class_code.startswith((_DISPLAY, _ACCELERATOR))


def _gpu(index: int, address: str, more: set[str | None]) -> HardwarePart:
    names = {str(index), f"GPU{index}", address, f"gpu-{address_label(address)}", *more}
    return HardwarePart(address, str(index), True, frozenset(name for name in names if name))


def _nic(function: PciFunction, facts: NodeFacts) -> HardwarePart:
    assert facts.sysfs is not None
    own = [each for each in facts.sysfs.interfaces if each.path == f"{function.path}/net/{each.name}"]
    # A representor is beside its port's own interface and represents another function.
    ports = [each.name for each in own if not _REPRESENTOR.match(each.port_name or "")]
    rdma = [each.name for each in facts.sysfs.rdma if each.path == f"{function.path}/infiniband/{each.name}"]
    label = address_label(function.address)
    names = frozenset({function.address, f"nic-{label}", f"rdma-{label}", *ports, *rdma})
    port = function.physfn if not ports else None
    return HardwarePart(function.address, ports[0] if ports else function.address, False, names, port)


class Damage(StrEnum):
    """A fault of a GPU or a NIC."""

    LOST = "lost"
    """The driver cannot reach the GPU any more."""
    DOWN = "down"
    """The NIC has no link."""
    GONE = "gone"
    """It is not on the bus."""
    TAKEN = "taken"
    """The NIC's interface is in the network namespace of a pod."""


def damaged(facts: NodeFacts, damages: Mapping[str, Damage], errors: Mapping[str, str]) -> NodeFacts:
    """The facts with these functions broken, by PCI address; ``errors`` are NVML's for lost GPUs (else LOST)."""
    if not damages:
        return facts
    names: frozenset[str] = frozenset()
    sysfs = facts.sysfs
    if sysfs is not None:
        sysfs, names = _sysfs(sysfs, damages)
    network = facts.network
    if network is not None:
        network = replace(
            network,
            links=tuple(link for link in network.links if link.name not in names),
            addresses=tuple(each for each in network.addresses if each.interface not in names),
            default_routes=tuple(route for route in network.default_routes if route.interface not in names),
        )
    nvml = _nvml(facts.nvml, damages, errors) if facts.nvml is not None else None
    return replace(facts, nvml=nvml, sysfs=sysfs, network=network)


def _nvml(nvml: NvmlFacts, damages: Mapping[str, Damage], errors: Mapping[str, str]) -> NvmlFacts:
    gpus = []
    for gpu in nvml.gpus:
        address = pci_address(gpu.bus_id) or ""
        if damages.get(address) in (Damage.LOST, Damage.GONE):
            gpus.append(GpuFacts(gpu.index, error=errors.get(address, LOST), bus_id=gpu.bus_id))
        else:
            gpus.append(gpu)
    return replace(nvml, gpus=tuple(gpus))


def _sysfs(sysfs: SysfsFacts, damages: Mapping[str, Damage]) -> tuple[SysfsFacts, frozenset[str]]:
    """The changed section, and the names of the interfaces that the host does not have any more."""
    state: dict[str, Damage] = {}
    for function in sysfs.pci:
        found = damages.get(function.address) or (damages.get(function.physfn) if function.physfn else None)
        # A pod that has the interface of a physical function has not those of its virtual ones.
        if found is not None and (found is not Damage.TAKEN or function.address in damages):
            state[function.path] = found
    gone = {path for path, damage in state.items() if damage is Damage.GONE}
    absent = gone | {path for path, damage in state.items() if damage is Damage.TAKEN}
    down = {path for path, damage in state.items() if damage is Damage.DOWN}
    kept = tuple(each for each in sysfs.interfaces if not _below(each.path, absent))
    lost = frozenset(each.name for each in sysfs.interfaces) - frozenset(each.name for each in kept)
    functions = tuple(_function(each, state.get(each.path)) for each in sysfs.pci if each.path not in gone)
    addresses = frozenset(function.address for function in functions)
    changed = replace(
        sysfs,
        pci=functions,
        interfaces=tuple(
            replace(each, carrier=False, operstate="down", speed_mbps=None) if _below(each.path, down) else each
            for each in kept
        ),
        rdma=tuple(
            _without_port(each) if _below(each.path, down) else each
            for each in sysfs.rdma
            if not _below(each.path, gone)
        ),
        subfunctions=tuple(each for each in sysfs.subfunctions if not _below(each.path, gone)),
    )
    for vendor in VENDORS:
        changed = vendor.without_absent(changed, addresses)
    return changed, lost


def _below(path: str, functions: set[str]) -> bool:
    return any(path.startswith(f"{function}/") for function in functions)


def _function(function: PciFunction, damage: Damage | None) -> PciFunction:
    """A GPU of another vendor has no library that says it is lost: its driver lets go of it."""
    if damage is Damage.LOST and function.driver not in NVIDIA.drivers:
        return replace(function, driver=None, drm=())
    return function


def _without_port(device: RdmaDevice) -> RdmaDevice:
    ports = tuple(replace(port, state="1: DOWN", physical_state="2: Polling") for port in device.ports)
    return replace(device, ports=ports)
