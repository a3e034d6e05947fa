"""Answers of 'ostler explain' as values, for tests of how they are drawn."""

# ruff: noqa: E501 - texts stand here line by line as people see them

from __future__ import annotations

from scheduling.explain.obstacles import (
    ClaimHolder,
    ConditionFalse,
    Held,
    ReadValue,
    SelectorSource,
)
from scheduling.explain.verdict import (
    Explanation,
    FindingGroup,
    NodeFinding,
    NodeOutcome,
    PlacedDevice,
    Remedy,
    RemedyKind,
    RequestFinding,
    SharedAttributes,
)

MODEL = 'device.attributes["gpu.example.com"].model'
CLASS = SelectorSource("class", "gpu.example.com", 0)
OTHER = ClaimHolder("team/other-x7f", ("team/other",))


def blocked(node: str, *requests: RequestFinding, remedies: tuple[Remedy, ...] = ()) -> NodeFinding:
    return NodeFinding(node, NodeOutcome.BLOCKED, requests=requests, remedies=remedies)


DEVICES = tuple(f"gpu-{number}" for number in range(8))
WRONG_MODEL = RequestFinding(
    "team/gpu",
    "gpu",
    1,
    8,
    0,
    0,
    (ConditionFalse(DEVICES, 8, CLASS, f'{MODEL} == "H200"', (ReadValue(MODEL, '"A100"'),)),),
)
ALL_HELD = RequestFinding("team/gpu", "gpu", 1, 8, 8, 0, (Held(DEVICES, 8, (OTHER,) * 8),))
NOWHERE = Explanation(
    "claim team/gpu (pod team/train-0)",
    (
        FindingGroup(("node-i", "node-j", "node-k"), blocked("node-i", ALL_HELD, remedies=(Remedy(RemedyKind.FREE),))),
        FindingGroup(tuple(f"node-{letter}" for letter in "abcdefgh"), blocked("node-a", WRONG_MODEL)),
    ),
)
HERE = NodeFinding(
    "node-a",
    NodeOutcome.FITS,
    (
        PlacedDevice("team/gpu", "gpu", "gpu.example.com", "node-a", "gpu-0"),
        PlacedDevice("team/gpu", "gpu", "gpu.example.com", "node-a", "gpu-1"),
        PlacedDevice(
            "team/gpu", "nic", "nic.example.com", "fabric", "nic-0", shared=True, network=True,
            consumed=(ReadValue("bandwidth", "10G"),), conditions=("attached",),
        ),
    ),
    (SharedAttributes("team/gpu", (ReadValue("resource.kubernetes.io/pcieRoot", '"pci0000:00"'), ReadValue("d/numa", "0"))),),
)  # fmt: skip
