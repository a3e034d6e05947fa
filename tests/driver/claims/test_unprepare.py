from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from driver.claims.disk import ClaimSpecs
from driver.claims.locks import Tombstones
from driver.claims.model import ClaimError, ClaimReference, Unavailable
from driver.names import file_prefix
from node.clocks import SystemClocks
from tests.making.claim_service import GPU0, ClaimNode, claim, reference, result
from tests.waiting import eventually


async def test_release_leaves_nothing_and_needs_no_api_server(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.reader.fault = "the API server does not answer"
    asked = node.reader.asked
    await service.unprepare(reference())
    assert node.reader.asked == asked
    assert service.records() == ()
    assert service.ledger.all == ()
    assert node.spec(1) is None
    assert not node.record_path(1).exists()


async def test_a_claim_that_nobody_knows_is_released_already(node: ClaimNode) -> None:
    service = await node.started()
    await service.unprepare(reference())
    await service.unprepare(reference())


async def test_release_goes_by_the_uid_alone(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    await service.unprepare(ClaimReference("other", "name", "uid-1"))
    assert service.ledger.all == ()


async def test_a_claim_can_come_back_after_its_release(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    first = await service.prepare(reference())
    await service.unprepare(reference())
    assert await service.prepare(reference()) == first


async def test_a_late_duplicate_that_the_kubelet_does_not_know_brings_nothing_back(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    await service.unprepare(reference())
    node.kubelet_knows(2)
    with pytest.raises(ClaimError, match="was released, and the kubelet no longer knows it: the call came too late"):
        await service.prepare(reference())
    node.kubelet_knows(1, 2)
    assert len(await service.prepare(reference())) == 1


async def test_a_claim_released_while_it_is_being_read_stays_released(node: ClaimNode) -> None:
    node.reader.gate = asyncio.Event()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    late = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    await service.unprepare(reference())
    node.reader.gate.set()
    with pytest.raises(ClaimError, match="was released while it was being prepared"):
        await late
    assert service.statuses() == (), "what is released waits for nothing"
    assert service.ledger.all == ()


def test_tombstones_are_bounded_in_age_and_number() -> None:
    now = 100.0
    tombstones = Tombstones(10.0, SystemClocks(monotonic=lambda: now), most=3)
    for number in range(5):
        tombstones.add(f"uid-{number}")
    assert len(tombstones) == 3
    assert tombstones.serial_of("uid-1") is None
    assert tombstones.serial_of("uid-4") == 5
    now = 109.9
    assert tombstones.serial_of("uid-4") == 5
    now = 110.0
    assert tombstones.serial_of("uid-4") is None
    tombstones.add("uid-9")
    assert len(tombstones) == 1


async def test_a_cdi_file_that_cannot_be_removed_does_not_keep_the_device(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    path = node.root / "cdi" / "ostler.dev-claim_uid-1.json"
    with monkeypatch.context() as broken:
        _refuse(broken, path, errno.EROFS)
        await service.unprepare(reference())
        assert path.exists()
        [told] = node.events.of("ClaimReleaseIncomplete")
        assert "claim default/claim-1 is released, but CDI file" in told
        assert "(Read-only file system); check the folder and its disk" in told
        assert len(await service.prepare(reference(2))) == 1
    await service.collect()
    assert not path.exists()


async def test_a_record_that_cannot_be_removed_does_not_keep_the_device(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    with monkeypatch.context() as broken:
        _refuse(broken, node.record_path(1), errno.EIO)
        await service.unprepare(reference())
    assert service.ledger.all == ()
    assert "is released, but" in node.events.of("ClaimReleaseIncomplete")[0]
    await service.collect()
    assert not node.record_path(1).exists()


async def test_release_waits_for_recovery_and_says_so(node: ClaimNode) -> None:
    service = node.service()
    with pytest.raises(Unavailable, match="the agent is still reading the claims of this node; the kubelet asks again"):
        await service.unprepare(reference())


def test_runtimes_can_look_into_a_folder_that_was_made_for_them(tmp_path: Path) -> None:
    specs = ClaimSpecs(tmp_path / "run" / "cdi", file_prefix("ostler.dev"))
    old = os.umask(0o077)
    try:
        specs.ensure("uid-1", "{}")
    finally:
        os.umask(old)
    for path in (tmp_path / "run", tmp_path / "run" / "cdi"):
        assert path.stat().st_mode & 0o777 == 0o755


def test_a_claim_that_needs_no_file_any_more_has_none(tmp_path: Path) -> None:
    specs = ClaimSpecs(tmp_path, file_prefix("ostler.dev"))
    assert specs.ensure("uid-1", "{}")
    assert specs.ensure("uid-1", "")
    assert specs.uids() == frozenset()


def test_files_of_others_are_none_of_ours(tmp_path: Path) -> None:
    for name in ("ostler.dev-claim.json", "ostler.dev-nic.json", "other.dev-claim_uid-7.json", "nvidia.yaml"):
        (tmp_path / name).write_text("{}")
    specs = ClaimSpecs(tmp_path, file_prefix("ostler.dev"))
    assert specs.uids() == frozenset()
    specs.ensure("uid-1", "{}")
    specs.ensure("uid-2", "")
    assert specs.uids() == {"uid-1"}
    assert specs.path("uid-1").stat().st_mode & 0o777 == 0o644
    (tmp_path / ".ostler.dev-claim_uid-2.json.123456789abc.tmp").write_text("half")
    specs.sweep_unfinished()
    assert not list(tmp_path.glob(".*"))


def _refuse(monkeypatch: pytest.MonkeyPatch, path: Path, number: int) -> None:
    """Have the kernel's answer to the removal of one file be an error, as on a disk that went bad."""
    unlink = Path.unlink

    def refused(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise OSError(number, os.strerror(number))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
