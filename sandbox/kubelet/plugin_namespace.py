"""Gives a command folders of ours at paths that it has built in, then becomes that command. Run as a program.

The mounts are made in a mount namespace of the command's own, so nothing changes for anybody else, and they vanish
with its last process. Root needs no more; without root a user namespace comes first, in which the command sees itself
as root. A path that the machine lacks, such as ``/var/lib/kubelet``, is not made there: the command gets a copy of the
deepest folder that exists, whose entries are the originals and to which the path is added.

It is a program of its own, because a process with threads cannot enter a user namespace, and reports to a socket. It
imports only the standard library, which keeps its start short.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SLAVE = 0x80000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class LaunchFailed(Exception):
    """A step of the way to the command failed: ``step`` is namespace, mount or command."""

    def __init__(self, step: str, error: OSError, what: str = "") -> None:
        super().__init__(step, error, what)
        self.report = {"step": step, "errno": error.errno, "problem": error.strerror, "what": what}


def main() -> NoReturn:
    """Read the settings from the socket whose number is the first argument; become the command in the others."""
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    settings = _settings(report)
    try:
        folders = {seen: Path(given) for seen, given in settings["folders"].items()}
        if folders:
            _enter()
            _mount_all(folders, Path(settings["stage"]))
        # Our parent opens our namespace first, so that nothing in it can escape.
        os.write(report, b"{}\n")
        os.read(report, 1)
        _become(sys.argv[2:], settings["environment"], settings["parent"])
    except LaunchFailed as failed:
        os.write(report, json.dumps(failed.report).encode() + b"\n")
    os._exit(127)


def _settings(report: int) -> dict[str, Any]:
    """The line of settings; not an argument, whose length is limited."""
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(report, 1 << 16)
        if not piece:
            os._exit(127)  # Our parent is gone.
        data += piece
    settings: dict[str, Any] = json.loads(data)
    return settings


def _enter() -> None:
    """Enter a mount namespace from which no mount reaches the machine; raises ``LaunchFailed``."""
    user, group = os.geteuid(), os.getegid()
    try:
        if not _unshare(_CLONE_NEWNS):
            if not _unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            # Without this a group map needs privileges.
            Path("/proc/self/setgroups").write_bytes(b"deny")
            Path("/proc/self/uid_map").write_bytes(b"0 %d 1" % user)
            Path("/proc/self/gid_map").write_bytes(b"0 %d 1" % group)
        # The machine's later mounts and unmounts are seen here, and none of ours there.
        _mount("none", "/", _MS_REC | _MS_SLAVE)
    except OSError as error:
        raise LaunchFailed("namespace", error) from error


def _unshare(flags: int) -> bool:
    return int(_libc.unshare(flags)) == 0


def _mount(source: str | Path, target: str | Path, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount_all(folders: Mapping[str, Path], stage: Path) -> None:
    """Mount each folder at the path it is seen at; raises ``LaunchFailed``."""
    for number, (seen, given) in enumerate(folders.items()):
        # A path may lead through links (/var/run is one), and a mount sits where they end.
        path = Path(os.path.realpath(seen))
        try:
            if not path.is_dir():
                _add(path, stage / str(number))
            _mount(given, path, _MS_BIND | _MS_REC)
        except OSError as error:
            raise LaunchFailed("mount", error, seen) from error


def _add(path: Path, copy: Path) -> None:
    """Make ``path`` exist for this namespace alone, by a ``copy`` mounted over its deepest existing folder.

    What the command makes beside the originals stays in ``copy``, and is there again at its next start.
    """
    above = next(folder for folder in path.parents if folder.is_dir())
    copy.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(above):
        target = copy / entry.name
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            if not target.is_symlink():
                target.symlink_to(Path(entry.path).readlink())
            continue
        if stat.S_ISDIR(mode):
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        _mount(entry.path, target, _MS_BIND | _MS_REC)
    (copy / path.relative_to(above)).mkdir(parents=True, exist_ok=True)
    copy.chmod(stat.S_IMODE(above.stat().st_mode))
    _mount(copy, above, _MS_BIND | _MS_REC)


def _become(command: list[str], environment: Mapping[str, str], parent: int) -> NoReturn:
    """Replace this program by the command; raises ``LaunchFailed``."""
    # Python ignores it, and what is ignored stays so in the command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # The command must not outlive its parent. Only now, because entering a user namespace resets it.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)
    try:
        os.execvpe(command[0], command, dict(environment))  # noqa: S606 - the command is the caller's
    except OSError as error:
        raise LaunchFailed("command", error, command[0]) from error


if __name__ == "__main__":
    main()
