"""The kernel's mounts as MPS needs them: small file systems in memory, and the mount namespaces in which they are seen.

A daemon's file system is a tmpfs with a limit of bytes and of files, mounted where the container runtime can bind it
into pods. A daemon looks for the memory that it shares with pods at /dev/shm alone. So it runs in a mount namespace of
its own, in which this folder of its file system is mounted there; nobody else's /dev/shm changes.

``unshare`` and ``mount`` act on the calling thread. A thread that ends afterwards therefore needs no further process:
the daemon that it starts stays in the thread's namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from node.opening import read_kernel_text
from node.values import Value, value

Result = TypeVar("Result")

SOURCE = "ostler-mps"
"""The source of the agent's mounts, by which they are found again."""
_NEWNS = 0x00020000
_NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _SLAVE = 2, 4, 8, 32, 4096, 16384, 1 << 19
_LIMITED = _NOSUID | _NODEV | _NOEXEC
_DETACH, _NOFOLLOW = 2, 8
_PAGE = 4096
_LABEL = "security.selinux"
_OF_THE_NODE = "pid:[4026531836]"
"""The node's own pid namespace, whose number is part of the kernel's interface (``PROC_PID_INIT_INO``)."""
_GROUP = re.compile(r"shared:([0-9]+)")


@value
class KernelMount(Value):
    """A mount as ``mountinfo`` describes it. ``number``: no other mount of any namespace has it.

    ``root``: the folder of the file system that is mounted at ``point``. ``group``: of mounts that propagate to each
    other, None for a mount whose submounts nobody else sees. ``options``: of the file system.
    """

    number: int
    device: str
    root: str
    point: Path
    kind: str
    source: str
    options: tuple[str, ...] = ()
    group: int | None = None


class Mounts(Protocol):
    """Mounts for daemons. All calls block for a moment only; all but ``hindrance`` raise OSError."""

    def mount(self, folder: Path, size: int, files: int) -> None:
        """Mount a file system of at most that many bytes and files at the folder."""

    def shrink(self, folder: Path) -> None:
        """Stop the growth of the file system at the folder, wherever else it is mounted."""

    def unmount(self, folder: Path) -> bool:
        """Unmount it; False if something still uses it, so that it is only detached and ends with its last user."""

    def below(self, root: Path) -> tuple[Path, ...]:
        """Folders below the root with a file system that an agent mounted."""

    def at(self, folder: Path) -> KernelMount | None:
        """The mount that the folder is on."""

    def hindrance(self, root: Path, shared_memory: Path) -> str:
        """Why no file system for a daemon can be mounted below the root; empty if one can."""

    def is_visible(self, root: Path) -> bool:
        """Whether the container runtime sees what this process mounts below the root."""

    def in_namespace(self, root: Path, shm: Path, shared_memory: Path, act: Callable[[], Result]) -> Result:
        """Act in a mount namespace of its own with ``shm`` mounted at ``shared_memory``; raises what ``act`` does."""


def read_mounts(path: Path) -> tuple[KernelMount, ...]:
    """The mounts of a process, by its ``mountinfo``, in the order of the mounts; raises OSError."""
    found = []
    for line in read_kernel_text(path).splitlines():
        before, _, after = line.partition(" - ")
        fields, file_system = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(file_system) < 3:
            continue
        group = next((match[1] for field in fields[6:] if (match := _GROUP.fullmatch(field))), None)
        found.append(
            KernelMount(
                int(fields[0]),
                fields[2],
                _plain(fields[3]),
                Path(_plain(fields[4])),
                file_system[0],
                _plain(file_system[1]),
                tuple(file_system[2].split(",")),
                None if group is None else int(group),
            )
        )
    return tuple(found)


