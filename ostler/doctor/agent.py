"""Checks of the running agent: it answers, is well, is this program, and can keep its state."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ostler import __version__
from ostler.doctor import agent_lock, health_page
from ostler.doctor.agent_answers import NO_AGENT, AgentAnswers
from ostler.doctor.check import Check, Subject
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning

_OTHERS_WRITE = 0o022


def judge_socket(agent: AgentAnswers) -> Finding:
    """Whether the agent answers."""
    if agent.status is not None:
        return ok(f"ostler {agent.status.version}, process {agent.status.pid}, {agent.status.role}")
    if not agent.listening:
        return warning(agent.fault, "if it runs, give its socket with --socket, and run this as root")
    return failed(f"the agent answers with an error: {agent.fault}", "look at its log, and restart it if it hangs")


def judge_readiness(agent: AgentAnswers) -> Finding:
    """Whether it serves, and what its sources say."""
    if agent.status is None:
        return skipped(NO_AGENT)
    reasons = several(list(agent.status.reasons), 3)
    if not agent.status.ready:
        return failed(
            f"not ready: {reasons or 'no reason given'}", "see 'ostler status' and the checks of the kubelet below"
        )
    unwell = [f"{source.name}: {source.detail}" for source in agent.status.sources if source.state == "failed"]
    if unwell:
        return warning(f"ready, but a source failed: {several(unwell, 3)}", "do what the source's text says")
    return ok(f"ready{f': {reasons}' if reasons else ''}")


def judge_quiesced(agent: AgentAnswers, reason: str | None) -> Finding:
    """Whether the driver is left alone; ``reason`` is the one in the state folder, which holds for every instance."""
    if reason is not None or (agent.status is not None and agent.status.quiesced):
        found = f"quiesced ({reason or 'no reason given'}): devices are shown unhealthy, no new pod gets one"
        return warning(found, "run 'ostler resume' when the driver has been replaced")
    return ok("not quiesced") if agent.status is not None else skipped(NO_AGENT)


def judge_version(agent: AgentAnswers) -> Finding:
    """Whether the agent is the program that this command belongs to."""
    if agent.status is None:
        return skipped(NO_AGENT)
    if agent.status.version != __version__:
        found = f"the agent is {agent.status.version}, this command {__version__}"
        return warning(found, "restart the agent after an update, or use the command of the agent's image")
    return ok(__version__)


def judge_http(answer: str | None, address: str | None, agent: AgentAnswers) -> Finding:
    """Whether probes are answered; ``answer`` is empty for a good one, None where nobody was asked."""
    if address is None:
        return skipped("probes and metrics are switched off")
    if agent.status is None or answer is None:
        return skipped(NO_AGENT)
    if answer:
        found = f"{address} does not answer /healthz: {answer}"
        return failed(found, "see who has the port ('ss -ltnp'), or give another address with --http")
    return ok(f"{address} answers /healthz")


def ask_http(address: str) -> str:
    """What is wrong with the answer of ``/healthz``; empty for nothing."""
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "": "127.0.0.1"}.get(host, host.strip("[]"))
    page = health_page.ask(host, int(port))
    return "" if page.well else page.fault or f"{page.status} {page.text[:500]}"


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder: mode and owner, None where it is not there; ``writable`` by us, it or what is to be made above it."""

    path: Path
    mode: int | None
    owner: int | None
    writable: bool


def judge_state(facts: FolderFacts, *, root: bool = True) -> Finding:
    """Whether the agent can keep what it must remember. ``root``: it was looked at with root's rights."""
    if not root and not facts.writable:
        return skipped(f"{facts.path} is closed to this user; run this as root")
    if facts.mode is None and facts.writable:
        return ok(f"{facts.path} is not there yet and can be made")
    if not facts.writable:
        there = "cannot be made" if facts.mode is None else "is not writable"
        fix = "check its permissions and whether it is mounted read-only, or give another folder with --state-dir"
        return failed(f"{facts.path} {there}", fix)
    mode = facts.mode or 0
    if mode & _OTHERS_WRITE:
        return failed(f"others may write to {facts.path} (mode {mode:04o})", f"chmod 0700 {facts.path}")
    return ok(f"{facts.path} is writable, mode {mode:04o}")


def read_folder(path: Path) -> FolderFacts:
    """The folder as we see it."""
    try:
        status = path.stat()
    except OSError:
        above = next((parent for parent in path.parents if os.path.isdir(parent)), Path("/"))  # noqa: PTH112 - no errors
        return FolderFacts(path, None, None, above.is_dir() and os.access(above, os.W_OK | os.X_OK))
    return FolderFacts(
        path, status.st_mode & 0o7777, status.st_uid, path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    )


def _socket(view: NodeView) -> Finding:
    return judge_socket(view.agent())


def _readiness(view: NodeView) -> Finding:
    return judge_readiness(view.agent())


def _quiesced(view: NodeView) -> Finding:
    return judge_quiesced(view.agent(), view.quiesced)


def _version(view: NodeView) -> Finding:
    return judge_version(view.agent())


def _http(view: NodeView) -> Finding:
    address, agent = view.settings.http, view.agent()
    answer = ask_http(address) if address is not None and agent.status is not None else None
    return judge_http(answer, address, agent)


def _state(view: NodeView) -> Finding:
    return judge_state(read_folder(view.settings.state_dir), root=view.uid == 0)


SUBJECT = Subject(
    "agent",
    (
        Check(
            "agent-socket",
            "The running agent answers at its own socket",
            "Start it; its log says why it ended",
            _socket,
        ),
        Check(
            "agent-ready",
            "The agent is ready, and none of its sources has failed",
            "Do what the reason says; `ostler status` has all of them",
            _readiness,
        ),
        Check(
            "agent-quiesced",
            "The driver is not left alone any more",
            "Run `ostler resume` when the driver has been replaced",
            _quiesced,
        ),
        Check(
            "agent-version",
            "The agent and this command have the same version",
            "Restart the agent after an update",
            _version,
        ),
        *agent_lock.CHECKS,
        Check(
            "agent-http",
            "Probes are answered at the address of the configuration",
            "See who has the port, or give another address",
            _http,
        ),
        Check(
            "state-folder",
            "The state folder can be written, and by nobody else",
            "Correct its permissions, or give another folder",
            _state,
        ),
    ),
)
