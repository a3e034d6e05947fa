"""Checks of limits that are exhausted silently: inotify, open files, disk space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from node.directories import Inotify, KernelInotify
from node.opening import read_kernel_text
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, joined, ok, several, skipped, warning
from ostler.doctor.machine import whose
from ostler.doctor.node import NodeView
from ostler.doctor.reading import number_of, pids, text_of

_SCARCE = 8
"""Inotify instances that should be left: kubelet, runtime and other agents need some too."""
_FEW_FILES = 1024
"""Open files that an agent may need: a stream per resource, sockets, libraries of drivers."""
_FULL = 0.9
_LITTLE = 64 << 20
"""Free bytes on a disk below which the check warns; a state folder needs some 100 KiB."""
_NOTHING = 1 << 20
_FEW_INODES = 100


@dataclass(frozen=True, slots=True)
class InotifyUse:
    """The limits of one user, None if unknown, and the use of them by the visible processes."""

    uid: int
    max_instances: int | None
    instances: int
    max_watches: int | None
    watches: int


def judge_instances(use: InotifyUse, refusal: str = "") -> CheckFinding:
    """Whether inotify instances are left; ``refusal``: why the kernel refused one, empty if it did not.

    Requested as well as counted, because a pod sees only its own processes, while the limit holds for all processes of
    the user.
    """
    if refusal:
        most = "" if use.max_instances is None else f" (the limit is {use.max_instances})"
        return warning(
            f"user {use.uid} cannot get another inotify instance: {refusal}{most}; the agent polls folders instead",
            f"sysctl fs.inotify.max_user_instances={max(8192, 2 * (use.max_instances or 0))}",
        )
    if use.max_instances is None:
        return skipped("fs.inotify.max_user_instances cannot be read")
    found = f"user {use.uid} has {use.instances} of {use.max_instances} inotify instances in use"
    if use.max_instances - use.instances < _SCARCE:
        return warning(
            f"{found}: when none is left, the agent checks folders four times a second instead",
            f"sysctl fs.inotify.max_user_instances={max(8192, 2 * use.max_instances)}",
        )
    return ok(found)


def judge_watches(use: InotifyUse) -> CheckFinding:
    """Whether folders can still be watched."""
    if use.max_watches is None:
        return skipped("fs.inotify.max_user_watches cannot be read")
    found = f"user {use.uid} has {use.watches} of {use.max_watches} inotify watches in use"
    if use.watches > _FULL * use.max_watches:
        return warning(found, f"sysctl fs.inotify.max_user_watches={max(524288, 2 * use.max_watches)}")
    return ok(found)


def read_inotify(proc: Path, uid: int) -> InotifyUse:
    """A user's limits and use; processes that are invisible or unreadable are not counted."""
    instances = watches = 0
    for pid in pids(proc):
        for descriptor in _inotify_descriptors(proc / str(pid), uid):
            instances += 1
            try:
                # Not a small file: a line for every watch.
                lines = read_kernel_text(proc / str(pid) / "fdinfo" / descriptor).splitlines()
            except OSError:
                continue  # Closed meanwhile.
            watches += sum(line.startswith("inotify ") for line in lines)
    limits = proc / "sys/fs/inotify"
    return InotifyUse(
        uid, number_of(limits / "max_user_instances"), instances, number_of(limits / "max_user_watches"), watches
    )


def refused_inotify(open_watch: Callable[[], Inotify] = KernelInotify) -> str:
    """Why the kernel refuses an inotify instance, empty if it grants one, which is closed at once."""
    try:
        open_watch().close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _inotify_descriptors(process: Path, uid: int) -> list[str]:
    try:
        if process.stat().st_uid != uid:
            return []
        return [link.name for link in (process / "fd").iterdir() if _is_inotify(link)]
    except OSError:
        return []  # Ended meanwhile, or not accessible to us.


def _is_inotify(link: Path) -> bool:
    try:
        return str(link.readlink()) == "anon_inode:inotify"
    except OSError:
        return False  # Closed meanwhile.


@dataclass(frozen=True, slots=True)
class FileUse:
    """Open files of a process and of the whole machine, each with its limit; None where unknown."""

    opened: int | None
    limit: int | None
    machine_opened: int | None
    machine_limit: int | None


