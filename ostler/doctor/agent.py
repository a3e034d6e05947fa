"""Checks of the configuration and of the running agent: it answers, is ready, is this program, and keeps its state.

One agent must be active and no more: a check names who holds the lock and who else is running. The lock is not touched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from node.lock import FolderLock, holder_of
from node.opening import read_kernel_text
from ostler import __version__
from ostler.config.errors import NoteKind
from ostler.config.load import Loaded
from ostler.doctor.answers import NO_AGENT, AgentAnswers, ask_page
from ostler.doctor.check import Check, CheckFinding, CheckSubject, closed, failed, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.reading import RunningProcess

_OTHERS_WRITE = 0o022


def judge_socket(agent: AgentAnswers) -> CheckFinding:
    """Whether the agent answers."""
    if agent.status is not None:
        return ok(f"ostler {agent.status.version}, process {agent.status.pid}, {agent.status.role}")
    if not agent.listening:
        return warning(agent.fault, "if it runs, give its socket with --socket, and run this as root")
    return failed(f"the agent answers with an error: {agent.fault}", "look at its log, and restart it if it hangs")


def judge_readiness(agent: AgentAnswers) -> CheckFinding:
    """Whether the agent serves, and the state of its sources."""
    if agent.status is None:
        return skipped(NO_AGENT)
    reasons = several(list(agent.status.reasons), 3)
    if not agent.status.ready:
        return failed(
            f"not ready: {reasons or 'no reason given'}", "see 'ostler status' and the checks of the kubelet below"
        )
    unwell = [f"{source.name}: {source.detail}" for source in agent.status.sources if source.state == "failed"]
    if unwell:
        return warning(f"ready, but a source failed: {several(unwell, 3)}", "follow the source's message")
    return ok(f"ready{f': {reasons}' if reasons else ''}")


def judge_quiesced(agent: AgentAnswers, reason: str | None) -> CheckFinding:
    """Whether the driver is quiesced; ``reason`` is from the state folder and holds for every instance."""
    if reason is not None or (agent.status is not None and agent.status.quiesced):
        found = f"quiesced ({reason or 'no reason given'}): devices are shown unhealthy, no new pod gets one"
        return warning(found, "run 'ostler resume' when the driver has been replaced")
    return ok("not quiesced") if agent.status is not None else skipped(NO_AGENT)


def judge_version(agent: AgentAnswers) -> CheckFinding:
    """Whether the agent is the program that this command belongs to."""
    if agent.status is None:
        return skipped(NO_AGENT)
    if agent.status.version != __version__:
        found = f"the agent is {agent.status.version}, this command {__version__}"
        return warning(found, "restart the agent after an update, or use the command of the agent's image")
    return ok(__version__)


def judge_http(answer: str | None, address: str | None, agent: AgentAnswers) -> CheckFinding:
    """Whether the agent answers probes; ``answer`` is empty for a good one, None if probes are off."""
    if address is None:
        return skipped("probes and metrics are switched off")
    if agent.status is None or answer is None:
        return skipped(NO_AGENT)
    if answer:
        found = f"{address} does not answer /healthz: {answer}"
        return failed(found, "find the process that uses the port ('ss -ltnp'), or set another address with --http")
    return ok(f"{address} answers /healthz")


def ask_http(address: str) -> str:
    """The fault of ``/healthz``'s answer; empty for a good one."""
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "": "127.0.0.1"}.get(host, host.strip("[]"))
    page = ask_page(host, int(port))
    return "" if page.well else page.fault or f"{page.status} {page.text[:500]}"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """The mode and owner of a folder, None if it does not exist; ``writable``: by this user, who may also create it."""

    path: Path
    mode: int | None
    owner: int | None
    writable: bool


def judge_state(facts: FolderFacts, *, root: bool = True) -> CheckFinding:
    """Whether the agent can save its state. ``root``: the facts were read with root's rights."""
    if not root and not facts.writable:
        return closed(facts.path)
    if facts.mode is None and facts.writable:
        return ok(f"{facts.path} does not exist yet and can be created")
    if not facts.writable:
        there = "cannot be created" if facts.mode is None else "is not writable"
        fix = "check its permissions and whether it is mounted read-only, or give another folder with --state-dir"
        return failed(f"{facts.path} {there}", fix)
    mode = facts.mode or 0
    if mode & _OTHERS_WRITE:
        return failed(f"others may write to {facts.path} (mode {mode:04o})", f"chmod 0700 {facts.path}")
    return ok(f"{facts.path} is writable, mode {mode:04o}")


