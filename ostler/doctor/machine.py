"""Checks of the machine: its id, its clock, the rights of this process, and how it reports hardware events.

Nothing fails without hardware events; changes of hardware are only seen later.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from pathlib import Path

from node.inventory.live.udev import EventState, Reach, look
from node.opening import read_kernel_text
from node.rules import offers_nics
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, ok, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.reading import text_of

_EARLIEST = 1_735_689_600.0
"""Unix seconds of 2025-01-01: an earlier clock is wrong, because this program is younger."""
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""
_STATUS_OFFSET = 40
"""Bytes before ``status`` in ``struct timex`` where a long has 8."""
_RUNTIMES_PROFILES = ("cri-containerd.apparmor.d", "crio-default", "docker-default")
"""AppArmor profiles that container runtimes give every container: they allow all that an agent does."""
_ALL_CAPABILITIES = "cap_last_cap"


def judge_machine_id(text: str | None) -> CheckFinding:
    """Whether the machine has an id; ``text`` is the content of /etc/machine-id."""
    fix = "run 'systemd-machine-id-setup'; in a pod mount the host's /etc/machine-id read-only"
    if text is None:
        return warning("cannot read /etc/machine-id: ostler cannot tell whether a Node object is this machine's", fix)
    if len(text) != 32 or not all(letter in "0123456789abcdef" for letter in text):
        shown = repr(text[:40]) if text else "empty"
        return warning(f"/etc/machine-id is {shown}, not 32 hexadecimal digits", fix)
    # Not shown: reports are sent to others, and the id is not meant for them.
    return ok("present, 32 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """``now`` and ``booted`` in Unix seconds; ``synchronised`` is None if the kernel does not say."""

    now: float
    booted: float | None
    synchronised: bool | None


def judge_clock(clock: ClockFacts) -> CheckFinding:
    """Whether the clock is plausible."""
    fix = "set the clock and run a time service (chrony, systemd-timesyncd)"
    if clock.now < _EARLIEST:
        return failed(f"the clock is at {clock.now:.0f} s after 1970, which is years ago", fix)
    if clock.booted is not None and clock.booted > clock.now + 1:
        return failed(f"the boot time is {clock.booted - clock.now:.0f} s in the future", fix)
    if clock.synchronised is None:
        return skipped("the kernel does not say whether the clock is synchronised")
    if not clock.synchronised:
        return warning("the clock is not synchronised: times of events and certificates may be wrong", fix)
    return ok("synchronised")


def read_synchronised() -> bool | None:
    """Whether the kernel's clock is disciplined by a time service; only reads, sets nothing."""
    if ctypes.sizeof(ctypes.c_long) != 8:
        return None
    buffer = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None  # Another C library, or a filter of system calls: the finding says that it is unknown.
    if state < 0:
        return None
    (status,) = struct.unpack_from("=i", buffer, _STATUS_OFFSET)
    return not status & _UNSYNCHRONISED


def _booted(proc: Path) -> float | None:
    try:
        lines = read_kernel_text(proc / "stat").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """A process's effective user and capabilities, and the kernel's highest capability."""

    pid: int | str
    uid: int
    capabilities: int
    last_capability: int
    filtered: bool


def judge_rights(facts: RightsFacts | None, whose: str) -> CheckFinding:
    """Whether the process may do what an agent does. ``whose``: ``the agent`` or ``this command``."""
    if facts is None:
        return skipped(f"the rights of {whose} cannot be seen from here")
    if facts.uid != 0:
        found = f"{whose} runs as user {facts.uid}; the kubelet's folders and the agent's socket are root's"
        return warning(found, "run it as root; as another user some checks do not see everything")
    count = facts.capabilities.bit_count()
    seccomp = ", system calls filtered" if facts.filtered else ""
    return ok(f"{whose} runs as root with {count} of {facts.last_capability + 1} capabilities{seccomp}")


def read_rights(proc: Path, pid: int | str) -> RightsFacts | None:
    """The rights of a process; None if it is invisible."""
    text = text_of(proc / str(pid) / "status")
    if text is None:
        return None
    fields = {key: value.split() for key, _, value in (line.partition(":") for line in text.splitlines())}
    try:
        uid, effective = int(fields["Uid"][1]), int(fields["CapEff"][0], 16)
    except (KeyError, IndexError, ValueError):
        return None
    last = text_of(proc / "sys/kernel" / _ALL_CAPABILITIES)
    known = int(last) if last is not None and last.isdigit() else max(0, effective.bit_length() - 1)
    return RightsFacts(pid, uid, effective, known, fields.get("Seccomp", ["0"])[0] == "2")


@dataclass(frozen=True, slots=True)
class SecurityFacts:
    """``selinux``: ``enforcing``, ``permissive`` or empty for off; ``context``: of the process."""

    selinux: str
    apparmor: bool
    context: str