def judge_files(use: FileUse, whose: str) -> CheckFinding:
    """Whether files and sockets can still be opened."""
    if use.machine_opened is not None and use.machine_limit and use.machine_opened > _FULL * use.machine_limit:
        return warning(
            f"{use.machine_opened} of {use.machine_limit} files of the machine are open", "raise fs.file-max"
        )
    if use.opened is None or use.limit is None:
        return skipped(f"the open files of {whose} cannot be seen from here")
    found = f"{whose} has {use.opened} of {use.limit} files open"
    if use.opened > _FULL * use.limit or use.limit < _FEW_FILES:
        return warning(found, "raise LimitNOFILE of the unit, or the runtime's limit of open files, to 65536")
    return ok(found)


def read_files(proc: Path, pid: int | str) -> FileUse:
    """Open files and limits of a process and of the machine."""
    try:
        opened = sum(1 for _ in (proc / str(pid) / "fd").iterdir())
    except OSError:
        opened = None
    limits = (text_of(proc / str(pid) / "limits") or "").splitlines()
    words = next((line.split() for line in limits if line.startswith("Max open files")), [])
    machine = (text_of(proc / "sys/fs/file-nr") or "").split()
    return FileUse(
        opened,
        int(words[3]) if len(words) > 3 and words[3].isdigit() else None,
        int(machine[0]) if len(machine) == 3 else None,
        int(machine[2]) if len(machine) == 3 else None,
    )


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free space in a folder's file system; ``inodes`` is None if the file system has no such limit."""

    folder: Path
    bytes: int
    inodes: int | None


def judge_room(rooms: Iterable[FreeSpace]) -> CheckFinding:
    """Whether files can still be written whole."""
    rooms = tuple(rooms)
    findings = [finding for room in rooms if (finding := _judge_one(room)) is not None]
    free = [f"{room.folder} has {_size(room.bytes)} free" for room in rooms]
    return joined(findings, several(free, 4))


def _judge_one(room: FreeSpace) -> CheckFinding | None:
    fix = f"free space on the file system of {room.folder}"
    if room.bytes < _NOTHING:
        return failed(f"{room.folder} has {_size(room.bytes)} free: ostler cannot write state and CDI specs", fix)
    if room.inodes is not None and room.inodes < _FEW_INODES:
        return failed(f"{room.folder} has {room.inodes} inodes free: soon no file can be created", fix)
    if room.bytes < _LITTLE:
        return warning(f"{room.folder} has only {_size(room.bytes)} free", fix)
    return None


def read_room(folder: Path) -> FreeSpace | None:
    """Free space where ``folder`` is or would be; None if that cannot be read."""
    for place in (folder, *folder.parents):
        try:
            status = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return FreeSpace(folder, status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None)
    return None


def _size(number: int) -> str:
    amount = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}"


def _files(view: NodeView) -> CheckFinding:
    pid, name = whose(view)
    return judge_files(read_files(view.proc, pid), name)


def _room(view: NodeView) -> CheckFinding:
    settings = view.settings
    folders = (settings.state_dir, settings.kubelet.device_plugin_dir, settings.cdi.directory)
    return judge_room([room for folder in folders if (room := read_room(folder)) is not None])


SUBJECT = CheckSubject(
    "limits",
    (
        Check(
            "inotify-instances",
            "The agent's user has inotify instances left (`fs.inotify.max_user_instances`)",
            "Raise `fs.inotify.max_user_instances`; until then the agent checks folders four times a second",
            lambda view: judge_instances(read_inotify(view.proc, os.geteuid()), refused_inotify()),
        ),
        Check(
            "inotify-watches",
            "The agent's user has inotify watches left (`fs.inotify.max_user_watches`)",
            "Raise `fs.inotify.max_user_watches`",
            lambda view: judge_watches(read_inotify(view.proc, os.geteuid())),
        ),
        Check(
            "open-files",
            "The agent's open files are below its limit, and the machine's below `fs.file-max`",
            "Raise `LimitNOFILE` of the unit, or the runtime's limit",
            _files,
        ),
        Check(
            "disk-space",
            "The state folder, the kubelet's folder and the CDI folder have bytes and inodes left",
            "Free space on the named file system",
            _room,
        ),
    ),
)