def _plain(text: str) -> str:
    """A path without the kernel's escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(folder: Path, mounts: Iterable[KernelMount]) -> KernelMount | None:
    """The mount that a folder is on; raises OSError if the folder is missing."""
    number = folder.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    over = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    # A mount that another one hides has another device.
    over = [mount for mount in over if mount.device == device] or over
    return max(over, key=lambda mount: len(mount.point.parts), default=None)


def sees(ours: KernelMount, first: Iterable[KernelMount], namespace: str) -> bool:
    """Whether mounts on ``ours`` reach the node.

    ``first``: what process 1 has mounted, which is the node's own unless the agent runs in a container. ``namespace``:
    the agent's pid namespace.
    """
    first = tuple(first)
    if all(mount.number != ours.number and (ours.group is None or mount.group != ours.group) for mount in first):
        return False
    # In a container process 1 is one of the container, and only a mount that propagates is anybody else's.
    return ours.group is not None or namespace == _OF_THE_NODE


class KernelMounts:
    """Implements ``Mounts`` by the kernel; ``proc`` is where it shows processes."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def mount(self, folder: Path, size: int, files: int) -> None:
        """See ``Mounts``."""
        options = f"mode=0755,size={size},nr_inodes={files}"
        # Files get the type of their folder, so pods may use what they may use in the folder below.
        label = _label_of(folder)
        if label:
            with contextlib.suppress(OSError):  # The label is of a time when SELinux was on.
                return _mount(SOURCE, folder, "tmpfs", _LIMITED, f'{options},rootcontext="{label}"')
        return _mount(SOURCE, folder, "tmpfs", _LIMITED, options)

    def shrink(self, folder: Path) -> None:
        """See ``Mounts``."""
        for attempt in range(3):
            used = os.statvfs(folder)
            size = max(_PAGE, (used.f_blocks - used.f_bfree) * used.f_frsize)
            options = f"size={size},nr_inodes={max(1, used.f_files - used.f_ffree)}"
            try:
                return _mount(SOURCE, folder, "tmpfs", _REMOUNT | _LIMITED, options)
            except OSError as error:
                # It grew meanwhile.
                if error.errno != errno.EINVAL or attempt == 2:
                    raise
        return None

    def unmount(self, folder: Path) -> bool:
        """See ``Mounts``."""
        try:
            _unmount(folder, _NOFOLLOW)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            _unmount(folder, _NOFOLLOW | _DETACH)
            return False
        return True

    def below(self, root: Path) -> tuple[Path, ...]:
        """See ``Mounts``."""
        return tuple(
            mount.point
            for mount in read_mounts(self._proc / "self/mountinfo")
            if mount.source == SOURCE and mount.kind == "tmpfs" and root in mount.point.parents
        )

    def at(self, folder: Path) -> KernelMount | None:
        """See ``Mounts``."""
        return mount_of(folder, read_mounts(self._proc / "self/mountinfo"))

    def hindrance(self, root: Path, shared_memory: Path) -> str:
        """See ``Mounts``; tried in a namespace that ends with the attempt, so nothing changes on the node."""
        try:
            self.in_namespace(root, root, shared_memory, lambda: self.mount(root, _PAGE, 16))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def is_visible(self, root: Path) -> bool:
        """See ``Mounts``."""
        ours = self.at(root)
        namespace = os.fspath((self._proc / "self/ns/pid").readlink())
        return ours is not None and sees(ours, read_mounts(self._proc / "1/mountinfo"), namespace)

    def in_namespace(self, root: Path, shm: Path, shared_memory: Path, act: Callable[[], Result]) -> Result:
        """See ``Mounts``."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                _checked(_LIBC.unshare(_NEWNS), "unshare")
                # What is unmounted outside goes here as well, and nothing from here goes outside.
                _mount("none", Path("/"), "", _REC | _SLAVE, "")
                self._leave_others(root, shm)
                _mount(str(shm), shared_memory, "", _BIND, "")
                results.append(act())
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors.append(error)

        thread = threading.Thread(target=run, name="MPS namespace")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _leave_others(self, root: Path, shm: Path) -> None:
        """Detach other daemons' file systems in this thread's namespace, which would keep their memory otherwise."""
        for folder in self.below(root):
            if folder not in shm.parents:
                _unmount(folder, _NOFOLLOW | _DETACH)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, folder: Path, kind: str, flags: int, options: str) -> None:
    arguments = source.encode(), os.fsencode(folder), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    _checked(_LIBC.mount(*arguments), str(folder))


def _unmount(folder: Path, flags: int) -> None:
    _checked(_LIBC.umount2(os.fsencode(folder), flags), str(folder))


def _checked(result: int, what: str) -> None:
    """Raise the kernel's error of a call that failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _label_of(folder: Path) -> str:
    """The SELinux label of a folder; empty on a node without SELinux."""
    try:
        return os.getxattr(folder, _LABEL, follow_symlinks=False).rstrip(b"\0").decode()
    except (OSError, ValueError):
        return ""
