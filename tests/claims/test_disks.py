"""Real disks that are full or read-only, where this machine lets us mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.claims.errors import Unavailable
from tests.claims.making import GPU0, GPU1, Node, claim, reference, result


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


async def test_release_works_on_a_full_disk(node: Node, disk: Path) -> None:
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
    assert node.events.told == []


async def test_a_full_cdi_disk_costs_the_claim_and_leaves_no_record(node: Node, disk: Path) -> None:
    node.with_options(cdi_dir=disk / "cdi")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    _fill(disk)
    with pytest.raises(Unavailable, match=r"CDI file .* cannot be written .*No space left on device"):
        await service.prepare(reference())
    assert list((node.root / "state" / "claims").iterdir()) == []
    (disk / "filler").unlink()
    assert len(await service.prepare(reference())) == 1


async def test_a_read_only_cdi_folder_keeps_no_device_and_is_cleared_later(node: Node, disk: Path) -> None:
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


async def test_a_read_only_state_folder_keeps_no_device_from_release(node: Node, disk: Path) -> None:
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
