"""Plans the preparation of a claim: everything is decided before anything is changed.

Pure: the same claim, devices and host give the same plan, so that a repeated request can be compared with the first. A
device's CDI name is ``<claim UID>-<device>``, followed by a colon and the share id if there is one; device names
contain no colon. A CDI name is never reused.

A plan does not consider who has a device, because the view that it is made from is a moment old. The ledger decides
that when the planned devices are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driver.claims.edits import ClaimEdits, GivenDevice, claim_edits, guarded, with_mps_edits
from driver.claims.model import AllocatedDevice, Allocation, ClaimError
from driver.claims.nccl import with_nccl_edits
from driver.claims.partitions import PartitionWork
from driver.claims.record import RecordedDevice
from driver.claims.sharing import SharingWork, daemon_name
from driver.devices.shares import with_defaults
from driver.devices.view import OF_DOORS, DoorView, DraDevice, taints, without_holds
from driver.names import TaintEffect
from driver.parameters.options import DeviceKey, DeviceParameters, device_parameters
from driver.parameters.sharing import SharingParameters, check_one_daemon
from kube.bodies import text_at
from node.interfaces.model import MovableInterface
from node.inventory.model import Device
from node.inventory.nvidia.time_slices import TimeSlice
from node.ledger.holds import slices_of, wholes_of
from node.offer import Cause
from node.sharing import SharingStrategy, whole_amounts
from node.values import Value, replace, value

if TYPE_CHECKING:
    from node.mps.daemon import MpsResource

_TOLERABLE = (Cause.HEALTH, Cause.LINK_DOWN)
"""Causes that leave a device usable to some extent; with any other, there is nothing to give."""


@value
class ClaimPlan(Value):
    """The claim's devices with their CDI names, and the text of its CDI file (empty if it needs none).

    ``work``: changes to GPUs that must come first. They change the devices, so another plan follows, and this one has
    neither names nor text. ``sharing``: what must be set up on the devices before they are given.
    """

    devices: tuple[RecordedDevice, ...]
    spec: str
    work: PartitionWork = PartitionWork()
    sharing: SharingWork = SharingWork()


_NOTHING_MADE: Mapping[str, str] = {}


def planned(
    allocation: Allocation,
    name: str,
    view: DoorView,
    *,
    driver: str,
    pool: str,
    had: Collection[str] = (),
    made: Mapping[str, str] = _NOTHING_MADE,
    mps_root: str = "",
    guard_dir: Path = Path(),
) -> ClaimPlan:
    """The plan for a claim that its pod calls ``name``.

    ``made``: the partitions that were made for it, by device name, with their UUIDs; another instance in the place of
    one is not the claim's. ``mps_root``: the host folder of MPS. ``guard_dir``: of the guards. ``had``:
    devices that the claim was given before; a fault that they have had since then does not change the answer. Raises
    ClaimError that names the device, or the field of its parameters, and the reason.
    """
    offered = [_offered(device, view, pool, had) for device in allocation.devices]
    allocation = _with_amounts(allocation, offered)
    parameters = device_parameters(allocation, view, driver)
    options = parameters.options
    work = _work(allocation, offered, made)
    given = [
        GivenDevice(device.main_request, _standing_for(each, work), options[device.key])
        for device, each in zip(allocation.devices, offered, strict=True)
    ]
    edits = with_mps_edits(allocation, offered, parameters, claim_edits(given, view.host, name), mps_root)
    uid = allocation.claim.uid
    interfaces = _interfaces(allocation, offered, parameters)
    edits = with_nccl_edits(allocation, offered, parameters, interfaces, edits)
    if interfaces:
        edits = guarded(allocation, edits, guard_dir, name)
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
            amounts=device.amounts,
            whole=whole_amounts(each.device) if device.share_id is not None else (),
            slices=slices_of(each.device),
            partition=each.part.shape if each.part is not None and each.part.ours else None,
            interface=interfaces.get(device.key),
            cdi_devices=() if work else (*edit.cdi_devices, *((f"{kind}={entry}",) if entry else ())),
        )
        for device, each, edit, entry in zip(allocation.devices, offered, edits, entries, strict=True)
    )
    if work:
        return ClaimPlan(devices, "", work)
    sharing = _sharing(allocation, offered, parameters)
    return ClaimPlan(devices, _spec_text(kind, entries, edits), sharing=sharing)


def _with_amounts(allocation: Allocation, offered: Sequence[DraDevice]) -> Allocation:
    """The allocation, in which every share states how much it takes of each capacity of its device."""
    devices = tuple(
        allocated
        if allocated.share_id is None or each.rule.sharing is None
        else replace(allocated, amounts=with_defaults(allocated.amounts, each.device, each.rule.sharing))
        for allocated, each in zip(allocation.devices, offered, strict=True)
    )
    return allocation if devices == allocation.devices else replace(allocation, devices=devices)


def _sharing(allocation: Allocation, offered: Sequence[DraDevice], parameters: DeviceParameters) -> SharingWork:
    """The sharing that the claim's parameters and shares need; raises ClaimError if they contradict each other."""
    slices: dict[str, TimeSlice] = {}
    shares: dict[str, None] = {}
    by_mps: list[Device] = []
    sections: list[SharingParameters] = []
    for allocated, each in zip(allocation.devices, offered, strict=True):
        device, wanted = each.device, parameters.sharing.get(allocated.key)
        mps = parameters.options[allocated.key].mps
        if allocated.share_id is not None and mps is not None:
            shares[mps[1]] = None
        if wanted is None or wanted.is_served_by_every_gpu:
            continue
        if device.uuid is None:
            raise wanted.refused(f"the UUID of device {device.name} is not known", "leave sharing out")
        if wanted.strategy is SharingStrategy.TIME_SLICING:
            slices[device.uuid] = wanted.time_slice
            continue
        sections.append(wanted)
        by_mps.append(device)
    check_one_daemon(sections)
    daemon = _daemon(daemon_name(allocation.claim.uid), sections[0], by_mps) if sections else None
    return SharingWork(tuple(slices.items()), daemon, tuple(shares))


