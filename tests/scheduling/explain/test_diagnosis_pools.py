"""Pools that are not used, nodes that have nothing or are not for the pod, devices of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.making.clusters import (
    GPU_CLASS,
    NIC,
    NIC_CLASS,
    Object,
    claim,
    device,
    gpus,
    holder,
    node,
    pod,
    request,
    resource_slice,
)
from tests.scheduling.explain.cases import CaseAnswers

A, B = node("node-a"), node("node-b")
BOTH = (A, B, GPU_CLASS, resource_slice("node-a", gpus(1)), resource_slice("node-b", gpus(1)))
CASES: dict[str, tuple[Object, ...]] = {
    "a-node-without-devices": (A, B, GPU_CLASS, resource_slice("node-a", gpus(1)), claim(request(count=2))),
    "a-pool-that-lacks-a-slice": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(1), pool={"resourceSliceCount": 2, "generation": 3}),
        claim(request()),
    ),
    "all-devices-of-a-pool-that-lacks-a-slice": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(1), pool={"resourceSliceCount": 2}),
        claim(request(allocationMode="All")),
    ),
    "an-incomplete-pool-of-another-driver-is-not-told": (
        A,
        GPU_CLASS,
        NIC_CLASS,
        resource_slice("node-a", [device("nic-0")], NIC, pool={"resourceSliceCount": 2}),
        resource_slice("node-a", gpus(2)),
        claim(request(count=3)),
    ),
    "a-pool-with-a-device-twice": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [device("gpu-0")], name="first", pool={"resourceSliceCount": 2}),
        resource_slice("node-a", [device("gpu-0")], name="second", pool={"resourceSliceCount": 2}),
        claim(request()),
    ),
    "slices-of-an-older-generation-than-the-pool": (
        A,
        B,
        GPU_CLASS,
        resource_slice("node-a", gpus(1), name="old", pool={"name": "rack", "resourceSliceCount": 2}),
        resource_slice("node-b", gpus(1), name="new", pool={"name": "rack", "generation": 2}),
        claim(request(count=2)),
    ),
    "devices-of-the-network-fit-on-all-nodes": (
        A,
        B,
        GPU_CLASS,
        resource_slice("node-a", gpus(1), nodeName=None, allNodes=True, pool={"name": "fabric"}),
        claim(request()),
    ),
    "devices-that-choose-their-own-nodes": (
        A,
        B,
        GPU_CLASS,
        resource_slice(
            "rack",
            [device("gpu-0", more={"nodeName": "node-a"}), device("gpu-1", more={"nodeName": "node-b"})],
            nodeName=None,
            perDeviceNodeSelection=True,
        ),
        claim(request(count=2)),
    ),
    "without-node-objects-the-slices-name-the-nodes": (
        GPU_CLASS,
        resource_slice("node-a", gpus(1)),
        claim(request()),
    ),
    "without-nodes-there-is-nothing-to-say": (GPU_CLASS, claim(request())),
}
BOUND = holder("node-a", "gpu-0", name="train")
BOUND["status"]["allocation"]["nodeSelector"] = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
}
PODS: dict[str, tuple[Object, ...]] = {
    "nodes-that-the-pod-does-not-go-to": (
        A,
        node("node-b", unschedulable=True),
        *BOTH[2:],
        claim(request()),
        pod(nodeSelector={"zone": "east"}),
    ),
    "a-claim-that-has-its-devices-binds-the-pod-to-their-node": (*BOTH, BOUND, pod()),
    "a-claim-that-nobody-made": (*BOTH, pod()),
    "two-claims-of-a-pod-compete": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(1)),
        claim(request(), name="first"),
        claim(request(), name="second"),
        pod(claims=["first", "second"]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answer(case: str, tmp_path: Path, capsys: Any) -> None:
    CaseAnswers(tmp_path, capsys).check(case, *CASES[case])


@pytest.mark.parametrize("case", PODS)
def test_answer_about_a_pod(case: str, tmp_path: Path, capsys: Any) -> None:
    CaseAnswers(tmp_path, capsys).check(case, *PODS[case], ask="pod/train-0", words=["--all-nodes"])
