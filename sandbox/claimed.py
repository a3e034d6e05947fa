"""Which devices of a recorded node the sandbox gives to claims: the later half of its GPUs and of its NICs. Pure.

Half, so that both doors have something to show; the later ones, so that what people type first (GPU 0) is at the door
they know. What shares hardware stays together, as the agent demands: GPUs that are or may be cut into MIG devices are
all at the plugin door, AMD's partitions are where their GPU is, virtual functions where their card is. NICs that the
node itself uses are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from node.inventory.devices import devices_of
from node.inventory.facts import NodeFacts
from node.inventory.identity import Identities
from node.inventory.model import NIC_KINDS, Device, DeviceKind


@dataclass(frozen=True, slots=True)
class Division:
    """PCI addresses: those ``claimed``, through DRA, and the ``others``, through the plugin door."""

    claimed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """How a node's devices are divided.

    ``nics``: by their own addresses; ``cards``: by the physical functions' in place of it, on a node with virtual ones.
    """

    nvidia: Division = Division()
    amd: Division = Division()
    nics: Division = Division()
    cards: Division = Division()


def shares(facts: NodeFacts) -> Shares:
    """Divide; of a sort that there is one of, nothing is claimed."""
    devices = devices_of(facts, Identities())
    gpus = [device for device in devices if device.kind is DeviceKind.GPU]
    cut = {device.parent for device in devices if device.kind is DeviceKind.MIG}
    nvidia = [device for device in gpus if device.vendor == "nvidia"]
    whole = [device for device in nvidia if device.attribute("migEnabled") is not True and device.name not in cut]
    amd = [device for device in gpus if device.vendor == "amd"]
    nics = [device for device in devices if device.kind in NIC_KINDS]
    free = [device for device in nics if _is_physical(device) and not device.host_use]
    parents = {device.text("pfPciAddress") for device in nics if not _is_physical(device)}
    by_card = Division()
    if parents:
        by_card = _divided(_addresses(device for device in free if device.pci_address in parents), _addresses(free))
    return Shares(
        nvidia=_divided(_addresses(whole), _addresses(nvidia)),
        amd=_divided(_addresses(amd), _addresses(amd)),
        nics=Division() if parents else _divided(_addresses(free), _addresses(free)),
        cards=by_card,
    )


def _is_physical(device: Device) -> bool:
    return device.text("sriovFunction") not in ("vf", "sf")


def _addresses(devices: Iterable[Device]) -> list[str]:
    return sorted({device.pci_address for device in devices if device.pci_address})


def _divided(whole: list[str], every: list[str]) -> Division:
    """The later half of ``whole`` is claimed, and of ``every`` one that is not is another."""
    claimed = whole[len(whole) - len(whole) // 2 :]
    if not claimed:
        return Division()
    return Division(tuple(claimed), tuple(each for each in every if each not in claimed))
