"""Checks of the ways to hear of hardware that comes, goes and changes. Nothing fails without them; it is seen later."""

from __future__ import annotations

from node.inventory.live.udev import EventState, Reach, look
from node.rules import offers_nics
from ostler.doctor.check import Check, Subject
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_driver import RECORDED
from ostler.doctor.verdict import Finding, ok, skipped, warning


def judge_uevents(reach: Reach, fault: str, fix: str, *, interfaces: bool = True) -> Finding:
    """Who tells of devices. ``fault``: why no uevents can be had in that way, with its fix; empty for nothing.

    ``interfaces``: whether a rule is about NICs; from the kernel only events of network interfaces are ever missed.
    """
    if reach.state is EventState.POLLING:
        return warning(f"folders are compared instead of uevents: {reach.missed}", reach.hint)
    if fault:
        return warning(f"folders are compared instead of uevents: {fault}", fix)
    if reach.missed and not interfaces:
        return ok("uevents of the kernel, but for network interfaces, which no rule is about")
    if reach.missed:
        return warning(f"uevents of the kernel; {reach.missed}", reach.hint)
    if reach.state is EventState.UDEV:
        return ok("uevents of udevd")
    return ok(f"uevents of the kernel, no udevd in sight ({reach.hint})" if reach.hint else "uevents of the kernel")


def judge_rtnetlink(links: int | None, fault: str) -> Finding:
    """Whether changes of interfaces are told; ``links`` None where it failed."""
    if links is None:
        return warning(
            f"links cannot be listed: {fault}", "allow netlink sockets (AF_NETLINK) in the unit or the seccomp profile"
        )
    return ok(f"answers, {links} links")


def _stream_fault(state: EventState) -> tuple[str, str]:
    # Here and not above: libudev is loaded for this check only.
    from node.inventory.live.udev import UdevStream, UeventsUnavailable

    try:
        UdevStream(state).close()
    except UeventsUnavailable as error:
        return error.reason, error.hint
    return "", ""


def _uevents(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    reach = look(view.host / "run/udev", view.proc)
    fault, fix = ("", "") if reach.state is EventState.POLLING else _stream_fault(reach.state)
    return judge_uevents(reach, fault, fix, interfaces=offers_nics(view.settings.rules))


def _rtnetlink(view: NodeView) -> Finding:
    from node.inventory.network.host import KernelTables
    from node.inventory.network.netlink import NetlinkError

    if view.recorded:
        return skipped(RECORDED)
    try:
        return judge_rtnetlink(len(KernelTables().links()), "")
    except NetlinkError as error:
        return judge_rtnetlink(None, str(error))


SUBJECT = Subject(
    "events",
    (
        Check(
            "uevents",
            "libudev, `/run/udev` and the network namespace: from where the agent hears of devices",
            "`hostNetwork: true`, a read-only mount of `/run/udev`, libudev.so.1 in the image",
            _uevents,
        ),
        Check(
            "rtnetlink",
            "The kernel tells of links, addresses and routes",
            "Allow AF_NETLINK sockets",
            _rtnetlink,
        ),
    ),
)
