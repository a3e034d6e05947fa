"""Things that tests need and that take long to make: made once per content, kept in one folder outside the checkout.

Invariants: an entry appears whole or not at all (made in a temporary folder, then renamed); whoever needs it while it
is being made waits for it, over all processes. Trade-off: only entries that every change of the sources makes anew are
ever deleted (``remove_old``); the folder can be removed at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

IN_USE = 2 * 3600.0
"""Seconds after the last use of an entry in which a run of tests, of any checkout, may still need it."""


def cache_folder() -> Path:
    """``$OSTLER_CACHE``, or ``ostler`` in the user's cache folder."""
    given = os.environ.get("OSTLER_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ostler"


def digest(*contents: bytes | str) -> str:
    """Twelve hex digits that name the contents an entry is made from."""
    summed = hashlib.sha256()
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        summed.update(len(data).to_bytes(8, "big") + data)
    return summed.hexdigest()[:12]


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The entry ``name`` (a path below the cache folder); ``make`` fills an empty folder when it is not there yet.

    What ``make`` raises passes through, and nothing is kept of its work.
    """
    entry = cache_folder() / name
    if _is_used(entry):
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{entry.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_used(entry):
            return entry
        making = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
        try:
            make(making)
            making.chmod(0o755)
            making.rename(entry)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return entry


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else is in this block for this folder meanwhile, over all processes; the folder gets no file for it."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_used(entry: Path) -> bool:
    """Whether it is there; it counts as used from now on."""
    # Nobody but its owner can mark it.
    with contextlib.suppress(OSError):
        os.utime(entry)
    return entry.is_dir()


def remove_old(entries: Iterable[Path], keep: int) -> None:
    """Remove entries but for the ``keep`` last used ones, and those that other checkouts may use now.

    An entry is used when ``cached`` returns it and when its folder changes.
    """
    used: list[tuple[float, Path]] = []
    for entry in entries:
        # Another process may remove it at the same time.
        with contextlib.suppress(FileNotFoundError):
            used.append((entry.stat().st_mtime, entry))
    used.sort(reverse=True)
    for at, entry in used[keep:]:
        if at < time.time() - IN_USE:
            shutil.rmtree(entry, ignore_errors=True)
