"""Serves the pages for probes and scrapes, at the configured address and, for an instance with a name, on its socket.

Loaded only if pages are served. Both places are maintained, not just set up: an address that another instance still has
is retried until it is free, and a socket whose file is gone is created again. Neither ever keeps the agent from serving
the kubelet.

During an update two agents run side by side in the host's network, and only one of them has the port. The kubelet
probes both there: ``/livez/<instance>`` and ``/readyz/<instance>``. The holder of the port answers for itself, and gets
other answers from the other instance's Unix socket, so that a standby becomes Ready before its predecessor ends, and a
hanging standby is reported as dead although the port answers. An instance's own socket never asks another instance, so
two instances cannot send a probe back and forth. If the whole holder of the port is stopped (not only its loop),
neither gets answers until it is killed: the price of having no third process.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.clocks import SELDOM, until_tick
from node.events import EventType
from node.sockets import FileId, PlacedSocket, SocketError, is_answered, is_socket, make_private_directory
from ostler.admin.http import BACKLOG, HttpPage, HttpServer, Pages, listen
from ostler.admin.status import Readiness
from ostler.agent.event_log import EventLog
from ostler.config.settings import INSTANCE, Settings, instance_socket
from ostler.metrics.counters import AgentMetrics
from ostler.metrics.gauges import Figures

if TYPE_CHECKING:
    from ostler.metrics.exposition import Exposition

log = logging.getLogger("ostler.http")

ADDRESS_RETRY = 0.2
"""Seconds between attempts to listen while another instance has the address; an attempt takes about 20 microseconds."""
SOCKET_CHECK = SELDOM
"""Seconds between checks that the instance's socket is still there."""
TIMEOUT = 0.9
"""Seconds that the other instance has for each step: less than the second that a kubelet gives a probe by default."""
LONGEST = 65536
"""Bytes of an answer that are passed on."""

_PATH = re.compile(rf"/(livez|readyz)/({INSTANCE})")


class PagesView(Protocol):
    """The part of the agent that the pages need; called from the pages' thread."""

    def alive(self) -> bool:
        """Whether the event loop was seen lately."""

    def readiness(self) -> Readiness:
        """Whether the agent is ready, and why or why not."""

    def figures(self) -> Figures:
        """The values of a scrape besides the counters."""


def pages(agent: PagesView, counted: AgentMetrics, instance: str = "") -> Pages:
    """The pages by path; each is rendered for every request.

    ``/livez`` (``/healthz`` is its older name), ``/readyz`` and ``/metrics``; an instance with a name also serves the
    first two with that name appended, which shows a client which of two agents on one address has answered.
    """

    def livez() -> HttpPage:
        return HttpPage.lines(True, "ok") if agent.alive() else HttpPage.lines(False, "the event loop hangs")

    def readyz() -> HttpPage:
        found = agent.readiness()
        return HttpPage.lines(found.ready, "ready" if found.ready else "not ready", *found.reasons)

    made: list[Exposition] = []

    def metrics() -> HttpPage:
        # Imported here: 2 MB that only nodes with scraped metrics need.
        from ostler.metrics.exposition import CONTENT_TYPE, Exposition

        if not made:
            made.append(Exposition(counted, agent.figures))
        return HttpPage(200, CONTENT_TYPE, made[0].text())

    shared = {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/metrics": metrics}
    own = {f"/livez/{instance}": livez, f"/readyz/{instance}": readyz} if instance else {}
    return {**shared, **own}


class InstanceSocket:
    """The pages of one instance on its own socket, which only root may use."""

    def __init__(self, path: Path, pages: Pages) -> None:
        """Serve at ``path``; raises ``SocketError`` if the socket cannot be created."""
        make_private_directory(path.parent)
        self._place = PlacedSocket(path.parent, path.name)
        self._server = HttpServer(self._bound(), pages)
        self._server.start()
        try:
            # The socket gets its name once it listens: a named socket that nobody answers has lost its process.
            self._place.publish()
        except SocketError:
            self.close()
            raise

    def _bound(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._place.temporary))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            self._place.remove()
            raise SocketError(
                self._place.path, f"cannot be served ({error.strerror})", "check the state folder"
            ) from error
        return listener

    @property
    def intact(self) -> bool:
        """Whether the file is still there and still ours."""
        return self._place.intact

    def close(self) -> None:
        """Remove the socket if it is ours, and stop serving."""
        self._place.remove()
        self._server.close()


