"""A container runtime's side of NRI: it takes plugins on a socket and reports the life of pod sandboxes to them.

It behaves as containerd does, the bad parts too: plugins are registered one after the other, each call waits two
seconds, a plugin that is too slow or gone is dropped and the sandbox goes on without it (fail open), and only an error
that a plugin answers fails the sandbox. ``Dialect`` chooses between runtimes with a method per event and older ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

from google.protobuf.message import Message

from driver.nri.calls import PLUGIN, RUNTIME, CallConnection, Code, ConnectionEnded, RpcFailed, decoded
from driver.nri.framing import ProtocolError
from driver.nri.plugin import RUNTIME_SERVICE
from driver.nri.service import PLUGIN_SERVICE
from protos.nri.v1alpha1.nri_pb2 import (
    REMOVE_POD_SANDBOX,
    RUN_POD_SANDBOX,
    STOP_POD_SANDBOX,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    Empty,
    Event,
    LinuxNamespace,
    LinuxPodSandbox,
    PodSandbox,
    PodSandboxRequest,
    RegisterPluginRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
)
from protos.ttrpc.v1.ttrpc_pb2 import Request

log = logging.getLogger("ostler.sandbox.nri")

METHODS = {
    RUN_POD_SANDBOX: "RunPodSandbox",
    STOP_POD_SANDBOX: "StopPodSandbox",
    REMOVE_POD_SANDBOX: "RemovePodSandbox",
}


class Dialect(StrEnum):
    """How a runtime reports pods."""

    METHODS = "methods"
    """A method for each event, and StateChange for plugins without it: NRI since 0.9."""
    STATE_CHANGE = "state-change"


class SandboxFailed(Exception):
    """A plugin has answered with an error, which is the text: the runtime fails the sandbox."""


class _Plugin:
    """A plugin that is connected: its name after the registration, and what it subscribed to."""

    def __init__(self, connection: CallConnection) -> None:
        self.connection = connection
        self.registered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.name = ""
        self.events = 0


class NriRuntime:
    """Serves ``socket`` between ``start`` and ``stop``; ``pods`` and ``containers`` are what it has.

    ``refusal``: error that RegisterPlugin is answered with. ``per_message``: pods in each message of a synchronization.
    ``plugins``: names of the plugins that are connected and synchronized; ``dropped``: of those that were too slow.
    """

    def __init__(
        self,
        socket: Path,
        *,
        name: str = "containerd",
        version: str = "v2.1.0",
        dialect: Dialect = Dialect.METHODS,
        request_timeout: float = 2.0,
        registration_timeout: float = 5.0,
        refusal: str = "",
        per_message: int = 1000,
    ) -> None:
        self.pods: dict[str, PodSandbox] = {}
        self.containers: dict[str, Container] = {}
        self.dropped: list[str] = []
        self._socket = socket
        self._name = name
        self._version = version
        self._dialect = dialect
        self._request_timeout = request_timeout
        self._registration_timeout = registration_timeout
        self._refusal = refusal
        self._per_message = per_message
        self._server: asyncio.Server | None = None
        self._plugins: list[_Plugin] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._registering = asyncio.Lock()
        self._reporting = asyncio.Lock()

    @property
    def plugins(self) -> list[str]:
        """See the class."""
        return [plugin.name for plugin in self._plugins]

    async def start(self) -> None:
        """Listen; an old socket is replaced."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self._socket)

    async def stop(self) -> None:
        """End every connection; the socket stays behind, as after the death of a runtime."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def run(self, pod: PodSandbox) -> None:
        """Report a sandbox that starts, and keep it; raises ``SandboxFailed`` and then has not kept it."""
        try:
            await self._report(RUN_POD_SANDBOX, pod)
        except SandboxFailed:
            for event in (STOP_POD_SANDBOX, REMOVE_POD_SANDBOX):
                with suppress(SandboxFailed):
                    await self._report(event, pod)
            raise
        self.pods[pod.id] = pod

    async def stop_pod(self, pod: PodSandbox) -> None:
        """Report a sandbox that stops; raises ``SandboxFailed``."""
        await self._report(STOP_POD_SANDBOX, pod)

    async def remove(self, pod: PodSandbox) -> None:
        """Forget a sandbox and report it; raises ``SandboxFailed``."""
        self.pods.pop(pod.id, None)
        await self._report(REMOVE_POD_SANDBOX, pod)

    def drop(self, name: str) -> None:
        """End the connection to a plugin, as if it had been too slow."""
        self._drop(next(plugin for plugin in self._plugins if plugin.name == name))

    async def _report(self, event: Event, pod: PodSandbox) -> None:
        async with self._reporting:
            for plugin in sorted(self._plugins, key=attrgetter("name")):
                if not plugin.events or plugin.events & 1 << event - 1:
                    await self._relay(plugin, event, pod)

    async def _relay(self, plugin: _Plugin, event: Event, pod: PodSandbox) -> None:
        try:
            await self._notify(plugin, event, pod)
        except RpcFailed as error:
            raise SandboxFailed(str(error)) from None
        except (TimeoutError, ConnectionEnded):
            self._drop(plugin)

    async def _notify(self, plugin: _Plugin, event: Event, pod: PodSandbox) -> None:
        if self._dialect is Dialect.METHODS:
            try:
                await self._call(plugin, METHODS[event], PodSandboxRequest(pod=pod))
            except RpcFailed as error:
                if error.code != Code.UNIMPLEMENTED:
                    raise
            else:
                return
        await self._call(plugin, "StateChange", StateChangeEvent(event=event, pod=pod))

    async def _call(self, plugin: _Plugin, method: str, message: Message) -> bytes:
        return await plugin.connection.call(PLUGIN_SERVICE, method, message, self._request_timeout)

    def _drop(self, plugin: _Plugin) -> None:
        log.warning("dropped a plugin that did not answer", extra={"plugin": plugin.name})
        self.dropped.append(plugin.name)
        plugin.connection.close()
        if plugin in self._plugins:
            self._plugins.remove(plugin)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

        async def serve(request: Request) -> Message:
            if (request.service, request.method) != (RUNTIME_SERVICE, "RegisterPlugin"):
                raise RpcFailed(Code.UNIMPLEMENTED, f"{request.service}/{request.method}")
            if self._refusal:
                raise RpcFailed(Code.INVALID_ARGUMENT, self._refusal)
            given = decoded(RegisterPluginRequest, request.payload)
            if not plugin.registered.done():
                plugin.registered.set_result(f"{given.plugin_idx}-{given.plugin_name}")
            return Empty()

        connection = CallConnection(reader, writer, serve, served=RUNTIME, called=PLUGIN)
        plugin = _Plugin(connection)
        reading = asyncio.create_task(connection.run())
        try:
            await self._register(plugin, reading)
            await asyncio.wait((reading,))
        except (TimeoutError, ConnectionEnded, RpcFailed, ProtocolError) as error:
            log.info("a plugin could not be registered", extra={"error": str(error)})
        except asyncio.CancelledError:
            pass  # stop() ends it. Before Python 3.12, asyncio reports a cancelled connection as an error.
        finally:
            if plugin in self._plugins:
                self._plugins.remove(plugin)
            connection.close()
            reading.cancel()
            with suppress(asyncio.CancelledError):  # As above.
                await asyncio.gather(reading, return_exceptions=True)

    async def _register(self, plugin: _Plugin, reading: asyncio.Task[None]) -> None:
        async with self._registering:
            waits = (plugin.registered, reading)
            await asyncio.wait(waits, timeout=self._registration_timeout, return_when=asyncio.FIRST_COMPLETED)
            if not plugin.registered.done():
                raise ConnectionEnded("it did not register")
            plugin.name = plugin.registered.result()
            configuration = ConfigureRequest(
                runtime_name=self._name,
                runtime_version=self._version,
                registration_timeout=int(self._registration_timeout * 1000),
                request_timeout=int(self._request_timeout * 1000),
            )
            answer = await self._call(plugin, "Configure", configuration)
            plugin.events = decoded(ConfigureResponse, answer).events
            # No sandbox starts or ends meanwhile, so that a plugin neither misses nor doubles one.
            async with self._reporting:
                await self._synchronize(plugin)
                self._plugins.append(plugin)

    async def _synchronize(self, plugin: _Plugin) -> None:
        pods, containers = list(self.pods.values()), list(self.containers.values())
        size = self._per_message
        for start in range(0, max(len(pods), len(containers), 1), size):
            end = start + size
            more = end < max(len(pods), len(containers))
            message = SynchronizeRequest(pods=pods[start:end], containers=containers[start:end], more=more)
            answer = await self._call(plugin, "Synchronize", message)
            if decoded(SynchronizeResponse, answer).more != more:
                raise ProtocolError("the plugin cannot handle a synchronization in several messages")


def pod_sandbox(sandbox: str, uid: str, pod: str, netns: str = "", pid: int = 1) -> PodSandbox:
    """A sandbox as containerd describes it: ``pod`` is ``NAMESPACE/NAME``, ``netns`` empty for a host-network pod.

    A sandbox whose process and namespace are gone has neither.
    """
    namespace, _, name = pod.rpartition("/")
    listed = [LinuxNamespace(type=kind) for kind in ("pid", "ipc", "uts", "mount")]
    if netns:
        listed.append(LinuxNamespace(type="network", path=netns))
    linux = LinuxPodSandbox(namespaces=listed)
    return PodSandbox(id=sandbox, uid=uid, namespace=namespace or "default", name=name, linux=linux, pid=pid)


@asynccontextmanager
async def serving(runtime: NriRuntime) -> AsyncIterator[NriRuntime]:
    """The runtime runs until the end of the block."""
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
