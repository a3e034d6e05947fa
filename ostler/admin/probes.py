"""Where the pages are served: the address everybody knows, and for an instance with a name its own Unix socket.

Both are kept up rather than set up: an address that another instance still has is tried again until it falls free, a
socket whose file is gone is put there anew. Neither ever keeps the agent from serving the kubelet.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

from node.events import EventType
from node.sockets import FileId, PlacedSocket, SocketError, is_answered, is_socket, make_private_directory
from ostler.admin.http import BACKLOG, HttpServer, Pages, listen
from ostler.admin.probe_proxy import ProbeProxy
from ostler.agent.eventlog import EventLog
from ostler.config.settings import Settings, instance_socket

log = logging.getLogger("ostler.http")

ADDRESS_RETRY = 0.2
"""Seconds between attempts to listen while another instance has the address; an attempt takes some 20 microseconds."""
SOCKET_CHECK = 10.0
"""Seconds between looks whether the instance's socket is still there."""


class InstanceSocket:
    """The pages of one instance on its own socket, which only root may use."""

    def __init__(self, path: Path, pages: Pages) -> None:
        """Serve at ``path``; raises ``SocketError`` when the socket cannot be there."""
        make_private_directory(path.parent)
        self._place = PlacedSocket(path.parent, path.name)
        self._server = HttpServer(self._bound(), pages)
        self._server.start()
        try:
            # Only what listens gets a name: a named socket that nobody answers has lost its process.
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
                await asyncio.sleep(self._socket_check)
        finally:
            if served is not None:
                served.close()

    def _replaced(self, old: InstanceSocket | None, path: Path) -> InstanceSocket | None:
        """The socket served anew; where that fails people are told, and it is tried again later."""
        if old is not None:
            log.warning("the instance's socket is gone or replaced, serving anew", extra={"path": str(path)})
            old.close()
        try:
            return InstanceSocket(path, self._pages)
        except SocketError as error:
            if not any(str(error) in event.message for event in self._events.recent):
                self._events.emit(EventType.WARNING, "SocketFailed", f"the instance's socket for probes: {error}")
            return None


async def _listener(address: str) -> socket.socket:
    """A socket that listens at ``address``, as soon as it is free."""
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
    """Remove sockets of instances that are gone: they would be named as dead for ever. Blocks while one hangs.

    A socket gets its name only when it is listened on, so one that nobody answers is dead; one that was replaced by a
    living instance in the meantime is left alone. Hidden ones may be about to get their name and stay.
    """
    removed = []
    try:
        paths = sorted(instance_socket(state_dir, "any").parent.glob("[!.]*.sock"))
    except OSError:
        # Then there is nothing that could be removed.
        return []
    for path in paths:
        seen = FileId.of(path)
        if is_socket(path) and not is_answered(path) and FileId.of(path) == seen:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # A folder that became read-only: it stays named as dead, which is no reason to stop serving.
                log.warning("a dead socket stays", extra={"path": str(path), "error": error.strerror or str(error)})
            else:
                removed.append(path)
    return removed
