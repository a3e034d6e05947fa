"""One active instance per node."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node.lock import FolderLock, InstanceLock, LockError


def test_the_second_instance_does_not_get_the_lock_and_sees_who_has_it(tmp_path: Path) -> None:
    first, second = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.holder() == str(os.getpid())
    first.release()
    assert second.try_acquire()
    second.release()


async def test_a_standby_gets_the_lock_when_it_falls_free(tmp_path: Path) -> None:
    first, second = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    assert first.try_acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.release()
    await asyncio.wait_for(waiting, 120)
    assert not first.try_acquire()
    second.release()


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from node.lock import InstanceLock\n"
    code += "lock = InstanceLock(Path(sys.argv[1])); lock.try_acquire(); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = InstanceLock(tmp_path / "lock")
        assert not lock.try_acquire()
        holder.kill()
        holder.wait()
        assert lock.try_acquire()
        lock.release()


def test_a_state_folder_that_cannot_be_made_is_an_error_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(LockError) as refused:
        InstanceLock(tmp_path / "state" / "lock").try_acquire()
    assert f"{tmp_path}/state/lock: the lock file cannot be used" in str(refused.value)
    assert "check the state folder's permissions" in str(refused.value)


def test_the_holder_of_a_lock_that_does_not_exist_is_unknown(tmp_path: Path) -> None:
    assert InstanceLock(tmp_path / "lock").holder() == ""


ON_A_FULL_DISK = """
import resource, signal, sys
from collections.abc import Callable
from pathlib import Path
from node.lock import InstanceLock
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
lock, second = InstanceLock(Path(sys.argv[1])), InstanceLock(Path(sys.argv[1]))
print(lock.try_acquire(), second.try_acquire(), repr(second.holder()))
"""


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True False ''\n"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a FIFO"),
        (lambda path: path.symlink_to(path.with_name("other")), "a symbolic link"),
    ],
)
def test_what_is_no_file_in_the_locks_place_is_an_error_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None], kind: str
) -> None:
    (tmp_path / "other").write_text("")
    make(tmp_path / "lock")
    lock = InstanceLock(tmp_path / "lock")
    with pytest.raises(LockError, match=f"the lock file cannot be used .it is {kind}, not a regular file."):
        lock.try_acquire()
    assert not lock.taken()
    assert lock.holder() == ""
    assert (tmp_path / "other").read_text() == ""


def test_of_a_huge_lock_file_no_holder_is_read(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("wb") as file:
        file.truncate(3 << 30)
    assert InstanceLock(tmp_path / "lock").holder() == ""


def test_who_asks_whether_a_lock_is_taken_neither_takes_it_nor_makes_a_file(tmp_path: Path) -> None:
    lock, asking = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    assert not asking.taken()
    assert not (tmp_path / "lock").exists()
    assert lock.try_acquire()
    assert asking.taken()
    assert not lock.taken(), "held by nobody else"
    lock.release()
    assert not asking.taken()
    assert lock.try_acquire()
    lock.release()


def test_two_who_ask_at_once_do_not_see_each_other(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not InstanceLock(tmp_path / "lock").taken()


async def test_what_is_done_while_waiting_for_a_lock_is_done_after_every_attempt(tmp_path: Path) -> None:
    first, second = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    assert first.try_acquire()
    attempts = 0

    def attempted() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            first.release()

    await asyncio.wait_for(second.acquire(attempted), 120)
    assert attempts == 3
    second.release()


def test_a_folder_is_locked_without_a_file_in_it_and_its_holder_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    state = InstanceLock(tmp_path / "state" / "lock")
    first, second = FolderLock(tmp_path / "kubelet"), FolderLock(tmp_path / "kubelet")
    assert second.holder() == ""
    assert state.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not list((tmp_path / "kubelet").iterdir())
    assert second.holder() == f"process {os.getpid()} with state folder {tmp_path / 'state'}"
    first.release()
    assert second.try_acquire()
    second.release()
    state.release()


def test_a_folder_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    first = FolderLock(tmp_path / "nothing")
    states = [(first.try_acquire(), first.held, first.is_current)]
    (tmp_path / "nothing").mkdir()
    assert not FolderLock(tmp_path / "nothing").is_current
    states.append((first.try_acquire(), first.held, first.is_current))
    assert states == [(True, False, True), (True, True, True)]
    first.release()


def test_a_folder_that_is_removed_while_it_is_being_locked_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubelet").mkdir()
    lock = FolderLock(tmp_path / "kubelet")
    opening = lock._open

    def removed() -> int:
        (tmp_path / "kubelet").rmdir()
        return opening()

    monkeypatch.setattr(lock, "_open", removed)
    assert (lock.try_acquire(), lock.held) == (True, False)


def test_a_folder_that_cannot_be_locked_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    lock = FolderLock(tmp_path)
    monkeypatch.setattr(lock, "_open", refuse)
    with pytest.raises(LockError) as refused:
        lock.try_acquire()
    assert str(refused.value) == (
        f"{tmp_path}: the kubelet's folder cannot be locked (Permission denied); "
        "let the agent read this folder, on a local file system"
    )
