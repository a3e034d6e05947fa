"""Checks of our resources at the kubelet: registered, with the same devices on both sides, served by no other plugin.

People forget to remove the plugin that they had before. The checks call only GetInfo on sockets: ListAndWatch would
say more, but some plugins send an update to one stream only, and ours would take it from the kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from node.inventory.vendors import VENDORS
from node.kubelet.checkpoint import FILE_NAME, Checkpoint, decode
from node.kubelet.gojson import KubeletStateError
from node.kubelet.watcher_service import INQUIRY
from node.opening import KUBELET_STATE, read_regular
from node.rules import PROFILE, matches_pattern
from node.sockets import PREFIX, is_answered, is_socket
from ostler.doctor.answers import NO_AGENT, AgentAnswers, KubeletAnswers, ask_agent, ask_kubelet
from ostler.doctor.check import (
    Check,
    CheckFinding,
    CheckSubject,
    CheckVerdict,
    closed,
    failed,
    joined,
    ok,
    several,
    skipped,
    warning,
)
from ostler.doctor.node import NodeView
from plugin.kubelet import KUBELET_SOCKET
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

AGAIN = 1.0
"""Seconds until both sides are asked again if they differ: a list may have been on its way."""

Ids = Mapping[str, frozenset[str]]


def judge_states(agent: AgentAnswers) -> CheckFinding:
    """The agent's report on each registration."""
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
                findings.append(failed(found, "follow the message; the agent tries again by itself"))
            case "waiting":
                findings.append(warning(found, "start the kubelet; the agent registers by itself"))
            case _:
                findings.append(
                    warning(found, "wait a few seconds; if it persists, look at the kubelet's log for the socket")
                )
    names = [item.name for item in agent.status.resources]
    return joined(findings, f"registered: {several(names)}" if names else "nothing is offered")


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The kubelet's record; ``fault``: why it is unusable; ``absent``: no file exists; ``hidden``: it is unreadable."""

    checkpoint: Checkpoint | None = None
    fault: str = ""
    absent: bool = False
    hidden: bool = False

    def registered(self) -> Ids | None:
        """Healthy ids by resource; None without a record."""
        if self.checkpoint is None:
            return None
        return {name: frozenset(ids or ()) for name, ids in (self.checkpoint.registered or {}).items()}


def judge_checkpoint(facts: CheckpointFacts, path: Path) -> CheckFinding:
    """Whether a restarted kubelet will know who holds which device."""
    if facts.absent:
        return skipped(f"{path} does not exist: no plugin has registered yet, or no kubelet runs here")
    if facts.hidden:
        return closed(path)
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
    except (OSError, KubeletStateError) as error:
        return CheckpointFacts(fault=getattr(error, "strerror", None) or str(error))


def judge_devices(agent: Ids, allocatable: Ids | None, recorded: Ids | None) -> CheckFinding:
    """Whether the kubelet has the devices that the agent lists as healthy.

    ``allocatable``: those of the pod resources API, ``recorded``: those of the checkpoint; None if unknown.
    """
    seen, source = (allocatable, "the kubelet has") if allocatable is not None else (recorded, "its checkpoint has")
    if seen is None:
        return skipped("neither the pod resources API nor the checkpoint can be read")
    fix = "restart the agent, then the kubelet; if it persists, report it with the output of 'ostler doctor -o json'"
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
                "check whether the disk of the kubelet's folder is full or read-only",
            )
            for name, ids in sorted(agent.items())
            if (said := difference(ids, recorded.get(name, frozenset())))
        ]
    shown = [f"{name}: {len(ids)}" for name, ids in sorted(agent.items())]
    return joined(
        findings, f"both sides agree on healthy devices ({several(shown)})" if shown else "nothing is offered"
    )


def difference(ours: frozenset[str], theirs: frozenset[str]) -> str:
    """The devices that only one side has, for people; empty if there are none."""
    missing, extra = sorted(ours - theirs), sorted(theirs - ours)
    parts = [f"missing: {several(missing, 2)}"] if missing else []
    return "; ".join(parts + ([f"not ours: {several(extra, 2)}"] if extra else []))


def _checkpoint_path(view: NodeView) -> Path:
    return view.settings.kubelet.device_plugin_dir / FILE_NAME


def _checkpoint(view: NodeView) -> CheckFinding:
    path = _checkpoint_path(view)
    return judge_checkpoint(read_checkpoint(path), path)


def _devices(view: NodeView) -> CheckFinding:
    finding = _compared(view, view.agent(), view.kubelet())
    if finding.verdict is not CheckVerdict.FAILED:
        return finding
    view.pause(AGAIN)
    return _compared(view, ask_agent(view.settings.socket), ask_kubelet(view.pod_resources))


def _compared(view: NodeView, agent: AgentAnswers, kubelet: KubeletAnswers) -> CheckFinding:
    if agent.status is None:
        return skipped(NO_AGENT)
    return judge_devices(agent.healthy_ids(), kubelet.allocatable, read_checkpoint(_checkpoint_path(view)).registered())


TIMEOUT = 2.0
"""Seconds that every plugin gets, all at the same time."""

_DRIVERS = {vendor.dra_driver: tuple({resource.domain for resource in vendor.resources}) for vendor in VENDORS}
"""GPU vendors' DRA drivers, and the prefixes of resources under which ostler offers the same GPUs."""


@dataclass(frozen=True, slots=True)
class PluginSocket:
    """A plugin's socket: whether a process listens, and its answer to GetInfo (empty for none)."""

    path: Path
    answered: bool
    type: str = ""
    name: str = ""


