"""What selectors have against devices, from files to the printed text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    MODEL,
    NIC,
    NIC_CLASS,
    Object,
    claim,
    device,
    device_class,
    gpus,
    node,
    request,
    resource_slice,
)
from tests.scheduling.explain.cases import CaseAnswers

H200 = f'{MODEL} == "H200"'
MEMORY = f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("40Gi"))'


def with_memory(name: str, memory: str, **attributes: Any) -> Object:
    return device(name, more={"capacity": {"memory": {"value": memory}}}, **attributes)


A, B = node("node-a"), node("node-b")
A100S = resource_slice("node-a", gpus(8, model="A100"))
CASES: dict[str, tuple[Object, ...]] = {
    "a-false-condition-is-told-with-the-devices-value": (
        A,
        device_class(GPU, f'device.driver == "{GPU}"', H200),
        A100S,
        claim(request()),
    ),
    "equal-reasons-of-several-nodes-are-told-once": (
        *(node(f"node-{letter}") for letter in "abcdefg"),
        GPU_CLASS,
        *(resource_slice(f"node-{letter}", gpus(2, model="A100")) for letter in "abcde"),
        resource_slice("node-f", gpus(2, model="A30")),
        claim(request("gpu", GPU, 1, H200)),
    ),
    "the-nearest-miss-is-told-first": (
        A,
        GPU_CLASS,
        resource_slice(
            "node-a",
            [
                with_memory("gpu-0", "24Gi", model="A30"),
                with_memory("gpu-1", "80Gi", model="A100"),
                with_memory("gpu-2", "24Gi", model="H200"),
            ],
        ),
        claim(request("gpu", GPU, 1, f"{H200} && {MEMORY}")),
    ),
    "devices-of-other-drivers-are-not-counted-where-there-are-own": (
        A,
        GPU_CLASS,
        NIC_CLASS,
        A100S,
        resource_slice("node-a", [device("nic-0")], NIC),
        claim(request("gpu", GPU, 1, H200)),
    ),
    "devices-of-other-drivers-are-told-where-there-are-no-others": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [device("nic-0")], NIC),
        claim(request()),
    ),
    "a-value-that-every-device-has-another-of-is-told-by-examples": (
        A,
        GPU_CLASS,
        resource_slice("node-a", [device(f"gpu-{i}", uuid=f"GPU-{i}") for i in range(8)]),
        claim(request("gpu", GPU, 1, f'device.attributes["{GPU}"].uuid == "GPU-9"')),
    ),
    "an-expression-that-does-not-compile-is-shown-with-the-place": (
        A,
        device_class(GPU, 'device.driver == "x" &&\n  device.model == "H200"'),
        A100S,
        claim(request()),
    ),
    "an-error-on-one-device-stops-the-pod-everywhere": (
        A,
        B,
        GPU_CLASS,
        resource_slice("node-a", gpus(1, model="H200")),
        resource_slice("node-b", gpus(1)),
        claim(request("gpu", GPU, 1, H200)),
    ),
    "a-missing-class-is-told-with-those-that-there-are": (
        A,
        GPU_CLASS,
        NIC_CLASS,
        A100S,
        claim(request(of="gpu.example.con")),
    ),
    "every-alternative-has-its-own-reasons": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(3, model="A100")),
        claim(
            {
                "name": "gpu",
                "firstAvailable": [
                    {**request("gpu", GPU, 2, H200)["exactly"], "name": "large"},
                    {**request("gpu", GPU, 4)["exactly"], "name": "small"},
                ],
            }
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answer(case: str, tmp_path: Path, capsys: Any) -> None:
    CaseAnswers(tmp_path, capsys).check(case, *CASES[case])
