"""Sysctls of one interface, below /proc/sys/net/{ipv4,ipv6}/conf/NAME, in the namespace of the thread.

A container without privileges has /proc/sys read-only. Then a procfs of our own is made that is mounted nowhere
(fsopen, fsmount): it needs CAP_SYS_ADMIN, which moving interfaces needs anyway, and changes no mount of anybody.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from node.interfaces.model import InterfaceError

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of the system calls, the same on every architecture."""
_CLOEXEC, _CREATE = 1, 6
_FAMILIES = ("ipv4", "ipv6")
_KEY = re.compile(r"(ipv4|ipv6)/([a-z][a-z0-9_]*)")
_LONGEST = 4096
"""Bytes of a value."""
_NOT_RESTORED = frozenset({"ipv6/mtu", "ipv6/stable_secret"})
"""Follows the link's MTU; may not be read."""
_NOT_BY_DEFAULT = frozenset({"ipv6/accept_dad"})
"""The kernel sets -1 for a link that comes to a namespace without ARP, whatever the default there says."""


class NoProcfs(Exception):
    """The kernel refuses a procfs; the text is its reason."""


def own_sysctls(interface: str) -> tuple[tuple[str, str], ...]:
    """The writable sysctls of the interface that differ from those that a moved one may get, as ``ipv4/NAME``."""
    found = []
    with _opened() as conf:
        for family in _FAMILIES:
            # Two hundred files, for which a pod waits: they are opened by name in their folder, not by their long path.
            with _folder(f"{conf}/{family}/conf/default") as usual, _folder(f"{conf}/{family}/conf/{interface}") as own:
                if usual is None or own is None:
                    continue  # The kernel has no IPv6.
                for name in os.listdir(usual):  # noqa: PTH208 - of a descriptor
                    key, text = f"{family}/{name}", _read(name, own)
                    if text is None or key in _NOT_RESTORED:
                        continue
                    if text == _read(name, usual) and key not in _NOT_BY_DEFAULT:
                        continue
                    # Here and not before: most are alike.
                    if os.stat(name, dir_fd=own).st_mode & 0o200:
                        found.append((key, text))
    return tuple(sorted(found))


def read_sysctls(interface: str, keys: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The present values of these sysctls; those that do not exist are left out."""
    with _opened() as conf:
        found = [(key, _read(_path(conf, interface, key))) for key in keys]
    return tuple((key, text) for key, text in found if text is not None)


def set_sysctls(interface: str, wanted: Iterable[tuple[str, str]]) -> None:
    """Set those that differ; raises InterfaceError naming the sysctl."""
    differing = {key: text for key, text in wanted if dict(read_sysctls(interface, [key])).get(key) != text}
    if not differing:
        return
    with _opened() as conf:
        try:
            _write(conf, interface, differing)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise _refused(interface, error) from error
        else:
            return
    try:
        with _opened(own=True) as conf:
            _write(conf, interface, differing)
    except OSError as error:
        raise _refused(interface, error) from error
    except NoProcfs as error:
        raise InterfaceError(
            f"interface {interface}: cannot set sysctls: /proc/sys is read-only, and the kernel refuses a procfs of "
            f"the agent's own: {error}; the agent needs the capability SYS_ADMIN"
        ) from error


def _write(conf: str, interface: str, wanted: dict[str, str]) -> None:
    for key, text in wanted.items():
        # Not Path.write_text: a sysctl takes one write, and must not be created.
        descriptor = os.open(_path(conf, interface, key), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        except OSError as error:
            raise OSError(error.errno, error.strerror, _path(conf, interface, key)) from error
        finally:
            os.close(descriptor)


def _refused(interface: str, error: OSError) -> InterfaceError:
    parts = str(error.filename).rsplit("/", 4)
    key = f"{parts[-4]}/{parts[-1]}" if len(parts) > 3 else str(error.filename)
    fix = (
        "this kernel does not have it; leave it out"
        if error.errno == errno.ENOENT
        else "correct its value, or leave it out"
    )
    return InterfaceError(f"interface {interface}: cannot set the sysctl {key}: {error.strerror}; {fix}")


def _path(conf: str, interface: str, key: str) -> str:
    match = _KEY.fullmatch(key)
    if match is None or interface in {"", ".", ".."} or "/" in interface:
        raise InterfaceError(
            f"interface {interface}: sysctl {key!r} must be ipv4/NAME or ipv6/NAME, below net/FAMILY/conf/{interface}"
        )
    return f"{conf}/{match[1]}/conf/{interface}/{match[2]}"


@contextmanager
def _folder(path: str) -> Iterator[int | None]:
    """A descriptor of the folder; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(path: str, folder: int | None = None) -> str | None:
    """The text of the file; None if it cannot be read. ``path`` is relative to ``folder``, if given."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.read(descriptor, _LONGEST).decode().strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


@contextmanager
def _opened(*, own: bool = False) -> Iterator[str]:
    """The path of ``net`` below /proc/sys; ``own``: of a procfs made for this, which can be written."""
    if not own:
        yield "/proc/sys/net"
        return
    mounted = _procfs()
    try:
        yield f"/proc/self/fd/{mounted}/sys/net"
    finally:
        os.close(mounted)


def _procfs() -> int:
    """The descriptor of a procfs that is mounted nowhere; raises NoProcfs."""
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"proc", _CLOEXEC)
    try:
        if context < 0 or libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0) < 0:
            raise NoProcfs(os.strerror(ctypes.get_errno()))
        mounted = libc.syscall(_FSMOUNT, context, _CLOEXEC, 0)
        if mounted < 0:
            raise NoProcfs(os.strerror(ctypes.get_errno()))
    finally:
        if context >= 0:
            os.close(context)
    return int(mounted)
