"""What preparing a claim comes to: decided whole and before anything is touched.

Pure: the same claim, devices and host give the same plan, so a repeated request can be compared with what was done. A
device's CDI name is ``<claim UID>-<device>``, with a share id behind a colon, which no device has in its name; no name
is ever used for something else.

A plan does not ask who has a device. The view that it is made from is a moment old in that, and whoever takes the
planned devices asks the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from driver.claims.edits import ClaimEdits, GivenDevice, claim_edits
from driver.claims.errors import ClaimError
from driver.claims.model import AllocatedDevice, Allocation
from driver.claims.record import ClaimRecord, RecordedDevice
from driver.devices.effect import TaintEffect
from driver.devices.offered import DoorView, DraDevice
from driver.devices.taints import taints
from driver.devices.view import OF_DOORS, without_holds
from driver.parameters.options import device_options
from kube.bodies import text_at
from node.ledger.ledger import Hold
from node.ledger.overlap import wholes_of
from node.offer import Cause
from node.rules import Door
from node.values import Value, value

_TOLERABLE = (Cause.HEALTH, Cause.LINK_DOWN)
"""Causes with which a device is there and works after a fashion; of the others there is nothing to give."""


@value
class Plan(Value):
    """The claim's devices with their CDI names, and the text of its CDI file (empty if it needs none)."""

    devices: tuple[RecordedDevice, ...]
    spec: str


def planned(
    allocation: Allocation, name: str, view: DoorView, *, driver: str, pool: str, had: Collection[str] = ()
) -> Plan:
    """The plan for a claim that its pod calls ``name``.

    ``had``: devices that the claim was given before: what they fell ill of since is no reason to answer otherwise.
    Raises ClaimError that names the device, or the field of its parameters, and the reason.
    """
    offered = [_offered(device, view, pool, had) for device in allocation.devices]
    options = device_options(allocation, view, driver)
    given = [
        GivenDevice(device.main_request, each.device, options[device.key])
        for device, each in zip(allocation.devices, offered, strict=True)
    ]
    edits = claim_edits(given, view.host, name)
    uid = allocation.claim.uid
    entries = _entry_names(uid, allocation.devices, edits)
    kind = f"{driver}/claim"
    devices = tuple(
        RecordedDevice(
            request=device.request,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            admin_access=device.admin_access,
            within=wholes_of(each.device),
            cdi_devices=(*edit.cdi_devices, f"{kind}={entry}") if entry else edit.cdi_devices,
        )
        for device, each, edit, entry in zip(allocation.devices, offered, edits, entries, strict=True)
    )
    return Plan(devices, _spec_text(kind, entries, edits))


def holds_of(record: ClaimRecord) -> tuple[Hold, ...]:
    """What the claim holds of the node."""
    return tuple(
        Hold(
            device.device,
            Door.DRA,
            str(record.claim),
            record.since,
            owner=record.claim.uid,
            share=device.share_id or "",
            admin=device.admin_access,
            within=device.within,
            pods=record.users,
        )
        for device in record.devices
    )


def device_of_entry(uid: str, entry: str) -> tuple[str, str] | None:
    """Device and share id (empty for none) behind the name of an entry in the claim's CDI file; None if it is none."""
    if not entry.startswith(f"{uid}-"):
        return None
    device, _, rest = entry[len(uid) + 1 :].partition(":")
    share = rest.partition(":")[0]
    return device, "" if share.isdecimal() else share


def _offered(device: AllocatedDevice, view: DoorView, pool: str, had: Collection[str]) -> DraDevice:
    place = f"request {device.request}: device {device.device}"
    if device.pool != pool:
        raise ClaimError(f"{place} is of pool {device.pool}, this node's pool is {pool}")
    offered = view.device_for(device.device, looking=device.admin_access)
    if offered is None:
        raise ClaimError(f"{place} is not offered on this node (any more): ask 'ostler slices' for what is")
    if offered.cause in OF_DOORS:
        # Of that the ledger knows more than the view. A rule that moves its devices to the plugin door is no reason
        # either: the claim was allocated before, and that door gives the device to nobody until no claim names it.
        offered = without_holds(offered, view.host)
    if offered.healthy:
        return offered
    if offered.cause in _TOLERABLE and (device.admin_access or device.device in had or _tolerated(device, offered)):
        return offered
    raise ClaimError(f"{place} may not be given out: {offered.reason}")


def _tolerated(device: AllocatedDevice, offered: DraDevice) -> bool:
    """Whether the claim puts up with what keeps the device from being given, whichever effect its taint has."""
    return all(
        any(
            toleration.covers(text_at(taint, "key"), text_at(taint, "value"), effect)
            for toleration in device.tolerations
            for effect in TaintEffect
        )
        for taint in taints(offered)
    )


def _entry_names(uid: str, devices: Sequence[AllocatedDevice], edits: Sequence[ClaimEdits]) -> list[str]:
    """The names of the entries in the CDI file, empty for a device that needs none.

    A claim can have one device twice, for use and for looking on; its entries are numbered then.
    """
    names: list[str] = []
    for device, edit in zip(devices, edits, strict=True):
        name = f"{uid}-{device.device}" + (f":{device.share_id}" if device.share_id else "")
        number = 1
        unique = name
        while unique in names:
            number += 1
            unique = f"{name}:{number}"
        names.append("" if edit.edits.empty else unique)
    return names


def _spec_text(kind: str, entries: Sequence[str], edits: Sequence[ClaimEdits]) -> str:
    from node.cdi.spec import CdiDevice, CdiError, Spec, encode  # Not at the start, where nothing is prepared yet.

    devices = tuple(CdiDevice(entry, edit.edits) for entry, edit in zip(entries, edits, strict=True) if entry)
    if not devices:
        return ""
    try:
        return encode(Spec(kind, devices)).decode()
    except CdiError as error:
        raise ClaimError(str(error)) from error
