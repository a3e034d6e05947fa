"""The agent's own service on its root-only Unix socket: what the command line and grpcurl talk to.

Everything that changes something is here. The service holds no state: it asks the agent through the small Protocol
``AgentView`` and turns values into messages.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio

from node.clocks import SELDOM, until_tick
from node.endpoint import Endpoint
from node.events import Event, EventType
from node.inventory.model import Device, Snapshot, SourceStatus, Version
from node.offer import Cause, Offer, OfferedDevice, ResourceOffer
from node.rules import Door, Doors
from node.sockets import SocketError, make_private_directory
from ostler.admin.device_calls import DeviceCalls, DeviceViews, refuse
from ostler.admin.health_messages import health_status_message
from ostler.admin.holds_messages import holds_status_message
from ostler.admin.status import AgentStatus
from ostler.agent.eventlog import EventLog
from ostler.errors import DriverNotFree, ReloadFailed, ResumeFailed
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:
    # At run time only a node with a DRA door loads it.
    from ostler.admin.dra import DraView

log = logging.getLogger("ostler.agent")

Context = grpc.aio.ServicerContext[object, object]
NO_DRA = "no resource is offered through DRA; give one 'door: dra' in the configuration, then 'ostler reload'"
SERVICE = agent_pb2.DESCRIPTOR.services_by_name["Agent"].full_name


class AgentView(DeviceViews, Protocol):
    """What the service needs of the agent."""

    def status(self) -> AgentStatus:
        """How the agent is."""
        ...

    def devices(self) -> tuple[Snapshot, Offer]:
        """The newest snapshot and what the plugin door makes of it."""
        ...

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        """Scan now; the generation afterwards and what changed, one line a device."""
        ...

    async def reload(self) -> tuple[str, ...]:
        """Read the configuration again; what changed. Raises ``ReloadFailed``."""
        ...

    async def quiesce(self, reason: str) -> tuple[int, tuple[str, ...]]:
        """Let go of the driver; the generation afterwards and what changed. Raises ``DriverNotFree``."""
        ...

    async def resume(self) -> tuple[int, tuple[str, ...]]:
        """Use the driver again; the generation afterwards and what changed. Raises ``ResumeFailed``."""
        ...

    def dra(self) -> DraView | None:
        """The second door; None where no resource is offered through it."""
        ...


class AgentServicer(DeviceCalls):
    """Answers for ``view``."""

    def __init__(self, view: AgentView) -> None:
        super().__init__(view)
        self._view = view

    async def GetStatus(  # noqa: N802  # the method names are gRPC's
        self, request: agent_pb2.GetStatusRequest, context: Context
    ) -> agent_pb2.GetStatusResponse:
        """How the agent is and what it serves."""
        return status_message(self._view.status())

    async def ListDevices(  # noqa: N802
        self, request: agent_pb2.ListDevicesRequest, context: Context
    ) -> agent_pb2.ListDevicesResponse:
        """Every device and where it is offered."""
        second = self._view.dra()
        return devices_message(*self._view.devices(), Offer() if second is None else second.offer)

    async def Rescan(  # noqa: N802
        self, request: agent_pb2.RescanRequest, context: Context
    ) -> agent_pb2.RescanResponse:
        """Scan now and answer when the result is published."""
        generation, changes = await self._view.rescan()
        return agent_pb2.RescanResponse(generation=generation, changes=changes)

    async def Reload(  # noqa: N802
        self, request: agent_pb2.ReloadRequest, context: Context
    ) -> agent_pb2.ReloadResponse:
        """Read the configuration again; FAILED_PRECONDITION with every problem when it is not usable."""
        try:
            changes = await self._view.reload()
        except ReloadFailed as error:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return agent_pb2.ReloadResponse(changes=changes)

    async def GetTopology(  # noqa: N802
        self, request: agent_pb2.GetTopologyRequest, context: Context
    ) -> agent_pb2.GetTopologyResponse:
        """Where the devices are."""
        # Here and not above: few ask, and it is no part of the start.
        from ostler.admin.topology_message import topology_message

        snapshot, _ = self._view.devices()
        return topology_message(snapshot)

    async def Quiesce(  # noqa: N802
        self, request: agent_pb2.QuiesceRequest, context: Context
    ) -> agent_pb2.QuiesceResponse:
        """Let go of the driver and answer when that is done; INTERNAL where it cannot be, and is left alone only."""
        try:
            generation, changes = await self._view.quiesce(request.reason or "no reason was given")
        except DriverNotFree as error:
            await refuse(context, grpc.StatusCode.INTERNAL, str(error))
        return agent_pb2.QuiesceResponse(generation=generation, changes=changes)

    async def Resume(  # noqa: N802
        self, request: agent_pb2.ResumeRequest, context: Context
    ) -> agent_pb2.ResumeResponse:
        """Use the driver again and answer when the next scan is published."""
        try:
            generation, changes = await self._view.resume()
        except ResumeFailed as error:
            await refuse(context, grpc.StatusCode.INTERNAL, str(error))
        return agent_pb2.ResumeResponse(generation=generation, changes=changes)

    async def ListSlices(  # noqa: N802
        self, request: agent_pb2.ListSlicesRequest, context: Context
    ) -> agent_pb2.ListSlicesResponse:
        """What is published; FAILED_PRECONDITION without the second door."""
        return (await self._second_door(context)).slices()

    async def ListClaims(  # noqa: N802
        self, request: agent_pb2.ListClaimsRequest, context: Context
    ) -> agent_pb2.ListClaimsResponse:
        """What is prepared; FAILED_PRECONDITION without the second door."""
        return (await self._second_door(context)).claims()

    async def _second_door(self, context: Context) -> DraView:
        return self._view.dra() or await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, NO_DRA)


def admin_endpoint(path: Path, view: AgentView) -> Endpoint:
    """The service at ``path``, whose folder is made; raises ``SocketError``."""
    make_private_directory(path.parent)
    return Endpoint(
        path.parent,
        path.name,
        [SERVICE],
        lambda server: agent_pb2_grpc.add_AgentServicer_to_server(AgentServicer(view), server),
    )


async def serve_admin(path: Path, view: AgentView, events: EventLog) -> None:
    """Keep the agent's own socket served at ``path`` until cancelled; where that fails, ``events`` tells of it."""
    endpoint: Endpoint | None = None
    try:
        while True:
            if endpoint is None or not endpoint.intact:
                endpoint = await _replaced(endpoint, path, view, events)
            await asyncio.sleep(until_tick(SELDOM, asyncio.get_running_loop().time()))
    finally:
        if endpoint is not None:
            await endpoint.stop()


