"""Checks of how our resources stand with the kubelet: registered, the same devices on both sides, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node.kubelet.checkpoint import FILE_NAME, Checkpoint, CheckpointError, decode
from node.opening import KUBELET_STATE, read_regular
from ostler.doctor.agent_answers import NO_AGENT, AgentAnswers, ask_agent
from ostler.doctor.check import Check, Subject
from ostler.doctor.foreign_plugins import FOREIGN
from ostler.doctor.kubelet_answers import KubeletAnswers, ask_kubelet
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, Verdict, failed, joined, ok, several, skipped, warning

AGAIN = 1.0
"""Seconds until both sides are asked once more when they differ: a list may have been on its way."""

Ids = Mapping[str, frozenset[str]]


def judge_states(agent: AgentAnswers) -> Finding:
    """What the agent says of each registration."""
    if agent.status is None:
        return skipped(NO_AGENT)
    findings = []
    for item in agent.status.resources:
        found = f"{item.name} is {item.registration}{f' ({item.detail})' if item.detail else ''}"
        match item.registration:
            case "registered":
                pass
            case "contested":
                findings.append(failed(found, "remove the other plugin; see the check foreign-plugins"))
            case "failed":
                findings.append(failed(found, "do what the text says; the agent tries again by itself"))
            case "waiting":
                findings.append(warning(found, "start the kubelet; the agent registers by itself"))
            case _:
                findings.append(
                    warning(found, "wait some seconds; if it stays, look at the kubelet's log for the socket")
                )
    names = [item.name for item in agent.status.resources]
    return joined(findings, f"registered: {several(names)}" if names else "nothing is offered")


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The kubelet's record; ``fault``: why there is none; ``absent``: there is no file; ``hidden``: it is closed."""

    checkpoint: Checkpoint | None = None
    fault: str = ""
    absent: bool = False
    hidden: bool = False

    def registered(self) -> Ids | None:
        """Healthy ids by resource; None without a record."""
        if self.checkpoint is None:
            return None
        return {name: frozenset(ids or ()) for name, ids in (self.checkpoint.registered or {}).items()}


def judge_checkpoint(facts: CheckpointFacts, path: Path) -> Finding:
    """Whether the kubelet will know after a restart who holds what."""
    if facts.absent:
        return skipped(f"there is no {path}: no plugin has registered yet, or there is no kubelet")
    if facts.hidden:
        return skipped(f"{path} is closed to this user; run this as root")
    if facts.checkpoint is None:
        return failed(
            f"{path} cannot be used: {facts.fault}",
            "a kubelet that starts with it forgets who holds devices: drain the node, stop the kubelet, remove it",
        )
    holders = {(entry.pod_uid, entry.container) for entry in facts.checkpoint.entries or ()}
    names = sorted(facts.checkpoint.registered or {})
    return ok(f"{len(holders)} containers hold devices; registered: {several(names) or 'nothing'}")


def read_checkpoint(path: Path) -> CheckpointFacts:
    """The record at ``path``."""
    try:
        return CheckpointFacts(decode(read_regular(path, KUBELET_STATE)))
    except FileNotFoundError:
        return CheckpointFacts(absent=True)
    except PermissionError:
        return CheckpointFacts(hidden=True)
    except (OSError, CheckpointError) as error:
        return CheckpointFacts(fault=getattr(error, "strerror", None) or str(error))


def judge_devices(agent: Ids, allocatable: Ids | None, recorded: Ids | None) -> Finding:
    """Whether the kubelet has the devices that the agent shows as healthy.

    ``allocatable``: what the pod resources API says, ``recorded``: what the checkpoint says; None where unknown.
    """
    seen, source = (allocatable, "the kubelet has") if allocatable is not None else (recorded, "its checkpoint has")
    if seen is None:
        return skipped("neither the pod resources API nor the checkpoint can be read")
    fix = "restart the agent, then the kubelet; if it stays, report it with the output of 'ostler doctor -o json'"
    findings = [
        failed(
            f"{name}: the agent shows {len(ids)} healthy devices, {source} {len(seen.get(name, ids - ids))} ({said})",
            fix,
        )
        for name, ids in sorted(agent.items())
        if (said := difference(ids, seen.get(name, frozenset())))
    ]
    if not findings and allocatable is not None and recorded is not None:
        findings += [
            warning(
                f"{name}: the checkpoint does not have what the kubelet shows ({said})",
                "see whether the disk of the kubelet's folder is full or read-only",
            )
            for name, ids in sorted(agent.items())
            if (said := difference(ids, recorded.get(name, frozenset())))
        ]
    shown = [f"{name}: {len(ids)}" for name, ids in sorted(agent.items())]
    return joined(
        findings, f"both sides agree on healthy devices ({several(shown)})" if shown else "nothing is offered"
    )


def difference(ours: frozenset[str], theirs: frozenset[str]) -> str:
    """What only one side has, in words; empty for nothing."""
    missing, extra = sorted(ours - theirs), sorted(theirs - ours)
    parts = [f"missing: {several(missing, 2)}"] if missing else []
    return "; ".join(parts + ([f"not ours: {several(extra, 2)}"] if extra else []))


def _states(view: NodeView) -> Finding:
    return judge_states(view.agent())


def _checkpoint_path(view: NodeView) -> Path:
    return view.settings.kubelet.device_plugin_dir / FILE_NAME


def _checkpoint(view: NodeView) -> Finding:
    path = _checkpoint_path(view)
    return judge_checkpoint(read_checkpoint(path), path)


def _devices(view: NodeView) -> Finding:
    finding = _compared(view, view.agent(), view.kubelet())
    if finding.verdict is not Verdict.FAILED:
        return finding
    view.pause(AGAIN)
    return _compared(view, ask_agent(view.settings.socket), ask_kubelet(view.pod_resources))


def _compared(view: NodeView, agent: AgentAnswers, kubelet: KubeletAnswers) -> Finding:
    if agent.status is None:
        return skipped(NO_AGENT)
    return judge_devices(agent.healthy_ids(), kubelet.allocatable, read_checkpoint(_checkpoint_path(view)).registered())


SUBJECT = Subject(
    "registration",
    (
        Check(
            "registration",
            "Every resource of the agent is registered and has its device stream",
            "Do what the text of the resource says",
            _states,
        ),
        Check(
            "kubelet-devices",
            "The kubelet (pod resources API, checkpoint) has exactly the devices that the agent shows as healthy",
            "Restart the agent, then the kubelet",
            _devices,
        ),
        Check(
            "kubelet-checkpoint",
            "The kubelet's record of allocations is whole (`kubelet_internal_checkpoint`)",
            "Drain the node, stop the kubelet, remove the file",
            _checkpoint,
        ),
        FOREIGN,
    ),
)
