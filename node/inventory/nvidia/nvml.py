"""The source of NVIDIA facts: NVML through the real binding, in one long-lived session.

Invariants: ``read`` never raises for what hardware, driver or a missing library do wrong; an NVML that does not answer
at all is a status and keeps the GPUs of the last good read; a failed call or GPU degrades only itself. Every read after
a lost session opens a new one, with the library that is then in the driver root. Two sources in one process work, each
ending the other's session. ``nvml_calls`` and ``nvml_queries`` say which facts are read each time and which are kept
for the session. Other threads use the current session (``sessions``); it ends only when they have left it, or is left
behind with them if one of their calls does not return.

Trade-off: while a session is open it holds the driver, which must be free of users to be unloaded or to have a GPU
reset: ``close`` releases it, and the next ``read`` starts again.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Literal

from node.inventory.facts import NodeFacts, NvmlFacts
from node.inventory.nvidia.health import DRIVER_UNREACHABLE
from node.inventory.nvidia.nvml_library import LibraryUnavailableError, NvmlLibrary, load_library
from node.inventory.nvidia.nvml_session import NvmlSession, NvmlSessions, SessionLost, driver_mark
from node.inventory.source import DriverHeld
from node.values import replace

log = logging.getLogger("ostler.inventory")

# The binding's state is the process', so reads and closes of all sources take turns; unloading a library during a
# call into it would be a crash and not an error.
_BINDING = threading.RLock()


class DriverHeldError(DriverHeld):
    """The driver could not be released: another thread's call into it does not return."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"a call into {library} does not return, so this process goes on using the driver; "
            "end the agent if the driver has to be unloaded"
        )


class NvmlSource:
    """Reads NVML.

    ``driver_root``: where the driver's files lie, as this process sees them. ``library``: a file to load instead of
    searching. ``proc``: the proc file system that shows the loaded kernel module. ``profiles``: whether to read the
    GPUs' MIG profiles.
    """

    name = "nvml"
    holds_driver: Literal[True] = True

    def __init__(
        self,
        driver_root: Path = Path("/"),
        library: Path | None = None,
        *,
        proc: Path = Path("/proc"),
        profiles: bool = False,
    ) -> None:
        self._driver_root = driver_root
        self._library_path = library
        self._proc = proc
        self._profiles = profiles
        self._library: NvmlLibrary | None = None
        self._session: NvmlSession | None = None
        self._last = NvmlFacts()
        self.sessions = NvmlSessions()
        """The holder of the current session, for others."""
        self._left_behind: list[tuple[NvmlSession, NvmlLibrary]] = []

    @property
    def driver_version(self) -> str | None:
        """The last known version of the driver."""
        return self._last.driver_version

    def read_profiles(self) -> None:
        """Read the GPUs' MIG profiles from the next read on; from any thread."""
        self._profiles = True

    def read(self) -> NodeFacts:
        """The NVML section; blocks as long as the driver does. Never raises for faults of driver or hardware."""
        with _BINDING:
            return NodeFacts(nvml=self._read())

    def read_gpus(self, uuids: frozenset[str]) -> NodeFacts:
        """See ``GpuReader``."""
        with _BINDING:
            return NodeFacts(nvml=self._read(uuids))

    def close(self) -> None:
        """Shut NVML down and unload the library; the last good facts are kept for the next read.

        Raises DriverHeldError while a call of another thread does not return, unless the process ends anyway.
        """
        with _BINDING:
            self._end_session()
            self._unload()
            self._tidy()
            if self._left_behind and self.sessions.patience:
                raise DriverHeldError(self._left_behind[0][1].path)

    def _read(self, uuids: frozenset[str] = frozenset()) -> NvmlFacts:
        known = self._session
        try:
            session = self._current_session()
            if uuids and session is known:
                facts = session.reread(self._last, uuids, profiles=self._profiles)
            else:
                facts = session.read(self._last.gpus, profiles=self._profiles)
        except (LibraryUnavailableError, SessionLost) as fault:
            self._end_session()
            loaded = fault.status == "DRIVER_NOT_LOADED" and driver_mark(self._proc) != ()
            return replace(
                self._last, status=DRIVER_UNREACHABLE if loaded else fault.status, detail=fault.detail, errors=()
            )
        self._last = facts
        return facts

    def _current_session(self) -> NvmlSession:
        mark = driver_mark(self._proc)
        self._tidy()
        if self._session is not None and not self._session.binding.attached:
            self._end_session()
        if self._session is not None and self._session.mark != mark:
            log.info("the loaded NVIDIA driver or its GPUs changed: the agent opens NVML again")
            self._end_session()
        if self._session is None:
            if self._library is None or not self._library.current:
                self._unload()
                self._library = load_library(self._driver_root, self._library_path)
            self._session = NvmlSession(self._library, mark)
            log.debug("NVML opened", extra={"library": self._library.path})
            self.sessions.opened(self._session.binding)
        return self._session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self.sessions.closing()
        if not session.close(self.sessions.patience):
            # Shutting down or unloading now would crash the thread that is in the library.
            self._left_behind.append((session, session.library))
            self._library = None
            if self.sessions.patience:
                log.error("a call into the driver does not return", extra={"library": session.library.path})

    def _tidy(self) -> None:
        """End bindings that were left behind and that nobody is inside any more."""
        for session, library in tuple(self._left_behind):
            if session.binding.left:
                self._left_behind.remove((session, library))
                # Not through the binding, which may already serve a newer session.
                library.handle.nvmlShutdown()
                library.unload()

    def _unload(self) -> None:
        if self._library is not None:
            self._library.unload()
            self._library = None
