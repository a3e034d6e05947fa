"""Watches folders: one object for the process that says "something changed there", never what.

Level-triggered: the woken part checks for itself. inotify wakes at once; if it is not available (the limit of instances
or watches is reached, a folder does not exist yet or was replaced), the watcher checks the folder every 250 ms instead,
so that no change is missed for longer than that.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from node.clocks import SELDOM, until_tick
from node.sockets import FileId
from node.tasks import Alarm

log = logging.getLogger("ostler.directories")

POLL = 0.25
"""Seconds between looks at a folder that inotify does not watch."""

_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80
_DELETE_SELF, _MOVE_SELF, _ATTRIB = 0x400, 0x800, 0x4
_IGNORED = 0x8000
_MASK = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ATTRIB


_EVENT = struct.Struct("iIII")
"""inotify_event without its name: number of the watch, mask, cookie, and bytes of the name that follows."""
_READ = 64 << 10
"""Bytes of events that are read at a time; a single one has at most 272."""


InotifyEvent = tuple[int, int]
"""The part of an event that is used here: the number of the watch, and the kinds of change as a mask."""


class Inotify(Protocol):
    """What watches folders for ``DirectoryWatcher``."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def add_watch(self, path: str, mask: int) -> int:
        """Watch a path and return the number of the watch; raises OSError."""

    def read(self) -> Iterable[InotifyEvent]:
        """Events so far; does not wait."""

    def close(self) -> None:
        """Stop watching."""


class KernelInotify:
    """An instance of the kernel's inotify; raises OSError when the user's limit of instances is reached.

    The C library is called directly: a binding would be loaded before the registration with the kubelet, and costs
    more than these calls.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error()

    def fileno(self) -> int:
        """See ``Inotify``."""
        return self._descriptor

    def add_watch(self, path: str, mask: int) -> int:
        """See ``Inotify``."""
        watch: int = self._library.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(mask))
        if watch < 0:
            raise _last_error()
        return watch

    def read(self) -> list[InotifyEvent]:
        """See ``Inotify``."""
        try:
            content = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return []
        events, at = [], 0
        while at < len(content):
            watch, mask, _, name = _EVENT.unpack_from(content, at)
            events.append((watch, mask))
            at += _EVENT.size + name
        return events

    def close(self) -> None:
        """See ``Inotify``; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _last_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


class DirectoryWatcher:
    """Calls ``on_changed`` (on the loop) after anything in one of ``directories`` was created, removed or renamed."""

    def __init__(
        self,
        directories: Iterable[Path],
        on_changed: Callable[[], None],
        open_watch: Callable[[], Inotify] = KernelInotify,
    ) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        self._on_changed = on_changed
        self._open = open_watch
        self._inotify: Inotify | None = None
        self._watched: dict[Path, FileId] = {}
        self._watches: dict[int, Path] = {}
        self._seen: dict[Path, frozenset[tuple[str, FileId | None]]] = {}
        self._woken = Alarm()

    @property
    def polled(self) -> tuple[Path, ...]:
        """Folders that are checked every 250 ms because inotify does not watch them."""
        return tuple(directory for directory in self._directories if directory not in self._watched)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._start()
        loop = asyncio.get_running_loop()
        if self._inotify is not None:
            loop.add_reader(self._inotify.fileno(), self._drain)
        try:
            while True:
                self._woken.clear()
                self._watch_new()
                looks = [self._look(directory) for directory in self.polled]
                if any(looks):
                    self._on_changed()
                # Watched folders only need a look in case they were hidden by a mount, which inotify does not tell.
                await self._woken.wait_until(loop.time() + (POLL if self.polled else until_tick(SELDOM, loop.time())))
        finally:
            if self._inotify is not None:
                loop.remove_reader(self._inotify.fileno())
                self._inotify.close()

    def _start(self) -> None:
        try:
            self._inotify = self._open()
        except OSError as error:
            log.warning(
                "inotify is not available, ostler polls folders instead; raise fs.inotify.max_user_instances",
                extra={"error": error.strerror, "every_s": POLL},
            )

    def _watch_new(self) -> None:
        """Watch folders that appeared, were replaced, or could not be watched before."""
        if self._inotify is None:
            return
        for directory in self._directories:
            now = _directory_id(directory)
            if now is None:
                self._watched.pop(directory, None)
            elif self._watched.get(directory) != now:
                try:
                    watch = self._inotify.add_watch(str(directory), _MASK)
                except OSError as error:
                    log.debug("folder cannot be watched", extra={"path": str(directory), "error": error.strerror})
                    continue
                self._watched[directory] = now
                self._watches[watch] = directory
                # What happened between the last look and this watch would otherwise be missed.
                self._on_changed()

    def _drain(self) -> None:
        if self._inotify is None:
            return
        for watch, mask in self._inotify.read():
            if mask & _IGNORED:
                # The folder is gone and its watch with it; a new folder may get the same inode number.
                self._watched.pop(self._watches.pop(watch, Path()), None)
                self._woken.set()
        self._on_changed()

    def _look(self, directory: Path) -> bool:
        try:
            seen = frozenset((path.name, FileId.of(path)) for path in directory.iterdir())
        except OSError:
            seen = frozenset()
        changed = self._seen.get(directory) != seen
        self._seen[directory] = seen
        return changed


def _directory_id(directory: Path) -> FileId | None:
    """Identity of a folder that lasts while its content changes (its time of modification does not)."""
    identity = FileId.of(directory)
    return None if identity is None else FileId(identity.device, identity.inode, 0)
