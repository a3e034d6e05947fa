"""Container runtimes' configuration files as they are found on nodes, and the checks of CDI."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.facts import CdiFacts
from ostler.doctor.check import CheckVerdict
from ostler.doctor.container_runtime import (
    DEFAULT_DIRECTORIES,
    Runtime,
    find_runtime,
    judge_hooks,
    judge_runtime,
    judge_specs,
)
from ostler.doctor.node import NodeView
from tests.ostler.doctor.nodes import configured, examined, says, view, write

CONTAINERD = "etc/containerd/config.toml"
V2 = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/opt/cdi"]
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
"""
V3 = """
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
"""


def found(root: Path) -> Runtime:
    runtime = find_runtime(root)
    assert runtime is not None
    return runtime


def test_version_two_of_containerd_says_folders_and_runtimes(tmp_path: Path) -> None:
    write(tmp_path, {CONTAINERD: V2})
    runtime = found(tmp_path)
    assert (runtime.cdi, runtime.directories) == (True, ("/etc/cdi", "/opt/cdi"))
    assert (runtime.default_runtime, runtime.runtimes_with("nvidia")) == ("nvidia", ("nvidia",))


def test_version_three_has_cdi_on_by_itself_and_two_leaves_it_open(tmp_path: Path) -> None:
    write(tmp_path, {CONTAINERD: V3})
    assert (found(tmp_path).cdi, found(tmp_path).directories) == (True, DEFAULT_DIRECTORIES)
    assert found(tmp_path).runtimes == (("runc", ""),)
    write(tmp_path, {CONTAINERD: "version = 2\n"})
    assert found(tmp_path).cdi is None


def test_imports_are_followed_and_the_last_one_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            CONTAINERD: 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n' + V2.replace("version = 2", ""),
            "etc/containerd/conf.d/99.toml": '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n',
        },
    )
    assert found(tmp_path).cdi is False
    assert found(tmp_path).directories == ("/etc/cdi", "/opt/cdi")


@pytest.mark.parametrize(
    "place",
    [
        "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "run/k0s/containerd-cri.toml",
        "var/snap/microk8s/current/args/containerd.toml",
    ],
)
def test_distributions_have_it_in_places_of_their_own(tmp_path: Path, place: str) -> None:
    write(tmp_path, {place: V2})
    assert found(tmp_path).file == tmp_path / place


def test_imports_of_imports_and_folders_with_wildcards_are_followed(tmp_path: Path) -> None:
    off = '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
    write(
        tmp_path,
        {
            CONTAINERD: 'imports = ["/etc/containerd/*/first.toml", "", "/etc/none.toml"]\n' + V2,
            "etc/containerd/conf.d/first.toml": 'imports = ["../more/last.toml", "/etc/containerd/config.toml"]\n',
            "etc/containerd/more/last.toml": off,
        },
    )
    assert (found(tmp_path).cdi, found(tmp_path).fault) == (False, "")


def test_a_containerd_without_its_cri_plugin_is_not_the_kubelets(tmp_path: Path) -> None:
    write(tmp_path, {CONTAINERD: 'disabled_plugins = ["cri"]\n'})
    assert find_runtime(tmp_path) is None
    write(tmp_path, {"etc/crio/crio.conf": "[crio.runtime]\n"})
    assert found(tmp_path).name == "CRI-O"


def test_a_distributions_own_containerd_is_the_kubelets_and_not_one_beside_it(tmp_path: Path) -> None:
    place = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    write(tmp_path, {CONTAINERD: V2, place: V3})
    assert found(tmp_path).file == tmp_path / place


def test_crio_merges_its_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "etc/crio/crio.conf": "[crio.runtime]\ndefault_runtime = 'crun'\n",
            "etc/crio/crio.conf.d/10.conf": "[crio.runtime]\ncdi_spec_dirs = ['/opt/cdi']\n"
            "[crio.runtime.runtimes.nvidia]\nruntime_path = '/usr/bin/nvidia-container-runtime'\n",
        },
    )
    runtime = found(tmp_path)
    assert (runtime.name, runtime.cdi, runtime.directories) == ("CRI-O", True, ("/opt/cdi",))
    assert (runtime.default_runtime, runtime.runtimes_with("nvidia")) == ("crun", ("nvidia",))


@pytest.mark.parametrize("place", [CONTAINERD, "etc/crio/crio.conf"])
def test_a_file_that_does_not_parse_is_a_fault_and_a_warning(tmp_path: Path, place: str) -> None:
    write(tmp_path, {place: "version = = 2\n"})
    runtime = found(tmp_path)
    says(
        judge_runtime(runtime, "/var/run/cdi", used=True),
        CheckVerdict.WARNING,
        "cannot be read: not valid TOML: Invalid",
        "correct the runtime's",
    )