class Probes:
    """Serves ``pages`` wherever the settings say, until cancelled."""

    def __init__(
        self, settings: Settings, pages: Pages, events: EventLog, *, socket_check: float = SOCKET_CHECK
    ) -> None:
        self._address = settings.http
        self._instance = settings.instance
        self._state_dir = settings.state_dir
        self._pages = pages
        self._events = events
        self._socket_check = socket_check

    async def run(self) -> None:
        """Run until cancelled; neither socket nor address is held afterwards."""
        async with asyncio.TaskGroup() as group:
            if self._instance:
                path = instance_socket(self._state_dir, self._instance)
                group.create_task(self._serve_socket(path), name="instance socket")
            if self._address is not None:
                group.create_task(self._serve_address(self._address), name="http address")

    async def _serve_address(self, address: str) -> None:
        server = HttpServer(await _listener(address), self._pages, ProbeProxy(self._state_dir).answer)
        server.start()
        log.info("serving probes and metrics", extra={"address": address, "port": server.port})
        try:
            for path in await asyncio.to_thread(remove_gone, self._state_dir):
                log.info("dead socket of another instance removed", extra={"path": str(path)})
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    async def _serve_socket(self, path: Path) -> None:
        served: InstanceSocket | None = None
        try:
            while True:
                if served is None or not served.intact:
                    served = self._replaced(served, path)
                await asyncio.sleep(until_tick(self._socket_check, asyncio.get_running_loop().time()))
        finally:
            if served is not None:
                served.close()

    def _replaced(self, old: InstanceSocket | None, path: Path) -> InstanceSocket | None:
        """A new socket; if that fails, an event reports it and it is retried later."""
        if old is not None:
            log.warning("the instance's socket is gone or replaced; serving a new one", extra={"path": str(path)})
            old.close()
        try:
            return InstanceSocket(path, self._pages)
        except SocketError as error:
            self._events.emit_once(EventType.WARNING, "SocketFailed", f"the instance's socket for probes: {error}")
            return None


async def _listener(address: str) -> socket.socket:
    """A socket that listens at ``address``, as soon as the address is free."""
    said = False
    while True:
        try:
            return listen(address)
        except OSError as error:
            if not said:
                log.warning("cannot listen yet", extra={"address": address, "error": error.strerror or str(error)})
                said = True
            await asyncio.sleep(ADDRESS_RETRY)


def remove_gone(state_dir: Path) -> list[Path]:
    """Remove sockets of instances that are gone, which would be reported as dead forever. Blocks while one hangs.

    A socket gets its name only once somebody listens on it, so one that nobody answers is dead; one that a living
    instance has replaced meanwhile is left alone. Hidden sockets stay, because they may be about to get their name.
    """
    removed = []
    try:
        paths = sorted(instance_socket(state_dir, "any").parent.glob("[!.]*.sock"))
    except OSError:
        # There is nothing to remove.
        return []
    for path in paths:
        seen = FileId.of(path)
        if is_socket(path) and not is_answered(path) and FileId.of(path) == seen:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # A read-only folder: the socket keeps being reported as dead, which is no reason to stop serving.
                log.warning(
                    "cannot remove a dead socket", extra={"path": str(path), "error": error.strerror or str(error)}
                )
            else:
                removed.append(path)
    return removed


class ProbeProxy:
    """Asks the other instances that share the state folder ``state_dir``."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def answer(self, path: str) -> HttpPage | None:
        """The answer of the instance that ``path`` names, or in one line why there is none; None for other paths.

        Blocks for at most a few times ``TIMEOUT``.
        """
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        instance = match[2]
        at = instance_socket(self._state_dir, instance)
        try:
            return _ask(at, path)
        except FileNotFoundError:
            return HttpPage.text(404, f"there is no instance {instance} on this node")
        except ConnectionRefusedError:
            return HttpPage.text(503, f"the instance {instance} is gone: nobody listens at {at}")
        except (TimeoutError, BlockingIOError):
            # The second error: so many clients wait to be accepted that the kernel refuses more.
            return HttpPage.text(503, f"the instance {instance} hangs: no answer within {TIMEOUT:g} s")
        except (OSError, http.client.HTTPException) as error:
            return HttpPage.text(503, f"the instance {instance} cannot be asked: {str(error) or type(error).__name__}")


def _ask(at: Path, path: str) -> HttpPage:
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(TIMEOUT)
        connection.sock.connect(str(at))
        connection.request("GET", path)
        answer = connection.getresponse()
        return HttpPage(answer.status, answer.getheader("Content-Type", "text/plain"), answer.read(LONGEST))
    finally:
        connection.close()
