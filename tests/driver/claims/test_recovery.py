from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import RecordState, Unavailable
from driver.claims.plan import device_of_entry
from node.files import write_record
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu
from tests.making.offered_devices import mig
from tests.waiting import eventually


async def _prepared(node: ClaimNode, *results: Any) -> tuple[Any, ...]:
    node.reader.put(claim(1, *(results or (result(GPU0),))))
    return await (await node.started()).prepare(reference())


async def test_a_new_process_has_the_claims_of_the_last_one(node: ClaimNode) -> None:
    first = await _prepared(node)
    service = await node.started()
    assert set(service.ledger.by_device()) == {GPU0}
    node.reader.fault = "the API server does not answer"
    assert await service.prepare(reference()) == first


async def test_a_lost_cdi_file_is_written_at_the_start(node: ClaimNode) -> None:
    await _prepared(node)
    before = node.spec(1)
    next((node.root / "cdi").iterdir()).unlink()
    await node.service().recover()
    assert node.spec(1) == before


async def test_a_cdi_file_lost_later_is_written_at_the_next_look(node: ClaimNode) -> None:
    await _prepared(node)
    service = await node.started()
    before = node.spec(1)
    next((node.root / "cdi").iterdir()).unlink()
    node.kubelet_knows(1)
    await service.collect()
    assert node.spec(1) == before


async def test_after_a_reboot_devices_stay_taken_and_the_claim_is_prepared_from_scratch(node: ClaimNode) -> None:
    await _prepared(node)
    node.boot = "boot-2"
    node.reader.put(claim(2, result(GPU0)))
    service = await node.started()
    assert node.spec(1) is None
    assert [status.state for status in service.statuses()] == ["void"]
    with pytest.raises(Unavailable, match="held"):
        await service.prepare(reference(2))
    assert len(await service.prepare(reference())) == 1
    assert node.spec(1) is not None
    assert [status.state for status in service.statuses()] == ["prepared", "refused"]
    assert [record.boot for record in service.records()] == ["boot-2"]


async def test_a_claim_of_an_earlier_boot_is_not_answered_without_the_api_server(node: ClaimNode) -> None:
    await _prepared(node)
    node.boot = "boot-2"
    node.reader.fault = "the API server does not answer"
    service = await node.started()
    with pytest.raises(Unavailable, match="the API server does not answer"):
        await service.prepare(reference())


@pytest.mark.parametrize("boots", [("", "boot-2"), ("boot-1", "")])
async def test_boots_that_have_no_id_are_taken_for_one(node: ClaimNode, boots: tuple[str, str]) -> None:
    node.boot, after = boots
    first = await _prepared(node)
    node.boot = after
    node.reader.fault = "the API server does not answer"
    assert await (await node.started()).prepare(reference()) == first


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _of_another(path: Path) -> None:
    write_record(path, "claim/v1", {"namespace": "default", "name": "claim-1", "uid": "uid-9", "state": "completed"})


def _wrong_type(path: Path) -> None:
    write_record(path, "claim/v1", {"namespace": "default", "name": "claim-1", "uid": "uid-1", "devices": "all"})


@pytest.mark.parametrize("spoil", [_truncated, _flipped, _emptied, _of_another, _wrong_type])
async def test_a_damaged_record_costs_one_claim_and_is_rebuilt(node: ClaimNode, spoil: Callable[[Path], None]) -> None:
    node.reader.put(claim(2, result(GPU1)))
    first = await _prepared(node)
    second = await (await node.started()).prepare(reference(2))
    spoil(node.record_path(1))
    node.kubelet_knows(1, 2, devices={1: (GPU0,), 2: (GPU1,)})
    service = await node.started()
    assert {hold.device for hold in service.ledger.all} == {GPU0, GPU1}
    [told] = node.events.of("ClaimRecordUnusable")
    assert "uid-1.json is damaged" in told
    assert f"its devices stay taken, as other sources name them: {GPU0}" in told
    assert await service.prepare(reference(2)) == second
    await service.collect()
    assert [record.state for record in service.records()] == [RecordState.COMPLETED] * 2
    assert await service.prepare(reference()) == first
    assert len(list(node.record_path(1).parent.glob("uid-1.json.damaged-*"))) == 1


async def test_a_damaged_record_of_a_claim_the_kubelet_does_not_know_holds_nothing(node: ClaimNode) -> None:
    await _prepared(node)
    _truncated(node.record_path(1))
    node.kubelet_knows()
    service = await node.started()
    assert service.ledger.all == ()
    assert node.spec(1) is None
    assert "the kubelet does not know the claim, so nothing is held for it" in node.events.of("ClaimRecordUnusable")[0]


