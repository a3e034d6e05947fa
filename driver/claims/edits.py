"""Builds the edits that containers get from the devices of a claim.

Containers get everything through CDI; the list strategies of a rule concern the plugin door alone. The edits have two
invariants:

- A container that is given a request gets all devices of that request. What devices share (control nodes, the driver's
  files and hooks, IMEX channels) is therefore attached to the first NVIDIA device of every request, and a container of
  another request, such as one of NICs, gets none of it. A container of the whole claim gets it once per request, which
  is harmless: a path is mounted once, and hooks may run twice. They do not run once per GPU, because a container's
  start waits for each hook.
- A container can have several claims, and in CDI the last one sets a variable. So no variable has two meanings: the
  variable of one NIC is named after the device, that of all NICs of a request after claim and request. Variables with
  names that a GPU vendor has fixed name the devices of one request: a container with several such requests gets the
  last one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from driver.claims.model import Allocation, ClaimError
from driver.claims.sharing import daemon_name
from driver.devices.view import DraDevice
from driver.parameters.options import DeviceParameters
from driver.parameters.sharing import check_one_limit
from node.edits import nic, nvidia
from node.edits.allocation import spec_edits, unfit, vendor_environment
from node.edits.model import ContainerEdits
from node.edits.mps import client_limits, with_mps
from node.edits.nvidia import device_edits as nvidia_device_edits
from node.edits.nvidia import node_edits, shared_edits
from node.edits.options import CdiMode, EditOptions, by_cdi
from node.inventory.model import Device, DeviceNode, Host, NodeRole
from node.inventory.vendor import Family
from node.inventory.vendors import family_of
from node.sharing import Amounts, SharingStrategy
from node.values import Value, replace, value


@value
class GivenDevice(Value):
    """A device of a claim, the main request it is for, and the options for its edits."""

    request: str
    device: Device
    options: EditOptions


@value
class ClaimEdits(Value):
    """The edits that a container gets from one device of a claim.

    ``cdi_devices``: qualified names from the specs of others, which the kubelet gets unchanged. ``edits``: for this
    device's entry in the claim's own CDI spec; if they are empty, the spec must have no entry for it and the answer
    must not name one.
    """

    cdi_devices: tuple[str, ...] = ()
    edits: ContainerEdits = ContainerEdits()


def unfit_for_claim(device: Device, options: EditOptions, host: Host) -> str:
    """Why a container with this device would not start, or would lack what the options promise; empty if it is fit."""
    return unfit(device.uuid or device.name, device, by_cdi(options), host)


def claim_edits(given: Sequence[GivenDevice], host: Host, claim: str) -> tuple[ClaimEdits, ...]:
    """The edits of all our devices of a claim, one for each, in the order of the allocation.

    ``claim``: the pod's own name for the claim (annotation ``resource.kubernetes.io/pod-claim-name`` if it was made
    from a template), else the claim's name; it becomes part of the names of NIC variables. Raises ``ClaimError`` that
    names the request, the device and what it lacks.
    """
    for item in given:
        reason = unfit_for_claim(item.device, item.options, host)
        if reason:
            raise ClaimError(f"request {item.request!r}: device {item.device.name} cannot be prepared: {reason}")
    led = {item.request: item.device.name for item in reversed(given) if family_of(item.device) is Family.NVIDIA}
    return tuple(_edits(item, given, host, claim, first=led.get(item.request) == item.device.name) for item in given)


def with_mps_edits(
    allocation: Allocation,
    offered: Sequence[DraDevice],
    parameters: DeviceParameters,
    edits: Sequence[ClaimEdits],
    root: str,
) -> tuple[ClaimEdits, ...]:
    """The edits with what a client of MPS needs: for the claim's own daemon, or for the daemon of a share's resource.

    The limits of a share are variables of the container, which has one value of each. So a claim must have all such
    shares in one request, with the same amount of every device. Raises ClaimError otherwise.
    """
    shared: dict[str, list[tuple[str, Amounts]]] = {}
    for allocated, each in zip(allocation.devices, offered, strict=True):
        if allocated.share_id is not None and parameters.options[allocated.key].mps is not None:
            sharing, limited = each.rule.sharing, allocated.amounts
            if sharing is not None:
                limited = sharing.client_amounts(each.device, limited)
            shared.setdefault(allocated.main_request, []).append((each.device.name, limited))
    check_one_limit(shared)
    limits = {request: client_limits(shares) for request, shares in shared.items()}
    found = []
    for allocated, edit in zip(allocation.devices, edits, strict=True):
        wanted = parameters.sharing.get(allocated.key)
        if allocated.share_id is not None:
            mps = parameters.options[allocated.key].mps
            given = with_mps(edit.edits, mps, limits.get(allocated.main_request, ()))
        elif wanted is not None and wanted.strategy is SharingStrategy.MPS:
            given = with_mps(edit.edits, (root, daemon_name(allocation.claim.uid)))
        else:
            given = edit.edits
        found.append(replace(edit, edits=given))
    return tuple(found)


def guarded(allocation: Allocation, edits: Sequence[ClaimEdits], folder: Path, name: str) -> tuple[ClaimEdits, ...]:
    """The edits of a claim with interfaces that move, with the guard on the first device of each request.

    So every container with a part of the claim has it, also one that gets another request than the NIC's: it shares
    the pod's network. ``folder``: of the guards. ``name``: as for ``claim_edits``.
    """
    from driver.interfaces.guard import guard_mounts, guard_nodes  # Only claims whose interfaces move need it.

    mounts = guard_mounts(folder, allocation.claim.uid, name)
    nodes = guard_nodes(folder, allocation.claim.uid)
    first = {each.main_request: number for number, each in reversed(list(enumerate(allocation.devices)))}
    return tuple(
        replace(
            edit,
            edits=replace(edit.edits, nodes=(*edit.edits.nodes, *nodes), mounts=(*edit.edits.mounts, *mounts)),
        )
        if number in first.values()
        else edit
        for number, edit in enumerate(edits)
    )


def _edits(item: GivenDevice, given: Sequence[GivenDevice], host: Host, claim: str, *, first: bool) -> ClaimEdits:
    device, options = item.device, by_cdi(item.options)
    family = family_of(device)
    if family is Family.NVIDIA:
        return _nvidia(device, options, host, first=first)
    edits = spec_edits(device, options)
    together = [other for other in given if other.request == item.request and family_of(other.device) is family]
    if family is Family.NIC:
        return ClaimEdits(edits=replace(edits, env=_nic_variables(item, together, claim)))
    own = [other.device for other in together if other.device.vendor == device.vendor]
    return ClaimEdits(edits=replace(edits, env=vendor_environment(own)))


def _nvidia(device: Device, options: EditOptions, host: Host, *, first: bool) -> ClaimEdits:
    if options.cdi_mode is CdiMode.DELEGATE:
        return ClaimEdits(nvidia.cdi_names([(device.uuid or device.name, device)], options))
    own = nvidia_device_edits(device, options)
    if not first:
        return ClaimEdits(edits=own)
    shared = shared_edits([device], options, host.driver_files)
    auxiliary = node_edits(_auxiliary(device, options), options)
    return ClaimEdits(
        edits=ContainerEdits(
            env=(*shared.env, *own.env, *((f"NVIDIA_{feature.upper()}", "enabled") for feature in options.features)),
            nodes=(*shared.nodes, *own.nodes, *auxiliary.nodes),
            mounts=(*shared.mounts, *own.mounts),
            hooks=(*shared.hooks, *own.hooks),
        )
    )


def _auxiliary(device: Device, options: EditOptions) -> Iterable[DeviceNode]:
    """Device nodes for the options' features and IMEX channels that exist on the host."""
    for feature in options.features:
        yield from nvidia.feature_nodes([device], feature)
    channels = {f"{nvidia.CHANNEL}{channel}" for channel in options.imex_channels}
    yield from (node for node in device.nodes_of(NodeRole.AUXILIARY) if node.present and node.path in channels)


def _nic_variables(item: GivenDevice, together: Sequence[GivenDevice], claim: str) -> tuple[tuple[str, str], ...]:
    """``PCIDEVICE_<DEVICE>`` for this NIC, ``PCIDEVICE_<CLAIM>__<REQUEST>`` for all of its request; each with _INFO."""
    alone = nic.environment(item.device.name, [(item.device, item.options)])
    # Two underscores: claim a-b with request c differs from claim a with request b-c.
    request = "__".join(part for part in (claim, item.request) if part)
    if not request:
        return alone
    return (*alone, *nic.environment(request, [(other.device, other.options) for other in together]))
