"""Names of the driver's sockets: unique to each serving, readable where the path's length allows it.

Two instances of the driver may live side by side during an update, and a kubelet from 1.37 on confuses instances that
follow each other under one path. So every serving has names of its own, and whoever begins removes those that a killed
predecessor left: a kubelet goes on dialling them for half an hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from driver.door.registration import DoorOptions
from node.sockets import MAX_PATH, FileId, is_answered, is_socket, remove_dead

_UNIQUE = "[0-9a-f]{8}"


def unique() -> str:
    """What tells one serving from the next."""
    return os.urandom(4).hex()


def claim_socket(serving: str) -> str:
    """The name of the socket that claims are served on, in the driver's own folder."""
    return f"dra-{serving}.sock"


def registration_socket(options: DoorOptions, serving: str) -> str:
    """The name of the socket in the kubelet's registry; with a hash for the driver's name where that is too long."""
    readable = f"{options.driver_name}-{serving}-reg.sock"
    if len(os.fsencode(options.registry_dir / readable)) <= MAX_PATH:
        return readable
    return f"{_hashed(options.driver_name)}-{serving}-reg.sock"


def claim_sockets(folder: Path) -> tuple[Path, ...]:
    """Sockets of any instance of the driver whose folder it is, the oldest first."""
    return tuple(sorted(_sockets(folder, re.compile(f"dra-{_UNIQUE}\\.sock")), key=age))


def registration_sockets(options: DoorOptions) -> tuple[Path, ...]:
    """Registration sockets of any instance of the driver."""
    names = "|".join(re.escape(name) for name in (options.driver_name, _hashed(options.driver_name)))
    return tuple(_sockets(options.registry_dir, re.compile(f"(?:{names})-{_UNIQUE}-reg\\.sock")))


def age(path: Path) -> tuple[int, int]:
    """What orders sockets by the time at which they were made; those that are gone come first."""
    identity = FileId.of(path)
    return (0, 0) if identity is None else (identity.modified_ns, identity.inode)


def sweep(options: DoorOptions) -> list[Path]:
    """Remove the driver's sockets that nobody answers; only for who holds the instance lock."""
    dead = [path for path in (*claim_sockets(options.folder), *registration_sockets(options)) if not is_answered(path)]
    for path in dead:
        with contextlib.suppress(OSError):  # It stays: the kubelet's attempts to reach it are in vain, and harm nobody.
            path.unlink()
    return dead + remove_dead(options.folder)


def _hashed(driver_name: str) -> str:
    return f"dra-{hashlib.sha256(driver_name.encode()).hexdigest()[:12]}"


def _sockets(folder: Path, names: re.Pattern[str]) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []  # It is missing, or not ours to read; serving there says so.
    return [path for path in found if names.fullmatch(path.name) and is_socket(path)]
