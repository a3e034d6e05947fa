"""Parameters that ostler will refuse are told before a pod waits on its node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.explain.cases import Answers, claim, device, node, request, resource_slice, thing

OURS = "ostler.dev"
CLASS = thing("DeviceClass", OURS, {"selectors": [{"cel": {"expression": f'device.driver == "{OURS}"'}}]})
GPU = device("gpu-0", more={"attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-1"}}})
NIC = device("nic-0", more={"attributes": {"dra.net/numaNode": {"int": 0}}})
MPS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
TEXT = '.opaque.parameters.sharing.strategy: "MPS" is for gpu.nvidia.com and not served here'


def config(parameters: Any, *requests: str, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def asked(*configs: dict[str, Any]) -> Any:
    body: Any = claim(request(of=OURS))
    body["spec"]["devices"]["config"] = list(configs)
    return body


def told(printed: str) -> str:
    return " ".join(printed.split())


def test_sharing_that_ostler_will_refuse_is_told_with_the_nodes(answers: Answers) -> None:
    slices = [resource_slice(name, [GPU], driver=OURS) for name in ("node-a", "node-b")]
    printed = told(answers(node("node-a"), node("node-b"), CLASS, *slices, asked(config(MPS))))
    assert "fits on 2 of 2 nodes" in printed
    assert f"note: on node-a and 1 more {OURS} will refuse claim team/train: spec.devices.config[0]{TEXT}" in printed
    assert answers.code == 0


def test_a_class_may_have_them_too(answers: Answers) -> None:
    of_class = {**CLASS, "spec": {**CLASS["spec"], "config": [{"opaque": config(MPS)["opaque"]}]}}
    printed = told(answers(node("node-a"), of_class, resource_slice("node-a", [GPU], driver=OURS), asked()))
    assert f"refuse claim team/train: DeviceClass {OURS}: spec.config[0].opaque.parameters (from the" in printed


def test_a_mistake_in_parameters_of_our_own_is_told(answers: Answers) -> None:
    wrong = config({"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig", "gdrCopy": True}, driver=OURS)
    printed = told(
        answers(node("node-a"), CLASS, resource_slice("node-a", [device("gpu-0")], driver=OURS), asked(wrong))
    )
    assert "config[0].opaque.parameters.gdrCopy: GpuConfig has no such field; did you mean gdrcopy?" in printed


def test_an_allocated_claim_is_looked_at_as_well(answers: Answers) -> None:
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
def test_what_is_another_drivers_is_left_to_it(device: Any, driver: str, given: Any, answers: Answers) -> None:
    of_driver = thing("DeviceClass", OURS, {"selectors": []})
    printed = answers(node("node-a"), of_driver, resource_slice("node-a", [device], driver=driver), asked(given))
    assert "fits on node-a" in printed
    assert "refuse" not in printed
