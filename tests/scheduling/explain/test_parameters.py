"""Parameters that ostler will refuse are told before a pod waits on its node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from tests.making.clusters import claim, device, node, request, resource_slice, thing
from tests.scheduling.explain import objects
from tests.scheduling.explain.cases import CaseAnswers
from tests.scheduling.explain.cluster import MadeCluster, paths, serving
from tests.scheduling.explain.test_live import kubeconfig

OURS = "ostler.dev"
CLASS = thing("DeviceClass", OURS, {"selectors": [{"cel": {"expression": f'device.driver == "{OURS}"'}}]})
GPU = device("gpu-0", more={"attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-1"}}})
NIC = device("nic-0", more={"attributes": {"dra.net/numaNode": {"int": 0}}})
KIND = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MPS = {**KIND, "sharing": {"strategy": "mps"}}
TEXT = '.opaque.parameters.sharing.strategy: "mps" is not known; write TimeSlicing or MPS'


def config(parameters: Any, *requests: str, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def asked(*configs: dict[str, Any]) -> Any:
    body: Any = claim(request(of=OURS))
    body["spec"]["devices"]["config"] = list(configs)
    return body


def told(printed: str) -> str:
    return " ".join(printed.split())


def test_sharing_that_ostler_will_refuse_is_told_with_the_nodes(answers: CaseAnswers) -> None:
    slices = [resource_slice(name, [GPU], driver=OURS) for name in ("node-a", "node-b")]
    printed = told(answers(node("node-a"), node("node-b"), CLASS, *slices, asked(config(MPS))))
    assert "fits on 2 of 2 nodes" in printed
    assert f"note: on node-a and 1 more {OURS} will refuse claim team/train: spec.devices.config[0]{TEXT}" in printed
    assert answers.code == 0


def sharing(**fields: Any) -> dict[str, Any]:
    return {**KIND, "sharing": fields}


LONG = sharing(strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
BY_NUMBER = sharing(strategy="MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"3": "1Gi"}})
OWN = {"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "mps"}}


def of(kind: str, **more: Any) -> Any:
    """A device with the facts of both drivers."""
    attributes = {"ostler.dev/type": {"string": kind}, "gpu.nvidia.com/type": {"string": kind}, **more}
    return device("gpu-0", more={"attributes": attributes})


@pytest.mark.parametrize(
    ("found", "given", "text"),
    [
        (of("gpu"), sharing(strategy="MPS"), ""),
        (of("gpu"), LONG, ""),
        (of("gpu"), OWN, ""),
        (of("mig"), {**MPS, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}, ""),
        (
            of("gpu", **{"ostler.dev/cudaComputeCapability": {"version": "6.1.0"}}),
            LONG,
            'sharing.timeSlicingConfig.interval: "Long": device gpu-0 of request gpu has compute capability 6.1',
        ),
        (
            {**of("gpu"), "allowMultipleAllocations": True},
            OWN,
            'sharing.strategy: "mps": device gpu-0 of request gpu is a share',
        ),
        (of("gpu"), BY_NUMBER, 'defaultPerDevicePinnedMemoryLimit."3": the claim has no such device'),
    ],
)
def test_sharing_that_a_device_cannot_have_is_told_beforehand(
    found: Any, given: Any, text: str, answers: CaseAnswers
) -> None:
    driver = OURS if given["apiVersion"].startswith("ostler") else "gpu.nvidia.com"
    slices = resource_slice("node-a", [found], driver=OURS)
    printed = told(answers(node("node-a"), CLASS, slices, asked(config(given, driver=driver))))
    assert "fits on node-a" in printed
    assert (text in printed) if text else ("refuse" not in printed)


@pytest.mark.parametrize("fields", [{"gdrcopy": True}, {"gds": True, "gdrcopy": False}])
def test_features_of_nvidia_on_another_vendors_gpu_are_told_beforehand(fields: Any, answers: CaseAnswers) -> None:
    given = {"apiVersion": OWN["apiVersion"], "kind": "GpuConfig", **fields}
    for vendor, text in (
        ("amd", "gdrcopy, gds, mofed and IMEX are NVIDIA's, gpu-0 is amd's; leave its"),
        ("nvidia", ""),
    ):
        slices = resource_slice("node-a", [of("gpu", **{"ostler.dev/vendor": {"string": vendor}})], driver=OURS)
        printed = told(answers(node("node-a"), CLASS, slices, asked(config(given, driver=OURS))))
        assert "fits on node-a" in printed
        assert (text in printed) if text else ("refuse" not in printed)


OF_MIG = {**OWN, "kind": "MigConfig"}
PEERS_MIG = {**KIND, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}
NO_SHARING = {"apiVersion": OWN["apiVersion"], "kind": "MigConfig", "gdrcopy": True}
FOR_NIC = {"apiVersion": OWN["apiVersion"], "kind": "NicConfig", "rdma": True}


@pytest.mark.parametrize(
    ("given", "requests", "text"),
    [
        (OF_MIG, ("gpu",), "kind: MigConfig is for request gpu, whose device gpu-0 is of kind gpu; write GpuConfig"),
        (OF_MIG, (), "kind: MigConfig is for request gpu, whose device gpu-0 is of kind gpu; write GpuConfig"),
        (NO_SHARING, ("gpu",), "kind: MigConfig is for request gpu, whose device gpu-0 is of kind gpu"),
        (NO_SHARING, (), ""),
        (PEERS_MIG, ("gpu",), "the parameters are of kind MigDeviceConfig, and device gpu-0 of request gpu is of kind"),
        (PEERS_MIG, (), "the parameters are of kind MigDeviceConfig, and device gpu-0 of request gpu is of kind"),
        (FOR_NIC, ("gpu",), "kind: NicConfig is for request gpu, whose device gpu-0 is of kind gpu; write GpuConfig"),
    ],
)
def test_parameters_for_another_kind_of_device_are_told_beforehand(
    given: Any, requests: tuple[str, ...], text: str, answers: CaseAnswers
) -> None:
    driver = OURS if given["apiVersion"].startswith("ostler") else "gpu.nvidia.com"
    slices = resource_slice("node-a", [of("gpu")], driver=OURS)
    printed = told(answers(node("node-a"), CLASS, slices, asked(config(given, *requests, driver=driver))))
    assert "fits on node-a" in printed
    assert (text in printed) if text else ("refuse" not in printed)


FABRIC = {
    "ostler.dev/type": {"string": "nic"},
    "ostler.dev/ifName": {"string": "ens3"},
    "ostler.dev/linkType": {"string": "ethernet"},
    "ostler.dev/resource": {"string": "example.com/fabric"},
    "dra.net/ifName": {"string": "ens3"},
}
MOVES = {**FABRIC, "ostler.dev/movesInterface": {"bool": True}}
INTERFACE = {"apiVersion": OWN["apiVersion"], "kind": "NicConfig", "interface": {"mtu": 9000}}
UNMOVED = (
    "device nic-0 of request gpu keeps its interface on the node: resource example.com/fabric moves none; set "
    "moveInterface: true for the resource in ostler's configuration, or leave it out"
)


@pytest.mark.parametrize(
    ("facts", "given", "driver", "text"),
    [
        (MOVES, INTERFACE, OURS, ""),
        (FABRIC, INTERFACE, OURS, f".interface: {UNMOVED}"),
        (MOVES, {"interface": {"mtu": 9000}}, "dra.net", ""),
        (FABRIC, {"interface": {"mtu": 9000}}, "dra.net", f".interface.mtu: {UNMOVED}"),
        (MOVES, {"interface": {"dhcp": True}}, "dra.net", ".interface.dhcp: true is for dra.net and ostler does not"),
        (FABRIC, {}, OURS, ""),
        (
            {**MOVES, "ostler.dev/ifName": {"string": "eth0"}},
            {**INTERFACE, "interface": {}},
            OURS,
            ".interface.name: device nic-0 of request gpu is called eth0 on the node, a name that the pod has already",
        ),
        (
            {**MOVES, "ostler.dev/linkType": {"string": "infiniband"}},
            {**INTERFACE, "interface": {"hardwareAddress": "02:00:00:00:00:01"}},
            OURS,
            ".interface.hardwareAddress: device nic-0 of request gpu is InfiniBand, whose hardware addresses have 20",
        ),
    ],
)
@pytest.mark.parametrize("requests", [(), ("gpu",)], ids=["for all", "named"])
def test_an_interface_that_a_device_cannot_have_is_told_beforehand(
    facts: Any, given: Any, driver: str, text: str, *, requests: tuple[str, ...], answers: CaseAnswers
) -> None:
    slices = resource_slice("node-a", [device("nic-0", more={"attributes": facts})], driver=OURS)
    printed = told(answers(node("node-a"), CLASS, slices, asked(config(given, *requests, driver=driver))))
    assert "fits on node-a" in printed
    assert (text in printed) if text else ("refuse" not in printed)


def test_an_interface_that_needs_parameters_is_told_beforehand(answers: CaseAnswers) -> None:
    facts = {**MOVES, "ostler.dev/ifName": {"string": "eth0"}}
    slices = resource_slice("node-a", [device("nic-0", more={"attributes": facts})], driver=OURS)
    printed = told(answers(node("node-a"), CLASS, slices, asked()))
    assert "refuse claim team/train: NicConfig.interface.name: device nic-0 of request gpu is called eth0" in printed


def test_interfaces_that_one_pod_cannot_have_are_told_beforehand(answers: CaseAnswers) -> None:
    devices = [device(name, more={"attributes": MOVES}) for name in ("nic-0", "nic-1")]
    two: Any = claim(request("a", of=OURS), request("b", of=OURS))
    named = {**INTERFACE, "interface": {"name": "net1"}}
    two["spec"]["devices"]["config"] = [config(named, driver=OURS)]
    printed = told(answers(node("node-a"), CLASS, resource_slice("node-a", devices, driver=OURS), two))
    assert "fits on node-a" in printed
    assert "interface.name: net1 would be the name of device nic-0 of request a and of device nic-1 of" in printed


BY_MPS = of("gpu", **{"ostler.dev/sharing": {"string": "mps"}})
POLICY = {"default": "1Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}
SHARE = {
    **BY_MPS,
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": POLICY}},
}


def share(name: str, memory: str) -> Any:
    body = request(name, of=OURS)
    body["exactly"]["capacity"] = {"requests": {"memory": memory}}
    return body


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ([share("one", "10Gi")], ""),
        ([share("one", "10Gi"), share("two", "10Gi")], "requests one, two all have shares by MPS"),
    ],
)
def test_shares_that_one_container_cannot_have_are_told_beforehand(
    requests: list[Any], text: str, answers: CaseAnswers
) -> None:
    slices = resource_slice("node-a", [SHARE], driver=OURS)
    printed = told(answers(node("node-a"), CLASS, slices, claim(*requests)))
    assert "fits on node-a" in printed
    assert (text in printed) if text else ("refuse" not in printed)


def test_a_class_may_have_them_too(answers: CaseAnswers) -> None:
    of_class = {**CLASS, "spec": {**CLASS["spec"], "config": [{"opaque": config(MPS)["opaque"]}]}}
    printed = told(answers(node("node-a"), of_class, resource_slice("node-a", [GPU], driver=OURS), asked()))
    assert f"refuse claim team/train: DeviceClass {OURS}: spec.config[0].opaque.parameters (from the" in printed


def test_a_mistake_in_parameters_of_our_own_is_told(answers: CaseAnswers) -> None:
    wrong = config({"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig", "gdrCopy": True}, driver=OURS)
    printed = told(
        answers(node("node-a"), CLASS, resource_slice("node-a", [device("gpu-0")], driver=OURS), asked(wrong))
    )
    assert "config[0].opaque.parameters.gdrCopy: GpuConfig has no such field; did you mean gdrcopy?" in printed


def test_an_allocated_claim_is_looked_at_as_well(answers: CaseAnswers) -> None:
    body = asked(config(MPS))
    results = [{"request": "gpu", "driver": OURS, "pool": "node-a", "device": "gpu-0"}]
    body["status"] = {"allocation": {"devices": {"results": results}}}
    printed = told(answers(node("node-a"), CLASS, resource_slice("node-a", [GPU], driver=OURS), body))
    assert f"note: {OURS} will refuse claim team/train: spec.devices.config[0]{TEXT}" in printed


@pytest.mark.parametrize(
    ("device", "driver", "given"),
    [
        (device("gpu-0"), OURS, config(MPS)),
        (GPU, OURS, config(MPS, "other")),
        (GPU, OURS, config({**MPS, "sharing": None})),
        (GPU, OURS, config({"replaced": "by ostler snapshot"})),
        (
            device("nic", more={"attributes": {"dra.net/numaNode": {"int": 0}}}),
            OURS,
            config({"a": 1}, driver="dra.net"),
        ),
        (GPU, "gpu.nvidia.com", config(MPS)),
        (GPU, "other.example.com", config({"kind": "X"}, driver="other.example.com")),
    ],
)
def test_what_is_another_drivers_is_left_to_it(device: Any, driver: str, given: Any, answers: CaseAnswers) -> None:
    of_driver = thing("DeviceClass", OURS, {"selectors": []})
    printed = answers(node("node-a"), of_driver, resource_slice("node-a", [device], driver=driver), asked(given))
    assert "fits on node-a" in printed
    assert "refuse" not in printed


RIGHT = {"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig"}
WRONG = {**RIGHT, "gdrCopy": True}
FIELD = "config[0].opaque.parameters.gdrCopy: GpuConfig has no such field"


def of_cluster(parameters: Any, of_class: Any = None, *more: Any, templated: bool = False) -> MadeCluster:
    """A cluster with a pod ``train`` whose claim has these parameters."""
    by_class: Any = [config(of_class, driver=OURS)] if of_class else []
    demand: Any = {**objects.claim_spec(), "devices": {**objects.claim_spec()["devices"]}}  # type: ignore[dict-item]
    demand["devices"]["config"] = [config(parameters, driver=OURS)]
    source = {"resourceClaimTemplateName" if templated else "resourceClaimName": "mine"}
    asked_for: Any = objects.template("mine") if templated else objects.claim("mine")
    asked_for["spec"] = {"spec": demand} if templated else demand
    return MadeCluster(
        objects.device_class("gpu", config=by_class), objects.resource_slice("s", "node-1", "gpu-0", driver=OURS),
        objects.node("node-1"), asked_for, objects.pod("train", resourceClaims=[{"name": "gpu", **source}]), *more,
    )  # fmt: skip


def live(cluster: MadeCluster, where: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """What explain says of the pod, and the paths that it asks for."""
    with serving(cluster) as server:
        access = kubeconfig(where / "config", server.url)
        access.write_text(access.read_text().replace(f"{server.url}/a", server.url))
        assert main(["explain", "pod/train", "-n", "team", "--kubeconfig", str(access)]) == 0, capsys.readouterr().err
        return told(capsys.readouterr().out), paths(server)


@pytest.mark.parametrize("templated", [False, True])
def test_in_a_cluster_parameters_of_the_claim_asked_about_are_judged_as_they_are(
    templated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, _ = live(of_cluster(RIGHT, RIGHT, templated=templated), tmp_path, capsys)
    assert "fits on node-1" in printed
    assert "refuse" not in printed
    printed, _ = live(of_cluster(WRONG, templated=templated), tmp_path, capsys)
    assert f"spec.devices.{FIELD}" in printed
    printed, _ = live(of_cluster(RIGHT, WRONG, templated=templated), tmp_path, capsys)
    assert f"DeviceClass gpu: spec.{FIELD.replace('parameters.', 'parameters (from the DeviceClass).')}" in printed


def test_in_a_cluster_only_claims_asked_about_are_read_for_their_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other: Any = objects.claim("other")
    other["spec"]["devices"]["config"] = [config(WRONG, driver=OURS)]
    _, asked_for = live(of_cluster(RIGHT, None, other), tmp_path, capsys)
    assert [path.rsplit("/", 1)[1] for path in asked_for if "/team/resourceclaims/" in path] == ["mine"]


def test_parameters_that_may_not_be_read_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = of_cluster(WRONG)
    cluster.forbidden = {"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/mine"}
    printed, _ = live(cluster, tmp_path, capsys)
    assert "fits on node-1" in printed
    assert "refuse" not in printed
