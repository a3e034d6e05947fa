"""The DevicePlugin service of one resource: answers come from memory alone.

No call touches NVML, disk or network, none waits for another, and none keeps state except a memory of grants, which is
only a hint: the kubelet repeats Allocate for pods that it refused later, and reports to nobody when a pod ends.
Allocate waits in four cases (see ``Admission``), a few seconds at most: for the kubelet's record, if a pod seems to
have the device or nothing is known; for containers of an ended pod that had the device; for the kubelet's checkpoint,
if it is not yet known which pod got the latest devices; and just after the agent's start until it is known whether a
pod has a device that overlaps. For a share it also waits for the MPS daemon, half a minute at most.
GetPreferredAllocation waits just after the agent's start until it is known which shares pods have, and, if schedulers
record devices for pods, a second at most for the pod that it is about.

Faults become gRPC status codes in ``_call`` and nowhere else. An error refuses a pod for good, so only requests for
devices that cannot be allocated are refused.

An answer has the same content as the container's edits, field by field; it has no field for hooks, which need CDI.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from node.edits.allocation import container_edits, prepare
from node.edits.model import ContainerEdits
from node.edits.mps import client_limits, with_mps
from node.edits.options import ListStrategy
from node.ledger.holds import HeldError
from node.offer import OfferedDevice, ResourceOffer
from node.rules import Door, Rule
from node.sharing import Amounts, Sharing
from node.topology.model import Place
from plugin.admission import (
    Admission,
    AdmitAll,
    BadDevices,
    DevicePluginError,
    DeviceTaken,
    NoDeviceRequested,
    TooManyShares,
)
from plugin.gpu_nic_pairing import RecentGrants
from plugin.kubelet import SLOT_ENDS, grpc_go
from plugin.listing import DeviceListing
from plugin.observer import PluginObserver
from plugin.preferred import PlacementMap, Preference
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from plugin.records import Arrivals, RecordBook

log = logging.getLogger("ostler.plugin")

Context = grpc.aio.ServicerContext[object, object]
Answer = TypeVar("Answer")


def _user_agent(context: Context) -> str:
    return next((str(text) for name, text in context.invocation_metadata() or () if name == "user-agent"), "")


Render = Callable[[Sequence[OfferedDevice]], api_pb2.ContainerAllocateResponse]
"""Makes one container's answer of its devices, in the order of the request; pure."""
REMEMBERED = 32
"""Most answers of one resource at hand, a few KiB each."""
OPTIONS = api_pb2.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)
"""The options in Register and in GetDevicePluginOptions: old kubelets read the former, new ones the latter."""


