"""The folders of MPS: pipes, into which pods can write, and logs and libraries, which pods never see.

A pod with a share has its resource's folder of pipes mounted and can put anything into it: links, a tree of any depth,
any number of files, in place of the daemon's own. So nothing that is there is followed or opened here, removal needs
no memory and no descriptors for the depth of a tree, and every daemon starts with a folder that no pod has yet. Pods
that have an old one need a restart, as after every crash of a daemon.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from node.inventory.nvidia.nvml_library import FOLDERS

LIBRARIES = "lib"
"""Below MPS's root: links to the driver's libraries."""
REMOVED = ".removed"
"""Below MPS's root: folders out of use, where pods may still be writing."""
_CUDA = "libcuda.so."
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_BATCH = 1000
"""Folders that are read together: no pod decides how much memory that takes."""
_LONGEST = 5.0
"""Seconds for a removal; what is then left, or still filled by a pod, goes with the next folder."""


def remove(root: Path, folder: Path) -> None:
    """Take a folder below ``root`` out of use, and remove as much of it as pods let go; raises OSError."""
    removed = root / REMOVED
    if not folder.exists():
        return
    removed.mkdir(mode=0o700, exist_ok=True)
    folder.rename(removed / os.urandom(8).hex())
    clear(removed)


def clear(folder: Path) -> None:
    """Remove as much of what is in a folder as pods let go; raises OSError."""
    top, deadline = os.open(folder, _FOLDER), time.monotonic() + _LONGEST
    try:
        with contextlib.suppress(TimeoutError):
            # One that stays, because a pod fills it, must not keep the others.
            while sum(_flatten(top, name, deadline) for name in _unlink_all(top, deadline)):
                continue
    finally:
        os.close(top)


def _flatten(top: int, name: str, deadline: float) -> bool:
    """Remove a folder in ``top``; those in it become ones in ``top``. Whether it is gone."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=top)
        try:
            while inner := _unlink_all(folder, deadline):
                for each in inner:
                    os.rename(each, os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    return True


def _unlink_all(folder: int, deadline: float) -> list[str]:
    """Remove everything but folders, and empty folders; some of the others. Raises TimeoutError."""
    left = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > deadline:
                raise TimeoutError
            try:
                if entry.is_dir(follow_symlinks=False):
                    os.rmdir(entry.name, dir_fd=folder)
                else:
                    os.unlink(entry.name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError:
                left.append(entry.name)
                if len(left) == _BATCH:
                    break
    return left


def link_libraries(driver_root: Path, folder: Path) -> None:
    """Link the driver's own libraries by the names under which programs look for them; raises OSError."""
    found = {}
    for place in FOLDERS:
        for cuda in sorted((driver_root / place).glob(f"{_CUDA}*.*")):
            version = cuda.name.removeprefix(_CUDA)
            found = {each.name: each for each in cuda.parent.glob(f"*.so.{version}")}
            break
        if found:
            break
    folder.mkdir(mode=0o755, exist_ok=True)
    for name, path in found.items():
        for link in (folder / name, folder / f"{name.partition('.so.')[0]}.so.1"):
            # Other daemons may run by these links: they are never missing for long.
            if not link.is_symlink() or link.readlink() != path:
                link.unlink(missing_ok=True)
                link.symlink_to(path)
