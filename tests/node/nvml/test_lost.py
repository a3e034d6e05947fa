"""GPUs that do not answer: one is never a reason to say less about the others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from node.inventory.facts import Ancestor, CallError, GpuFacts
from node.inventory.nvidia.nvml_binding import Binding, Handle
from node.inventory.nvidia.nvml_calls import NvmlCalls
from node.inventory.nvidia.nvml_queries import KnownLinks, read_nvlinks
from tests.node.nvml import nodes, stub
from tests.node.nvml.conftest import ServedNode, read

pytestmark = stub.needs_gcc

HANDLE = "nvmlDeviceGetHandleByIndex"
IDENTITY = (HANDLE, "nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID")


def without_pair(gpu: GpuFacts, other: int) -> GpuFacts:
    return replace(gpu, ancestors=tuple(each for each in gpu.ancestors if each.gpu != other))


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "UNKNOWN", "RESET_REQUIRED", "NO_PERMISSION"])
def test_a_gpu_without_a_handle_at_start_is_listed_with_its_error(node: ServedNode, error: str) -> None:
    node.install()
    node.serve(nodes.hgx(), stub.lost(3, error))
    facts = read(node.source())
    assert facts.status == "ok"
    assert facts.gpus[3] == GpuFacts(3, error=error, errors=(CallError(HANDLE, error),))
    wanted = nodes.hgx().gpus
    assert facts.gpus[:3] + facts.gpus[4:] == tuple(without_pair(gpu, 3) for gpu in wanted[:3] + wanted[4:])


def test_a_gpu_lost_at_start_that_has_a_handle_keeps_what_it_told(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), stub.lost(3, answering=IDENTITY))
    gpu = read(node.source()).gpus[3]
    assert gpu.error == "GPU_IS_LOST"
    assert (gpu.bus_id, gpu.uuid) == (nodes.hgx().gpus[3].bus_id, nodes.hgx().gpus[3].uuid)
    assert gpu.errors == (CallError("nvmlDeviceGetCudaComputeCapability", "GPU_IS_LOST"),)


def test_a_gpu_that_tells_neither_address_nor_uuid_has_an_error(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), stub.lost(3, "UNKNOWN", answering=[HANDLE]))
    assert read(node.source()).gpus[3].error == "UNKNOWN"


@pytest.mark.parametrize("answering", [(), (HANDLE,), IDENTITY])
def test_a_gpu_lost_later_keeps_its_facts_and_comes_back(node: ServedNode, answering: tuple[str, ...]) -> None:
    node.install()
    node.serve(nodes.partitioned())
    source = node.source()
    before = read(source)
    node.serve(nodes.partitioned(), stub.lost(0, answering=answering))
    for _ in range(2):
        lost = read(source)
        assert lost.status == "ok"
        assert lost.gpus == (replace(before.gpus[0], error="GPU_IS_LOST"), before.gpus[1])
    node.serve(nodes.partitioned())
    assert read(source) == before


def test_a_gpu_lost_between_two_calls_keeps_its_facts(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.partitioned())
    source = node.source()
    before = read(source)
    node.serve(nodes.partitioned(), "gpu0.mig1.error.nvmlDeviceGetAttributes GPU_IS_LOST\n")
    assert read(source).gpus == (replace(before.gpus[0], error="GPU_IS_LOST"), before.gpus[1])
    node.serve(nodes.partitioned())
    assert read(source) == before, "its links are not taken for missing ones"


def test_a_lost_gpu_is_not_taken_for_another_when_the_number_of_gpus_changed(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    read(source)
    node.serve(nodes.bridged(), stub.lost(1))
    gpus = read(source).gpus
    assert gpus[1] == GpuFacts(1, error="GPU_IS_LOST", errors=(CallError(HANDLE, "GPU_IS_LOST"),))
    assert gpus[0].ancestors == ()


def test_recorded_facts_of_a_lost_gpu_can_be_served(node: ServedNode) -> None:
    gpus = list(nodes.hgx().gpus)
    gpus[1] = replace(gpus[1], error="GPU_IS_LOST")
    gpus[2] = GpuFacts(2, error="UNKNOWN")
    node.install()
    node.serve(replace(nodes.hgx(), gpus=tuple(gpus)))
    seen = read(node.source()).gpus
    assert (seen[1].error, seen[1].uuid) == ("GPU_IS_LOST", gpus[1].uuid)
    assert (seen[2].error, seen[2].uuid) == ("UNKNOWN", None)
    assert seen[0].ancestors == tuple(Ancestor(other, 40 if other < 4 else 50) for other in range(3, 8))


class LostAtALink:
    """A binding whose GPU has links that are up, and is lost when it is asked for the third one."""

    max_nvlinks = 4

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, call: str, ask: Callable[[object], None]) -> None:
        ask(SimpleNamespace(_nvmlGetFunctionPointer=lambda _: self._state))

    def _state(self, _: object, link: ctypes.c_uint, active: Any) -> int:
        self.asked.append(f"link {link.value}")
        active._obj.value = 1
        return 15 if link.value == 2 else 0

    def error_name(self, code: int) -> str:
        return {15: "GPU_IS_LOST"}[code]

    def nvlink_remote_type(self, *_: object) -> None:
        self.asked.append("far end")

    bus_id = nvlink_remote_type


def test_a_gpu_that_is_lost_at_one_link_is_asked_nothing_about_the_others() -> None:
    binding = LostAtALink()
    calls = NvmlCalls(cast("Binding", binding))
    read_nvlinks(calls, Handle(None), GpuFacts(0), KnownLinks())
    assert binding.asked == ["link 0", "link 1", "link 2"], "nothing about far ends"
    assert calls.gone == "GPU_IS_LOST"
