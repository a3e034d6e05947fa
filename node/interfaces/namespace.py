"""A network namespace other than the process's: opened by path, entered by one thread at a time.

``setns`` changes the namespace of one thread only, and a thread of a pool would carry it to whoever uses it next. So
everything that must happen inside runs in a thread of its own that ends afterwards, unless the calling thread is there
already: a pod waits for each change of threads. Sockets keep the namespace in which they were made: a netlink socket
that was opened inside serves from any thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from node.interfaces.model import InterfaceError
from node.netlink import NetlinkSocket

_Result = TypeVar("_Result")

_HERE = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x40000000
_GET_TYPE = 0xB703
"""NS_GET_NSTYPE of linux/nsfs.h."""
_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENOTDIR})


class NetworkNamespace:
    """An open network namespace, which lives at least as long as this; ``path`` is the one given.

    Raises FileNotFoundError if there is none at the path (any more: what it was mounted on may be left), and
    InterfaceError if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _GONE:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
            raise InterfaceError(f"cannot open the network namespace {path}: {error.strerror}") from error
        if not _is_network_namespace(self._descriptor):
            os.close(self._descriptor)
            raise FileNotFoundError(errno.ENOENT, "no network namespace is mounted there", str(path))
        found = os.fstat(self._descriptor)
        self.inode, self._device = found.st_ino, found.st_dev
        """Distinguishes namespaces: a path may name a later one."""

    def fileno(self) -> int:
        """The descriptor that names the namespace to the kernel."""
        return self._descriptor

    def close(self) -> None:
        """Let the namespace go."""
        os.close(self._descriptor)

    def run(self, function: Callable[[], _Result]) -> _Result:
        """What the function returns or raises, called in this namespace.

        Raises InterfaceError if the namespace cannot be entered.
        """
        here = _HERE.stat()
        if (here.st_dev, here.st_ino) == (self._device, self.inode):
            return function()
        outcome: list[_Result] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                self.enter()
                outcome.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                failure.append(error)

        thread = threading.Thread(target=inside, name="namespace", daemon=True)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]

    def netlink(self, groups: int = 0, *, protocol: int = socket.NETLINK_ROUTE) -> NetlinkSocket:
        """A netlink socket of this namespace; raises NetlinkError and InterfaceError."""
        strict = protocol == socket.NETLINK_ROUTE
        return self.run(lambda: NetlinkSocket(groups, protocol=protocol, strict=strict))

    def enter(self) -> None:
        """Move the calling thread into this namespace, for good; raises InterfaceError."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self._descriptor, _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise InterfaceError(
                f"cannot enter the network namespace {self.path}: {reason}; "
                "the agent needs the capabilities SYS_ADMIN and NET_ADMIN to move interfaces"
            )

    def __enter__(self) -> NetworkNamespace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _is_network_namespace(descriptor: int) -> bool:
    try:
        return fcntl.ioctl(descriptor, _GET_TYPE) == _CLONE_NEWNET
    except OSError:
        return False
