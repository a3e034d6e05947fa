"""Checks of the kubelet's folders, sockets, process and health, against the embedded kubelet."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from ostler.config.settings import RegistrationChoice
from ostler.doctor.answers import KubeletAnswers, ask_kubelet
from ostler.doctor.check import CheckFinding, CheckVerdict
from ostler.doctor.kubelet import ask_health, judge_health, judge_pod_resources, judge_root, kubelets
from ostler.doctor.node import NodeView
from ostler.doctor.reading import RunningProcess, processes
from sandbox.kubelet.kubelet import Kubelet
from tests.kube.server import CannedAnswer, StubApiServer
from tests.ostler.doctor.nodes import configured, examined, says, view, write

REGISTRY, PLUGINS = Path("/var/lib/kubelet/plugins_registry"), Path("/var/lib/kubelet/device-plugins")


async def look(node: NodeView, name: str) -> CheckFinding:
    return await asyncio.to_thread(examined, node, name)


async def test_a_running_kubelet_is_well_everywhere(short_dir: Path) -> None:
    async with Kubelet(short_dir / "kubelet", reconcile_interval=0.05):
        node = view(short_dir)
        says(await look(node, "kubelet-device-plugins"), CheckVerdict.OK, "device-plugins takes our sockets")
        says(await look(node, "kubelet-registry"), CheckVerdict.OK, "plugins_registry takes our sockets")
        says(await look(node, "kubelet-socket"), CheckVerdict.OK, "kubelet.sock answers")
        says(await look(node, "kubelet-pod-resources"), CheckVerdict.OK, "the kubelet is 1.34 or newer")


def test_no_kubelet_is_told(short_dir: Path) -> None:
    node = view(short_dir)
    says(
        examined(node, "kubelet-device-plugins"),
        CheckVerdict.FAILED,
        "does not exist",
        "create it or correct the setting",
    )
    says(examined(node, "kubelet-registry"), CheckVerdict.WARNING, "the agent calls Register instead", "create it")
    says(examined(node, "kubelet-socket"), CheckVerdict.FAILED, "no kubelet runs here", "kubelet.devicePluginDir")
    says(
        examined(node, "kubelet-pod-resources"),
        CheckVerdict.WARNING,
        "who holds devices",
        "mount the kubelet's pod-resources",
    )
    says(examined(node, "kubelet-root"), CheckVerdict.SKIPPED, "no kubelet process")
    says(examined(node, "kubelet-health"), CheckVerdict.SKIPPED, "nobody answers at 127.0.0.1:1")
    says(examined(node, "kubelet-checkpoint"), CheckVerdict.SKIPPED, "does not exist: no plugin has registered")


def test_sockets_that_a_dead_kubelet_left_are_told(short_dir: Path) -> None:
    for folder in ("device-plugins", "pod-resources"):
        (short_dir / "kubelet" / folder).mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(short_dir / "kubelet" / folder / "kubelet.sock"))
    node = view(short_dir)
    says(examined(node, "kubelet-socket"), CheckVerdict.FAILED, "no process listens at", "start the kubelet")
    says(examined(node, "kubelet-pod-resources"), CheckVerdict.WARNING, "no process listens at", "start the kubelet")


def test_a_registry_that_is_the_only_way_must_be_there(short_dir: Path) -> None:
    loaded = configured("kubelet: {registration: registry}\n", short_dir)
    node = view(short_dir, loaded)
    assert node.settings.kubelet.registration is RegistrationChoice.REGISTRY
    says(
        examined(node, "kubelet-registry"),
        CheckVerdict.FAILED,
        "plugins_registry: the folder does not exist",
        "create it",
    )
    says(
        examined(node, "kubelet-device-plugins"),
        CheckVerdict.WARNING,
        "not used: registration is registry",
        "create it",
    )


def test_a_folder_open_to_all_has_failed(short_dir: Path) -> None:
    folder = short_dir / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    says(examined(view(short_dir), "kubelet-device-plugins"), CheckVerdict.FAILED, "anybody may write", "chmod o-w")


@pytest.mark.parametrize(
    ("get", "age"),
    [
        ("UNIMPLEMENTED: unknown", "older than 1.27"),
        ("UNKNOWN: method is disabled", "1.27 to 1.33"),
        ("UNKNOWN: pod - in namespace - not found", "1.34 or newer"),
    ],
)
def test_the_kubelets_age_is_told_by_its_methods(get: str, age: str) -> None:
    answers = KubeletAnswers("answered", {"GetAllocatableResources": "", "Get": get}, {})
    says(judge_pod_resources(answers, Path("/x")), CheckVerdict.OK, age)


def test_methods_that_do_not_answer_are_told() -> None:
    old = KubeletAnswers("answered", {"GetAllocatableResources": "UNIMPLEMENTED: x"})
    says(judge_pod_resources(old, Path("/x")), CheckVerdict.WARNING, "older than 1.23", "update the kubelet")
    broken = KubeletAnswers("answered", {"GetAllocatableResources": "DEADLINE_EXCEEDED: Deadline Exceeded"})
    says(judge_pod_resources(broken, Path("/x")), CheckVerdict.FAILED, "DEADLINE_EXCEEDED", "restart it")


def test_something_that_listens_and_never_answers_ends_with_the_deadline(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(short_dir / "kubelet.sock"))
        mute.listen()
        answers = ask_kubelet(short_dir / "kubelet.sock", timeout=0.1)
    assert answers.state == "answered"
    assert answers.allocatable is None
    assert answers.faults["GetAllocatableResources"]


def test_a_kubelet_with_another_root_folder_has_failed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/5/cmdline": "/usr/bin/kubelet\0--root-dir=/var/lib/k0s/kubelet\0",
            "proc/6/cmdline": "",
            "proc/x/cmdline": "x",
        },
    )
    seen = processes(tmp_path / "proc")
    assert [process.pid for process in seen] == [5]
    finding = judge_root(kubelets(seen), REGISTRY, PLUGINS)
    says(
        finding,
        CheckVerdict.FAILED,
        "in /var/lib/k0s/kubelet/plugins_registry, not /var/lib/kubelet",
        "kubeletRoot: /var/lib/k0s/kubelet",
    )


def test_kubelets_in_containers_of_their_own_are_not_this_nodes(tmp_path: Path) -> None:
    for pid, namespace in (("self", "mnt:[1]"), ("1", "mnt:[2]"), ("5", "mnt:[2]"), ("6", "mnt:[9]")):
        (tmp_path / "proc" / pid / "ns").mkdir(parents=True)
        (tmp_path / "proc" / pid / "ns/mnt").symlink_to(namespace)
    write(tmp_path, {f"proc/{pid}/cmdline": "kubelet\0--root-dir=/x\0" for pid in ("5", "6")})
    finding = examined(view(tmp_path), "kubelet-root")
    says(finding, CheckVerdict.FAILED, "process 5) has its plugin registry in /x/plugins_registry", "kubeletRoot: /x")
    assert "process 6" not in finding.found


def test_the_kubelet_of_the_settings_is_well_in_every_spelling() -> None:
    for words in (("kubelet",), ("/snap/kubelite", "--x"), ("multi", "kubelet", "--root-dir", "/var/lib/kubelet/")):
        says(
            judge_root(kubelets((RunningProcess(3, words),)), REGISTRY, PLUGINS),
            CheckVerdict.OK,
            "process 3, root folder as configured",
        )


def test_a_device_plugin_folder_that_follows_the_root_is_a_warning() -> None:
    root = Path("/var/lib/k0s/kubelet")
    kubelet = RunningProcess(3, ("kubelet", f"--root-dir={root}"))
    finding = judge_root((kubelet,), root / "plugins_registry", root / "device-plugins")
    says(
        finding,
        CheckVerdict.WARNING,
        "kubelets have it in /var/lib/kubelet/device-plugins",
        "leave kubelet.devicePluginDir out",
    )


def test_the_kubelets_own_health_is_asked() -> None:
    with StubApiServer() as server:
        address = server.url.removeprefix("http://")
        says(judge_health(ask_health(address), address), CheckVerdict.OK, "says ok")
        server.respond = lambda _: CannedAnswer(
            500, b"[+]ping ok\n[-]device-plugin failed: reason withheld\nhealthz check failed"
        )
        finding = judge_health(ask_health(address), address)
        says(finding, CheckVerdict.FAILED, "500 [-]device-plugin failed", "look at the kubelet's log")


def test_whole_state_of_claims_cpus_and_memory_is_well(tmp_path: Path) -> None:
    says(
        examined(view(tmp_path), "kubelet-state-files"),
        CheckVerdict.SKIPPED,
        f"{tmp_path}/kubelet has no state of claims, CPUs or memory",
    )
    state = '{"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}'
    write(tmp_path, {"kubelet/cpu_manager_state": state, "kubelet/dra_manager_state": "{}"})
    says(
        examined(view(tmp_path), "kubelet-state-files"),
        CheckVerdict.OK,
        "intact: dra_manager_state, cpu_manager_state",
    )


def test_state_with_which_the_kubelet_does_not_start_has_failed(tmp_path: Path) -> None:
    write(tmp_path, {"kubelet/dra_manager_state": '{"Data": "{}", "Checksum": 1}', "kubelet/cpu_manager_state": "{}"})
    file = tmp_path / "kubelet" / "dra_manager_state"
    says(
        examined(view(tmp_path), "kubelet-state-files"),
        CheckVerdict.FAILED,
        f"{file}: dra-manager state, damaged (checksum): its data gives 2745614147, the file says 1; "
        "no kubelet starts: failed to get checkpoint dra_manager_state: checkpoint is corrupted",
        f"drain the node, stop the kubelet and remove {file}",
    )


def test_state_that_only_other_kubelets_refuse_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"kubelet/memory_manager_state": '{"policyName": "None", "machineState": {}, "checksum": 0}'})
    says(
        examined(view(tmp_path), "kubelet-state-files"),
        CheckVerdict.WARNING,
        "the file says 0; kubelet 1.34 or 1.35 does not start: could not restore state from checkpoint",
        "before such a kubelet starts, drain the node",
    )


def test_something_else_in_place_of_a_state_file_has_failed(tmp_path: Path) -> None:
    (tmp_path / "kubelet" / "cpu_manager_state").mkdir(parents=True)
    says(
        examined(view(tmp_path), "kubelet-state-files"),
        CheckVerdict.FAILED,
        f"cannot read {tmp_path}/kubelet/cpu_manager_state: it is a folder, not a regular file",
        f"remove what is there: a kubelet cannot start with it in {tmp_path}/kubelet",
    )