def test_no_runtime_is_seen_where_there_is_none(tmp_path: Path) -> None:
    assert find_runtime(tmp_path) is None
    says(judge_runtime(None, "/var/run/cdi", used=True), CheckVerdict.SKIPPED, "can be seen from here")
    says(judge_runtime(None, "/var/run/cdi", used=False), CheckVerdict.SKIPPED, "no rule passes devices by CDI")


def test_odd_types_in_a_file_are_no_crash(tmp_path: Path) -> None:
    write(tmp_path, {CONTAINERD: 'version = "2"\nplugins = 3\nimports = "x"\n'})
    assert found(tmp_path).cdi is None


def test_our_folder_is_known_to_the_runtime() -> None:
    file = Path("/etc/containerd/config.toml")
    says(
        judge_runtime(Runtime("containerd", file, cdi=True), "/run/cdi", used=True),
        CheckVerdict.OK,
        "looks for CDI specs in /run/cdi",
    )
    off = judge_runtime(Runtime("containerd", file, cdi=False), "/run/cdi", used=True)
    says(off, CheckVerdict.FAILED, "CDI is off in", "set enable_cdi = true in /etc/containerd/config.toml")
    unsaid = judge_runtime(Runtime("containerd", file, cdi=None), "/run/cdi", used=True)
    says(unsaid, CheckVerdict.WARNING, "does not set enable_cdi", "set enable_cdi = true")
    elsewhere = judge_runtime(Runtime("CRI-O", file, cdi=True, directories=("/opt/cdi",)), "/run/cdi", used=True)
    says(
        elsewhere,
        CheckVerdict.FAILED,
        "CRI-O does not look for CDI specs in /run/cdi (only: /opt/cdi)",
        "add it to cdi_spec_dirs",
    )


def test_the_check_asks_only_where_a_rule_uses_cdi(tmp_path: Path) -> None:
    write(tmp_path, {"host/etc/containerd/config.toml": V3})
    says(examined(view(tmp_path), "cdi-runtime"), CheckVerdict.SKIPPED, "no rule passes devices by CDI")
    node = view(tmp_path, configured("defaults: {deviceListStrategy: [cdi-cri]}\n", tmp_path))
    says(
        examined(node, "cdi-runtime"),
        CheckVerdict.FAILED,
        f"does not look for CDI specs in {tmp_path}/cdi",
        "cdi.directory",
    )


def test_bad_and_doubled_specs_are_told(tmp_path: Path) -> None:
    spec = '{"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": [{"name": "x"}]}'
    write(tmp_path, {"cdi/one.json": spec})
    says(examined(view(tmp_path), "cdi-specs"), CheckVerdict.OK, "1 devices in CDI specs")
    write(tmp_path, {"cdi/two.json": spec, "cdi/three.json": "{"})
    finding = examined(view(tmp_path), "cdi-specs")
    says(finding, CheckVerdict.WARNING, "two.json: a.b/c=x also defined in", "correct or remove the named file")
    assert "three.json: not valid" in finding.found
    says(judge_specs(CdiFacts()), CheckVerdict.OK, "0 devices")


FULL = EditOptions((ListStrategy.CDI_CRI,), cdi_mode=CdiMode.FULL, hook="/usr/bin/nvidia-cdi-hook")


def test_a_hook_that_is_missing_has_failed(tmp_path: Path) -> None:
    says(
        judge_hooks([FULL], frozenset(), host_visible=True),
        CheckVerdict.FAILED,
        "nvidia-cdi-hook does not exist",
        "toolkit-base",
    )
    says(
        judge_hooks([FULL], frozenset({FULL.hook or ""}), host_visible=True),
        CheckVerdict.OK,
        "/usr/bin/nvidia-cdi-hook",
    )
    says(judge_hooks([FULL], frozenset(), host_visible=False), CheckVerdict.SKIPPED, "cannot be seen from here")
    says(examined(view(tmp_path), "cdi-hook"), CheckVerdict.SKIPPED, "has a hook")


def test_the_hook_is_looked_for_in_the_nodes_file_system(tmp_path: Path) -> None:
    text = "defaults: {deviceListStrategy: [cdi-cri], cdiMode: full, hook: /opt/hook}\n"
    node = view(tmp_path, configured(text, tmp_path))
    says(
        examined(node, "cdi-hook"),
        CheckVerdict.FAILED,
        "/opt/hook does not exist",
        "install nvidia-container-toolkit-base",
    )
    write(tmp_path, {"host/opt/hook": ""})
    (tmp_path / "host/opt/hook").chmod(0o755)
    says(examined(node, "cdi-hook"), CheckVerdict.OK, "/opt/hook")


def test_the_hook_of_the_node_is_not_looked_for_in_a_pods_own_file_system(tmp_path: Path) -> None:
    loaded = configured("defaults: {deviceListStrategy: [cdi-cri], cdiMode: full, hook: /opt/hook}\n", tmp_path)
    pod = NodeView(loaded, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    says(examined(pod, "cdi-hook"), CheckVerdict.SKIPPED, "the node's file system cannot be seen from here")
