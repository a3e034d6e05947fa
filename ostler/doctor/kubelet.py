"""Checks of the kubelet: its folders and sockets, which kubelet it is, and whether it is healthy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from node.rules import Door
from node.sockets import PREFIX, SocketError, check_place
from ostler.checkpoint.state_file import (
    FILE_NAMES,
    Start,
    StateFile,
    StateFileError,
    StateKind,
    examine,
    start_words,
)
from ostler.config.settings import RegistrationChoice
from ostler.doctor.answers import ANSWERED, DEAD, HIDDEN, LISTENING, MISSING, KubeletAnswers, ask_page, socket_state
from ostler.doctor.check import Check, CheckFinding, CheckSubject, closed, failed, joined, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.reading import RunningProcess, on_this_node

DEFAULT_ROOT = "/var/lib/kubelet"
_NAMES = ("kubelet", "kubelite")
"""Names of the kubelet's program: the plain one, and that of microk8s."""
_SAMPLE = f"{PREFIX}nvidia.com-gpu-00000000.sock"
"""A socket name of the usual length."""
_START_KUBELET = "start the kubelet; for another root folder set kubelet.devicePluginDir and kubelet.pluginsRegistryDir"


def judge_place(
    fault: SocketError | None, folder: Path, choice: RegistrationChoice, *, registry: bool, root: bool = True
) -> CheckFinding:
    """Whether a plugin's socket can be in the folder; ``fault`` as in ``node.sockets.check_place``.

    ``root``: it was checked with root's rights; what another user may not do says nothing about the agent.
    """
    if fault is None:
        return ok(f"{folder} takes our sockets")
    if not root and (isinstance(fault.__cause__, PermissionError) or "not writable" in fault.problem):
        return closed(folder)
    found, fix = f"{fault.path}: {fault.problem}", fault.fix
    other_way = RegistrationChoice.REGISTER if registry else RegistrationChoice.REGISTRY
    if choice is other_way:
        return warning(f"{found} (not used: registration is {choice})", fix)
    if registry and choice is RegistrationChoice.AUTO:
        return warning(f"{found}; the agent calls Register instead, again after each restart of the kubelet", fix)
    return failed(found, fix)


def judge_socket(state: str, path: Path) -> CheckFinding:
    """Whether a kubelet listens; ``state`` as in KubeletAnswers."""
    if state == HIDDEN:
        return closed(path)
    if state == LISTENING:
        return ok(f"{path} answers")
    if state == DEAD:
        return failed(
            f"no process listens at {path}: the kubelet that created it is gone",
            "start the kubelet, or look at its log",
        )
    return failed(f"{path} does not exist: no kubelet runs here", _START_KUBELET)


def judge_pod_resources(answers: KubeletAnswers, path: Path, *, needed: bool = False) -> CheckFinding:
    """Whether the pod resources API answers, and the age of the kubelet by its methods.

    ``needed``: a rule offers devices through DRA, which allocates none until it is known which devices pods have.
    """
    lacking = failed if needed else warning
    if answers.state == HIDDEN:
        return closed(path)
    if answers.state == MISSING:
        return lacking(
            f"{path} does not exist: the agent cannot know who holds devices",
            "mount the kubelet's pod-resources folder; it exists since 1.15",
        )
    if answers.state == DEAD:
        return lacking(f"no process listens at {path}", "start the kubelet, or look at its log")
    fault = answers.faults.get("GetAllocatableResources", ANSWERED)
    if fault.startswith("UNIMPLEMENTED"):
        return lacking(
            f"{path} answers, but not GetAllocatableResources: the kubelet is older than 1.23", "update the kubelet"
        )
    if fault:
        return failed(
            f"{path} does not answer GetAllocatableResources: {fault}", "look at the kubelet's log and restart it"
        )
    return ok(f"{path} answers; {_age(answers.faults.get('Get', ANSWERED))}")


def _age(fault: str) -> str:
    """The kubelet's version, as its answer to ``Get`` for a pod that cannot exist shows."""
    if fault.startswith("UNIMPLEMENTED"):
        return "the kubelet is older than 1.27"
    if "disabled" in fault:
        return "the kubelet is 1.27 to 1.33"
    return "the kubelet is 1.34 or newer, or has KubeletPodResourcesGet on"


def judge_root(kubelets: tuple[RunningProcess, ...], registry: Path, device_plugins: Path) -> CheckFinding:
    """Whether the running kubelet is the configured one."""
    if not kubelets:
        return skipped("no kubelet process can be seen from here")
    findings = []
    for kubelet in kubelets:
        root = (kubelet.flag("--root-dir") or DEFAULT_ROOT).rstrip("/")
        theirs = f"{root}/plugins_registry"
        if theirs != str(registry):
            found = f"the kubelet (process {kubelet.pid}) has its plugin registry in {theirs}, not {registry}"
            fix = f"set kubelet.pluginsRegistryDir to {theirs} (in the chart kubeletRoot: {root})"
            findings.append(failed(found, fix))
    if not findings and str(device_plugins) != f"{DEFAULT_ROOT}/device-plugins":
        found = f"kubelet.devicePluginDir is {device_plugins}, but kubelets have it in {DEFAULT_ROOT}/device-plugins"
        findings.append(warning(f"{found} whatever their root folder is", "leave kubelet.devicePluginDir out"))
    shown = several([f"process {kubelet.pid}" for kubelet in kubelets])
    return joined(findings, f"{shown}, root folder as configured")


