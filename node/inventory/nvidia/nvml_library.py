"""Finding, loading and unloading the driver's management library, ``libnvidia-ml.so.1``.

The binding only knows the plain soname, which the loader does not find when the driver lives under a root of its own
(``/run/nvidia/driver``). So the library is loaded by absolute path first, with RTLD_GLOBAL: whatever asks for the
soname later gets that one. Trade-off: the library can be unloaded, so that after a driver upgrade the agent gets the
new one without a restart; this is only safe while no other thread of the process is inside it.

NVML itself may be called from many threads at once. What may not happen during a call is nvmlShutdown, a change of the
binding's globals, or the unloading of the library. So threads beside the scanning one pass a gate. The thread that ends
a session closes the gate first and waits, for a limited time: a driver that never returns from a call must not hang the
scan.
"""

from __future__ import annotations

import _ctypes
import ctypes
import threading
from pathlib import Path

from node.values import Value, value

SONAME = "libnvidia-ml.so.1"

FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
)
"""Where distributions, driver containers and WSL put the library, relative to the driver root."""

LIBRARY_NOT_FOUND = "LIBRARY_NOT_FOUND"
LIBRARY_NOT_LOADABLE = "LIBRARY_NOT_LOADABLE"
"""Not an error of NVML: the file is there and the loader refuses it."""


class LibraryUnavailableError(Exception):
    """No library could be loaded: ``status`` as in NvmlFacts; ``detail`` says in one sentence where it was searched."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


FileIdentity = tuple[str, int, int, int]


@value
class NvmlLibrary(Value):
    """A loaded library; ``identity`` is that of the file at the time of loading, None when the loader chose it."""

    path: str
    handle: ctypes.CDLL
    identity: FileIdentity | None

    @property
    def current(self) -> bool:
        """Whether the file at the path is still the one that was loaded."""
        return self.identity is not None and _identity(Path(self.path)) == self.identity

    def unload(self) -> None:
        """Give the library back to the loader; no function pointer of it may be used afterwards."""
        # ctypes never unloads by itself, and for a known path the loader returns what it has loaded before.
        _ctypes.dlclose(self.handle._handle)  # noqa: SLF001


def load_library(driver_root: Path, library: Path | None = None) -> NvmlLibrary:
    """Load ``library`` if given, else the first that can be loaded under the root, else (root ``/``) the loader's own.

    Raises LibraryUnavailableError.
    """
    refused: list[str] = []
    candidates = [library] if library is not None else [driver_root / folder / SONAME for folder in FOLDERS]
    for candidate in candidates:
        identity = _identity(candidate)
        if identity is None:
            continue
        try:
            # The resolved name carries the driver's version: the loader takes a path that it knows for the same file.
            handle = ctypes.CDLL(identity[0], mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            refused.append(f"{candidate}: {error}")
            continue
        return NvmlLibrary(str(candidate), handle, identity)
    if library is None and driver_root == Path("/") and not refused:
        try:
            return NvmlLibrary(SONAME, ctypes.CDLL(SONAME, mode=ctypes.RTLD_GLOBAL), None)
        except OSError:
            pass  # The loader only says that it found nothing; the sentence below names the folders.
    if refused:
        raise LibraryUnavailableError(LIBRARY_NOT_LOADABLE, f"{SONAME} cannot be loaded ({'; '.join(refused)})")
    raise LibraryUnavailableError(LIBRARY_NOT_FOUND, _where(driver_root, library))


def _where(driver_root: Path, library: Path | None) -> str:
    if library is not None:
        return f"{library}, which the configuration names as the library, does not exist"
    loader = ", and the loader knows none" if driver_root == Path("/") else ""
    return f"no {SONAME} under the driver root {driver_root} (looked in {', '.join(FOLDERS)}){loader}"


def _identity(path: Path) -> FileIdentity | None:
    """Resolved path, device, inode and time of change in ns; None when there is no such file."""
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_file():
            return None
        status = resolved.stat()
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links. Both mean that there is no library here.
        return None
    return str(resolved), status.st_dev, status.st_ino, status.st_mtime_ns


class Gate:
    """Open when made, and never again once closed. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False
        self._bells: list[threading.Event] = []

    @property
    def closed(self) -> bool:
        """Whether threads inside must leave."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether no thread is inside."""
        return self._inside == 0

    def enter(self) -> bool:
        """Go in, and ``leave`` soon after the gate closes; False if it is closed."""
        with self._changed:
            if self._closed:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Go out."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def ring(self, bell: threading.Event) -> None:
        """Set this event when the gate closes: for threads that wait outside."""
        with self._changed:
            self._bells.append(bell)
            if self._closed:
                bell.set()

    def pause(self, seconds: float) -> bool:
        """Wait inside, at most until the gate closes; returns whether it is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, seconds)

    def close(self, within: float) -> bool:
        """Close the gate and wait that many seconds until no thread is inside; returns whether none is."""
        with self._changed:
            self._closed = True
            for bell in self._bells:
                bell.set()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._inside == 0, within)
