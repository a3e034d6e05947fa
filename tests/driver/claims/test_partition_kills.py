"""Processes that are killed while they make or remove a claim's partition, and what the next one does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.disk import RecordStore
from driver.claims.model import RecordState
from driver.claims.record import ClaimRecord
from driver.claims.service import ClaimService
from node.partitions import partition_name
from node.values import replace
from tests.making.claim_partitions import BIG, GPU, OTHER, PART, SMALL, Parts
from tests.making.claim_service import DieAt, Killed, reference
from tests.making.dying import DyingProcesses
from tests.making.partitions import H100

EXIT = 77


async def _prepared_and_released(service: ClaimService) -> None:
    await service.prepare(reference())
    await service.unprepare(reference())


MAKING = ("make: intended", "make: mode", "make: instance", "make: recorded")
REMOVING = ("remove: instance", "remove: forgotten")
_OF_OTHERS = (ClaimStep.RELEASED, ClaimStep.SHARED, ClaimStep.UNSHARED, ClaimStep.TAKEN_BACK)
"""Steps that a claim with a partition does not reach, or after which nothing is left to do."""
STEPS = [step for step in ClaimStep if step not in _OF_OTHERS]


def killed_at(parts: Parts, step: ClaimStep | str) -> dict[str, Any]:
    if isinstance(step, ClaimStep):
        return {"steps": DieAt(step)}

    def reached(name: str) -> None:
        if name == step:
            raise Killed(name)

    parts.hardware.reached = reached
    return {}


@pytest.mark.parametrize("after", ["prepared", "released", "forgotten"])
@pytest.mark.parametrize("step", [*STEPS, *MAKING, *REMOVING])
async def test_killed_between_any_two_steps_no_partition_is_lost_or_left(
    parts: Parts, step: ClaimStep | str, after: str
) -> None:
    parts.put(1, PART)
    service = await parts.started(**killed_at(parts, step))
    with pytest.raises(Killed):
        await _prepared_and_released(service)
    parts.hardware.reached = lambda _: None
    service = await parts.started()
    if after == "prepared":
        await service.prepare(reference())
        parts.check_whole(PART)
    elif after == "forgotten":
        parts.node.reader.drop(1)
        parts.node.kubelet_knows()
        await service.collect()
        parts.check_empty()
    await service.unprepare(reference())
    parts.check_empty()
    parts.put(2, BIG)
    await service.prepare(reference(2))
    parts.check_whole(BIG)


@pytest.mark.parametrize("step", [ClaimStep.STARTED, ClaimStep.MADE, ClaimStep.REMOVED, *MAKING, *REMOVING])
def test_a_process_that_is_really_killed_leaves_what_the_next_one_understands(
    tmp_path: Path, dying: DyingProcesses, step: ClaimStep | str
) -> None:
    name = step.name if isinstance(step, ClaimStep) else step
    ended = dying.run(die, str(tmp_path / "node"), name)
    assert ended.code == EXIT, ended.written
    asyncio.run(_next(tmp_path / "node"))


def die(root: str, step: str) -> None:
    """What the killed process does: prepare and release."""

    class Exit:
        def reached(self, reached: ClaimStep, uid: str) -> None:
            if reached.name == step:
                os._exit(EXIT)

    async def main() -> None:
        parts = Parts(Path(root))
        parts.hardware.reached = lambda name: os._exit(EXIT) if name == step else None
        parts.put(1, PART)
        await _prepared_and_released(await parts.started(steps=Exit()))

    asyncio.run(main())


async def _next(root: Path) -> None:
    (root / "kubelet").rmdir()
    parts = Parts(root)
    parts.put(1, PART)
    parts.put(2, BIG)
    service = await parts.started()
    await service.prepare(reference())
    parts.check_whole(PART)
    await service.unprepare(reference())
    parts.check_empty()
    await service.prepare(reference(2))
    parts.check_whole(BIG)


async def test_a_start_removes_what_was_made_for_claims_that_are_not_on_record(parts: Parts) -> None:
    parts.hardware.make(GPU, SMALL, "somebody")
    parts.hardware.put(GPU, OTHER, "MIG-static")
    await parts.started()
    assert parts.hardware.instances == ["MIG-static"]
    assert parts.hardware.made() == ()


async def test_what_is_in_use_at_a_start_is_removed_when_it_is_not_any_more(parts: Parts) -> None:
    left = parts.hardware.make(GPU, SMALL, "somebody")
    parts.hardware.busy = {left.uuid}
    service = await parts.started()
    assert parts.node.events.reasons == ["ClaimRecoveryIncomplete"]
    await service.collect()
    assert parts.hardware.instances == [left.uuid]
    parts.hardware.busy = set()
    await service.collect()
    parts.check_empty()


async def test_a_record_says_what_was_made_and_is_read_as_it_was_written(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    (before,) = service.records()
    service = await parts.started()
    (after,) = service.records()
    (device,) = after.devices
    assert after == replace(before, devices=after.devices)
    assert device.slices == (0, 1)
    assert device.partition == replace(SMALL, capacity=())
    assert device.within == (GPU.name,)


async def test_a_claims_record_is_written_once_for_each_state(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[RecordState] = []
    write = RecordStore.write

    def noted(store: RecordStore, record: ClaimRecord) -> None:
        written.append(record.state)
        write(store, record)

    monkeypatch.setattr(RecordStore, "write", noted)
    parts.put(1, PART)
    service = await parts.started()
    await service.prepare(reference())
    assert written == [RecordState.STARTED, RecordState.COMPLETED]


async def test_two_hundred_kills_at_any_step_lose_and_leave_no_partition(parts: Parts) -> None:
    dice = random.Random(21)
    shapes = [(partition_name(GPU.name, shape), shape) for shape in H100]
    for number in range(200):
        name, _ = dice.choice(shapes)
        step = dice.choice([*STEPS, *MAKING, *REMOVING])
        parts.put(1, name)
        with contextlib.suppress(Killed):
            await _prepared_and_released(await parts.started(**killed_at(parts, step)))
        parts.hardware.reached = lambda _: None
        service = await parts.started()
        if dice.random() < 0.5:
            await service.prepare(reference())
            parts.check_whole(name)
        await service.unprepare(reference())
        assert (parts.hardware.instances, parts.hardware.made()) == ([], ()), (number, name, step)
    parts.check_empty()
