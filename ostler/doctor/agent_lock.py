"""Checks that one agent is active and no more: who holds the lock, and who else is running. The lock is not touched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from node.lock import FolderLock, holder_of
from node.opening import read_kernel_text
from ostler.doctor.agent_answers import NO_AGENT, AgentAnswers
from ostler.doctor.check import Check
from ostler.doctor.node import NodeView
from ostler.doctor.processes import Process
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning


@dataclass(frozen=True, slots=True)
class LockFacts:
    """``exists``: whether there is a lock file; ``holder``: who holds it, None for nobody who can be seen."""

    exists: bool
    holder: int | None = None


def judge_lock(lock: LockFacts, agent: AgentAnswers, path: Path, *, agent_visible: bool) -> Finding:
    """Whether exactly one instance is active. ``agent_visible``: the agent's process can be seen from here."""
    if lock.holder is not None and agent.status is None:
        return warning(
            f"process {lock.holder} holds {path}, but no agent answers at its socket",
            f"look at its log; if it hangs, end process {lock.holder}",
        )
    if lock.holder is not None:
        return ok(f"held by process {lock.holder}")
    if agent.status is None:
        return skipped(f"{NO_AGENT}, and nobody that can be seen from here holds {path}")
    if not agent_visible:
        return skipped("the agent's process cannot be seen from here")
    gone = "is not held by anybody" if lock.exists else "is gone"
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
    """The process if it has the file open: only a holder does, and some file systems show the table other numbers."""
    try:
        opened = list((proc / str(pid) / "fd").iterdir()) if pid is not None else []
    except OSError:
        return None  # Not to be seen; then nothing is said of it.
    return pid if any(_same(link, status) for link in opened) else None


def _same(link: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(link.stat(), status)
    except OSError:
        return False  # Closed meanwhile.


def judge_kubelet_lock(folder: FolderLock, agent: AgentAnswers, *, active: bool) -> Finding:
    """Whether no agent with another state folder serves the same kubelet; ``active``: the agent that answers is."""
    if agent.status is None:
        return skipped(NO_AGENT)
    holder = folder.holder()
    if not holder:
        return skipped(f"nobody that can be seen from here holds {folder.path}")
    if active:
        return ok(f"held by {holder}")
    return warning(
        f"{holder} serves the kubelet of {folder.path}; the agent that answers here waits for its end",
        "if that is not the active instance of the same installation, end one of the two, "
        "or give both the same state folder",
    )


def judge_instances(others: tuple[Process, ...], agent: AgentAnswers) -> Finding:
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
            "end those that no DaemonSet and no unit has started",
        )
    return ok(f"one standby (process {shown})" if others else "no standby")


def instances(processes: tuple[Process, ...], state_dir: Path, active: set[int | None]) -> tuple[Process, ...]:
    """Processes of ``ostler run`` with the same state folder, besides the active one.

    ``active``: its numbers. It tells one itself, which is another from here when it runs in a container.
    """
    return tuple(
        process
        for process in processes
        if process.runs_agent
        and process.pid not in active
        and (process.flag("--state-dir") or "/var/lib/ostler") == str(state_dir)
    )


def _lock(view: NodeView) -> Finding:
    agent = view.agent()
    path = view.settings.state_dir / "lock"
    visible = any(process.pid == agent.pid and process.runs_agent for process in view.processes())
    return judge_lock(read_lock(path, view.proc, agent.pid), agent, path, agent_visible=visible)


def _kubelet_lock(view: NodeView) -> Finding:
    agent = view.agent()
    active = agent.status is not None and agent.status.role == "active"
    return judge_kubelet_lock(FolderLock(view.settings.kubelet.device_plugin_dir, view.proc), agent, active=active)


def _instances(view: NodeView) -> Finding:
    agent, state = view.agent(), view.settings.state_dir
    active = {agent.pid, read_lock(state / "lock", view.proc).holder} if agent.status is not None else set()
    return judge_instances(instances(view.processes(), state, active), agent)


CHECKS = (
    Check(
        "agent-lock",
        "The lock of the active instance is held, by a process that answers",
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
        "End instances that nobody needs",
        _instances,
    ),
)
