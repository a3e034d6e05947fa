"""Snapshots as messages of the agent's own service: devices with their offers, sources, and topology (both ways).

The command line uses them as well, for a node that it scans itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from node.inventory.model import Device, DeviceKind, Snapshot, SourceStatus, Version, is_gone
from node.ledger.holds import HoldState, slices_of
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Cause, Offer, OfferedDevice, ResourceOffer
from node.partitions import partition_name
from node.rules import Door, Doors, Rule
from node.sharing import Amounts, room_for
from node.topology.model import Cell, CellLevel, Place, Topology
from protos.agent.v1alpha1 import agent_pb2


def devices_message(
    snapshot: Snapshot,
    offer: Offer,
    second: Offer = Offer(),  # noqa: B008 - frozen
    context: OfferContext = NOTHING_HELD,
    places: Mapping[str, agent_pb2.PodInterface] = MappingProxyType({}),
) -> agent_pb2.ListDevicesResponse:
    """Every device of the snapshot with the offers of both doors; ``places``: of interfaces in pods, by device."""
    message = agent_pb2.ListDevicesResponse(
        generation=snapshot.generation, sources=[source_message(source) for source in snapshot.sources]
    )
    plugin, claims = _shown(offer), _shown(second)
    # An existing instance is offered to claims as the partition that it is, under another name.
    parts = {item.device.uuid: (resource, item) for resource, item in claims.values() if item.device.uuid}
    divided = {item.device.name for resource, item in claims.values() if resource.rule.partitions}
    withheld = {item.device.name: item.reason for item in offer.withheld}
    # The other door's offer has the reason for a rule of that door.
    apart = {item.device.name: item.reason for item in second.withheld if item.cause is not Cause.OTHER_DOOR}
    replicas: dict[str, list[str]] = {}
    for item in (item for resource in offer.resources for item in resource.devices):
        if item.share and item.healthy:
            replicas.setdefault(item.device.name, []).append(item.id)
    for device in snapshot.devices:
        entry = _device_message(device)
        if device.name in places:
            entry.interface.CopyFrom(places[device.name])
        at_plugin, at_claims = plugin.get(device.name), claims.get(device.name) or parts.get(device.uuid or "")
        _divide(entry, device, snapshot, context, offered=device.name in divided)
        shown = at_claims if at_plugin is None or not at_plugin[0].rule.door.has(Door.PLUGIN) else at_plugin
        # A device that moves is still listed, even if its rule no longer wants it.
        shown = shown or at_plugin
        if shown is None:
            entry.offer_reason = apart.get(device.name, "") or withheld.get(device.name, "")
        else:
            resource, item = shown
            entry.door, entry.resource = resource.rule.door.value, resource.resource
            entry.offered_id = item.device_id if resource.rule.door.has(Door.PLUGIN) else device.name
            entry.offered_as, entry.offer_reason = _word(item), item.reason
            shared = shared_device(device, resource.rule, context)
            if shared is not None:
                entry.shares, entry.shares_free = shared.shares, shared.free
                entry.healthy_ids.extend(replicas.get(device.name, ()))
            if resource.rule.door is Doors.BOTH:
                entry.claims_as = "" if at_claims is None else _word(at_claims[1])
                entry.claims_reason = apart.get(device.name, "") if at_claims is None else at_claims[1].reason
        message.devices.append(entry)
    return message


def _divide(entry: agent_pb2.Device, gpu: Device, snapshot: Snapshot, context: OfferContext, *, offered: bool) -> None:
    """For a GPU allocated in parts, list by first memory slice the parts that exist or are held."""
    instances = [each for each in snapshot.devices if each.parent == gpu.name and not is_gone(each)]
    if gpu.kind is not DeviceKind.GPU or not gpu.partitions or not (offered or instances):
        return
    taken: dict[tuple[int, int], agent_pb2.GpuPartition] = {}
    for each in instances:
        if (slices := slices_of(each)) is not None:
            start, size = slices
            profile = each.text("profile")
            taken[slices] = agent_pb2.GpuPartition(start=start, size=size, profile=profile, device=each.name)
    profiles = {partition_name(gpu.name, shape): shape.profile for shape in gpu.partitions}
    for hold in context.holds.get(gpu.name, ()):
        if hold.slices is not None and not hold.admin and hold.state is not HoldState.PENDING_RELEASE:
            start, size = hold.slices
            part = taken.setdefault(hold.slices, agent_pb2.GpuPartition(start=start, size=size))
            part.profile = part.profile or profiles.get(hold.device, "")
            part.device, part.holder = hold.device, hold.holder
    entry.memory_slices = max(shape.start + shape.size for shape in gpu.partitions)
    entry.partitions.extend(part for _, part in sorted(taken.items()))


def shared_device(device: Device, rule: Rule, context: OfferContext) -> agent_pb2.SharedDevice | None:
    """How the rule shares the device and what is left of it; None for a device that is not shared."""
    shared = rule.shared(device)
    if shared is None:
        return None
    left = context.left(device, shared.whole)
    own = context.own(device.name)
    return agent_pb2.SharedDevice(
        device=device.name,
        resource=shared.resource,
        shares=shared.replicas,
        held=sum(bool(hold.share) and hold.state is not HoldState.PENDING_RELEASE for hold in own),
        free=room_for(shared.amounts, left) if device.health.usable else 0,
        whole=amounts_message(shared.whole),
        left=amounts_message(tuple(left.items())),
    )


def amounts_message(amounts: Amounts) -> list[agent_pb2.Capacity]:
    """The amounts of a share or a whole device."""
    return [agent_pb2.Capacity(name=name, value=amount) for name, amount in amounts]


def _shown(offer: Offer) -> dict[str, tuple[ResourceOffer, OfferedDevice]]:
    return {item.device.name: (resource, item) for resource in offer.resources for item in resource.distinct}


def _word(item: OfferedDevice) -> str:
    return "Healthy" if item.healthy else "Unhealthy"


def _device_message(device: Device) -> agent_pb2.Device:
    message = agent_pb2.Device(
        name=device.name,
        kind=device.kind.value,
        vendor=device.vendor,
        uuid=device.uuid or "",
        pci_address=device.pci_address or "",
        numa_node=device.numa_node,
        parent=device.parent or "",
        host_use=device.host_use,
        location=device.location,
        health=agent_pb2.Health(
            state=device.health.state.value,
            reason=device.health.reason,
            since=device.health.since,
            recovery=device.health.recovery.value,
        ),
        capacity=[agent_pb2.Capacity(name=item.name, value=item.value) for item in device.capacity],
        nodes=[
            agent_pb2.DeviceNode(
                path=node.path, kind=node.kind, major=node.major or 0, minor=node.minor or 0, role=node.role.value
            )
            for node in device.nodes
        ],
    )
    for attribute in device.attributes:
        entry = message.attributes.add(name=attribute.name)
        match attribute.value:
            case bool(value):
                entry.bool_value = value
            case int(value):
                entry.int_value = value
            case Version(text=text):
                entry.version_value = text
            case str(value):
                entry.string_value = value
    return message


def source_message(source: SourceStatus) -> agent_pb2.SourceStatus:
    """The state of a source."""
    return agent_pb2.SourceStatus(name=source.name, state=source.state.value, detail=source.detail)


def topology_message(snapshot: Snapshot) -> agent_pb2.GetTopologyResponse:
    """The snapshot's topology as a message."""
    topology = snapshot.topology
    devices = {device.name: device for device in snapshot.devices}
    return agent_pb2.GetTopologyResponse(
        generation=snapshot.generation,
        places=[_place_message(place, devices) for place in topology.places],
        root=None if topology.root is None else _cell_message(topology.root),
        overridden=topology.overridden,
    )


