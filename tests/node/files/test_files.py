"""Files are written whole: the old content or the new one, under the final name, whatever happens meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.files import (
    WriteFailed,
    write_whole,
)


def test_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_mode_is_the_one_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "spec.json"
    old = os.umask(0o077)
    try:
        write_whole(path, b"", mode)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == mode


def test_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "spec.json"
    with pytest.raises(WriteFailed) as caught:
        write_whole(path, b"one")
    assert str(caught.value) == f"{path} cannot be written: No such file or directory"
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert caught.value.path == path


def test_folder_in_the_way_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.mkdir()
    with pytest.raises(WriteFailed, match="Is a directory"):
        write_whole(path, b"one")
    assert list(tmp_path.iterdir()) == [path]


LIMITED = """
import resource, sys
from pathlib import Path
from node.files import WriteFailed, write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_whole(Path(sys.argv[1]), b"x" * 100000)
except WriteFailed as error:
    print(error)
"""


def test_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    write_whole(path, b"old")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path} cannot be written: File too large\n"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root rights and CAP_SYS_ADMIN")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.needs_root
def test_full_disk_leaves_the_old_file(tiny_disk: Path) -> None:
    path = tiny_disk / "spec.json"
    write_whole(path, b"old")
    with pytest.raises(WriteFailed, match="No space left on device"):
        write_whole(path, b"x" * 1_000_000)
    assert path.read_bytes() == b"old"
    assert list(tiny_disk.iterdir()) == [path]


def test_watchers_see_no_name_that_ends_in_json_or_yaml_but_the_final_one(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.update(os.listdir(tmp_path))  # noqa: PTH208 - names only, as fast as possible

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(50):
        write_whole(path, b"x" * number)
    ended.set()
    thread.join()
    assert {name for name in seen if name.endswith((".json", ".yaml"))} <= {"spec.json"}
    assert all(name == "spec.json" or (name.startswith(".spec.json.") and name.endswith(".tmp")) for name in seen)


def test_writers_at_the_same_time_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    contents = [bytes([65 + number]) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=write_whole, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_killed_writer_go_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "spec[1].json"
    stale, young, other = (tmp_path / name for name in (".spec[1].json.a.tmp", ".spec[1].json.b.tmp", ".x.json.a.tmp"))
    for leftover in (stale, young, other):
        leftover.write_text("")
    for old in (stale, other):
        os.utime(old, (0, 0))
    write_whole(path, b"one")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, young.name, other.name])
