"""Devices that suit and cannot be had: held, tainted, short of capacity or of counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    Object,
    claim,
    device,
    gpus,
    holder,
    node,
    request,
    resource_slice,
    thing,
)
from tests.scheduling.explain.cases import CaseAnswers

A = node("node-a")
XID: Object = {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}


def tainted(name: str) -> Object:
    return device(name, more={"taints": [XID]})


def drawing(name: str, memory: str) -> Object:
    """A partition that draws on the memory of one GPU."""
    consumed = {"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}
    return device(name, more={"consumesCounters": [consumed]})


def shared(name: str) -> Object:
    """A NIC whose bandwidth several claims share."""
    policy = {"default": "1G", "validRange": {"min": "1G", "max": "8G", "step": "1G"}}
    bandwidth = {"value": "10G", "requestPolicy": policy}
    return device(name, more={"allowMultipleAllocations": True, "capacity": {"bandwidth": bandwidth}})


def share(name: str, bandwidth: str) -> Object:
    """Another claim with a share of nic-0."""
    body = holder("node-a", "nic-0", name=name)
    result = body["status"]["allocation"]["devices"]["results"][0]
    number = len(name)
    result |= {"shareID": f"00000000-0000-4000-8000-{number:012}", "consumedCapacity": {"bandwidth": bandwidth}}
    return body


TWO_SLICES = {"resourceSliceCount": 2}
COUNTERS = thing(
    "ResourceSlice",
    "counters",
    {
        "driver": GPU,
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, **TWO_SLICES},
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
    },
)
NICS = resource_slice("node-a", [shared("nic-0")])
CASES: dict[str, tuple[Object, ...]] = {
    "devices-held-are-told-with-their-claims-and-pods": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(3)),
        claim(request()),
        holder("node-a", "gpu-0", "gpu-1", name="other-x7f"),
        holder("node-a", "gpu-2", name="left-over", pods=()),
    ),
    "some-devices-held-leave-fewer": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(4)),
        claim(request(count=3)),
        holder("node-a", "gpu-0", "gpu-1"),
    ),
    "a-device-held-keeps-all-devices-from-being-had": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(3)),
        claim(request(allocationMode="All")),
        holder("node-a", "gpu-1"),
    ),
    "a-drivers-taint-is-told-with-its-toleration": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [tainted("gpu-0"), tainted("gpu-1")]),
        claim(request()),
    ),
    "a-rules-taint-is-told-with-the-rule": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(2)),
        claim(request()),
        thing(
            "DeviceTaintRule",
            "rack-7",
            {"deviceSelector": {"pool": "node-a"}, "taint": {"key": "drain", "effect": "NoSchedule"}},
        ),
    ),
    "held-and-tainted-devices-need-both-changes": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [tainted("gpu-0"), device("gpu-1")]),
        claim(request(count=2)),
        holder("node-a", "gpu-1"),
    ),
    "too-few-devices-suit": (A, GPU_CLASS, resource_slice("node-a", gpus(2)), claim(request(count=3))),
    "more-devices-than-a-claim-can-get": (A, GPU_CLASS, resource_slice("node-a", gpus(2)), claim(request(count=33))),
    "a-counter-is-exhausted-by-a-device-in-use": (
        A,
        GPU_CLASS,
        COUNTERS,
        resource_slice("node-a", [drawing("mig-0", "70Gi"), drawing("mig-1", "40Gi")], pool=TWO_SLICES),
        claim(request()),
        holder("node-a", "mig-0"),
    ),
    "devices-that-share-a-counter-cannot-all-be-had": (
        A,
        GPU_CLASS,
        COUNTERS,
        resource_slice("node-a", [drawing(f"mig-{i}", "40Gi") for i in range(3)], pool=TWO_SLICES),
        claim(request(count=3)),
    ),
    "all-devices-of-a-counter-cannot-be-had": (
        A,
        GPU_CLASS,
        COUNTERS,
        resource_slice("node-a", [drawing(f"mig-{i}", "40Gi") for i in range(3)], pool=TWO_SLICES),
        claim(request(allocationMode="All")),
    ),
    "a-capacity-is-exhausted-by-other-shares": (
        A,
        GPU_CLASS,
        NICS,
        claim(request(capacity={"requests": {"bandwidth": "4G"}})),
        share("one", "3G"),
        share("other", "5G"),
    ),
    "a-share-that-is-left-fits": (
        A,
        GPU_CLASS,
        NICS,
        claim(request(capacity={"requests": {"bandwidth": "1500M"}})),
        share("one", "8G"),
    ),
    "more-capacity-than-a-share-can-have": (
        A,
        GPU_CLASS,
        NICS,
        claim(request(capacity={"requests": {"bandwidth": "9G"}})),
    ),
    "a-capacity-that-the-devices-lack": (A, GPU_CLASS, NICS, claim(request(capacity={"requests": {"memory": "9G"}}))),
    "a-device-too-small-for-what-is-asked": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [device("gpu-0", more={"capacity": {"memory": {"value": "24Gi"}}})]),
        claim(request(capacity={"requests": {"memory": "40Gi"}})),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answer(case: str, tmp_path: Path, capsys: Any) -> None:
    CaseAnswers(tmp_path, capsys).check(case, *CASES[case])
