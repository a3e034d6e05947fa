"""What several devices and requests do to each other, and what devices that fit have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    NIC,
    NIC_CLASS,
    ROOT,
    Object,
    claim,
    device,
    gpus,
    holder,
    match,
    node,
    request,
    resource_slice,
)
from tests.scheduling.explain.cases import Answers

A = node("node-a")
CLASSES = (GPU_CLASS, NIC_CLASS)
MIXED = resource_slice(
    "node-a", [device("gpu-0", root="pci0"), device("gpu-1", root="pci1"), device("gpu-2", root="pci1")]
)
NIC_AT_0 = resource_slice("node-a", [device("nic-0", root="pci0")], NIC)
NIC_AT_1 = resource_slice("node-a", [device("nic-0", root="pci1")], NIC)
GPUS_AND_NIC = claim(request(count=2), request("nic", NIC), constraints=[match(ROOT)])
CASES: dict[str, tuple[Object, ...]] = {
    "what-devices-that-fit-have-in-common": (A, *CLASSES, MIXED, NIC_AT_1, GPUS_AND_NIC),
    "a-match-that-no-choice-keeps": (A, *CLASSES, MIXED, NIC_AT_0, GPUS_AND_NIC),
    "a-match-that-a-held-device-breaks": (A, *CLASSES, MIXED, NIC_AT_1, GPUS_AND_NIC, holder("node-a", "gpu-2")),
    "a-match-of-an-attribute-that-nobody-has": (
        A,
        *CLASSES,
        MIXED,
        claim(request(), constraints=[match("x.example.com/y")]),
    ),
    "a-distinction-that-no-choice-keeps": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(4, slot=1)),
        claim(request(count=2), constraints=[{"distinctAttribute": f"{GPU}/slot"}]),
    ),
    "requests-that-compete": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(3)),
        claim(request("a", GPU, 2), request("b", GPU, 2)),
    ),
    "requests-that-compete-are-told-without-those-that-do-not": (
        A,
        *CLASSES,
        NIC_AT_0,
        resource_slice("node-a", gpus(3)),
        claim(request("a", GPU, 2), request("nic", NIC), request("b", GPU, 2)),
    ),
    "constraints-that-compete": (
        A,
        GPU_CLASS,
        resource_slice(
            "node-a",
            [
                device("gpu-0", root="pci0", slot=0),
                device("gpu-1", root="pci0", slot=0),
                device("gpu-2", root="pci1", slot=1),
            ],
        ),
        claim(request(count=2), constraints=[match(ROOT), {"distinctAttribute": f"{GPU}/slot"}]),
    ),
    "all-devices-under-a-match-that-they-break": (
        A,
        GPU_CLASS,
        MIXED,
        claim(request(allocationMode="All"), constraints=[match(ROOT)]),
    ),
    "admin-access-does-not-mind-holders": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(2)),
        claim(request(count=2, adminAccess=True)),
        holder("node-a", "gpu-0", "gpu-1"),
    ),
    "devices-with-conditions-make-the-pod-wait": (
        A,
        GPU_CLASS,
        resource_slice(
            "node-a",
            [device("gpu-0", more={"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]})],
        ),
        claim(request()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answer(case: str, tmp_path: Path, capsys: Any) -> None:
    Answers(tmp_path, capsys).check(case, *CASES[case])