def read_folder(path: Path) -> FolderFacts:
    """The folder's facts as this process sees them."""
    try:
        status = path.stat()
    except OSError:
        above = next((parent for parent in path.parents if os.path.isdir(parent)), Path("/"))  # noqa: PTH112 - no errors
        return FolderFacts(path, None, None, above.is_dir() and os.access(above, os.W_OK | os.X_OK))
    return FolderFacts(
        path, status.st_mode & 0o7777, status.st_uid, path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    )


def _http(view: NodeView) -> CheckFinding:
    address, agent = view.settings.http, view.agent()
    answer = ask_http(address) if address is not None and agent.status is not None else None
    return judge_http(answer, address, agent)


@dataclass(frozen=True, slots=True)
class LockFacts:
    """``exists``: whether there is a lock file; ``holder``: the process that holds it, None if none is visible."""

    exists: bool
    holder: int | None = None


def judge_lock(lock: LockFacts, agent: AgentAnswers, path: Path, *, agent_visible: bool) -> CheckFinding:
    """Whether exactly one instance is active. ``agent_visible``: the agent's process is visible from here."""
    if lock.holder is not None and agent.status is None:
        return warning(
            f"process {lock.holder} holds {path}, but no agent answers at its socket",
            f"look at its log; if it hangs, end process {lock.holder}",
        )
    if lock.holder is not None:
        return ok(f"held by process {lock.holder}")
    if agent.status is None:
        return skipped(f"{NO_AGENT}, and no process visible from here holds {path}")
    if not agent_visible:
        return skipped("the agent's process cannot be seen from here")
    gone = "is not held by any process" if lock.exists else "is gone"
    return failed(
        f"an agent is active, but its lock file {path} {gone}: a second agent would serve the same devices",
        "restart the agent, and never remove or replace its lock file",
    )


def read_lock(path: Path, proc: Path, agent: int | None = None) -> LockFacts:
    """The lock file and its holder; ``agent``: the process that should hold it."""
    try:
        status = path.stat()
    except OSError:
        return LockFacts(exists=False)
    try:
        table = read_kernel_text(proc / "locks")
    except OSError:
        table = ""
    return LockFacts(exists=True, holder=holder_of(status.st_ino, table) or _opener(proc, agent, status))


def _opener(proc: Path, pid: int | None, status: os.stat_result) -> int | None:
    """The process if it has the file open, as only a holder has; the lock table's numbers differ on some systems."""
    try:
        opened = list((proc / str(pid) / "fd").iterdir()) if pid is not None else []
    except OSError:
        return None  # If it cannot be seen, nothing is known about it.
    return pid if any(_same(link, status) for link in opened) else None