def judge_health(answer: str | None, address: str) -> CheckFinding:
    """The kubelet's report on its own health; None if nobody answers at its usual address."""
    if answer is None:
        return skipped(f"nobody answers at {address}; the kubelet reports its health only on its own machine")
    if answer:
        return failed(
            f"the kubelet is not healthy: {answer}",
            "look at the kubelet's log; if its health check device-plugin fails, restart it",
        )
    return ok(f"{address} says ok")


def ask_health(address: str) -> str | None:
    """The kubelet's message if it is unhealthy, empty if it is healthy, None if nothing answers."""
    host, _, port = address.rpartition(":")
    page = ask_page(host, int(port))
    if page.fault:
        return None  # Not here, or not HTTP: the finding says that nobody answers.
    if page.well:
        return ""
    bad = [line for line in page.text.splitlines() if line.startswith("[-]")]
    return f"{page.status} {several(bad, 3) or page.text[:200]}"


def judge_state_files(files: Sequence[StateFile], faults: Sequence[str], root: Path) -> CheckFinding:
    """Whether the kubelet's next start restores its state of claims, CPUs and memory; ``faults``: unreadable files."""
    findings = [failed(fault, f"remove what is there: a kubelet cannot start with it in {root}") for fault in faults]
    for file in files:
        if file.damage is None:
            continue
        bad = [start for start in file.starts if start.start is not Start.RESTORES]
        said = "; ".join(map(start_words, bad))
        judged = warning if file.is_accepted else failed
        findings.append(judged(f"{file.summary}; {said}", file.fix))
    if not files and not faults:
        return skipped(f"{root} has no state of claims, CPUs or memory: no kubelet with such state runs here")
    return joined(findings, f"intact: {several([file.path.name for file in files])}")


def _state_files(view: NodeView) -> CheckFinding:
    root = view.settings.kubelet.registry_dir.parent
    files, faults = [], []
    for kind, name in FILE_NAMES.items():
        if kind is StateKind.DEVICES:
            continue  # The check kubelet-checkpoint has that one.
        if not os.path.lexists(root / name):
            continue
        try:
            files.append(examine(root / name, kind))
        except StateFileError as error:
            if isinstance(error.__cause__, PermissionError):
                return closed(root / name)
            faults.append(str(error))
    return judge_state_files(files, faults, root)


def kubelets(processes: tuple[RunningProcess, ...]) -> tuple[RunningProcess, ...]:
    """Those processes that are kubelets."""
    return tuple(process for process in processes if process.name in _NAMES or process.words[1:2] == ("kubelet",))


def _fault(folder: Path) -> SocketError | None:
    try:
        check_place(folder, _SAMPLE)
    except SocketError as error:
        return error
    return None


def _place(view: NodeView, folder: Path, *, registry: bool) -> CheckFinding:
    choice = view.settings.kubelet.registration
    return judge_place(_fault(folder), folder, choice, registry=registry, root=view.uid == 0)


def _socket(view: NodeView) -> CheckFinding:
    path = view.settings.kubelet.device_plugin_dir / "kubelet.sock"
    return judge_socket(socket_state(path), path)


def _pod_resources(view: NodeView) -> CheckFinding:
    needed = any(rule.door.has(Door.DRA) for rule in view.settings.rules)
    return judge_pod_resources(view.kubelet(), view.pod_resources, needed=needed)


def _root(view: NodeView) -> CheckFinding:
    kubelet = view.settings.kubelet
    return judge_root(
        on_this_node(view.proc, kubelets(view.processes())), kubelet.registry_dir, kubelet.device_plugin_dir
    )


SUBJECT = CheckSubject(
    "kubelet",
    (
        Check(
            "kubelet-device-plugins",
            "The agent can serve sockets in the kubelet's `device-plugins` folder, which is closed to others",
            "Mount the folder writable, or correct `kubelet.devicePluginDir`",
            lambda view: _place(view, view.settings.kubelet.device_plugin_dir, registry=False),
        ),
        Check(
            "kubelet-registry",
            "The agent can serve sockets in the kubelet's `plugins_registry` folder",
            "Mount the folder writable, or correct `kubelet.pluginsRegistryDir`",
            lambda view: _place(view, view.settings.kubelet.registry_dir, registry=True),
        ),
        Check("kubelet-socket", "A kubelet listens at `kubelet.sock`", "Start the kubelet", _socket),
        Check(
            "kubelet-pod-resources",
            "The pod resources API answers, and its methods show the kubelet's version",
            "Mount the `pod-resources` folder; update an old kubelet",
            _pod_resources,
        ),
        Check(
            "kubelet-root",
            "The kubelet's root folder (`--root-dir`) is the configured one",
            "Set `kubelet.pluginsRegistryDir`, in the chart `kubeletRoot`",
            _root,
        ),
        Check(
            "kubelet-state-files",
            "The kubelet's state of claims, CPUs and memory is intact: a kubelet does not start with a damaged one",
            "Look at the file with `ostler checkpoint show`; drain the node, stop the kubelet, remove the file",
            _state_files,
        ),
        Check(
            "kubelet-health",
            "The kubelet reports at `/healthz` that it is healthy",
            "Look at the kubelet's log",
            lambda view: judge_health(ask_health(view.kubelet_health), view.kubelet_health),
        ),
    ),
)
