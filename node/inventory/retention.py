"""Keeps the description of a device whose driver no longer reports it, and of one that is gone. Pure.

A GPU that is lost while the agent runs comes back from its driver without name, MIG devices or capacity; a NIC whose
driver is unbound has no interface. Pods may hold it or its parts, rules select by its former description, and the
kubelet forgets ids that are not in its list; so the previous snapshot's description stays, with the current health,
until the driver reports the device again.

A device that is gone (pulled out, virtual functions or MIG instances destroyed, taken by another driver) is kept, too,
unhealthy and with the reason, for an hour or until it is back. The kubelet counts a vanished id as healthy in the
status of the pod that holds it, and looks an id that vanishes during its allocation up without a check; an unhealthy id
appears in the pod's status and is allocated to nobody. After the hour no allocation of it is pending any more, and a
device that is gone for good should not count as capacity for ever. This module does not know which devices pods hold,
so it treats all alike; a restart of the agent ends it as well. A new instance in the same place is another device: the
former one is kept under a name of its own, because its id is different.

A device that left the bus differs from one that was taken down, because the former may cost pods that have it: a
vanished virtual function left the bus only if its physical function still counts it, or vanished as well. While
functions are being taken down they are missing and counted for a moment, so every scan decides this again.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.signal import Trouble
from node.health.state import Health, HealthState, Recovery
from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.model import GONE, NIC_KINDS, Device, DeviceKind, is_gone
from node.inventory.vendors import vendor_id
from node.values import replace

KEPT_SECONDS = 3600.0
"""How long a device that is gone is shown."""

_KEPT_AT_MOST = 1024
"""Most gone devices that are shown, the latest ones. A message to the kubelet has its limit (4 MiB)."""
_PARTS = (DeviceKind.MIG, DeviceKind.PARTITION)
_MOMENTARY = frozenset({"inPod", "linkUp", "operState", "rdmaPortState"})


def retained(
    devices: Iterable[Device], previous: Iterable[Device], sysfs: SysfsFacts | None, now: float
) -> tuple[Device, ...]:
    """``devices`` completed from ``previous``, sorted by name; ``now`` in Unix seconds, as in ``Health.since``."""
    found = {device.name: device for device in devices}
    before = {device.name: device for device in previous}
    untold = {
        name for name, device in found.items() if name in before and _untold(device) and not _untold(before[name])
    }
    for name in untold:
        found[name] = _described(found[name], before[name])
    kept: list[Device] = []
    for device in before.values():
        if device.parent in untold and device.name not in found:
            found[device.name] = replace(device, health=_fanned_out(found[device.parent]))
        elif device.name not in found:
            kept.append(device)
        elif _made_anew(device, found[device.name]):
            kept.append(replace(device, name=_former_name(device)))
    found.update(_departed(kept, found, sysfs, now))
    return tuple([found[name] for name in sorted(found)])


def _untold(device: Device) -> bool:
    if device.health.usable or is_gone(device):
        return False
    if device.kind in NIC_KINDS:
        return not device.text("driver")
    return device.parent is None and not device.text("productName")


def _described(device: Device, before: Device) -> Device:
    """The former description with the present health."""
    attributes = before.attributes
    if device.kind in NIC_KINDS:
        attributes = tuple([each for each in attributes if each.name not in _MOMENTARY])
    return replace(before, uuid=device.uuid or before.uuid, health=device.health, attributes=attributes)


def _fanned_out(parent: Device) -> Health:
    reason = f"its {parent.kind.value.upper()} {parent.name}: {parent.health.reason}"
    return replace(parent.health, reason=reason)


def _made_anew(before: Device, device: Device) -> bool:
    uuids = (before.uuid, device.uuid)
    return device.kind is DeviceKind.MIG and None not in uuids and before.uuid != device.uuid


def _former_name(device: Device) -> str:
    """The name with the start of its UUID: ``mig-0000-1b-00-0-0-1-was-1a2b3c4d``."""
    digits = "".join(
        each for each in (device.uuid or "").partition("-")[2].lower() if each.isascii() and each.isalnum()
    )
    return f"{device.name}-was-{digits[:8] or 'other'}"


def _departed(
    missing: Iterable[Device], found: dict[str, Device], sysfs: SysfsFacts | None, now: float
) -> dict[str, Device]:
    """The missing devices that are still shown, by name."""
    ids = {vendor_id(device) for device in found.values()}
    functions = {function.address: function for function in sysfs.pci} if sysfs is not None else {}
    kept: list[tuple[float, Device]] = []
    for device in missing:
        # Two devices may never have one id: the kubelet would count it as healthy and unhealthy at once.
        if device.name in found or vendor_id(device) in ids:
            continue
        if not is_gone(device) or (device.health.cause == Trouble.LOST and _taken_down(device, functions)):
            kept.append((now, replace(device, health=_gone(device, functions, sysfs))))
        elif abs(now - device.health.since) < KEPT_SECONDS:  # Also where the clock was set back.
            kept.append((device.health.since, device))
    kept.sort(key=lambda pair: (-pair[0], pair[1].name))
    return {device.name: device for _, device in kept[:_KEPT_AT_MOST]}


def _gone(device: Device, functions: dict[str, PciFunction], sysfs: SysfsFacts | None) -> Health:
    state, where, cause = HealthState.UNHEALTHY, "", ""
    function = functions.get(device.pci_address or "")
    if function is not None:
        where = _beside_its_function(device, function)
    elif device.pci_address is None or sysfs is None:
        where = "the driver's list of devices"
    else:
        # A virtual function has no folder any more; its physical function's count may be unreadable.
        asked = {device.pci_address, device.text("pfPciAddress") or device.pci_address}
        unread = next((line for line in sysfs.errors if not functions or any(each in line for each in asked)), None)
        if unread is not None:
            # Nothing proves that it is missing.
            state, where = HealthState.UNKNOWN, f"sight: {unread}"
        elif _taken_down(device, functions):
            where = "its physical function; the virtual function was taken down"
        else:
            where, cause = "the PCI bus; it was removed or does not answer", Trouble.LOST.value
    return Health(state, f"{GONE}{where}", recovery=Recovery.AUTOMATIC, cause=cause)


def _taken_down(device: Device, functions: dict[str, PciFunction]) -> bool:
    """Whether a function that vanished is a virtual one that its physical function does not count any more."""
    if device.text("sriovFunction") != "vf":
        return False
    whole, number = functions.get(device.text("pfPciAddress")), device.attribute("vfIndex")
    if whole is None:
        return False
    # Unknown does not mean gone: a device that evicts must be known to be gone.
    return whole.sriov_numvfs is None or not isinstance(number, int) or number >= whole.sriov_numvfs


def _beside_its_function(device: Device, function: PciFunction) -> str:
    """Says where a device is missing whose PCI function is still there."""
    if device.kind in _PARTS:
        return "its GPU; it was destroyed or created again"
    if device.attribute("sfNumber") is not None or device.text("auxDevice"):
        return "its function; the subfunction was removed"
    if device.kind in NIC_KINDS:
        return "its function, which no longer has such a port or RDMA device"
    driver = f"the driver {function.driver} has it now" if function.driver is not None else "no driver is bound to it"
    return f"the list of the driver that had it; {driver}"