async def _replaced(old: Endpoint | None, path: Path, view: AgentView, events: EventLog) -> Endpoint | None:
    """The agent's own socket served anew; where that fails, people are told and the kubelet is served on."""
    if old is not None:
        log.warning("the agent's socket is gone or replaced, serving anew", extra={"path": str(old.path)})
        await old.stop()
    try:
        endpoint = admin_endpoint(path, view)
        await endpoint.start()
    except SocketError as error:
        if not any(str(error) in event.message for event in events.recent):
            events.emit(EventType.WARNING, "SocketFailed", f"the agent's own socket: {error}")
        return None
    return endpoint


def status_message(status: AgentStatus) -> agent_pb2.GetStatusResponse:
    """The message that says the same as ``status``."""
    message = agent_pb2.GetStatusResponse(
        version=status.version,
        node_name=status.node_name,
        pid=status.pid,
        role=status.role,
        ready=status.ready,
        reasons=status.reasons,
        snapshot_generation=status.generation,
        quiesced=status.quiesced,
        sources=[_source_message(source) for source in status.sources],
        events=[_event_message(event) for event in status.events],
    )
    for resource in status.resources:
        registration = resource.registration
        message.resources.add(
            name=resource.name,
            devices=resource.devices,
            healthy=resource.healthy,
            registration=registration.state.value,
            path=registration.path.value,
            socket=str(registration.socket or ""),
            open_streams=resource.streams,
            detail=resource.problem or registration.detail,
        )
    if status.dra is not None:
        message.dra.CopyFrom(status.dra)
    if status.holds is not None:
        message.holds.CopyFrom(holds_status_message(status.holds))
    if status.health is not None:
        message.health.CopyFrom(health_status_message(status.health))
    return message


def devices_message(snapshot: Snapshot, offer: Offer, second: Offer = Offer()) -> agent_pb2.ListDevicesResponse:  # noqa: B008 - frozen
    """Every device of the snapshot with what the doors' offers say of it: the plugin door's, and the DRA door's."""
    message = agent_pb2.ListDevicesResponse(
        generation=snapshot.generation, sources=[_source_message(source) for source in snapshot.sources]
    )
    plugin, claims = _shown(offer), _shown(second)
    withheld = {item.device.name: item.reason for item in offer.withheld}
    # What the other door's rule has to say is said by that door.
    apart = {item.device.name: item.reason for item in second.withheld if item.cause is not Cause.OTHER_DOOR}
    for device in snapshot.devices:
        entry = _device_message(device)
        at_plugin, at_claims = plugin.get(device.name), claims.get(device.name)
        shown = at_claims if at_plugin is None or not at_plugin[0].rule.door.has(Door.PLUGIN) else at_plugin
        # A device on its way is still listed where its rule does not want it any more.
        shown = shown or at_plugin
        if shown is None:
            entry.offer_reason = apart.get(device.name, "") or withheld.get(device.name, "")
        else:
            resource, item = shown
            entry.door, entry.resource = resource.rule.door.value, resource.resource
            entry.offered_id = item.id if resource.rule.door.has(Door.PLUGIN) else device.name
            entry.offered_as, entry.offer_reason = _word(item), item.reason
            if resource.rule.door is Doors.BOTH:
                entry.claims_as = "" if at_claims is None else _word(at_claims[1])
                entry.claims_reason = apart.get(device.name, "") if at_claims is None else at_claims[1].reason
        message.devices.append(entry)
    return message


def _shown(offer: Offer) -> dict[str, tuple[ResourceOffer, OfferedDevice]]:
    return {item.device.name: (resource, item) for resource in offer.resources for item in resource.devices}


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


def _source_message(source: SourceStatus) -> agent_pb2.SourceStatus:
    return agent_pb2.SourceStatus(name=source.name, state=source.state.value, detail=source.detail)


def _event_message(event: Event) -> agent_pb2.Event:
    return agent_pb2.Event(time=event.time, type=event.type.value, reason=event.reason, message=event.message)
