"""Every example is applied as its page says, and its containers have what it promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.components.versions import has_dra_gates
from tests.cluster.door.container import STAY, Seen, seen
from tests.cluster.dra.claims import CLAIMS, CLASSES, Claims, allocated
from tests.cluster.dra.classes import apply_classes
from tests.cluster.dra.conftest import RunDriver
from tests.cluster.rig.agent import NodeAgent
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.images import BOX
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until
from tests.examples.claims import documents, values

NAMESPACE = "gpu-admins"
EXTENDED = "dra.extendedResources={nvidia.com/gpu}"


class _Example:
    """Applies an example on a node with this hardware: the rules are its page's, the image is the tests' own."""

    def __init__(
        self, cluster: RigCluster, node: RigNode, run_driver: RunDriver, pods: RigPods, claims: Claims
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._pods = pods
        self._claims = claims
        self._run_driver = run_driver
        self.agent: NodeAgent | None = None

    def run(self, name: str, recorded: str, published: int) -> Object:
        """The example's pod when it runs."""
        self.agent = self._run_driver(recorded, *values(name)["config"]["resources"])
        self._claims.wait_slices(published)
        # Those that a container starts with; a recorded node has none.
        files = {entry["path"] for device in self.agent.ask("devices")["devices"] for entry in device["nodes"]}
        self._node.make_devices(*sorted(files))
        return self._pods.run(self.apply(name))

    def apply(self, name: str) -> Object:
        """Apply everything but the pod, which is returned."""
        parts = documents(name)
        (pod,) = (part for part in parts if part["kind"] == "Pod")
        rest = [part for part in parts if part is not pod]
        if rest:
            self._cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(rest))
        spec = pod["spec"]
        spec |= {"automountServiceAccountToken": False, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 0}
        for container in spec["containers"]:
            container |= {"image": BOX, "imagePullPolicy": "Never", "command": ["sh", "-c", STAY]}
        return dict(pod)


@pytest.fixture
def example(cluster: RigCluster, node: RigNode, run_driver: RunDriver, pods: RigPods, claims: Claims) -> _Example:
    """The agent comes before the pods, so that it still runs when they end: it has to release their claims."""
    return _Example(cluster, node, run_driver, pods, claims)


def gpus(inside: Seen) -> set[str]:
    """The device files of whole GPUs."""
    return {path for path in inside.below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal()}


def test_one_gpu(example: _Example, pods: RigPods, claims: Claims) -> None:
    found = example.run("one-gpu", "h100-sxm-8", 8)
    assert len(allocated(claims.of_pod(found))) == 1
    assert len(gpus(seen(pods, "one-gpu"))) == 1


def test_four_aligned_gpus(example: _Example, pods: RigPods, claims: Claims) -> None:
    found = example.run("four-aligned-gpus", "dgx1-v100-8", 8)
    slices = claims.slices()
    cells = {
        device["attributes"]["cell4"]["string"]
        for one in slices
        for device in one["spec"]["devices"]
        if device["name"] in allocated(claims.of_pod(found))
    }
    assert len(cells) == 1
    assert len(gpus(seen(pods, "four-aligned-gpus"))) == 4


def test_gpu_with_nic(example: _Example, pods: RigPods) -> None:
    example.run("gpu-with-nic", "h100-sxm-8", 18)
    inside = seen(pods, "gpu-with-nic")
    assert len(gpus(inside)) == 1
    assert len(inside.below("/dev/infiniband/uverbs")) == 1
    assert [name for name in inside.env if name.startswith("PCIDEVICE_DEVICES__NIC")]


@pytest.mark.parametrize(("recorded", "chosen"), [("h100-sxm-8", "large"), ("l4-2", "pair")])
def test_first_available(example: _Example, pods: RigPods, claims: Claims, recorded: str, chosen: str) -> None:
    found = claims.of_pod(example.run("first-available", recorded, int(recorded[-1])))
    results = found["status"]["allocation"]["devices"]["results"]
    assert {result["request"] for result in results} == {f"gpus/{chosen}"}
    assert len(gpus(seen(pods, "first-available"))) == len(results)


def test_mig(example: _Example, pods: RigPods) -> None:
    example.run("mig", "a100-mig-4", 11)
    inside = seen(pods, "mig")
    assert len(gpus(inside)) == 1
    assert len(inside.below("/dev/nvidia-caps/")) == 2


def test_shared_claim(example: _Example, pods: RigPods) -> None:
    example.run("shared-claim", "h100-sxm-8", 8)
    train, watch = (seen(pods, "shared-claim", of) for of in ("train", "watch"))
    assert gpus(train) == gpus(watch)
    assert len(gpus(train)) == 1
    assert example.agent is not None
    assert len(example.agent.ask("claims")["claims"]) == 1


@pytest.fixture
def admins(cluster: RigCluster) -> Iterator[str]:
    """The namespace of the example with admin access; it is gone after the test."""
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")


def test_admin_access(example: _Example, api: RigApi, pods: RigPods, admins: str) -> None:
    example.run("one-gpu", "l4-2", 2)
    pod = example.apply("admin-access")
    api.wait(f"/api/v1/namespaces/{admins}/serviceaccounts/default", "exists", lambda _: True)
    path = f"/api/v1/namespaces/{admins}/pods"
    api.create(path, pod)
    api.wait(f"{path}/admin-access", "runs", lambda one: one.get("status", {}).get("phase") == "Running")

    def told() -> set[str]:
        text = str(api.get(f"{path}/admin-access/log"))
        words = {line.split()[1] for line in text.splitlines() if line.startswith("device /dev/nvidia")}
        return {word for word in words if word.removeprefix("/dev/nvidia").isdecimal()}

    wait_until("it sees both GPUs", lambda: len(told()) == 2)
    assert len(gpus(seen(pods, "one-gpu"))) == 1
    api.delete(f"{path}/admin-access")
    api.wait_gone(f"{path}/admin-access")


@pytest.fixture
def extended(cluster: RigCluster, classes: None) -> Iterator[None]:
    """The class that has the extended resource."""
    apply_classes(cluster, EXTENDED)
    yield
    cluster.kubectl("delete", "deviceclass", "nvidia.com-gpu", "--ignore-not-found")


@pytest.mark.usefixtures("extended")
def test_extended_resource(cluster: RigCluster, example: _Example, api: RigApi, pods: RigPods) -> None:
    if not has_dra_gates(cluster.version):
        assert "extendedResourceName" not in api.get(f"{CLASSES}/nvidia.com-gpu")["spec"]
        return
    found = example.run("extended-resource", "l4-2", 2)
    status = pods.wait("extended-resource", "has a claim", lambda one: "extendedResourceClaimStatus" in one["status"])
    claim = api.get(f"{CLAIMS}/{status['status']['extendedResourceClaimStatus']['resourceClaimName']}")
    assert claim["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    assert len(gpus(seen(pods, "extended-resource"))) == 1
