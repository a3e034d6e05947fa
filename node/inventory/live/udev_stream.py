"""The one place that knows pyudev: a stream of uevents that never blocks.

pyudev and libudev are loaded when a stream is opened (10 ms, 1.7 MB), not with this module. The library's own poll()
and observer thread are not used: after a socket overflow they raise the same error for ever, because nothing reads the
error off the socket. Its receive call does, once; that call is private in pyudev, hence only used here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from node.inventory.live.reach import EventState, multicast_groups
from node.inventory.live.uevent import SUBSYSTEMS, Uevent
from node.libraries import found_by_soname

if TYPE_CHECKING:
    import pyudev


class UeventsUnavailable(Exception):
    """No uevents can be had; ``hint`` says what would change that."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"no uevents: {reason}; {hint}")
        self.reason = reason
        self.hint = hint


class UeventStream(Protocol):
    """Uevents as they come."""

    def fileno(self) -> int:
        """The descriptor to wait on."""
        ...

    def receive(self) -> Uevent | None:
        """The next event, None when there is none now.

        Raises OSError: with ENOBUFS when events were lost, once, and the stream goes on; else it is of no more use.
        """
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class UdevStream:
    """A pyudev monitor; raises UeventsUnavailable. May be made in any thread, blocks for some milliseconds."""

    def __init__(self, source: EventState, subsystems: tuple[str, ...] = SUBSYSTEMS) -> None:
        try:
            with found_by_soname():
                import pyudev

                context = pyudev.Context()
        except (ImportError, OSError, AttributeError) as error:
            # AttributeError: a libudev without one of the functions.
            raise UeventsUnavailable(f"libudev cannot be used ({error})", "add libudev.so.1 to the image") from error
        try:
            monitor: pyudev.Monitor = pyudev.Monitor.from_netlink(context, source=source.value)
            for subsystem in subsystems:
                monitor.filter_by(subsystem)
            monitor.start()
        except OSError as error:
            reason = f"the {source} monitor cannot be started ({error.strerror or error})"
            raise UeventsUnavailable(reason, "allow netlink sockets (AF_NETLINK, NETLINK_KOBJECT_UEVENT)") from error
        if multicast_groups(monitor.fileno()) == 0:
            hint = "mount the host's /run/udev read-only"
            raise UeventsUnavailable("libudev does not see udevd and listens to nobody", hint)
        self._monitor: pyudev.Monitor | None = monitor

    def fileno(self) -> int:
        """The descriptor to wait on."""
        assert self._monitor is not None
        return int(self._monitor.fileno())

    def receive(self) -> Uevent | None:
        """See UeventStream."""
        assert self._monitor is not None
        device = self._monitor._receive_device()  # noqa: SLF001 - see the module's docstring
        if device is None:
            return None
        try:
            return Uevent(device.action or "", device.subsystem or "", device.sys_path or "")
        except UnicodeError:
            # An interface's name may hold any bytes, and pyudev refuses to decode some; that it changed is enough.
            return Uevent("", "", "")

    def close(self) -> None:
        """Stop listening: libudev closes the socket with the last reference."""
        self._monitor = None
