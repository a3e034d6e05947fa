"""Things that tests need and that take long to make: made once per content, kept in one folder outside the checkout.

Invariants: an entry appears whole or not at all (made in a temporary folder, then renamed); whoever needs it while it
is being made waits for it, over all processes. Trade-off: nothing is ever deleted; the folder can be removed at any
time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


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
    if entry.is_dir():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{entry.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.is_dir():
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