class DevicePluginServicer(api_pb2_grpc.DevicePluginServicer):
    """Serves one resource: its ``listing``, ``render`` for what a container gets, ``recent`` shared with the others.

    ``admission`` has the last word: between it and the answer nothing waits. ``records``: the devices that a scheduler
    has recorded for pods; None if the agent follows no records.

    ``use`` is to be called whenever the listing's devices or the topology have changed.
    """

    def __init__(
        self,
        listing: DeviceListing,
        render: Render,
        observer: PluginObserver,
        recent: RecentGrants,
        admission: Admission = AdmitAll(),  # noqa: B008 - it has no state
        *,
        records: RecordBook | None = None,
    ) -> None:
        self._render = render
        self._records = records
        self._arrivals: Arrivals | None = None
        if records is not None:
            # Imported here: a node without a scheduler that records devices does not pay for it.
            from plugin.records import Arrivals

            self._arrivals = Arrivals(records)
        self._admission = admission
        self._refuses_kubelets = False
        self._kubelet: tuple[int, int] | None = None
        self._listing = listing
        self._observer = observer
        self._recent = recent
        self.use(PlacementMap())

    def answer_with(self, render: Render) -> None:
        """Build the answers with this function from now on: the resource's offer has changed."""
        self._render = render

    def refuse_kubelets(self) -> None:
        """While handing over: a kubelet that is about to use this plugin gets an error."""
        self._refuses_kubelets = True

    @property
    def kubelet_has_slot(self) -> bool:
        """Whether the kubelet that asked last is known to keep one client per resource (up to 1.36)."""
        return self._kubelet is not None and self._kubelet < SLOT_ENDS

    @property
    def kubelet_is_known(self) -> bool:
        """Whether the library of the kubelet that asked last is known."""
        return self._kubelet is not None

    def accept_kubelets(self) -> None:
        """The handover failed: kubelets may use this plugin again."""
        self._refuses_kubelets = False

    def use(self, placement: PlacementMap, sharing: Sharing | None = None) -> None:
        """Prefer among the listed devices by this placement, and share them in this way."""
        self._sharing = sharing
        self._preference = Preference(self._listing.devices, placement, sharing)
        self._recent.expected.offered(self._listing.resource, self._preference)
        if self._records is not None:
            self._records.offered(self._listing.resource, self._listing.devices, placement)

    async def GetDevicePluginOptions(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.Empty, context: Context
    ) -> api_pb2.DevicePluginOptions:
        """The options of this connection; UNAVAILABLE if a successor is about to take our place."""
        self._kubelet = grpc_go(_user_agent(context)) or self._kubelet
        if self._refuses_kubelets:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "ostler is handing over to another instance: this is not an error"
            )
        return await self._call("GetDevicePluginOptions", context, _options())

    async def ListAndWatch(  # noqa: N802
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The complete list now and after every change."""
        async for message in self._listing.follow():
            yield message

    async def GetPreferredAllocation(  # noqa: N802
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        """Advice for each container; odd requests get the best possible, never an error."""
        return await self._call("GetPreferredAllocation", context, self._advised(request))

    async def Allocate(  # noqa: N802
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """The answer for each container; INVALID_ARGUMENT names invalid ids, FAILED_PRECONDITION a holder."""
        return await self._call("Allocate", context, self._allocated(request, context))

    async def PreStartContainer(  # noqa: N802
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        """Nothing to do at a container's start; safe to repeat."""
        return await self._call("PreStartContainer", context, _nothing_to_do())

    async def _advised(self, request: api_pb2.PreferredAllocationRequest) -> api_pb2.PreferredAllocationResponse:
        # The kubelet knows which devices pods have, and not that shares of an earlier rule leave less of a device.
        unlisted = None if self._sharing is None else self._admission.unlisted()
        if unlisted is not None:
            await unlisted
        if self._arrivals is not None:
            for wanted in request.container_requests:
                asked = wanted.available_deviceIDs, wanted.must_include_deviceIDs, wanted.allocation_size
                await self._arrivals.wait(self._listing.resource, *asked)
        return self._preferred(request)

    def _preferred(self, request: api_pb2.PreferredAllocationRequest) -> api_pb2.PreferredAllocationResponse:
        response = api_pb2.PreferredAllocationResponse()
        for wanted in request.container_requests:
            near = self._near(wanted)
            if self._records is None:
                usual = wanted.available_deviceIDs, wanted.must_include_deviceIDs
                chosen = self._preference.prefer(*usual, wanted.allocation_size, near)
            else:
                chosen = self._recorded(self._records, wanted, near)
            response.container_responses.add(deviceIDs=chosen)
        return response

    def _recorded(
        self, records: RecordBook, wanted: api_pb2.ContainerPreferredAllocationRequest, near: Sequence[Place]
    ) -> list[str]:
        """What to prefer by the devices that a scheduler has recorded for pods."""
        available, required, size = wanted.available_deviceIDs, wanted.must_include_deviceIDs, wanted.allocation_size
        choice, prefer = records.choose(self._listing.resource, available, required, size), self._preference.prefer
        if choice.devices:
            return prefer(choice.devices, required, size, near)
        if not choice.promised:
            return prefer(available, required, size, near)
        listed = self._listing.devices
        unpromised = [id_ for id_ in available if id_ not in choice.promised and id_ in listed and listed[id_].healthy]
        # Those that nobody is promised come first; if they are too few, any others.
        return prefer(available, prefer(unpromised, required, size, near), size, near)

    def _near(self, wanted: api_pb2.ContainerPreferredAllocationRequest) -> Sequence[Place]:
        """The places that the container's devices should be near: its NICs' for GPUs, its GPUs' for NICs."""
        resource, recent = self._listing.resource, self._recent
        recent.expected.free(wanted.available_deviceIDs)
        nics = recent.nics(resource)
        if not self._preference.nics:
            return nics
        return recent.gpus(resource) or recent.expected.gpus(wanted.allocation_size, nics)

    async def _allocated(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        asked = [list(wanted.devices_ids) for wanted in request.container_requests]
        doubt = self._doubted(asked)
        if doubt is not None:
            await doubt
        response = self._allocate(asked)
        # Logged when the answer is on its way: a log line takes half as long as the answer itself.
        # The stubs want an instance of a class that only they have.
        context.add_done_callback(partial(self._log_allocated, asked))  # type: ignore[arg-type]
        return response

    def _doubted(self, asked: Sequence[Sequence[str]]) -> Awaitable[None] | None:
        listed = self._listing.devices
        if self._sharing is not None and self._sharing.fail_multiple:
            for ids in asked:
                if len(ids) > 1 and any(id_ in listed and listed[id_].share for id_ in ids):
                    raise TooManyShares(self._listing.resource, len(ids))
        found = [listed[id_] for ids in asked for id_ in ids if id_ in listed]
        return self._admission.doubted(self._listing.resource, found)

    def _allocate(self, asked: Sequence[Sequence[str]]) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        given = self._checked(asked)
        self._admission.take(self._listing.resource, given)
        first = 0
        for ids in asked:
            response.container_responses.append(self._render(given[first : first + len(ids)]))
            first += len(ids)
            self._remember(ids)
            self._observer.granted(self._listing.resource, len(ids))
        return response

    def _remember(self, ids: Sequence[str]) -> None:
        """GPUs for the NICs that may follow, and NICs for the GPUs."""
        gpus, nics = self._preference.gpus, self._preference.nics
        self._recent.granted(
            self._listing.resource,
            {id_: gpus[id_] for id_ in ids if id_ in gpus} if gpus else {},
            {id_: nics[id_] for id_ in ids if id_ in nics} if nics else {},
        )

    def _log_allocated(self, asked: Sequence[Sequence[str]], _: Context) -> None:
        for ids in asked:
            log.info("devices allocated", extra={"resource": self._listing.resource, "devices": ids})

    def _checked(self, asked: Sequence[Sequence[str]]) -> list[OfferedDevice]:
        """The devices of all containers, in the order of the request; no device occurs twice."""
        devices = self._listing.devices
        if not all(asked):
            raise NoDeviceRequested(self._listing.resource)
        ids = [id_ for wanted in asked for id_ in wanted]
        found = [devices[id_] for id_ in ids if id_ in devices]
        if len(set(ids)) == len(found) == len(ids) and all(device.healthy for device in found):
            return found
        unknown = tuple(dict.fromkeys(id_ for id_ in ids if id_ not in devices))
        duplicated = tuple(id_ for id_, count in Counter(ids).items() if count > 1)
        unhealthy = {device.id: device.reason for device in found if not device.healthy}
        raise BadDevices(self._listing.resource, unknown, duplicated, unhealthy)

    async def _call(self, method: str, context: Context, answering: Awaitable[Answer]) -> Answer:
        """Measure how long the answer takes, and turn its faults into status codes."""
        began = time.perf_counter()
        code, fault = grpc.StatusCode.OK, ""
        try:
            return await answering
        except HeldError as error:
            code, fault = self._refused(method, DeviceTaken(self._listing.resource, str(error)))
        except DevicePluginError as error:
            code, fault = self._refused(method, error)
        except asyncio.CancelledError:  # the kubelet gave up while it waited, or this server ends
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # a bug of ours: the kubelet learns of it, and the log says where
            code, fault = grpc.StatusCode.INTERNAL, f"{self._listing.resource}: {method} failed: {error!r}"
            log.exception("call failed", extra={"resource": self._listing.resource, "method": method})
        finally:
            self._observer.called(self._listing.resource, method, code.name, time.perf_counter() - began)
        await context.abort(code, fault)
        raise AssertionError("a call that was aborted went on")

    def _refused(self, method: str, error: DevicePluginError) -> tuple[grpc.StatusCode, str]:
        fault = str(error)
        log.warning("call refused", extra={"resource": self._listing.resource, "method": method, "reason": fault})
        return error.code, fault


async def _options() -> api_pb2.DevicePluginOptions:
    return OPTIONS


async def _nothing_to_do() -> api_pb2.PreStartContainerResponse:
    return api_pb2.PreStartContainerResponse()


def answer(edits: ContainerEdits) -> api_pb2.ContainerAllocateResponse:
    """The message with the content of ``edits``."""
    message = api_pb2.ContainerAllocateResponse(
        envs=dict(edits.env),
        annotations=dict(edits.annotations),
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in edits.cdi_devices],
    )
    # Adding in place costs half as much as passing lists of messages.
    for mount in edits.mounts:
        message.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    nodes = message.devices
    for node in edits.nodes:
        nodes.add(container_path=node.path, host_path=node.host_path, permissions=node.permissions)
    return message


def random_uuid() -> str:
    """A random UUID; its module is loaded by the strategy that needs it, cdi-annotations alone."""
    import uuid

    return str(uuid.uuid4())


def renderer(offer: ResourceOffer, unique: Callable[[], str] = random_uuid) -> Render:
    """The function that makes one container's answer of its devices, by the resource's name and its rule's options."""
    resource, options = offer.resource, offer.rule.edits
    annotated = ListStrategy.CDI_ANNOTATIONS in options.strategies
    distinct = offer.distinct
    own = {item.device.name: item.edits for item in distinct if item.edits is not None}
    prepared = prepare((item.device for item in distinct), options)

    def render(devices: Sequence[OfferedDevice]) -> api_pb2.ContainerAllocateResponse:
        # Two replicas of one device are one device for the container.
        given = [(item.device_id, item.device) for item in devices]
        edits = container_edits(resource, given, options, unique() if annotated else "", own, prepared=prepared)
        if options.mps is None or not any(item.share for item in devices):
            return answer(edits)
        return answer(with_mps(edits, options.mps, client_limits(_limited(devices, offer.rule))))

    return render if annotated else _remembering(render)


def _remembering(render: Render) -> Render:
    """The same function with its latest answers at hand: a node allocates the same few sets of devices again."""
    known: dict[tuple[str, ...], tuple[Sequence[OfferedDevice], api_pb2.ContainerAllocateResponse]] = {}

    def remembered(devices: Sequence[OfferedDevice]) -> api_pb2.ContainerAllocateResponse:
        given = tuple(devices)
        ids = tuple([item.id for item in given])
        found = known.get(ids)
        # Compared as well: by identity, unless a device of this id has another state now.
        if found is not None and found[0] == given:
            return found[1]
        if len(known) >= REMEMBERED:
            del known[next(iter(known))]
        made = render(given)
        known[ids] = given, made
        return made

    return remembered


def _limited(devices: Sequence[OfferedDevice], rule: Rule) -> Iterator[tuple[str, Amounts]]:
    """The amounts that limit a container by its variables; a rule for both doors limits nobody.

    Claims may consume more of a device than a replica's part.
    """
    if rule.sharing is not None and rule.door.has(Door.DRA):
        yield from ((item.device.name, rule.sharing.client_amounts(item.device, item.amounts)) for item in devices)