def _same(link: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(link.stat(), status)
    except OSError:
        return False  # Closed meanwhile.


def judge_kubelet_lock(folder: FolderLock, agent: AgentAnswers, *, active: bool) -> CheckFinding:
    """Whether no agent with another state folder serves the same kubelet; ``active``: the agent that answers is."""
    if agent.status is None:
        return skipped(NO_AGENT)
    holder = folder.holder()
    if not holder:
        return skipped(f"no process visible from here holds {folder.path}")
    if active:
        return ok(f"held by {holder}")
    return warning(
        f"{holder} serves the kubelet of {folder.path}; the agent that answers here waits for it to end",
        "if that is not the active instance of the same installation, end one of the two, "
        "or give both the same state folder",
    )


def judge_instances(others: tuple[RunningProcess, ...], agent: AgentAnswers) -> CheckFinding:
    """Whether there are more instances than one active and one standby."""
    if agent.status is None and not others:
        return skipped(NO_AGENT)
    shown = several([str(process.pid) for process in others])
    if agent.status is None:
        found = f"'ostler run' runs (process {shown}) and does not answer at the agent's socket"
        return warning(found, "give its socket with --socket, or look at its log")
    if len(others) > 1:
        return warning(
            f"{len(others)} more instances run (processes {shown}); one standby is enough",
            "end those that neither a DaemonSet nor a systemd unit has started",
        )
    return ok(f"one standby (process {shown})" if others else "no standby")


def instances(
    processes: tuple[RunningProcess, ...], state_dir: Path, active: set[int | None]
) -> tuple[RunningProcess, ...]:
    """Processes of ``ostler run`` with the same state folder, besides the active one.

    ``active``: the process ids of the active one. It reports its own, which differs from the one here if it runs in a
    container.
    """
    return tuple(
        process
        for process in processes
        if process.runs_agent
        and process.pid not in active
        and (process.flag("--state-dir") or "/var/lib/ostler") == str(state_dir)
    )


def _lock(view: NodeView) -> CheckFinding:
    agent = view.agent()
    path = view.settings.state_dir / "lock"
    visible = any(process.pid == agent.pid and process.runs_agent for process in view.processes())
    return judge_lock(read_lock(path, view.proc, agent.pid), agent, path, agent_visible=visible)


def _kubelet_lock(view: NodeView) -> CheckFinding:
    agent = view.agent()
    active = agent.status is not None and agent.status.role == "active"
    return judge_kubelet_lock(FolderLock(view.settings.kubelet.device_plugin_dir, view.proc), agent, active=active)


def _instances(view: NodeView) -> CheckFinding:
    agent, state = view.agent(), view.settings.state_dir
    active = {agent.pid, read_lock(state / "lock", view.proc).holder} if agent.status is not None else set()
    return judge_instances(instances(view.processes(), state, active), agent)


LOCK_CHECKS = (
    Check(
        "agent-lock",
        "The process that holds the lock of the active instance answers",
        "End a process that hangs; never remove the lock file",
        _lock,
    ),
    Check(
        "agent-kubelet-lock",
        "No agent with another state folder serves the same kubelet",
        "End one of the two, or give both the same state folder",
        _kubelet_lock,
    ),
    Check(
        "agent-instances",
        "At most one standby waits beside the active instance",
        "End instances that are not needed",
        _instances,
    ),
)


def judge_configuration(loaded: Loaded, problems: tuple[str, ...]) -> CheckFinding:
    """Whether the configuration is usable and has effect."""
    if problems:
        found = f"the configuration is not usable: {several(problems, 3)}"
        return failed(found, "correct it and try 'ostler config check FILE'; the other checks use the defaults")
    faults = [str(note) for note in loaded.notes if note.kind is NoteKind.FAULT]
    if faults:
        return warning(several(faults, 3), "correct the file named there, then run 'ostler reload'")
    if not loaded.settings.rules:
        return warning("no rule: nothing is offered", "add an entry to 'resources', or leave 'resources' out")
    names = list(dict.fromkeys(rule.resource for rule in loaded.settings.rules))
    ignored = sum(note.kind is NoteKind.IGNORED for note in loaded.notes)
    more = f"; {ignored} values without effect, see 'ostler config check'" if ignored else ""
    return ok(f"usable ({loaded.source_format}), offers {several(names)}{more}")


CONFIGURATION = CheckSubject(
    "configuration",
    (
        Check(
            "configuration",
            "The configuration file, flags and variables are usable, and all of them have effect",
            "Correct what `ostler config check FILE` names, then run `ostler reload`",
            lambda view: judge_configuration(view.loaded, view.problems),
        ),
    ),
)


SUBJECT = CheckSubject(
    "agent",
    (
        Check(
            "agent-socket",
            "The running agent answers at its own socket",
            "Start it; its log says why it ended",
            lambda view: judge_socket(view.agent()),
        ),
        Check(
            "agent-ready",
            "The agent is ready, and none of its sources has failed",
            "Follow the reason; `ostler status` lists all of them",
            lambda view: judge_readiness(view.agent()),
        ),
        Check(
            "agent-quiesced",
            "The agent uses the driver: it is not quiesced",
            "Run `ostler resume` when the driver has been replaced",
            lambda view: judge_quiesced(view.agent(), view.quiesced),
        ),
        Check(
            "agent-version",
            "The agent and this command have the same version",
            "Restart the agent after an update",
            lambda view: judge_version(view.agent()),
        ),
        *LOCK_CHECKS,
        Check(
            "agent-http",
            "The agent answers probes at the configured address",
            "Find the process that uses the port, or set another address",
            _http,
        ),
        Check(
            "state-folder",
            "The agent can write its state folder, and nobody else can",
            "Correct its permissions, or give another folder",
            lambda view: judge_state(read_folder(view.settings.state_dir), root=view.uid == 0),
        ),
    ),
)