def _interfaces(
    allocation: Allocation, offered: Sequence[DraDevice], parameters: DeviceParameters
) -> Mapping[DeviceKey, MovableInterface]:
    """The interfaces that move into the claim's pod; raises ClaimError if it is for several pods."""
    found = {}
    for allocated, each in zip(allocation.devices, offered, strict=True):
        settings, device = parameters.interfaces.get(allocated.key), each.device
        if settings is None:
            continue
        if len(allocation.reserved_for) > 1:
            raise ClaimError(
                f"claim {allocation.claim} is reserved for {len(allocation.reserved_for)} pods, but the network "
                f"interface of device {device.name} moves into the network namespace of one; give each pod a claim of "
                "its own by a ResourceClaimTemplate"
            )
        virtual, index = device.text("sriovFunction") == "vf", device.attribute("vfIndex")
        found[allocated.key] = MovableInterface(
            device.name,
            device.text("ifName"),
            settings,
            device.pci_address or "",
            device.text("rdmaDevice"),
            device.text("pfName") if virtual else "",
            index if virtual and isinstance(index, int) else None,
        )
    return found


def _daemon(name: str, section: SharingParameters, devices: Sequence[Device]) -> MpsResource:
    from node.mps.daemon import MpsDevice, MpsResource  # Only claims with MPS need it.

    names = {device.uuid: device.name for device in devices if device.uuid is not None}
    served = tuple(MpsDevice(names[uuid], uuid, limit) for uuid, limit in section.limits(tuple(names)).items())
    return MpsResource(name, served, section.thread_percentage, section.multi_user)


def _work(allocation: Allocation, offered: Sequence[DraDevice], made: Mapping[str, str]) -> PartitionWork:
    """The partitions that must be made, and the GPUs that must leave MIG mode to be given whole."""
    make, leave = [], []
    for allocated, each in zip(allocation.devices, offered, strict=True):
        if each.part is not None and each.part.ours:
            is_made = each.device.uuid is not None and made.get(each.device.name) == each.device.uuid
            if allocated.admin_access and each.device.uuid is None:
                place = f"request {allocated.request}: device {allocated.device}"
                fix = "a partition is made for a claim without adminAccess"
                raise ClaimError(f"{place} does not exist yet, so there is nothing to monitor; {fix}")
            if not is_made and not allocated.admin_access:
                make.append((each.part.gpu, each.part.shape))
        elif each.must_leave_mig and not allocated.admin_access:
            leave.append(each.device)
    return PartitionWork(tuple(make), tuple(leave))


def _standing_for(offered: DraDevice, work: PartitionWork) -> Device:
    """The device that a plan is judged by; for a partition that is still to be made, its GPU."""
    if offered.part is not None and (offered.part.gpu, offered.part.shape) in work.make:
        return offered.part.gpu
    return offered.device


def device_of_entry(uid: str, entry: str) -> tuple[str, str] | None:
    """Device and share id (empty for none) of an entry in the claim's CDI file; None if the name is not an entry's."""
    if not entry.startswith(f"{uid}-"):
        return None
    device, _, rest = entry[len(uid) + 1 :].partition(":")
    share = rest.partition(":")[0]
    return device, "" if share.isdecimal() else share


def _offered(device: AllocatedDevice, view: DoorView, pool: str, had: Collection[str]) -> DraDevice:
    place = f"request {device.request}: device {device.device}"
    if device.pool != pool:
        raise ClaimError(f"{place} belongs to pool {device.pool}, but this node's pool is {pool}")
    offered = view.device_for(device.device, looking=device.admin_access)
    if offered is None:
        why = dict(view.unmovable).get(device.device)
        raise ClaimError(
            f"{place} is not offered on this node: {why}"
            if why
            else f"{place} is not offered on this node; 'ostler slices' lists what is"
        )
    if offered.cause in OF_DOORS:
        # The ledger knows better than the view who has it. A rule that moves its devices to the plugin door is no
        # reason to refuse either: the claim was allocated before, and that door waits until no claim names the device.
        offered = without_holds(offered, view.host)
    if offered.healthy:
        return offered
    if offered.cause in _TOLERABLE and (device.admin_access or device.device in had or _tolerated(device, offered)):
        return offered
    raise ClaimError(f"{place} cannot be allocated to a claim: {offered.reason}")


def _tolerated(device: AllocatedDevice, offered: DraDevice) -> bool:
    """Whether the claim tolerates the taints that keep the device from being given, whatever their effects."""
    return all(
        any(
            toleration.covers(text_at(taint, "key"), text_at(taint, "value"), effect)
            for toleration in device.tolerations
            for effect in TaintEffect
        )
        for taint in taints(offered)
    )


def _entry_names(uid: str, devices: Sequence[AllocatedDevice], edits: Sequence[ClaimEdits]) -> list[str]:
    """The names of the devices' entries in the CDI file, empty for a device that needs none.

    A claim can have one device twice, for use and for monitoring; its entries are then numbered.
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
    from node.cdi.spec import CdiDevice, CdiError, Spec, encode  # The start does not need it.

    devices = tuple(CdiDevice(entry, edit.edits) for entry, edit in zip(entries, edits, strict=True) if entry)
    if not devices:
        return ""
    try:
        return encode(Spec(kind, devices)).decode()
    except CdiError as error:
        raise ClaimError(str(error)) from error
