"""A read of the GPUs that changed finds what a read of everything would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.inventory.facts import Ancestor
from node.inventory.nvidia.nvml_binding import Binding
from tests.making.mig_nodes import Start, node
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc


def test_a_read_of_the_gpu_that_changed_says_what_a_read_of_all_would(start: Start) -> None:
    made = start(node(3))
    made.facts()
    for index, (profile, at) in enumerate([("1g.10gb", 2), ("3g.40gb", 4), ("7g.80gb", 0)]):
        gpu = made.gpu(index)
        for change in (
            lambda gpu=gpu, profile=profile, at=at, index=index: made.maker.make(
                gpu, made.shape(profile, at, index), f"claim-{index}"
            ),
            lambda index=index: made.maker.remove(f"claim-{index}"),
            lambda gpu=gpu: made.maker.leave_partitioning(gpu),
        ):
            change()
            part = made.source.read_gpus(frozenset({gpu.uuid or ""}))
            assert part == made.source.read()


def test_a_read_of_one_gpu_asks_no_other(start: Start, mig_hardware: InjectedNvml) -> None:
    one, other = node(2).gpus
    beside = tuple(replace(gpu, ancestors=(Ancestor(1 - gpu.index, 20),)) for gpu in (one, other))
    made = start(replace(node(2), gpus=beside))
    well, (first, second) = made.source.read(), (frozenset({gpu.uuid or ""}) for gpu in (one, other))
    mig_hardware.lose(1)
    assert made.source.read_gpus(first) == well
    lost = made.source.read_gpus(second)
    assert lost == made.source.read() != well
    mig_hardware.find(1)
    assert made.source.read_gpus(first) == lost
    assert made.source.read_gpus(second) == made.source.read() == well


@pytest.mark.parametrize("uuids", [{"GPU-unknown"}, {""}, {"GPU-unknown", node().gpus[0].uuid or ""}])
def test_gpus_that_were_not_read_before_are_found_by_a_read_of_everything(
    start: Start, mig_hardware: InjectedNvml, uuids: set[str]
) -> None:
    made = start(node(1))
    mig_hardware.serve(node(2))
    assert made.source.read_gpus(frozenset(uuids)) == made.source.read()


def test_a_new_session_reads_everything(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start(node(2))
    before = made.source.read()
    made.source.close()
    assert made.source.read_gpus(frozenset({node(2).gpus[0].uuid or ""})) == before


def test_a_read_of_new_partitions_asks_nothing_else_about_their_gpu(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = start(node(1))
    gpu, shape = made.gpu(0), made.shape("1g.10gb", 2, 0)
    made.maker.make(gpu, made.shape("1g.10gb", 0, 0), "claim-1")
    made.source.read()
    made.maker.make(gpu, shape, "claim-2")
    asked: list[str] = []
    invoke = Binding._run

    def counted(binding: Binding, call: str, *arguments: Any) -> Any:
        asked.append(call)
        return invoke(binding, call, *arguments)

    monkeypatch.setattr(Binding, "_run", counted)
    found = made.source.read_gpus(frozenset({gpu.uuid or ""}))
    assert "nvmlDeviceGetNvLinkState" not in asked
    assert "nvmlDeviceGetPciInfo" not in asked
    assert found == made.source.read()
    assert "nvmlDeviceGetNvLinkState" in asked
