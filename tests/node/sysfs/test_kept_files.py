"""Attributes that are read again and again."""

from __future__ import annotations

from pathlib import Path

from node.inventory.sysfs.files import KeptFile


def test_a_file_that_is_kept_open_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "state"
    file = KeptFile(str(path))
    assert file.read() == b""
    path.write_text("4: ACTIVE\n")
    assert file.read() == b"4: ACTIVE\n"
    path.write_text("1: DOWN\n")
    assert file.read() == b"1: DOWN\n"
    file.close()
    assert file.read() == b"1: DOWN\n"


def test_what_cannot_be_read_any_more_is_empty_and_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = KeptFile(str(path))
    assert file.read() == b""
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    path.rmdir()
    path.write_text("4: ACTIVE\n")
    assert file.read() == b"4: ACTIVE\n"
