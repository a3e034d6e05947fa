"""Several containers in one pod: each has devices of its own, and only what has ended hands its devices on."""

from __future__ import annotations

from tests.cluster.conftest import RunAgent
from tests.cluster.door.container import LOOK, STAY, seen
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import listed
from tests.cluster.rig.pods import RigPods, container, pod

GPU = "nvidia.com/gpu"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"


def ids(pods: RigPods, name: str, of: str) -> set[str]:
    """The devices that a container was told."""
    return set(seen(pods, name, of).env.get(VARIABLE, "").split(",")) - {""}


def test_the_containers_of_a_pod_share_no_device_and_see_each_their_own(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("h100-sxm-8"))
    wait_allocatable(api, node, GPU, 8)
    counts = {"one": 1, "two": 2, "four": 4, "none": 0}
    pods.run(pod("several", *(container(name, STAY, {GPU: count} if count else {}) for name, count in counts.items())))
    told = {name: ids(pods, "several", name) for name in counts}
    assert {name: len(each) for name, each in told.items()} == counts
    assert len(set.union(*told.values())) == 7
    devices = agent.offered(GPU)
    for name, each in told.items():
        numbered = {path for path in seen(pods, "several", name).below("/dev/nvidia") if path[-1].isdigit()}
        assert numbered == {
            entry["path"] for id_ in each for entry in devices[id_]["nodes"] if entry["role"] == "device"
        }
    by_kubelet = {name: {id_ for _, id_ in entries} for (_, name), entries in listed(node).items()}
    assert by_kubelet == told


def test_an_init_containers_device_goes_on_to_the_app_and_a_sidecars_stays_its_own(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    # Three containers and two devices: without the init container's the pod would not be admitted.
    wait_allocatable(api, node, GPU, 2)
    sidecar = container("sidecar", STAY, {GPU: 1}, restartPolicy="Always")
    first = container("first", LOOK, {GPU: 1})
    pods.run(pod("staged", container("app", STAY, {GPU: 1}), initContainers=[sidecar, first]))
    told = {name: ids(pods, "staged", name) for name in ("first", "sidecar", "app")}
    assert all(len(each) == 1 for each in told.values())
    assert told["app"] == told["first"]
    assert told["app"] != told["sidecar"]
    by_kubelet = {name: {id_ for _, id_ in entries} for (_, name), entries in listed(node).items()}
    assert by_kubelet == {"sidecar": told["sidecar"], "app": told["app"]}
