"""Devices as places: what topology and pictures need of them. Pure. Places are GPUs and the physical functions of NICs
that are present. Virtual functions and subfunctions are left out: there may be hundreds, and each is where its physical
function is; ``place_of`` makes the place of one on demand. MIG devices and compute partitions are where their GPU is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from operator import itemgetter

from node.inventory.model import NIC_KINDS, Device, DeviceKind, is_gone
from node.topology.model import Place

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_NUMBERS = re.compile(r"(\d+)")


def places_of(devices: Iterable[Device]) -> tuple[Place, ...]:
    """GPUs in the order of their labels, then NICs in that of theirs.

    GPUs are numbered as their driver does, those without a number after them by PCI address. NICs with an RDMA device
    come first, in the order of its name, as ``nvidia-smi topo`` has them, then the others by PCI address.
    """
    gpus: list[Device] = []
    nics: list[Device] = []
    for device in devices:
        if is_gone(device):
            continue
        if device.kind is DeviceKind.GPU:
            gpus.append(device)
        elif device.kind in NIC_KINDS and is_whole(device):
            nics.append(device)
    by_address = {gpu.pci_address: gpu.name for gpu in gpus if gpu.pci_address is not None}
    labelled = [*_labelled_gpus(gpus), *((f"NIC{number}", nic) for number, nic in enumerate(sorted(nics, key=_rank)))]
    return tuple(_place(device, label, by_address) for label, device in labelled)


def place_of(device: Device) -> Place:
    """The place of any device, without label and links: enough for its distance from others."""
    return _place(device, "", {})


def is_whole(device: Device) -> bool:
    """Whether the device is a function of its own and not a virtual or subfunction of another."""
    parts = ("vfIndex", "sfNumber")
    if any(device.attribute(name) is not None for name in parts):
        return False
    return device.text("sriovFunction") not in ("vf", "sf")


def _place(device: Device, label: str, names: dict[str, str]) -> Place:
    links: dict[str, int] = {}
    switches = 0
    for link in device.links:
        if link.peer is None:
            switches += link.count
        elif (peer := names.get(link.peer)) is not None and peer != device.name:
            links[peer] = links.get(peer, 0) + link.count
    return Place(
        name=device.name,
        label=label,
        gpu=device.kind is DeviceKind.GPU,
        # What a NIC has for a GPU takes the way of its Data Direct function.
        path=bridges_above(device.direct, None)
        if device.direct
        else bridges_above(device.location, device.pci_address),
        address=device.pci_address,
        numa_node=device.numa_node,
        links=tuple(sorted(links.items())),
        switch_links=switches,
    )


def bridges_above(location: str, address: str | None) -> tuple[str, ...]:
    """Host bridge and bridges above the device at ``location``, a path below /sys/devices; empty without host bridge.

    What stands before the host bridge (ACPI and VMBus nodes of a virtual machine) is left out, and so is what stands
    behind the PCI function (an auxiliary device).
    """
    parts = [part for part in location.split("/") if part]
    end = parts.index(address) if address is not None and address in parts else len(parts) - 1
    start = next((position for position, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), end)
    return tuple(parts[start:end])


def _labelled_gpus(gpus: list[Device]) -> Iterator[tuple[str, Device]]:
    numbered: dict[int, Device] = {}
    rest: list[Device] = []
    for gpu in sorted(gpus, key=lambda gpu: (gpu.pci_address or "", gpu.name)):
        number = int(gpu.index) if gpu.index is not None and gpu.index.isdecimal() else -1
        if number >= 0 and number not in numbered:
            numbered[number] = gpu
        else:
            rest.append(gpu)
    free = (number for number in count() if number not in numbered)
    everyone = [*numbered.items(), *((next(free), gpu) for gpu in rest)]
    for number, gpu in sorted(everyone, key=itemgetter(0)):
        yield f"GPU{number}", gpu


def _rank(nic: Device) -> tuple[bool, tuple[tuple[str, int], ...], str, str]:
    rdma = nic.text("rdmaDevice")
    return not rdma, _natural(rdma), nic.pci_address or "", nic.name


def _natural(text: str) -> tuple[tuple[str, int], ...]:
    """A key that puts ``mlx5_10`` after ``mlx5_9``."""
    words = _NUMBERS.split(text)
    return tuple((word, int(number)) for word, number in zip(words[::2], [*words[1::2], "-1"], strict=False) if text)
