"""Where uevents can be heard from here, and what to change where they cannot. Nothing fails when they do not arrive.

Three things decide (systemd's sd-device and the kernel's lib/kobject_uevent.c):

- udevd announces a device when its rules are done, in the network namespace of the host alone. Whoever listens there
  without /run/udev/control in sight is given multicast group 0 by libudev: no error and no events, ever.
- The kernel announces devices to every network namespace that belongs to the first user namespace, but network
  interfaces only to their own.
- A process in another user namespace sees messages of root as those of nobody, and libudev drops them.
"""

from __future__ import annotations

import socket
from enum import StrEnum
from pathlib import Path

from node.opening import read_kernel_text
from node.values import Value, value

_HOST_NETWORK = "hostNetwork: true in the pod's spec"
_RUN_UDEV = "a read-only hostPath mount of /run/udev"
_WHOLE_RANGE = "4294967295"


class EventState(StrEnum):
    """Who tells of hardware that comes and goes."""

    UDEV = "udev"
    """udevd, after its rules: interfaces have their final names."""
    KERNEL = "kernel"
    """The kernel itself."""
    POLLING = "polling"
    """Nobody: folders are compared instead."""


@value
class Reach(Value):
    """From where events come, what is missed so (empty for nothing), and what would better it (may be empty).

    From the kernel only events of network interfaces are ever missed.
    """

    state: EventState
    missed: str = ""
    hint: str = ""


def choose(*, udevd: bool, host_network: bool, host_users: bool) -> Reach:
    """The best way to hear of events.

    ``udevd``: its control socket is in sight; ``host_network`` and ``host_users``: this process is in the first
    network and user namespace.
    """
    if not host_users:
        return Reach(EventState.POLLING, "this user namespace gets no uevents", "hostUsers: true in the pod's spec")
    if host_network:
        if udevd:
            return Reach(EventState.UDEV)
        return Reach(EventState.KERNEL, hint=f"for names that udev gives: {_RUN_UDEV}")
    hint = _HOST_NETWORK if udevd else f"{_HOST_NETWORK} and {_RUN_UDEV}"
    return Reach(EventState.KERNEL, "this network namespace is not the host's: its interfaces are not heard of", hint)


def look(run_udev: Path = Path("/run/udev"), proc: Path = Path("/proc")) -> Reach:
    """How it is for this process; ``proc`` must show this process' own namespaces."""
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