async def test_where_the_kubelet_cannot_be_read_the_cdi_file_tells_the_devices(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0, shareID="s1"), result(GPU0, "watch", adminAccess=True), result(GPU1)))
    await (await node.started()).prepare(reference())
    _truncated(node.record_path(1))
    service = await node.started()
    assert {(hold.device, hold.share) for hold in service.ledger.all} == {(GPU0, "s1"), (GPU0, ""), (GPU1, "")}
    await service.collect()
    assert len(service.ledger.all) == 3, "nothing proves that the claim is gone"
    node.kubelet_knows()
    asked = node.reader.asked
    await service.collect()
    assert service.records() == ()
    assert node.reader.asked == asked, "of a claim without a name"


def test_the_name_of_an_entry_tells_device_and_share() -> None:
    assert device_of_entry("uid-1", f"uid-1-{GPU0}") == (GPU0, "")
    assert device_of_entry("uid-1", f"uid-1-{GPU0}:s1") == (GPU0, "s1")
    assert device_of_entry("uid-1", f"uid-1-{GPU0}:2") == (GPU0, ""), "the second one of it in the claim"
    assert device_of_entry("uid-1", f"uid-1-{GPU0}:s1:2") == (GPU0, "s1")
    assert device_of_entry("uid-1", f"uid-2-{GPU0}") is None


async def test_what_nobody_can_tell_is_told(node: ClaimNode) -> None:
    await _prepared(node)
    _truncated(node.record_path(1))
    next((node.root / "cdi").iterdir()).unlink()
    service = await node.started()
    assert service.ledger.all == ()
    assert "its devices are unknown until the kubelet asks for it again" in node.events.of("ClaimRecordUnusable")[0]


async def test_records_that_are_all_lost_come_back_from_the_kubelet_and_the_api_server(node: ClaimNode) -> None:
    first = await _prepared(node)
    node.kubelet_knows(1, devices={1: (GPU0,)})
    node.record_path(1).unlink()
    next((node.root / "cdi").iterdir()).unlink()
    node.reader.put(claim(2, result(GPU0)))
    service = await node.started()
    with pytest.raises(Unavailable, match="held"):
        await service.prepare(reference(2))
    collecting = asyncio.create_task(service.run())
    await eventually(lambda: node.spec(1) is not None)
    await eventually(lambda: [record.state for record in service.records()] == [RecordState.COMPLETED])
    assert await service.prepare(reference()) == first
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_claim_is_prepared_again_when_the_api_server_is_back(node: ClaimNode) -> None:
    node.with_options(rebuild_after=0.01, collect_spacing=0.01)
    await _prepared(node)
    node.kubelet_knows(1, devices={1: (GPU0,)})
    node.record_path(1).unlink()
    node.reader.fault = "the API server does not answer"
    asked = node.reader.asked
    service = await node.started()
    collecting = asyncio.create_task(service.run())
    await eventually(lambda: node.reader.asked > asked + 1)
    assert [record.state for record in service.records()] == [RecordState.STARTED]
    node.reader.fault = ""
    await eventually(lambda: [record.state for record in service.records()] == [RecordState.COMPLETED])
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_claim_that_the_kubelet_was_about_to_forget_when_it_was_taken_up_is_released_soon(
    node: ClaimNode,
) -> None:
    node.with_options(rebuild_after=0.01, collect_spacing=0.01, collect_every=3600.0)
    await _prepared(node)
    node.kubelet_knows(1, devices={1: (GPU0,)})
    node.record_path(1).unlink()
    service = await node.started()
    collecting = asyncio.create_task(service.run())
    await eventually(lambda: [record.state for record in service.records()] == [RecordState.COMPLETED])
    # Its release was answered by the process before, which the kubelet writes down only now.
    node.kubelet_knows()
    node.reader.claims.clear()
    await eventually(lambda: service.records() == () and service.ledger.all == ())
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])


class HeldRelease:
    """Holds a release on its way to the disk until ``goes_on`` is set."""

    def __init__(self) -> None:
        self.begun = False
        self.goes_on = threading.Event()

    def reached(self, step: ClaimStep, uid: str) -> None:
        if step is ClaimStep.RELEASING:
            self.begun = True
            self.goes_on.wait(30)


async def test_a_claim_whose_release_arrives_before_it_is_prepared_again_stays_released(node: ClaimNode) -> None:
    await _prepared(node)
    # The process before was killed after it had removed the record and before it had answered the release.
    node.kubelet_knows(1, devices={1: (GPU0,)})
    node.record_path(1).unlink()
    release = HeldRelease()
    service = await node.started(steps=release)
    releasing = asyncio.create_task(service.unprepare(reference()))
    await eventually(lambda: release.begun)
    asked = node.reader.asked
    looking = asyncio.create_task(service.collect())
    await eventually(lambda: looking.done() or node.reader.asked > asked)
    release.goes_on.set()
    await asyncio.gather(releasing, looking)
    assert service.records() == ()
    assert service.ledger.all == ()
    assert node.spec(1) is None


