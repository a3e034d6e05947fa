"""Unix sockets on the file system: where they may be, how they get their name, when they may be removed.

gRPC binds whatever path it is given: it silently takes the path of a live server, and when it stops it removes the
path even if another server owns it by then. So a server binds a hidden temporary name, and the finished socket is
renamed into place: clients never see a half-made one, a successor takes over in one step, and what is removed at the
end is only ever the inode that was put there (``PlacedSocket``). Hidden names are ignored by the kubelet's watcher.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from node.values import Value, value

MAX_PATH = 107
"""Bytes that a Unix socket's path may have: the kernel's 108 less the closing zero, which gRPC insists on."""

PREFIX = "ostler-"
"""Start of the names of our sockets in folders that others use, too; hidden ones have a dot before it."""


CHANNEL = (
    # Of its own: connections to a predecessor at the same path are never reused.
    ("grpc.use_local_subchannel_pool", 1),
    # An answer over a Unix socket needs no probe of the connection's bandwidth. The probe sets short timers, and agents
    # with it spend on average a third more in gRPC's threads while they are idle (docs/performance.md).
    ("grpc.http2.bdp_probe", 0),
)
"""Channel arguments of every client of a Unix socket in the agent, which is idle most of the time."""


class SocketError(Exception):
    """A socket cannot be where it should be; ``path``, ``problem`` and ``fix`` say it in words for people."""

    def __init__(self, path: Path, problem: str, fix: str) -> None:
        super().__init__(f"{path}: {problem}; {fix}")
        self.path = path
        self.problem = problem
        self.fix = fix


@value
class FileId(Value):
    """Identity of a file, which its successor under the same name does not have.

    An inode number alone is soon used again. The time of modification goes with it and not that of change, which a new
    mode or a security label moves as well; nobody writes to a socket, so its content is as old as itself.
    """

    device: int
    inode: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> FileId | None:
        """The identity of the file at ``path`` without following links; None when there is none to be seen."""
        try:
            status = path.lstat()
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_mtime_ns)


def is_socket(path: Path) -> bool:
    """Whether a Unix socket is at ``path`` (links are not followed)."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def check_place(directory: Path, name: str) -> Path:
    """The path of socket ``name`` in ``directory``, after checking that a socket can and may be there.

    Raises ``SocketError`` for a path that is too long, a directory that is missing, not writable or open to all, and
    for anything but a socket in the way.
    """
    path = directory / name
    length = len(os.fsencode(path))
    if length > MAX_PATH:
        raise SocketError(path, f"the path has {length} bytes, a socket's may have {MAX_PATH}", "use a shorter folder")
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError as error:
        raise SocketError(directory, "the folder does not exist", "create it or correct the setting") from error
    except OSError as error:
        raise SocketError(
            directory, f"the folder cannot be read ({error.strerror})", "check its permissions"
        ) from error
    if not stat.S_ISDIR(mode):
        raise SocketError(directory, "is not a folder", "remove what is there or correct the setting")
    if mode & stat.S_IWOTH:
        raise SocketError(
            directory, f"anybody may write to the folder (mode {mode & 0o7777:04o})", "run 'chmod o-w' on it"
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SocketError(
            directory, "the folder is not writable", "check its permissions and whether it is mounted read-only"
        )
    if os.path.lexists(path) and not is_socket(path):  # Path has no lexists before 3.12
        raise SocketError(path, "something that is not a socket is in the way", "remove it")
    return path


def make_private_directory(directory: Path) -> None:
    """Create ``directory`` (and parents) for sockets of our own, closed to all but its owner.

    Raises ``SocketError`` when that cannot be done.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise SocketError(directory, "is not a folder", "remove what is there or correct the setting") from error
    except OSError as error:
        raise SocketError(
            directory, f"cannot be created ({error.strerror})", "check the permissions above it"
        ) from error


class PlacedSocket:
    """One socket from its hidden temporary name to its removal; ``temporary`` is what a server has to bind."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = check_place(directory, name)
        self.temporary = check_place(directory, f".{PREFIX}{os.urandom(4).hex()}")
        self._id: FileId | None = None

    def publish(self, mode: int = 0o600, replacing: Sequence[Path] = ()) -> None:
        """Give the bound socket its permissions and its name; raises ``SocketError``.

        ``replacing``: names that go in the same moment, just before. A reader of the folder, as the kubelet every
        second, sees all of it or nothing, except within some microseconds.
        """
        try:
            self.temporary.chmod(mode)
            for path in replacing:
                path.unlink(missing_ok=True)
            self.temporary.rename(self.path)
        except OSError as error:
            raise SocketError(self.path, f"cannot be put in place ({error.strerror})", "check the folder") from error
        self._id = FileId.of(self.path)

    @property
    def intact(self) -> bool:
        """Whether the file at the path is still the one that was put there."""
        return self._id is not None and FileId.of(self.path) == self._id

    def remove(self) -> None:
        """Remove the socket if it is ours; what others put there stays."""
        if self.intact:
            self.path.unlink(missing_ok=True)
        self.temporary.unlink(missing_ok=True)
        self._id = None


def is_answered(path: Path, seconds: float = 1.0) -> bool:
    """Whether somebody listens at ``path``; blocks for at most ``seconds``, on a live socket for microseconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        try:
            client.connect(str(path))
        except OSError as error:
            # A full backlog means that somebody is there.
            return error.errno in (errno.EAGAIN, errno.EINPROGRESS) or isinstance(error, TimeoutError)
        return True


def remove_dead(directory: Path) -> list[Path]:
    """Remove sockets of a killed predecessor: named like ours, hidden or not, and answered by nobody.

    Only for a caller that holds the instance lock, so that no other instance can be about to listen.
    """
    removed = []
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return []
    for path in entries:
        if path.name.removeprefix(".").startswith(PREFIX) and is_socket(path) and not is_answered(path):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed
