"""A device plugin that keeps every rule but those that it is told to break, in this process and over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from node.sockets import FileId, is_answered
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from sandbox.conformance.subject import ProcessSize, ProgramEnd

Context = grpc.aio.ServicerContext[Any, Any]
RESOURCE = "a.example/gpu"
LOOK = 0.04
"""Seconds between two looks at the kubelet's socket and its own."""
ENDS_ITSELF = "ends-itself"
"""The habit of plugins that leave it to Kubernetes to start them again when there is no kubelet, or a new one."""
ENDS_WITH_STREAM = "ends-with-stream"
"""The habit of plugins that end themselves with any of their streams, to be started again and registered."""
CRASHES = "crashes"
"""The flaw of plugins that die of a request for nothing."""
REGISTERS_ONCE = "registers-once"
"""The habit of plugins that serve before there is a kubelet, and end themselves when it refuses them."""
EARLY = "registers-early"
"""The flaw of plugins that call Register first and serve then."""
CAPACITY = 8
"""Calls and streams at once with the flaw that bounds them."""
LOADED = 0.5
"""Seconds that a call stays open with that flaw: long enough for a slow machine to begin more of them than it bears."""


class FlawedPlugin(api_pb2_grpc.DevicePluginServicer, registration_grpc.RegistrationServicer):
    """One serving of one plugin with ``flaws``, rules to break, or habits; ``watched``: it is in plugins_registry.

    Once ``changed`` is set a device is unhealthy.
    """

    def __init__(
        self, root: Path, flaws: Collection[str], changed: asyncio.Event, *, watched: bool, started: int
    ) -> None:
        self.flaws = frozenset(flaws)
        self.resources = [RESOURCE] if "own-socket" not in self.flaws else [RESOURCE, "a.example/nic"]
        if "resource-name" in self.flaws:
            self.resources = ["gpu"]
        self.kubelet = root / "device-plugins" / "kubelet.sock"
        self.changed = changed
        self.watched = watched
        self.started = started
        self.path = root / ("plugins_registry" if watched else "device-plugins") / "a.example-gpu.sock"
        self.calls = 0
        self.over = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._streams = 0
        self._had_stream = False
        self._lost_stream = False
        self._busy = 0
        self._given: set[str] = set()
        self._pre_started: set[str] = set()
        self._registering = asyncio.Lock()

    async def run_until_over(self) -> None:
        """Run until it is cancelled, ends itself or dies; its connections end with it."""
        running = asyncio.create_task(self.run())
        over = asyncio.create_task(self.over.wait())
        try:
            await asyncio.wait((running, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            over.cancel()
            await asyncio.gather(running, over, return_exceptions=True)
            await self.close()

    async def run(self) -> None:
        """Serve and stay registered until cancelled; a plugin with a habit ends itself."""
        if not self.kubelet.exists():
            if "starts-before-kubelet" in self.flaws:
                await asyncio.Event().wait()
            if ENDS_ITSELF in self.flaws:
                return
            if REGISTERS_ONCE in self.flaws:
                await self._serve()
                while not self.kubelet.exists():
                    await asyncio.sleep(LOOK)
                # The kubelet has removed the socket meanwhile, so that it refuses this.
                while (taken := await self._register()) is None:
                    await asyncio.sleep(LOOK)
                if not taken:
                    return
        if EARLY in self.flaws and self.kubelet.exists():
            # Shorter than the kubelet waits, and long enough for the call to arrive on a machine that others use.
            await self._register(timeout=2.0)
        known: FileId | None = None
        own: FileId | None = None
        first: FileId | None = None
        while True:
            kubelet = FileId.of(self.kubelet)
            if own is None or ("registers-after-lost-socket" not in self.flaws and FileId.of(self.path) != own):
                await self._serve()
                own, known = FileId.of(self.path), None
            elif kubelet is not None and kubelet != known and FileId.of(self.path) != own:
                # A new kubelet has removed it.
                await self._serve()
                own, known = FileId.of(self.path), None
            if ENDS_ITSELF in self.flaws and (kubelet != known or own != FileId.of(self.path)) and first is not None:
                return
            lost = self._had_stream and not self._streams and "registers-after-lost-stream" not in self.flaws
            if lost and self.watched and kubelet is not None and kubelet == known:
                await self._serve()
                own = FileId.of(self.path)
            if self.watched and "registry-after-kubelet" in self.flaws and known and not is_answered(self.kubelet):
                await self.close()
                await asyncio.Event().wait()
            wanted = kubelet is not None and (kubelet != known or lost)
            if wanted and not (first not in (None, kubelet) and "registers-after-kubelet" in self.flaws):
                taken = self.watched or await self._register()
                if taken:
                    first = first or kubelet
                if taken is not None:
                    known = kubelet
            await asyncio.sleep(LOOK)

    async def close(self) -> None:
        """End the server; its socket goes with it."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def _serve(self) -> None:
        await self.close()
        self._had_stream = self._lost_stream = False
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        if self.watched:
            registration_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def _register(self, timeout: float | None = None) -> bool | None:
        """Whether the kubelet takes its resources; None: nobody answers, for its socket is there before it listens."""
        local = [("grpc.use_local_subchannel_pool", 1)]
        version = "v1alpha1" if "api-version" in self.flaws else "v1beta1"
        endpoint = str(self.path) if "endpoint" in self.flaws else self.path.name
        options = self._options()
        if "options-agree" in self.flaws:
            options.pre_start_required = not options.pre_start_required
        self._had_stream = self._lost_stream = False
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet}", options=local) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            requests = [
                api_pb2.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource, options=options)
                for resource in self.resources
            ]
            try:
                # All at once: who sees one registration must not have to wait for another.
                async with self._registering:
                    await asyncio.gather(*(stub.Register(each, timeout=timeout) for each in requests))
            except grpc.aio.AioRpcError as error:
                return None if error.code() is grpc.StatusCode.UNAVAILABLE else False
        return True

    def _options(self) -> api_pb2.DevicePluginOptions:
        announced = "options-implemented" in self.flaws or "repeats-pre-start" in self.flaws
        return api_pb2.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=announced)

    def devices(self) -> list[api_pb2.Device]:
        """What it lists."""
        prefix = f"{self.started}-" if "keeps-ids" in self.flaws else ""
        listed = [api_pb2.Device(ID=f"{prefix}gpu-{number}", health="Healthy") for number in range(4)]
        for number, device in enumerate(listed):
            device.topology.nodes.add(ID=number // 2)
        if "device-ids" in self.flaws:
            listed.append(listed[0])
        if "device-health" in self.flaws:
            listed[3].health = "healthy"
        if "device-numa" in self.flaws:
            listed[3].topology.nodes[0].ID = -1
        if "list-size" in self.flaws:
            # As long as a list of many devices, but quickly made: a field that nobody knows.
            size = 5 << 20
            listed[3].MergeFromString(
                b"\xfa\x01"
                + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
                + bytes(size)
            )
        return listed

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        if "answers-while-registering" in self.flaws:
            async with self._registering:
                pass
        return self._options()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        if "serves-after-lost-stream" in self.flaws and self._lost_stream:
            return
        if "serves-streams" in self.flaws and self._streams >= CAPACITY:
            return
        self._streams += 1
        try:
            devices = self.devices()
            # Before the kubelet has the list: it may end the stream as soon as it has.
            self._had_stream = "list-stays-open" not in self.flaws
            yield api_pb2.ListAndWatchResponse(devices=devices)
            if "list-stays-open" in self.flaws:
                return
            if "full-lists" in self.flaws:
                yield api_pb2.ListAndWatchResponse(devices=devices[:1])
            await (asyncio.Event() if "reports-changes" in self.flaws else self.changed).wait()
            devices[0].health = "Unhealthy"
            yield api_pb2.ListAndWatchResponse(devices=devices)
            await asyncio.Event().wait()
        finally:
            self._streams -= 1
            self._lost_stream = True
            if ENDS_WITH_STREAM in self.flaws:
                self.over.set()

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        response = api_pb2.PreferredAllocationResponse()
        for wanted in request.container_requests:
            must = [] if "preferred-required" in self.flaws else list(wanted.must_include_deviceIDs)
            rest = [id_ for id_ in wanted.available_deviceIDs if id_ not in must]
            if "preferred-odd" in self.flaws and wanted.allocation_size > len(wanted.available_deviceIDs):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "as after a crash")
            chosen = (must + rest)[: max(0, wanted.allocation_size)]
            if "preferred-size" in self.flaws:
                chosen = must + rest
            if "preferred-foreign" in self.flaws:
                chosen = ["gpu-0", *(id_ for id_ in chosen if id_ != "gpu-0")][: wanted.allocation_size]
            response.container_responses.add(deviceIDs=chosen)
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        self.calls += 1
        self._busy += 1
        try:
            if "serves-load" in self.flaws and self._busy > CAPACITY:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no worker is free")
            await asyncio.sleep(LOADED if "serves-load" in self.flaws else 0)
            return await self._allocate(request, context)
        finally:
            self._busy -= 1

    async def _allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        known = {device.ID for device in self.devices()}
        if CRASHES in self.flaws and not request.container_requests:
            self.over.set()
            await asyncio.Event().wait()
        if "empty-requests" in self.flaws and not request.container_requests:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "as after a crash")
        responses = []
        for wanted in request.container_requests:
            ids = list(wanted.devices_ids)
            unknown = [id_ for id_ in ids if id_ not in known]
            if unknown and "refuses-unknown" not in self.flaws:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown devices {unknown}")
            if "allocates" in self.flaws and "gpu-2" in ids:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this one")
            if "repeats-allocate" in self.flaws:
                if self._given & set(ids):
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "in use")
                self._given |= set(ids)
            responses.append(self._answer(ids))
        if "keeps-order" in self.flaws:
            responses.reverse()
        if "answers-each-container" in self.flaws:
            responses = responses[:1]
        return api_pb2.AllocateResponse(container_responses=responses)

    def _answer(self, ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        folder = "dev" if "container-paths" in self.flaws else "/dev"
        kind = "a.example" if "cdi-names" in self.flaws else "a.example/gpu"
        return api_pb2.ContainerAllocateResponse(
            envs={"GPUS": ",".join(ids)},
            devices=[
                api_pb2.DeviceSpec(host_path=f"/dev/{id_}", container_path=f"{folder}/{id_}", permissions="rw")
                for id_ in ids
            ],
            cdi_devices=[api_pb2.CDIDevice(name=f"{kind}={id_}") for id_ in ids],
        )

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        if "options-implemented" in self.flaws:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        ids = set(request.devices_ids)
        if ids & self._pre_started:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "started already")
        self._pre_started |= ids
        return api_pb2.PreStartContainerResponse()

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: Context) -> registration_pb2.PluginInfo:
        return registration_pb2.PluginInfo(type="DevicePlugin", name=self.resources[0], supported_versions=["v1beta1"])

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        if "registry-calls" in self.flaws:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return registration_pb2.RegistrationStatusResponse()


class PluginInProcess:
    """A flawed plugin as a program of a testbed; see ``JudgedProgram``."""

    def __init__(self, root: Path, *flaws: str, watched: bool = False) -> None:
        self.plugin: FlawedPlugin | None = None
        self._root = root
        self._flaws = flaws
        self._watched = watched
        self._started = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.stop()
        self._started += 1
        plugin = FlawedPlugin(self._root, self._flaws, self._changed, watched=self._watched, started=self._started)
        self.plugin = plugin
        work = asyncio.sleep(3600) if "registers" in self._flaws else plugin.run_until_over()
        self._task = asyncio.create_task(work)

    async def change(self) -> None:
        """Make a device unhealthy, for later starts as well."""
        self._changed.set()

    async def terminate(self) -> ProgramEnd:
        in_time = "ends-in-grace" not in self._flaws
        left = self.plugin.path if self.plugin is not None else None
        await self.stop()
        if left is not None and "removes-sockets" in self._flaws:
            server = grpc.aio.server()
            server.add_insecure_port(f"unix:{left}")
            hidden = left.with_name(".moved")
            left.rename(hidden)
            await server.stop(None)
            hidden.rename(left)
        return ProgramEnd(in_time, 0.0)

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.plugin is not None:
            await self.plugin.close()

    async def kill(self) -> None:
        await self.stop()

    def ended(self) -> str:
        return "ended with exit code 1 and wrote no log" if self._task is not None and self._task.done() else ""

    def size(self) -> ProcessSize | None:
        calls = self.plugin.calls if self.plugin is not None else 0
        return ProcessSize(20_000 + (1000 * calls if "does-not-grow" in self._flaws else 0), 12)
