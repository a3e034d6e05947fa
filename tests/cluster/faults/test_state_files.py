"""State files of a real kubelet: read as they are, and damaged ones do at its next start what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.kubelet.checkpoint import Checkpoint
from ostler.checkpoint.state_file import FILE_NAMES, Start, StateFile, StateKind, examine, files_of
from tests.cluster.components.versions import minor_release
from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import log_of, wait_until

GPU = "nvidia.com/gpu"


@pytest.fixture
def kept(api: RigApi, node: RigNode) -> Iterator[RigNode]:
    """The node, whose files and settings are afterwards what they were before."""
    files = [*files_of(node.kubelet_folder), node.folder / "kubelet.json"]
    before = {file: file.read_bytes() for file in files}
    yield node
    node.stop_kubelet()
    for file, content in before.items():
        file.write_bytes(content)
    node.start_kubelet()
    node.wait_ready(api)


def file_of(node: RigNode, kind: StateKind) -> Path:
    return next(path for path in files_of(node.kubelet_folder) if path.name == FILE_NAMES[kind])


def prediction(file: StateFile, version: str) -> tuple[Start, str]:
    """What is said of this kubelet's next start: what it does, and the error."""
    (start,) = (each for each in file.starts if minor_release(version) in each.kubelets)
    return start.start, start.error


def said(cluster: RigCluster, node: RigNode, before: int) -> str:
    """What the kubelet has written since its log had this length."""
    return log_of(cluster.place.root, f"{node.name}-kubelet").read_text(errors="replace")[before:]


def started(cluster: RigCluster, node: RigNode) -> int:
    """Start the kubelet; the length of its log before."""
    before = len(log_of(cluster.place.root, f"{node.name}-kubelet").read_text(errors="replace"))
    node.start_kubelet()
    return before


def test_every_file_of_a_real_kubelet_is_whole_and_says_who_has_what(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    uid = pods.run(simple("user", resources={GPU: 1}))["metadata"]["uid"]
    files = {file.kind: file for file in map(examine, files_of(node.kubelet_folder))}
    assert files.keys() == set(StateKind)
    for file in files.values():
        assert file.damage is None, file.summary
        assert {start.start for start in file.starts} == {Start.RESTORES}, file.summary
    held = files[StateKind.DEVICES].content
    assert isinstance(held, Checkpoint)
    assert sorted(held.held()[uid, "main", GPU].ids) == devices_of(node, "user")


@pytest.mark.parametrize("kind", [StateKind.CLAIMS, StateKind.CPUS, StateKind.MEMORY])
def test_a_kubelet_does_not_start_with_a_file_of_which_that_is_said(
    cluster: RigCluster, kept: RigNode, kind: StateKind
) -> None:
    path = file_of(kept, kind)
    kept.stop_kubelet()
    path.write_bytes(path.read_bytes().replace(b"one", b"two").replace(b"DRACheckpoint", b"DRACheckpoinx"))
    file = examine(path)
    does, error = prediction(file, cluster.version)
    assert does is Start.REFUSES, file.summary
    assert file.damage is not None
    assert file.damage.form == "checksum"
    before = started(cluster, kept)
    wait_until("the kubelet has ended", lambda: not kept.pid_of("kubelet"))
    assert error in said(cluster, kept, before), file.starts


def test_a_kubelet_with_another_policy_than_the_files_does_not_start(cluster: RigCluster, kept: RigNode) -> None:
    file = examine(file_of(kept, StateKind.CPUS))
    assert file.starts[-1].text == "restores this if its cpuManagerPolicy is 'none'; with another one it does not start"
    settings = kept.folder / "kubelet.json"
    kept.stop_kubelet()
    document = json.loads(settings.read_text())
    settings.write_text(json.dumps({**document, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}))
    before = started(cluster, kept)
    wait_until("the kubelet has ended", lambda: not kept.pid_of("kubelet"))
    assert 'configured policy "static" differs from state checkpoint policy "none"' in (
        said(cluster, kept, before).replace("\\", "")
    )


def test_a_kubelet_starts_and_has_forgotten_who_has_devices(cluster: RigCluster, api: RigApi, kept: RigNode) -> None:
    path = file_of(kept, StateKind.DEVICES)
    kept.stop_kubelet()
    path.write_text('{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{"a.b/c":["d"]}},"Checksum":1}')
    assert prediction(examine(path), cluster.version) == (Start.FORGETS, "checkpoint is corrupted")
    before = started(cluster, kept)
    wait_until("the kubelet goes on", lambda: "checkpoint is corrupted" in said(cluster, kept, before))
    wait_until("the kubelet serves", lambda: "Started kubelet" in said(cluster, kept, before))
    assert kept.pid_of("kubelet")
    assert "a.b/c" not in api.get(f"/api/v1/nodes/{kept.name}")["status"]["capacity"]
