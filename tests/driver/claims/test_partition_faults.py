"""Drivers that refuse, hang or lose a GPU while a claim's partition is made or removed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from driver.claims.model import ClaimError, ClaimReference, PartitionNotMade, PartitionPending
from node.partitions import PartitionError, partition_name
from tests.making.claim_partitions import BESIDE, GPU, PART, SMALL, Parts
from tests.making.claim_service import reference
from tests.making.faults import reported
from tests.making.partitions import parted
from tests.waiting import eventually


@pytest.mark.parametrize("pending", [True, False])
async def test_what_cannot_be_made_is_told_and_leaves_nothing(parts: Parts, pending: bool) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.hardware.refuses = PartitionError(GPU.name, "process 4711 uses the GPU", pending=pending)
    expected = PartitionPending if pending else PartitionNotMade
    with pytest.raises(expected, match=f"{GPU.name}: process 4711 uses the GPU") as told:
        await service.prepare(reference())
    assert ("asks again" in str(told.value)) is pending
    assert told.value.condition == expected.condition
    with pytest.raises(expected):
        await service.prepare(reference())
    assert parts.node.events.of(expected.condition) == [str(told.value)], "once for each reason"
    parts.hardware.refuses = None
    await service.unprepare(reference())
    parts.check_empty()
    assert (parts.observer.pending > 0) is pending
    await service.prepare(reference())
    parts.check_whole(PART)


async def test_a_partition_that_is_in_use_keeps_its_claim_and_is_removed_later(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    parts.hardware.busy = set(parts.hardware.instances)
    with pytest.raises(PartitionPending, match="process 4711"):
        await service.unprepare(reference())
    assert len(service.ledger.all) == 1
    parts.hardware.busy = set()
    await service.unprepare(reference())
    parts.check_empty()


async def test_a_lost_gpu_keeps_no_pod_from_ending_and_its_partition_is_removed_when_it_is_back(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    parts.hardware.refuses = PartitionError(GPU.name, "nvmlDeviceGetMigMode failed with GPU_IS_LOST")
    await service.unprepare(reference())
    assert service.ledger.all == ()
    assert service.records() == ()
    assert parts.node.events.of("ClaimReleaseIncomplete") == [
        (
            "claim default/claim-1 is released, but a partition that was made for it remains for now: claim "
            f"default/claim-1: {GPU.name}: nvmlDeviceGetMigMode failed with GPU_IS_LOST"
        )
    ]
    await service.collect()
    assert parts.hardware.made()
    parts.hardware.refuses = None
    await service.collect()
    parts.check_empty()


async def test_a_record_of_partitions_that_is_unusable_is_told_with_what_remains(parts: Parts) -> None:
    parts.hardware.fault = "partitions.json is damaged: it names no schema"
    await parts.started()
    (told,) = parts.node.events.of("ClaimRecoveryIncomplete")
    assert told == (
        "partitions.json is damaged: it names no schema; partitions that it named stay when their claims end; if "
        "'ostler devices' shows one that no claim has, remove it (nvidia-smi mig -dci, nvidia-smi mig -dgi)"
    )


async def test_a_slow_gpu_holds_up_no_claim_of_another(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, partition_name(parted(1).name, SMALL))
    gate = parts.hardware.gates[GPU.name] = threading.Event()
    slow = asyncio.create_task(service.prepare(reference(1)))
    await asyncio.sleep(0)
    await service.prepare(reference(2))
    assert not slow.done()
    gate.set()
    await slow
    parts.check_whole(PART, partition_name(parted(1).name, SMALL))


async def insisted(call: Callable[[ClaimReference], Awaitable[object]], claim: ClaimReference) -> None:
    """Ask as often as the kubelet does, since a driver that answers may be too slow for a short patience, too."""
    while True:
        try:
            await call(claim)
        except PartitionPending:
            await asyncio.sleep(0.01)
        else:
            return


def maker_threads() -> int:
    return sum(each.name.startswith("partitions") for each in threading.enumerate())


async def test_a_driver_that_hangs_keeps_one_thread_and_its_own_claims(parts: Parts) -> None:
    parts.patience = 0.1
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, BESIDE)
    gate = parts.hardware.gates[GPU.name] = threading.Event()
    with pytest.raises(PartitionPending, match=rf"{GPU.name}: the driver does not answer within 0.1 s; ostler tries"):
        await service.prepare(reference(1))
    before = maker_threads()
    for _ in range(10):
        for number in (1, 2):
            with pytest.raises(PartitionPending, match="the driver does not answer an earlier call"):
                await service.prepare(reference(number))
    with pytest.raises(PartitionPending, match="the driver does not answer an earlier call"):
        await service.unprepare(reference(1))
    # Those of tests before may end meanwhile.
    assert maker_threads() <= before
    parts.put(3, partition_name(parted(1).name, SMALL))
    await insisted(service.prepare, reference(3))
    await service.collect()
    gate.set()
    while [each.owner for each in parts.hardware.made() if each.uuid] != ["uid-3", "uid-1"]:
        await asyncio.sleep(0.01)
    await insisted(service.prepare, reference(2))
    for number in (1, 2, 3):
        await insisted(service.unprepare, reference(number))
    parts.check_empty()


async def test_a_bug_in_a_call_into_the_driver_that_nobody_waits_for_is_logged(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    parts.patience = 0.1
    service = await parts.started()
    parts.put(1, PART)

    def break_down(_: str) -> None:
        raise TypeError("a bug")

    gate = parts.hardware.gates[GPU.name] = threading.Event()
    parts.hardware.reached = break_down
    with pytest.raises(PartitionPending, match="the driver does not answer within"):
        await service.prepare(reference(1))
    gate.set()
    await eventually(lambda: reported(caplog))
    assert reported(caplog) == [("a call into the driver that nobody waits for", "TypeError: a bug")]


async def test_a_sweep_that_hangs_keeps_no_claim_from_being_prepared(parts: Parts) -> None:
    parts.patience = 0.1
    service = await parts.started()
    parts.put(1, PART)
    await insisted(service.prepare, reference())
    (parts.node.root / "state" / "claims" / "uid-1.json").unlink()
    gate = parts.hardware.sweeping = threading.Event()
    service = await parts.started()
    assert parts.node.events.of("ClaimRecoveryIncomplete")
    parts.put(2, partition_name(parted(1).name, SMALL))
    await insisted(service.prepare, reference(2))
    gate.set()
    await insisted(service.unprepare, reference(2))
    while parts.hardware.made():
        await asyncio.sleep(0.01)


async def test_a_gpu_that_vanishes_while_its_partition_is_made_fails_the_claim_and_leaves_nothing(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    gpus = parts.hardware.gpus

    def gone(step: str) -> None:
        if step == "make: instance":
            parts.hardware.gpus = gpus[1:]

    parts.hardware.reached = gone
    with pytest.raises(ClaimError, match="is not offered on this node"):
        await service.prepare(reference())
    parts.hardware.gpus = gpus
    parts.check_empty()


async def test_what_the_inventory_does_not_see_in_time_is_given_by_the_next_call(parts: Parts) -> None:
    service = await parts.started(options=parts.node.with_options(partition_wait=0.0))
    parts.put(1, PART)
    parts.blind = True
    with pytest.raises(PartitionPending, match=r"making 1g.10gb on gpu-0000-0b-00-0 is done"):
        await service.prepare(reference())
    parts.apply()
    await service.prepare(reference())
    parts.check_whole(PART)
    assert parts.observer.made == 1


async def test_what_a_look_at_the_gpu_does_not_show_is_looked_for_everywhere(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    before, parts.blind = parts.view(), True
    preparing = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: parts.looked_at, "the GPU is looked at")
    parts.blind = False
    service.apply(before)
    await preparing
    assert parts.looked_at[:2] == [frozenset({GPU.uuid}), frozenset()]