async def test_a_claim_is_prepared_again_less_and_less_often(node: ClaimNode) -> None:
    node.with_options(rebuild_after=0.02, collect_spacing=0.0)
    node.kubelet_knows(1, devices={1: (GPU0,)})
    node.reader.fault = "the API server does not answer"
    service = await node.started()
    began = time.monotonic()
    collecting = asyncio.create_task(service.run())
    await eventually(lambda: node.reader.asked >= 5)
    assert time.monotonic() - began > 0.02 + 0.04 + 0.08 + 0.16 - 0.02
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_claim_that_only_its_cdi_file_tells_of_excludes_what_its_device_is_part_of(node: ClaimNode) -> None:
    part = mig(1, 0)
    node.devices = (*node.devices, offered(part))
    node.reader.put(claim(1, result(part.name)))
    await (await node.started()).prepare(reference())
    _truncated(node.record_path(1))
    service = await node.started()
    [record] = service.records()
    assert (record.claim.name, record.boot) == ("", "")
    [hold] = service.ledger.all
    assert (hold.device, hold.within) == (part.name, (part.parent,))


async def test_a_device_twice_in_the_kubelets_file_is_one(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    node.kubelet_knows(1, devices={1: (GPU0, GPU0)})
    service = await node.started()
    assert len(service.ledger.all) == 1


async def test_an_adopted_mig_device_keeps_its_gpu_from_others(node: ClaimNode) -> None:
    instance = mig(0, 0)
    node.devices = (offered(gpu(0)), offered(instance))
    node.reader.fault = "the API server does not answer"
    node.kubelet_knows(1, devices={1: (instance.name,)})
    service = await node.started()
    node.reader.fault = ""
    node.reader.put(claim(2, result(GPU0)))
    with pytest.raises(Unavailable, match=f"whose part {instance.name}"):
        await service.prepare(reference(2))


async def test_a_record_of_a_newer_version_is_left_alone_and_its_devices_stay_taken(node: ClaimNode) -> None:
    await _prepared(node)
    write_record(node.record_path(1), "claim/v2", {"everything": "else"})
    newer = node.record_path(1).read_bytes()
    node.kubelet_knows(1, devices={1: (GPU0,)})
    service = await node.started()
    await service.collect()
    assert set(service.ledger.by_device()) == {GPU0}
    assert node.record_path(1).read_bytes() == newer
    assert "has schema claim/v2, this version knows claim/v1" in node.events.of("ClaimRecordUnusable")[0]
    assert len(await service.prepare(reference())) == 1
    assert [path.read_bytes() for path in node.record_path(1).parent.glob("*.damaged-1")] == [newer]
    await service.unprepare(reference())
    assert service.ledger.all == ()


async def test_records_that_contradict_each_other_are_both_kept_and_told(node: ClaimNode) -> None:
    await _prepared(node)
    stored = json.loads(node.record_path(1).read_bytes())["data"]
    write_record(node.record_path(2), "claim/v1", {**stored, "name": "claim-2", "uid": "uid-2"})
    service = await node.started()
    assert len(service.records()) == 2
    [told] = node.events.of("ClaimsOverlap")
    assert told.endswith("both keep it")


async def test_a_cdi_file_of_a_claim_that_nobody_knows_is_swept_on_proof(node: ClaimNode) -> None:
    (node.root / "cdi").mkdir()
    orphan = node.root / "cdi" / "ostler.dev-claim_uid-7.json"
    orphan.write_text("{}")
    await node.started()
    assert orphan.exists()
    node.kubelet_knows()
    await node.started()
    assert not orphan.exists()


async def test_a_state_folder_that_cannot_be_listed_does_not_stop_the_driver(node: ClaimNode) -> None:
    (node.root / "state").mkdir()
    (node.root / "state" / "claims").write_text("no folder")
    node.kubelet_knows(1, devices={1: (GPU0,)})
    service = await node.started()
    assert set(service.ledger.by_device()) == {GPU0}
    assert any("Not a directory" in told for told in node.events.of("ClaimRecoveryIncomplete"))


async def test_a_cdi_folder_that_takes_nothing_at_the_start_is_told_and_tried_again(node: ClaimNode) -> None:
    await _prepared(node)
    folder = node.root / "cdi"
    next(folder.iterdir()).unlink()
    folder.rmdir()
    folder.write_text("in the way")
    service = await node.started()
    assert set(service.ledger.by_device()) == {GPU0}
    assert "claim uid-1: CDI file" in node.events.of("ClaimRecoveryIncomplete")[0]
    folder.unlink()
    node.kubelet_knows(1)
    await service.collect()
    assert node.spec(1) is not None
