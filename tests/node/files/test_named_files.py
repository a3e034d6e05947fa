"""Files that a person names: written into where they are pipes, devices or descriptors, else replaced whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.files import (
    WriteFailed,
)
from node.named_files import write_named_file


@pytest.mark.timeout(120)
def test_a_pipe_that_nobody_reads_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(WriteFailed, match="fifo cannot be written: no process reads from this pipe"):
        write_named_file(tmp_path / "fifo", b"x")


@pytest.mark.timeout(120)
def test_what_a_person_names_is_written_into_a_pipe_or_device_and_else_put_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write_named_file(tmp_path / "fifo", b"x")
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    write_named_file(Path("/dev/null"), b"x")
    write_named_file(tmp_path / "file", b"x", 0o644)
    assert (tmp_path / "file").read_bytes() == b"x"
    with pytest.raises(WriteFailed, match="Is a directory"):
        write_named_file(tmp_path, b"x")


def test_a_link_that_a_person_names_is_kept_and_leads_to_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to("file")
    write_named_file(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"
    (tmp_path / "dangling").symlink_to("absent")
    write_named_file(tmp_path / "dangling", b"y")
    assert (tmp_path / "absent").read_bytes() == b"y"


def test_a_descriptor_that_a_person_names_is_written_into_also_where_it_is_a_file(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"before ")
    write_named_file(Path(f"/dev/fd/{descriptor}"), b"x")
    write_named_file(Path(f"/proc/self/fd/{descriptor}"), b"y")
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"before xy"
    with pytest.raises(WriteFailed, match=f"^/dev/fd/{descriptor} cannot be written: Bad file descriptor$"):
        write_named_file(Path(f"/dev/fd/{descriptor}"), b"x")


def test_standard_output_is_written_into_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[object] = []
    monkeypatch.setattr("node.named_files.write_whole", lambda *named: put.append(named))
    duplicate = os.dup(1)
    try:
        with (tmp_path / "file").open("wb") as file:
            os.dup2(file.fileno(), 1)
        write_named_file(Path("/dev/stdout"), b"x")
    finally:
        os.dup2(duplicate, 1)
        os.close(duplicate)
    assert put == []
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_name_that_no_file_can_have_is_an_error_of_writing(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="File name too long"):
        write_named_file(tmp_path / ("x" * 300), b"x")
