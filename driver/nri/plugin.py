"""Keeps ostler registered as an NRI plugin of the container runtime.

One connection at a time: connect, register, be configured and synchronized, then answer until it ends, for whatever
reason. The next attempt follows after a growing pause with jitter, or at once when a socket appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from driver.nri.calls import PLUGIN, RUNTIME, CallConnection, ConnectionEnded, RpcFailed
from driver.nri.framing import PATIENCE, ProtocolError
from driver.nri.sandboxes import PodSandboxes
from driver.nri.sequence import SandboxSequence
from driver.nri.service import PluginService
from driver.nri.status import NriChanged, NriState, NriStatus
from kube.backoff import Backoff, BackoffPolicy
from node.clocks import SELDOM, Clocks
from node.directories import DirectoryWatcher
from node.events import EventBus
from node.tasks import report_fault
from protos.nri.v1alpha1.nri_pb2 import RegisterPluginRequest

log = logging.getLogger("ostler.nri")

SOCKET = Path("/var/run/nri/nri.sock")
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
NAME, INDEX = "ostler", "10"
"""Plugins are called in the order of their two-digit indices."""
HANDSHAKE = 30.0
"""Seconds until the runtime must have synchronized us; it takes new plugins one by one, and waits 5 s for each."""
STEADY = 5.0
"""Seconds after which a connection counts as a success: the next one is tried at once when it ends."""
BACKOFF = BackoffPolicy(first=0.05, most=SELDOM)


class _Failed(Exception):
    """How a connection ended."""

    def __init__(self, reason: str, state: NriState = NriState.ABSENT) -> None:
        super().__init__(reason)
        self.state = state


class NriPlugin:
    """Connects to the runtime whenever it serves ``socket``, and hands its sandboxes to ``sandboxes``.

    Publishes ``NriChanged`` on ``bus`` when the state or its reason changes.
    """

    def __init__(self, socket: Path, sandboxes: PodSandboxes, *, bus: EventBus, clocks: Clocks) -> None:
        self._socket = socket
        self._bus = bus
        self._clock = clocks.clock
        self._monotonic = clocks.monotonic
        self._sequence = SandboxSequence(sandboxes)
        self._backoff = Backoff(BACKOFF, clocks.random)
        self._appeared = asyncio.Event()
        self._status = NriStatus(NriState.ABSENT, clocks.clock(), "not connected yet")

    def state(self) -> NriStatus:
        """The state now."""
        return self._status

    async def run(self) -> None:
        """Stay registered until cancelled, whatever happens to the runtime."""
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                # A folder that does not exist would be looked at four times a second: a retry now and then is enough.
                if watching is None and self._socket.parent.is_dir():
                    watching = asyncio.create_task(DirectoryWatcher((self._socket.parent,), self._appeared.set).run())
                    # Without it connections are still tried, only later.
                    report_fault(watching, "watch of the folder of the NRI socket")
                self._appeared.clear()
                try:
                    await self._connection()
                except _Failed as failure:
                    self._become(failure.state, reason=str(failure))
                await self._pause()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait((watching,))
            await self._sequence.close()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.delay()):
                await self._appeared.wait()
                # The runtime listens a moment after its socket appears.
                self._backoff.reset()

    async def _connection(self) -> None:
        """Serve one connection to its end; raises ``_Failed``, always."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except FileNotFoundError:
            raise _Failed(
                f"{self._socket} does not exist: the container runtime does not run, or its NRI is switched off"
            ) from None
        except OSError as error:
            raise _Failed(f"cannot connect to {self._socket}: {error.strerror}") from None
        synchronized = asyncio.Event()

        def connected(runtime: str) -> None:
            synchronized.set()
            self._become(NriState.CONNECTED, runtime=runtime)

        service = PluginService(self._sequence, connected)
        connection = CallConnection(reader, writer, service.serve, served=PLUGIN, called=RUNTIME)
        reading = asyncio.create_task(connection.run())
        try:
            await self._register(connection, reading, synchronized)
            since = self._monotonic()
            await asyncio.wait((reading,))
            if self._monotonic() - since > STEADY:
                self._backoff.reset()
            await reading
        except ProtocolError as error:
            raise _Failed(f"the connection to the container runtime is broken: {error}") from None
        except OSError as error:
            raise _Failed(f"the connection to the container runtime is broken: {error.strerror or error}") from None
        finally:
            connection.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        raise _Failed("the container runtime ended the connection")

    async def _register(
        self, connection: CallConnection, reading: asyncio.Task[None], synchronized: asyncio.Event
    ) -> None:
        """Return once synchronized; raises ``_Failed``, or what ``reading`` raised."""
        waiting = asyncio.create_task(synchronized.wait())
        try:
            async with asyncio.timeout(HANDSHAKE):
                plugin = RegisterPluginRequest(plugin_name=NAME, plugin_idx=INDEX)
                await connection.call(RUNTIME_SERVICE, "RegisterPlugin", plugin, HANDSHAKE)
                await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        except RpcFailed as error:
            raise _Failed(
                f"the container runtime refuses the plugin {INDEX}-{NAME}: {error}", NriState.REFUSED
            ) from None
        except TimeoutError:
            raise _Failed(f"the container runtime did not finish the registration within {HANDSHAKE:g} s") from None
        except ConnectionEnded:
            await asyncio.wait((reading,), timeout=PATIENCE)
        finally:
            waiting.cancel()
        if not synchronized.is_set():
            if reading.done():
                # What was wrong with the bytes tells more.
                reading.result()
            raise _Failed(
                f"the container runtime ended the connection while it registered the plugin {INDEX}-{NAME}; "
                "its log says why",
                NriState.REFUSED,
            )

    def _become(self, state: NriState, *, reason: str = "", runtime: str = "") -> None:
        before = self._status
        since = before.since if state is before.state else self._clock()
        self._status = NriStatus(state, since, reason, runtime)
        if self._status == before:
            return
        if state is NriState.CONNECTED:
            log.info("connected to NRI: the runtime reports its pods", extra={"runtime": runtime})
        else:
            # Further reasons follow each other while a runtime restarts.
            level = logging.INFO if state is before.state else logging.WARNING
            log.log(level, "no NRI connection: the runtime does not report its pods", extra={"reason": reason})
        self._bus.publish(NriChanged(self._status))
