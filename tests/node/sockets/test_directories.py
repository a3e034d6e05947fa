"""Watched folders: a change is told, whatever inotify does."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.directories import DirectoryWatcher, Inotify, InotifyEvent, KernelInotify
from tests.waiting import eventually


class NoWatches:
    """inotify at its limit of watches."""

    def __init__(self) -> None:
        self._real = KernelInotify()

    def fileno(self) -> int:
        return self._real.fileno()

    def add_watch(self, path: str, mask: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def read(self) -> Iterable[InotifyEvent]:
        return ()

    def close(self) -> None:
        self._real.close()


def no_instances() -> Inotify:
    raise OSError(errno.EMFILE, "Too many open files")


@asynccontextmanager
async def watching(
    *directories: Path, open_watch: Callable[[], Inotify] = KernelInotify
) -> AsyncIterator[tuple[DirectoryWatcher, list[int]]]:
    changes: list[int] = []
    watcher = DirectoryWatcher(directories, lambda: changes.append(1), open_watch)
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher, changes
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("open_watch", [KernelInotify, no_instances, NoWatches])
async def test_created_replaced_and_removed_files_are_told(tmp_path: Path, open_watch: Callable[[], Inotify]) -> None:
    async with watching(tmp_path, open_watch=open_watch) as (_, changes):
        await eventually(lambda: changes, "the first look")
        for act in (
            lambda: (tmp_path / "a").write_text(""),
            lambda: (tmp_path / "a").rename(tmp_path / "b"),
            (tmp_path / "b").unlink,
        ):
            changes.clear()
            act()
            await eventually(lambda: changes, "the change")


async def test_a_folder_that_appears_later_is_watched_then(tmp_path: Path) -> None:
    late = tmp_path / "late"
    async with watching(late) as (watcher, changes):
        await eventually(lambda: watcher.polled == (late,))
        late.mkdir()
        await eventually(lambda: watcher.polled == ())
        changes.clear()
        (late / "a").write_text("")
        await eventually(lambda: changes)


async def test_a_folder_that_is_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with watching(folder) as (watcher, changes):
        for _ in range(5):
            await eventually(lambda: watcher.polled == ())
            folder.rmdir()
            folder.mkdir()
            changes.clear()
            (folder / "a").write_text("")
            await eventually(lambda: changes)
            await eventually(lambda: watcher.polled == ())
            changes.clear()
            (folder / "a").unlink()
            await eventually(lambda: changes)


async def test_without_inotify_the_log_says_so_and_what_to_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(tmp_path, open_watch=no_instances) as (watcher, changes):
        await eventually(lambda: changes)
        assert watcher.polled == (tmp_path,)
    assert "raise fs.inotify.max_user_instances" in caplog.text