def judge_plugins(
    sockets: Iterable[PluginSocket], own: frozenset[Path], wanted: tuple[str, ...], registry: Path, driver: str = ""
) -> CheckFinding:
    """Whether another plugin serves one of ``wanted`` (resource names, in which ``{profile}`` matches anything).

    ``driver``: the name of our DRA driver, empty if we serve none.
    """
    findings, others = [], []
    for socket in sockets:
        if socket.path in own or (driver and (socket.type, socket.name) == ("DRAPlugin", driver)):
            continue
        file = socket.path.name
        if not socket.answered:
            if socket.path.parent == registry:
                found = f"no process listens at {socket.path}, and the kubelet keeps trying"
                findings.append(warning(found, f"remove it: rm {socket.path}"))
        elif socket.type == "DevicePlugin" and _is_wanted(socket.name, wanted):
            found = f"{socket.path} serves {socket.name}, too: the newest one wins, and devices are allocated twice"
            findings.append(
                failed(found, "remove the other plugin (its DaemonSet), or give the agent's resource another name")
            )
        elif socket.type == "DRAPlugin" and any(name.startswith(_DRIVERS.get(socket.name, ())) for name in wanted):
            found = f"{socket.path} offers the same devices through DRA ({socket.name}): they are allocated twice"
            findings.append(failed(found, "let only one of the two offer them: remove the driver, or the agent's rule"))
        elif not socket.type and (guess := _guessed(file, wanted)):
            found = f"{socket.path} does not say what it serves; its name suggests {guess}"
            findings.append(warning(found, "check whether an older plugin is still installed, and remove it"))
        elif not file.startswith(PREFIX):
            others.append(socket.name or file)
    return joined(findings, f"other plugins: {several(sorted(set(others)))}" if others else "no other plugin")


def _is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    return any(matches_pattern(each.replace(PROFILE, "*"), name) for each in wanted)


def _guessed(file: str, wanted: tuple[str, ...]) -> str:
    """The resource that a socket's name suggests: ``nvidia-gpu.sock``, ``amd.com_gpu``; empty for none."""
    words = re.split(r"[^a-z0-9]+", file.removesuffix(".sock").lower())
    for resource in wanted:
        domain, _, name = resource.replace(PROFILE, "").lower().rstrip("-.").partition("/")
        short = [domain.partition(".")[0], *re.split(r"[^a-z0-9]+", name)]
        long = [*domain.split("."), *re.split(r"[^a-z0-9]+", name)]
        if words[: len(short)] == short or words[: len(long)] == long:
            return resource
    return ""


def read_sockets(folders: Iterable[Path]) -> tuple[PluginSocket, ...]:
    """Every plugin's socket in the folders."""
    paths = [
        path
        for folder in dict.fromkeys(folders)
        for path in _listed(folder)
        if path.name != KUBELET_SOCKET and not path.name.startswith(".") and is_socket(path)
    ]
    answered = [path for path in paths if is_answered(path)]
    infos = _ask(answered)
    return tuple(
        PluginSocket(path, path in answered, *((infos[path].type, infos[path].name) if path in infos else ()))
        for path in paths
    )


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # The check of the folder itself reports it.


def _ask(paths: list[Path]) -> dict[Path, api_pb2.PluginInfo]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with ExitStack() as stack:
        calls = []
        for path in paths:
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{path}", options=options))
            stub = api_pb2_grpc.RegistrationStub(channel)
            calls.append((path, stub.GetInfo.future(api_pb2.InfoRequest(), timeout=TIMEOUT, metadata=(INQUIRY,))))
        infos = {}
        for path, call in calls:
            try:
                infos[path] = call.result()
            except grpc.RpcError:
                continue  # It does not speak the plugin watcher's protocol.
    return infos


def _foreign(view: NodeView) -> CheckFinding:
    kubelet, agent = view.settings.kubelet, view.agent()
    own = frozenset(Path(item.socket) for item in agent.status.resources) if agent.status is not None else frozenset()
    wanted = tuple(rule.resource for rule in view.settings.rules)
    if agent.status is not None:
        wanted += tuple(item.name for item in agent.status.resources)
    sockets = read_sockets((kubelet.registry_dir, kubelet.device_plugin_dir))
    if agent.status is None:
        # Without the agent the owner of a socket is unknown; one with a name like ours counts as ours.
        own = frozenset(socket.path for socket in sockets if socket.path.name.startswith(PREFIX) and socket.answered)
    serves = agent.status is not None and agent.status.HasField("dra")
    driver = view.settings.dra.driver_name if serves else ""
    return judge_plugins(sockets, own, tuple(dict.fromkeys(wanted)), kubelet.registry_dir, driver)


FOREIGN = Check(
    "foreign-plugins",
    "No other plugin serves the agent's resources; the check asks every other socket for its name (GetInfo)",
    "Remove the other plugin, or give the agent's resource another name",
    _foreign,
)


SUBJECT = CheckSubject(
    "registration",
    (
        Check(
            "registration",
            "Every resource of the agent is registered and has its device stream",
            "Follow the message of the resource",
            lambda view: judge_states(view.agent()),
        ),
        Check(
            "kubelet-devices",
            "The kubelet (pod resources API, checkpoint) has exactly the devices that the agent shows as healthy",
            "Restart the agent, then the kubelet",
            _devices,
        ),
        Check(
            "kubelet-checkpoint",
            "The kubelet's record of allocations is intact (`kubelet_internal_checkpoint`)",
            "Drain the node, stop the kubelet, remove the file",
            _checkpoint,
        ),
        FOREIGN,
    ),
)
