"""Temporary folders: those of living programs stay, and those of killed ones are removed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.temporary import NoTemporaryFolder, TemporaryFolder

PREFIX = "made-"


@contextmanager
def made_by_another(parent: Path) -> Iterator[Path]:
    """A folder whose maker is another process; it is killed at the end."""
    program = (
        "import sys, time, pathlib; from sandbox.temporary import TemporaryFolder\n"
        f"folder = TemporaryFolder({PREFIX!r}, pathlib.Path({str(parent)!r}))\n"
        "(folder.path / 'content').write_text('')\n"
        "print(folder.path, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        try:
            yield Path(maker.stdout.readline().strip())
        finally:
            maker.kill()


def test_folder_of_a_killed_maker_is_removed_by_the_next_one(tmp_path: Path) -> None:
    with made_by_another(tmp_path) as left:
        first = TemporaryFolder(PREFIX, tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([left, first.path])
    second = TemporaryFolder(PREFIX, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])
    for folder in (first, second, second):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_no_temporary_folder_is_stays(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}foreign" / "work").mkdir(parents=True)
    (tmp_path / f"{PREFIX}file").write_text("")
    with made_by_another(tmp_path) as abandoned:
        pass
    elsewhere = abandoned.rename(tmp_path / "another")
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    before = sorted(tmp_path.rglob("*"))
    TemporaryFolder(PREFIX, tmp_path).remove()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_folder_of_another_user_stays(tmp_path: Path) -> None:
    with made_by_another(tmp_path) as abandoned:
        os.chown(abandoned, 65534, 65534)
    TemporaryFolder(PREFIX, tmp_path).remove()
    assert abandoned.exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    expected = f"^no temporary folder can be made in {tmp_path}/none: No such file or directory$"
    with pytest.raises(NoTemporaryFolder, match=expected):
        TemporaryFolder(PREFIX, tmp_path / "none")
