"""The state on disk: seen by every instance, kept across restarts of the agent, ended by a reboot."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from node.quiesce import Quiesce


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    boot(folder, "11111111-1111-4111-8111-111111111111")
    return folder


def boot(proc: Path, boot_id: str) -> None:
    file = proc / "sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{boot_id}\n")


def test_nothing_is_quiesced_at_first(tmp_path: Path, proc: Path) -> None:
    assert Quiesce(tmp_path / "state/quiesce.json", proc).reason is None


def test_another_instance_sees_begin_and_end(tmp_path: Path, proc: Path) -> None:
    path = tmp_path / "state/quiesce.json"
    active, standby = Quiesce(path, proc), Quiesce(path, proc)
    active.begin("driver 570 to 580")
    assert [each.reason for each in (active, standby)] == ["driver 570 to 580", "driver 570 to 580"]
    active.end()
    assert [each.reason for each in (active, standby)] == [None, None]


def test_the_latest_reason_counts(tmp_path: Path, proc: Path) -> None:
    path = tmp_path / "quiesce.json"
    Quiesce(path, proc).begin("first")
    other = Quiesce(path, proc)
    assert other.reason == "first"
    Quiesce(path, proc).begin("second")
    assert other.reason == "second"


def test_it_ends_with_the_boot(tmp_path: Path, proc: Path) -> None:
    path = tmp_path / "quiesce.json"
    Quiesce(path, proc).begin("upgrade")
    boot(proc, "22222222-2222-4222-8222-222222222222")
    assert Quiesce(path, proc).reason is None


def test_without_boot_ids_it_lasts_until_it_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "quiesce.json"
    Quiesce(path, tmp_path / "nothing").begin("upgrade")
    assert Quiesce(path, tmp_path / "nothing").reason == "upgrade"


def test_ending_twice_does_no_harm(tmp_path: Path, proc: Path) -> None:
    quiesce = Quiesce(tmp_path / "quiesce.json", proc)
    quiesce.end()
    quiesce.end()
    assert quiesce.reason is None


def test_all_threads_that_ask_at_once_hear_the_same(tmp_path: Path, proc: Path) -> None:
    path = tmp_path / "quiesce.json"
    Quiesce(path, proc).begin("upgrade")
    with ThreadPoolExecutor(4) as threads:
        for _ in range(100):
            fresh, together = Quiesce(path, proc), Barrier(4)

            def ask(quiesce: Quiesce = fresh, others: Barrier = together) -> str | None:
                others.wait()
                return quiesce.reason

            assert {each.result() for each in [threads.submit(ask) for _ in range(4)]} == {"upgrade"}


def test_a_damaged_file_is_ignored_and_told_once(tmp_path: Path, proc: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "quiesce.json"
    path.write_text("garbage")
    quiesce = Quiesce(path, proc)
    with caplog.at_level(logging.WARNING):
        assert quiesce.reason is None
        assert quiesce.reason is None
    assert [record.message for record in caplog.records] == ["the quiesce file cannot be read and is ignored"]


def test_a_file_that_cannot_be_written_binds_this_process_all_the_same(
    tmp_path: Path, proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    quiesce = Quiesce(tmp_path / "state/quiesce.json", proc)
    with caplog.at_level(logging.WARNING):
        assert "File exists" in quiesce.begin("upgrade")
    assert quiesce.reason == "upgrade"
    assert caplog.records[0].message == "quiesce holds for this process only: its file cannot be written"
    quiesce.end()
    assert quiesce.reason is None, "there is no file that would stay"


@pytest.mark.needs_root
def test_on_a_disk_that_is_read_only_a_file_that_is_not_there_keeps_nobody_from_the_driver(
    tmp_path: Path, proc: Path
) -> None:
    quiesce = Quiesce(tmp_path / "quiesce.json", proc)
    with read_only(tmp_path):
        assert "Read-only file system" in quiesce.begin("upgrade")
        quiesce.end()
        assert quiesce.reason is None
    assert quiesce.begin("upgrade") == ""
    with read_only(tmp_path):
        with pytest.raises(OSError, match="Read-only file system"):
            quiesce.end()
        assert quiesce.reason == "upgrade"


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder is read-only meanwhile."""
    if subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root rights and CAP_SYS_ADMIN")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
