"""Keeps the network namespaces of pods alive while interfaces of ours are in them.

A namespace ends with its last user. The kernel then gives physical interfaces back to the node, and destroys all
others: veths, macvlans, IPoIB children. If a pod ends while the agent does not run, its successor would find nothing.
So each namespace is mounted on a file of ours as well, until the interfaces are back.

A mount outlives the process, but not the mount namespace: an agent in a container loses its pins when the container
ends. Pins are best effort, therefore: without one, what is physical still comes back.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from node.interfaces.model import InterfaceError
from node.interfaces.namespace import NetworkNamespace

log = logging.getLogger("ostler.interfaces")

_BIND, _DETACH = 4096, 2


class NamespacePins:
    """Pins in ``folder``, each under a name. Blocking; one call per name at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pin(self, name: str, netns: Path) -> None:
        """Keep the namespace alive; if that is impossible, or there is none, do nothing."""
        target = self._folder / name
        try:
            with NetworkNamespace(netns) as namespace:
                if _inode(target) == namespace.inode:
                    return
                self.release(name)
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                target.touch(mode=0o600)
                _libc_call("mount", f"/proc/self/fd/{namespace.fileno()}".encode(), bytes(target), None, _BIND, None)
        except FileNotFoundError:
            return
        except (InterfaceError, OSError) as error:
            log.info("a pod's network namespace cannot be pinned", extra={"path": str(netns), "error": str(error)})
            self.release(name)

    def path(self, name: str) -> Path | None:
        """Where the namespace is pinned; None if it is not."""
        target = self._folder / name
        return target if _inode(target) is not None else None

    def release(self, name: str) -> None:
        """Let the namespace end; there may be no pin."""
        target = self._folder / name
        with suppress(OSError):
            _libc_call("umount2", bytes(target), _DETACH)
        with suppress(OSError):
            target.unlink(missing_ok=True)

    def keep_only(self, names: Collection[str]) -> None:
        """Release all others: of an agent that was killed, or of an earlier boot."""
        with suppress(OSError):
            for name in {path.name for path in self._folder.iterdir()} - set(names):
                self.release(name)


def _inode(path: Path) -> int | None:
    """Identifies the namespace that is mounted there; None for none."""
    try:
        with NetworkNamespace(path) as namespace:
            return namespace.inode
    except (FileNotFoundError, InterfaceError):
        return None


def _libc_call(name: str, *arguments: object) -> None:
    """Call a function of the C library; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
