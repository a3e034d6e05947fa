"""The one place that knows pyudev: a stream of uevents that never blocks, and from where this process can hear them.

pyudev and libudev are loaded when a stream is opened (10 ms, 1.7 MB), not with this module. The library's own poll()
and observer thread are not used: after a socket overflow they raise the same error for ever, because nothing reads the
error off the socket. Its receive call does, once; that call is private in pyudev, hence only used here.

Nothing fails when uevents do not arrive, so ``look`` finds out from where they can. Three facts decide (systemd's
sd-device and the kernel's lib/kobject_uevent.c):

- udevd announces a device when its rules are done, in the network namespace of the host alone. To a listener there
  without /run/udev/control in sight, libudev gives multicast group 0: no error and no events, ever.
- The kernel announces devices to every network namespace that belongs to the first user namespace, but network
  interfaces only to their own.
- A process in another user namespace sees messages of root as those of nobody, and libudev drops them.
"""

from __future__ import annotations

import socket
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.inventory.vendors import VENDORS
from node.libraries import found_by_soname
from node.opening import read_kernel_text
from node.values import Value, value

if TYPE_CHECKING:
    import pyudev

SUBSYSTEMS = (
    "pci",
    "net",
    "infiniband",
    "infiniband_verbs",
    "infiniband_mad",
    "auxiliary",
    "vdpa",
    "vfio",
    "vfio-dev",
    "uio",
    "drm",
    "misc",
    "module",
    *(subsystem for vendor in VENDORS for subsystem in vendor.subsystems),
)
"""Subsystems to listen to; with events from udev, the kernel drops the rest before it reaches the agent."""


@value
class Uevent(Value):
    """One uevent; ``path`` begins with /sys. Parts that could not be read are empty; the event still counts."""

    action: str
    subsystem: str
    path: str

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]


class UeventsUnavailable(Exception):
    """No uevents are available; ``hint`` says what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"no uevents: {reason}; {hint}")
        self.reason = reason
        self.hint = hint


class UeventStream(Protocol):
    """Uevents as they come."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def receive(self) -> Uevent | None:
        """The next event, None if there is none.

        Raises OSError: with ENOBUFS, once, if events were lost, and the stream continues; any other error ends it.
        """

    def close(self) -> None:
        """Stop listening."""


class UdevStream:
    """A pyudev monitor; raises UeventsUnavailable. May be made in any thread, blocks for some milliseconds."""

    def __init__(self, source: EventState) -> None:
        try:
            with found_by_soname():
                import pyudev

                context = pyudev.Context()
        except (ImportError, OSError, AttributeError) as error:
            # AttributeError: a libudev without one of the functions.
            raise UeventsUnavailable(f"libudev cannot be used ({error})", "add libudev.so.1 to the image") from error
        try:
            monitor: pyudev.Monitor = pyudev.Monitor.from_netlink(context, source=source.value)
            for subsystem in SUBSYSTEMS:
                monitor.filter_by(subsystem)
            monitor.start()
        except OSError as error:
            reason = f"the {source} monitor cannot be started ({error.strerror or error})"
            raise UeventsUnavailable(reason, "allow netlink sockets (AF_NETLINK, NETLINK_KOBJECT_UEVENT)") from error
        if multicast_groups(monitor.fileno()) == 0:
            hint = "mount the host's /run/udev read-only"
            raise UeventsUnavailable("libudev does not see udevd and receives nothing", hint)
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
            # An interface's name may have any bytes, and pyudev refuses to decode some; the fact of a change is enough.
            return Uevent("", "", "")

    def close(self) -> None:
        """Stop listening: libudev closes the socket with the last reference."""
        self._monitor = None


_HOST_NETWORK = "hostNetwork: true in the pod's spec"
_RUN_UDEV = "a read-only hostPath mount of /run/udev"
_WHOLE_RANGE = "4294967295"


class EventState(StrEnum):
    """The source of uevents."""

    UDEV = "udev"
    """udevd, after its rules: interfaces have their final names."""
    KERNEL = "kernel"
    """The kernel itself."""
    POLLING = "polling"
    """Nobody: folders are compared instead."""


@value
class Reach(Value):
    """Where events come from, what they miss (empty: nothing), and how to improve that (may be empty).

    From the kernel only events of network interfaces are ever missed.
    """

    state: EventState
    missed: str = ""
    hint: str = ""


def choose(*, udevd: bool, host_network: bool, host_users: bool) -> Reach:
    """The best source of events. ``udevd``: its control socket is visible; ``host_network`` and ``host_users``: this
    process is in the first network and user namespace.
    """
    if not host_users:
        return Reach(EventState.POLLING, "this user namespace gets no uevents", "hostUsers: true in the pod's spec")
    if host_network:
        if udevd:
            return Reach(EventState.UDEV)
        return Reach(EventState.KERNEL, hint=f"for names that udev gives: {_RUN_UDEV}")
    hint = _HOST_NETWORK if udevd else f"{_HOST_NETWORK} and {_RUN_UDEV}"
    return Reach(
        EventState.KERNEL,
        "this network namespace is not the host's: the host's interfaces send no events here",
        hint,
    )


def look(run_udev: Path = Path("/run/udev"), proc: Path = Path("/proc")) -> Reach:
    """Find the best source of events for this process; ``proc`` must show this process' own namespaces."""
    return choose(
        udevd=(run_udev / "control").exists(),
        # These settings of the network core exist once per machine and are shown in the first namespace only.
        host_network=(proc / "sys/net/core/dev_weight").exists(),
        host_users=_maps_all_users(proc / "self/uid_map"),
    )


def multicast_groups(descriptor: int) -> int | None:
    """The groups that a netlink socket listens to; None when it is of another family (a test bed's stand-in)."""
    # The descriptor stays its owner's: socket() takes over what it is given, so it is detached again.
    view = socket.socket(fileno=descriptor)
    try:
        name = view.getsockname() if view.family == socket.AF_NETLINK else None
    finally:
        view.detach()
    return int(name[1]) if isinstance(name, tuple) else None


def _maps_all_users(uid_map: Path) -> bool:
    try:
        return read_kernel_text(uid_map).split() == ["0", "0", _WHOLE_RANGE]
    except OSError:
        # A kernel without user namespaces.
        return True
