"""Intel Gaudi, made by Habana Labs: accelerators of the kernel's class ``accel`` under habanalabs.

A card is its PCI function. The driver gives it two device nodes, ``/dev/accel/accelN`` to compute and
``/dev/accel/accel_controlDN`` to ask it, and where its network ports serve RDMA, a ``uverbs`` node. The management
library of Habana's own plugin is not needed: the driver shows in sysfs the state of a card and its module on the board.
It does not say the serial number, which that plugin makes ids of; here the id is the PCI address.

Pure, apart from reading sysfs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from node.health.state import Health, HealthState, Recovery
from node.inventory.device_nodes import DeviceFiles, function_attributes, unhealthy, without_driver
from node.inventory.facts import AcceleratorFacts, NodeFacts, PciFunction, SysfsFacts
from node.inventory.model import AttributeValue, Device, DeviceKind, DeviceNode, NodeRole, sorted_attributes
from node.inventory.pci import address_label, numa_node
from node.inventory.sysfs.pci_functions import accelerators
from node.inventory.vendor import DriverCheck, Environment, Vendor, VendorResource
from node.values import replace

_VENDOR = "habana"
_PCI_VENDOR = "0x1da3"
_DRIVER = "habanalabs"
_CLASS = "0x12"
"""Processing accelerators; other functions of the vendor are none of its cards."""
_PRODUCTS = {
    "0x1000": "Gaudi",
    "0x1001": "Gaudi",
    "0x1010": "Gaudi",
    "0x1011": "Gaudi",
    "0x1020": "Gaudi2",
    "0x1030": "Gaudi3",
    "0x1060": "Gaudi3",
    "0x1061": "Gaudi3",
    "0x1062": "Gaudi3",
    "0x1063": "Gaudi3",
}
_FILES = ("cpucp_ver", "module_id", "status")
_NUMBER = re.compile(r"[0-9]{1,9}")

_STATES = {
    "operational": Health(),
    "in device creation": Health(
        HealthState.DEGRADED, "its driver is still setting it up", recovery=Recovery.AUTOMATIC
    ),
    # It follows every program that used the card; one that opens it meanwhile waits for the end of the reset.
    "in reset after device release": Health(),
    "in reset": Health(HealthState.UNHEALTHY, "its driver is resetting it", recovery=Recovery.AUTOMATIC),
    "needs reset": Health(HealthState.UNHEALTHY, "it needs a reset", recovery=Recovery.RESET),
    "malfunction": Health(
        HealthState.UNHEALTHY, "it is out of order, and a reset by its driver did not help", recovery=Recovery.RESET
    ),
}
"""Health by the driver's name of the card's state."""


def habana_devices(facts: NodeFacts) -> list[Device]:
    """All Gaudi cards."""
    if facts.sysfs is None:
        return []
    sysfs, files = facts.sysfs, DeviceFiles(facts.sysfs)
    known = {each.address: each for each in sysfs.accelerators}
    devices = []
    for function in sorted(_cards(sysfs.pci), key=attrgetter("address")):
        own = known.get(function.address, AcceleratorFacts(function.address))
        paths = (*(f"/dev/accel/{name}" for name in own.nodes), *_verbs(sysfs, function))
        nodes = tuple(files.node(path, NodeRole.DEVICE) for path in paths)
        health = without_driver(function, (_DRIVER,)) or _health(own, files.health(nodes))
        devices.append(_device(function, own, nodes, health))
    return devices


def _cards(functions: Iterable[PciFunction]) -> list[PciFunction]:
    return [each for each in functions if each.vendor == _PCI_VENDOR and each.class_code.startswith(_CLASS)]


def _verbs(sysfs: SysfsFacts, function: PciFunction) -> list[str]:
    below = (device for device in sysfs.rdma if device.path.startswith(f"{function.path}/"))
    return [f"/dev/infiniband/{file.name}" for device in below for file in device.files if "uverbs" in file.name]


def _device(function: PciFunction, own: AcceleratorFacts, nodes: tuple[DeviceNode, ...], health: Health) -> Device:
    index = next((name.removeprefix("accel") for name in own.nodes if name.removeprefix("accel").isdigit()), None)
    return Device(
        name=f"gpu-{address_label(function.address)}",
        kind=DeviceKind.GPU,
        vendor=_VENDOR,
        index=index,
        pci_address=function.address,
        numa_node=numa_node(function),
        health=health,
        attributes=sorted_attributes(_attributes(function, own)),
        nodes=nodes,
        location=function.path,
    )


def _attributes(function: PciFunction, own: AcceleratorFacts) -> list[tuple[str, AttributeValue | None]]:
    module = own.text("module_id") or ""
    return [
        *function_attributes(function),
        ("productName", _PRODUCTS.get(function.device)),
        ("moduleID", int(module) if _NUMBER.fullmatch(module) else None),
        ("firmwareVersion", own.text("cpucp_ver")),
    ]


def _health(own: AcceleratorFacts, of_nodes: Health) -> Health:
    if not own.nodes:
        return unhealthy(f"{_DRIVER} shows no entry of it in /sys/class/accel; see 'dmesg' for {_DRIVER}")
    status = (own.text("status") or "operational").lower()
    state = _STATES.get(status)
    if state is None:
        reason = f"its driver reports the unknown status {status!r}"
        state = Health(HealthState.DEGRADED, reason, recovery=Recovery.AUTOMATIC)
    return state if of_nodes.usable or not state.usable else of_nodes


def _environment(devices: Sequence[Device]) -> Environment:
    """What Habana's runtime and libraries read: cards by number, by device node, and by their module on the board.

    Modules are left out where one is not known: a list that lacks a card would hide it.
    """
    indices = [device.index for device in devices if device.index is not None]
    modules = [device.attribute("moduleID") for device in devices]
    variables = [
        ("HABANA_VISIBLE_DEVICES", ",".join(indices)),
        ("HL_VISIBLE_DEVICES", ",".join(f"/dev/accel/accel{index}" for index in indices)),
    ]
    if None not in modules:
        variables.append(("HABANA_VISIBLE_MODULES", ",".join(str(module) for module in modules)))
    return tuple(variables)


def _read_sysfs(sysfs: SysfsFacts, sys: str, _: str, errors: list[str]) -> SysfsFacts:
    driven = [function for function in _cards(sysfs.pci) if function.driver == _DRIVER]
    return replace(sysfs, accelerators=(*sysfs.accelerators, *accelerators(sys, driven, _FILES, errors)))


def _without_absent(sysfs: SysfsFacts, addresses: frozenset[str]) -> SysfsFacts:
    return replace(sysfs, accelerators=tuple(each for each in sysfs.accelerators if each.address in addresses))


HABANA = Vendor(
    name=_VENDOR,
    title="Intel Gaudi",
    pci_vendor=_PCI_VENDOR,
    drivers=(_DRIVER,),
    devices=lambda facts, _: habana_devices(facts),
    resources=(VendorResource("habana.ai/gaudi"),),
    dra_driver="gaudi.intel.com",
    cdi_class="gaudi",
    environment=_environment,
    read_sysfs=_read_sysfs,
    without_absent=_without_absent,
    device_files=(("dev/accel", "accel(?:_controlD)?[0-9]+"),),
    modules="habanalabs.*",
    subsystems=("accel",),
    class_folders=("class/accel",),
    watched_files=("status",),
    check=DriverCheck(node="accel", node_name="entry in /sys/class/accel"),
)