def judge_security(facts: SecurityFacts) -> CheckFinding:
    """Whether a security module may block the agent."""
    if facts.selinux == "enforcing" and ":container_t:" in facts.context:
        return failed(
            f"SELinux is enforcing and the context is {facts.context}: the kubelet's sockets cannot be reached",
            "give the pod seLinuxOptions with a type that may reach them, such as spc_t",
        )
    if facts.selinux:
        return ok(f"SELinux is {facts.selinux}, the context is {facts.context or 'unknown'}")
    profile, _, _ = facts.context.partition(" (")
    if facts.apparmor and profile in _RUNTIMES_PROFILES:
        return ok(f"AppArmor has the container runtime's own profile ({profile})")
    if facts.apparmor and facts.context and not facts.context.startswith("unconfined"):
        return warning(
            f"AppArmor confines it: {facts.context}",
            "if sockets or device files are refused, run it with the AppArmor profile 'unconfined'",
        )
    return ok("AppArmor does not confine it" if facts.apparmor else "neither SELinux nor AppArmor is on")


def read_security(sys: Path, proc: Path, pid: int | str) -> SecurityFacts:
    """The state of SELinux and AppArmor, and the context of a process."""
    enforce = text_of(sys / "fs/selinux/enforce")
    context = (text_of(proc / str(pid) / "attr/current") or "").rstrip("\0")
    return SecurityFacts(
        "" if enforce is None else "enforcing" if enforce == "1" else "permissive",
        text_of(sys / "module/apparmor/parameters/enabled") == "Y",
        context,
    )


def whose(view: NodeView) -> tuple[int | str, str]:
    """The process to examine, and its name: the agent's if it answers and is visible, else this one."""
    pid = view.agent().pid
    if pid is not None and any(process.pid == pid and process.runs_agent for process in view.processes()):
        return pid, "the agent"
    return "self", "this command"


def _rights(view: NodeView) -> CheckFinding:
    pid, name = whose(view)
    return judge_rights(read_rights(view.proc, pid), name)


SUBJECT = CheckSubject(
    "machine",
    (
        Check(
            "machine-id",
            "`/etc/machine-id` is readable; it tells the agent whether a Node object is this machine's",
            "Run `systemd-machine-id-setup`; in a pod mount the host's file read-only",
            lambda view: judge_machine_id(text_of(view.host / "etc/machine-id")),
        ),
        Check(
            "clock",
            "The clock is synchronised and plausible",
            "Run a time service (chrony, systemd-timesyncd)",
            lambda view: judge_clock(ClockFacts(view.clock(), _booted(view.proc), read_synchronised())),
        ),
        Check(
            "rights",
            "The agent, or this command if no agent answers, runs as root; its capabilities",
            "Run it as root",
            _rights,
        ),
        Check(
            "security-modules",
            "SELinux and AppArmor let the agent reach the kubelet's sockets",
            "Give the pod `seLinuxOptions` with type `spc_t`, or the AppArmor profile `unconfined`",
            lambda view: judge_security(read_security(view.sys, view.proc, whose(view)[0])),
        ),
    ),
)


def judge_uevents(reach: Reach, fault: str, fix: str, *, interfaces: bool = True) -> CheckFinding:
    """Where events of devices come from. ``fault``: why uevents are unavailable, with its fix; empty if they are.

    ``interfaces``: whether a rule is about NICs; only events of network interfaces are ever missing from the kernel's.
    """
    if reach.state is EventState.POLLING:
        return warning(f"the agent polls folders instead of receiving uevents: {reach.missed}", reach.hint)
    if fault:
        return warning(f"the agent polls folders instead of receiving uevents: {fault}", fix)
    if reach.missed and not interfaces:
        return ok("uevents of the kernel, except for network interfaces, which no rule concerns")
    if reach.missed:
        return warning(f"uevents of the kernel; {reach.missed}", reach.hint)
    if reach.state is EventState.UDEV:
        return ok("uevents of udevd")
    return ok(f"uevents of the kernel; found no udevd ({reach.hint})" if reach.hint else "uevents of the kernel")


def judge_rtnetlink(links: int | None, fault: str) -> CheckFinding:
    """Whether the kernel reports changes of interfaces; ``links`` is None if listing failed."""
    if links is None:
        return warning(
            f"cannot list links: {fault}", "allow netlink sockets (AF_NETLINK) in the unit or the seccomp profile"
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


def _uevents(view: NodeView) -> CheckFinding:
    reach = look(view.host / "run/udev", view.proc)
    fault, fix = ("", "") if reach.state is EventState.POLLING else _stream_fault(reach.state)
    return judge_uevents(reach, fault, fix, interfaces=offers_nics(view.settings.rules))


def _rtnetlink(_: NodeView) -> CheckFinding:
    from node.inventory.network.host import KernelTables
    from node.netlink import NetlinkError

    try:
        return judge_rtnetlink(len(KernelTables().links()), "")
    except NetlinkError as error:
        return judge_rtnetlink(None, str(error))


EVENTS = CheckSubject(
    "events",
    (
        Check(
            "uevents",
            "The agent can receive udev's events: libudev, `/run/udev` and the network namespace",
            "Set `hostNetwork: true`, mount `/run/udev` read-only, and have libudev.so.1 in the image",
            _uevents,
            hardware=True,
        ),
        Check(
            "rtnetlink",
            "The kernel reports links, addresses and routes",
            "Allow AF_NETLINK sockets",
            _rtnetlink,
            hardware=True,
        ),
    ),
)
