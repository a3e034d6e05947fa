"""The source of NVIDIA facts: NVML through the real binding, in one long-lived session.

Invariants: ``read`` never raises for what hardware, driver or a missing library do wrong; an NVML that is silent as a
whole is a status and keeps the GPUs of the last good read; one call or one GPU that fails degrades only itself. Every
read after a lost session opens a new one, with the library that then lies in the driver root. Two sources in one
process work, each ending the other's session. Which facts are read
anew each time and which are kept for the session is said in ``nvml_calls`` and ``nvml_links``.

Trade-off: while a session is open it holds the driver, which must be free of users to be unloaded or to have a GPU
reset: ``close`` lets go of it, and the next ``read`` starts over.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Literal

from node.inventory.facts import NodeFacts, NvmlFacts
from node.inventory.nvidia.nvml_library import Library, LibraryUnavailableError, load_library
from node.inventory.nvidia.nvml_session import Session, SessionLost, driver_mark
from node.values import replace

log = logging.getLogger("ostler.inventory")

# The binding's state is the process', so reads and closes of all sources take turns; unloading a library during a
# call into it would be a crash and not an error.
_BINDING = threading.RLock()


class NvmlSource:
    """Reads NVML.

    ``driver_root``: where the driver's files lie, as this process sees them. ``library``: a file to load instead of
    searching. ``proc``: the proc file system that shows the loaded kernel module.
    """

    holds_driver: Literal[True] = True

    def __init__(
        self, driver_root: Path = Path("/"), library: Path | None = None, *, proc: Path = Path("/proc")
    ) -> None:
        self._driver_root = driver_root
        self._library_path = library
        self._proc = proc
        self._library: Library | None = None
        self._session: Session | None = None
        self._last = NvmlFacts()

    @property
    def name(self) -> str:
        """``nvml``."""
        return "nvml"

    @property
    def driver_version(self) -> str | None:
        """Version of the driver as last seen."""
        return self._last.driver_version

    def read(self) -> NodeFacts:
        """The NVML section; blocks as long as the driver does. Never raises for faults of driver or hardware."""
        with _BINDING:
            return NodeFacts(nvml=self._read())

    def close(self) -> None:
        """Shut NVML down and unload the library; the last good facts are kept for the next read."""
        with _BINDING:
            self._end_session()
            self._unload()

    def _read(self) -> NvmlFacts:
        try:
            facts = self._current_session().read(self._last.gpus)
        except (LibraryUnavailableError, SessionLost) as fault:
            self._end_session()
            return replace(self._last, status=fault.status, detail=fault.detail, errors=())
        self._last = facts
        return facts

    def _current_session(self) -> Session:
        mark = driver_mark(self._proc)
        if self._session is not None and not self._session.usable:
            self._session = None
        if self._session is not None and self._session.mark != mark:
            log.info("the loaded NVIDIA driver or its GPUs changed: NVML is opened anew")
            self._end_session()
        if self._session is None:
            if self._library is None or not self._library.current:
                self._unload()
                self._library = load_library(self._driver_root, self._library_path)
            self._session = Session(self._library, mark)
            log.debug("NVML opened", extra={"library": self._library.path})
        return self._session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _unload(self) -> None:
        if self._library is not None:
            self._library.unload()
            self._library = None
