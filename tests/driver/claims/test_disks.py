"""Real disks that are full or read-only, where this machine lets us mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import RecordState, Unavailable
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, reference, result


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 pages."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(path)], check=False)
    if made.returncode:
        pytest.skip("no disk can be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def _fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "filler").write_bytes(b"x" * (1 << 20))


def _mode(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


class At:
    """Does something once, in the middle of preparing."""

    def __init__(self, step: ClaimStep, act: Callable[[], None]) -> None:
        self._step = step
        self._act: Callable[[], None] | None = act

    def reached(self, step: ClaimStep, uid: str) -> None:
        if step is self._step and self._act is not None:
            act, self._act = self._act, None
            act()


async def test_a_disk_that_fills_up_in_the_middle_leaves_nothing_of_the_claim(node: ClaimNode, disk: Path) -> None:
    node.with_options(state_dir=disk / "state")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(steps=At(ClaimStep.DESCRIBED, lambda: _fill(disk)))
    with pytest.raises(Unavailable, match="No space left on device; check the state folder and its disk"):
        await service.prepare(reference())
    assert service.ledger.all == ()
    assert list((disk / "state" / "claims").iterdir()) == []
    assert list((node.root / "cdi").iterdir()) == []
    (disk / "filler").unlink()
    assert len(await service.prepare(reference())) == 1


async def test_a_claim_that_is_prepared_keeps_what_it_has_when_new_devices_cannot_be_written_down(
    node: ClaimNode, disk: Path
) -> None:
    node.with_options(state_dir=disk / "state")
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started()
    await service.prepare(reference())
    before = service.records()
    node.reader.put(claim(1, result(GPU1)))
    _fill(disk)
    with pytest.raises(Unavailable, match="No space left on device"):
        await service.prepare(reference())
    assert service.records() == before
    assert set(service.ledger.by_device()) == {GPU0}
    (disk / "filler").unlink()
    assert len(await service.prepare(reference(2))) == 1


async def test_a_record_that_cannot_be_taken_back_keeps_its_device_until_it_can(node: ClaimNode, disk: Path) -> None:
    node.with_options(state_dir=disk / "state")
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started(steps=At(ClaimStep.DESCRIBED, lambda: _mode(disk, "ro")))
    with pytest.raises(Unavailable, match="Read-only file system"):
        await service.prepare(reference())
    assert [record.state for record in service.records()] == [RecordState.STARTED]
    assert {hold.owner for hold in service.ledger.all} == {"uid-1"}, "as after a restart, which would read the record"
    _mode(disk, "rw")
    assert len(await service.prepare(reference())) == 1
    await service.unprepare(reference())
    assert len(await service.prepare(reference(2))) == 1


async def test_on_a_disk_that_is_read_only_a_claim_without_a_record_keeps_no_device(
    node: ClaimNode, disk: Path
) -> None:
    node.with_options(state_dir=disk / "state")
    node.reader.put(claim(1, result(GPU0)))
    (disk / "state" / "claims").mkdir(parents=True)
    service = await node.started()
    _mode(disk, "ro")
    with pytest.raises(Unavailable, match="Read-only file system"):
        await service.prepare(reference())
    assert service.records() == ()
    assert service.ledger.all == ()
    _mode(disk, "rw")
    assert len(await service.prepare(reference())) == 1


async def test_release_works_on_a_full_disk(node: ClaimNode, disk: Path) -> None:
    node.with_options(state_dir=disk / "state", cdi_dir=disk / "cdi")
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    _fill(disk)
    with pytest.raises(Unavailable, match="No space left on device; check the state folder and its disk"):
        await service.prepare(reference(2))
    assert {hold.owner for hold in service.ledger.all} == {"uid-1"}
    await service.unprepare(reference(1))
    assert service.ledger.all == ()
    assert list((disk / "state" / "claims").iterdir()) == []
    assert list((disk / "cdi").iterdir()) == []
    assert node.events.events == []


async def test_a_full_cdi_disk_costs_the_claim_and_leaves_no_record(node: ClaimNode, disk: Path) -> None:
    node.with_options(cdi_dir=disk / "cdi")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    _fill(disk)
    with pytest.raises(Unavailable, match=r"CDI file .* cannot be written .*No space left on device"):
        await service.prepare(reference())
    assert list((node.root / "state" / "claims").iterdir()) == []
    (disk / "filler").unlink()
    assert len(await service.prepare(reference())) == 1


async def test_a_read_only_cdi_folder_keeps_no_device_and_is_cleared_later(node: ClaimNode, disk: Path) -> None:
    node.with_options(cdi_dir=disk / "cdi")
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    _mode(disk, "ro")
    await service.unprepare(reference(1))
    assert service.ledger.all == ()
    assert "Read-only file system" in node.events.of("ClaimReleaseIncomplete")[0]
    with pytest.raises(Unavailable, match=r"CDI file .* cannot be written .*Read-only file system"):
        await service.prepare(reference(2))
    _mode(disk, "rw")
    node.kubelet_knows()
    await service.collect()
    assert list((disk / "cdi").iterdir()) == []
    assert len(await service.prepare(reference(2))) == 1


async def test_a_read_only_state_folder_keeps_no_device_from_release(node: ClaimNode, disk: Path) -> None:
    node.with_options(state_dir=disk / "state")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    _mode(disk, "ro")
    await service.unprepare(reference(1))
    assert service.ledger.all == ()
    assert "uid-1.json cannot be written: Read-only file system" in node.events.of("ClaimReleaseIncomplete")[0]
    again = await node.started()
    assert {hold.owner for hold in again.ledger.all} == {"uid-1"}, "the record is still there after a restart"
    node.reader.drop(1)
    node.kubelet_knows()
    _mode(disk, "rw")
    assert await again.collect() == 1