def topology_from(message: agent_pb2.GetTopologyResponse) -> Topology:
    """The topology in a message; raises ``ValueError`` for a level of cells that this version lacks."""
    root = _cell(message.root) if message.HasField("root") else None
    return Topology(tuple(_place(place) for place in message.places), root, tuple(message.overridden))


def _place_message(place: Place, devices: Mapping[str, Device]) -> agent_pb2.Place:
    device = devices.get(place.name)
    return agent_pb2.Place(
        name=place.name,
        label=place.label,
        gpu=place.gpu,
        path=place.path,
        pci_address=place.address or "",
        numa_node=place.numa_node,
        links=[agent_pb2.PeerLinks(peer=peer, count=count) for peer, count in place.links],
        switch_links=place.switch_links,
        product="" if device is None else _product(device),
    )


def _product(device: Device) -> str:
    if device.kind is DeviceKind.GPU:
        return device.text("productName")
    return device.text("ifName") or device.text("rdmaDevice")


def _place(message: agent_pb2.Place) -> Place:
    return Place(
        name=message.name,
        label=message.label,
        gpu=message.gpu,
        path=tuple(message.path),
        address=message.pci_address or None,
        numa_node=message.numa_node if message.HasField("numa_node") else None,
        links=tuple((link.peer, link.count) for link in message.links),
        switch_links=message.switch_links,
    )


def _cell_message(cell: Cell) -> agent_pb2.Cell:
    children = [_cell_message(child) for child in cell.children]
    return agent_pb2.Cell(name=cell.name, level=cell.level.value, gpus=cell.gpus, children=children, nics=cell.nics)


def _cell(message: agent_pb2.Cell) -> Cell:
    return Cell(
        name=message.name,
        level=CellLevel(message.level),
        gpus=tuple(message.gpus),
        children=tuple(_cell(child) for child in message.children),
        nics=tuple(message.nics),
    )
