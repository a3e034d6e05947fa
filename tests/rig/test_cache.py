"""What is made once and kept: whole or not at all, and by one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.making.cache import cache_folder, cached, digest, remove_old


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OSTLER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_made_once(folder: Path) -> None:
    made = []

    def make(entry: Path) -> None:
        made.append(entry)
        (entry / "file").write_text("x")

    first, second = cached("a/b", make), cached("a/b", make)
    assert first == second == folder / "a" / "b"
    assert (first / "file").read_text() == "x"
    assert len(made) == 1


def test_an_entry_that_could_not_be_made_leaves_nothing_and_is_tried_again(folder: Path) -> None:
    def fail(entry: Path) -> None:
        (entry / "half").write_text("x")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        cached("entry", fail)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
    assert cached("entry", lambda _: None).is_dir()


def test_entries_of_before_are_removed_but_for_the_last_ones_and_those_that_may_be_in_use(folder: Path) -> None:
    entries = [cached(f"entry-{hours}", lambda _: None) for hours in range(6)]
    for hours, entry in enumerate(entries):
        used = time.time() - hours * 3600.0 - 60.0
        os.utime(entry, (used, used))
    remove_old([*entries, folder / "removed-meanwhile"], keep=1)
    assert [entry.exists() for entry in entries] == [True, True, False, False, False, False]
    remove_old(entries, keep=1)
    os.utime(entries[1], (0, 0))
    remove_old(entries, keep=2)
    assert entries[1].exists(), "kept, though it was not used for long"
    remove_old(entries, keep=1)
    assert not entries[1].exists()


def test_processes_that_need_the_same_entry_wait_for_the_first(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.making.cache import cached\n"
        "def make(entry):\n"
        "    with Path(sys.argv[1]).open('a') as file: file.write('made\\n')\n"
        "cached('entry', make)\n"
    )
    log = folder.parent / "log"
    running = [subprocess.Popen([sys.executable, "-c", program, str(log)]) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0, 0, 0, 0]
    assert log.read_text() == "made\n"


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OSTLER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ostler"


def test_a_digest_tells_apart_where_contents_end() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab")
