"""The node's devices, and the processes on them: four GPUs, two with MIG devices, a NIC with functions."""

from __future__ import annotations

import functools
from dataclasses import replace

from node.inventory.model import Capacity, Device, DeviceKind, Snapshot, sorted_attributes
from node.inventory.vendors import vendor_id
from node.ledger.holds import wholes_of
from node.ledger.processes import Process
from node.rules import Doors, Rule, Selector, rule_for
from node.sharing import Sharing, replica_of
from tests.making import offered_devices as making

MEMORY = (Capacity("memory", 40 << 30),)
WHOLE_GPUS = tuple(making.gpu(number, capacity=MEMORY) for number in range(4))
DIVIDED = tuple(making.gpu(number, mig=True) for number in (4, 5))
PARTS = tuple(making.mig(number, start) for number in (4, 5) for start in (0, 1))


def _nic(name: str, address: str, **facts: str | int | bool) -> Device:
    attributes = sorted_attributes([*facts.items()])
    return Device(name, DeviceKind.NIC, "mellanox", pci_address=address, attributes=attributes)


PORT = _nic("nic-0000-86-00-0", "0000:86:00.0", driver="mlx5_core", sriovFunction="pf")
FUNCTIONS = tuple(
    _nic(f"nic-0000-86-00-{n}", f"0000:86:00.{n}", driver="mlx5_core", sriovFunction="vf", pfPciAddress="0000:86:00.0")
    for n in (1, 2)
)
DEVICES = tuple(sorted((*WHOLE_GPUS, *DIVIDED, *PARTS, PORT, *FUNCTIONS), key=lambda device: device.name))
BY_NAME = {device.name: device for device in DEVICES}

RULES = (
    Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,), mig_enabled=False)),
    Rule("nvidia.com/divided", Selector(kinds=(DeviceKind.GPU,), mig_enabled=True)),
    Rule("nvidia.com/mig-{profile}", Selector(kinds=(DeviceKind.MIG,))),
    Rule("ostler.dev/port", Selector(names=(PORT.name,))),
    Rule("ostler.dev/function", Selector(kinds=(DeviceKind.NIC,))),
)
"""One for each kind of device, so that doors of wholes and of their parts differ."""
WANTED = ("nvidia.com/gpu", "nvidia.com/divided", "nvidia.com/mig-1g.5gb", "ostler.dev/port", "ostler.dev/function")
"""What pods ask for of each rule."""
SNAPSHOT = Snapshot(1, DEVICES)
NAMES = {vendor_id(device): device.name for device in DEVICES}
"""Of devices by the ids that the kubelet has of them."""
_KINDS = {device.name: RULES.index(rule) for device in DEVICES if (rule := rule_for(device, RULES)) is not None}


SHARED = Sharing(replicas=3)
"""How the whole GPUs are shared in worlds that share them."""
PERCENT = 33
"""Compute that a claim consumes of a shared GPU by default: one replica's part."""


@functools.cache
def rules_with(doors: tuple[Doors, ...], shared: bool = False) -> tuple[Rule, ...]:
    """The rules, each with its door."""
    rules = tuple(replace(rule, door=door) for rule, door in zip(RULES, doors, strict=True))
    return (replace(rules[0], sharing=SHARED), *rules[1:]) if shared else rules


def name_of(id_: str) -> str:
    """The device that the kubelet's id means, by its own or a replica's."""
    return NAMES[replica_of(id_)[0]]


def overlap(one: str, other: str) -> bool:
    """Whether two devices are one piece of hardware, in whole or in part."""
    return one == other or one in wholes_of(BY_NAME[other]) or other in wholes_of(BY_NAME[one])


def kind_of(device: str) -> int:
    """Which rule the device is of."""
    return _KINDS[device]


def number_of(kind: int) -> int:
    """How many devices there are of a rule."""
    return list(_KINDS.values()).count(kind)


class ModelProcesses:
    """What runs on devices by the driver's word; ``silent``: it gives no answer."""

    def __init__(self) -> None:
        self.left: dict[str, Process] = {}
        self.silent = False

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        if self.silent:
            raise OSError("NVML does not answer")
        return (self.left[device.name],) if device.name in self.left else ()
