"""One active instance per node."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from node.lock import InstanceLock, LockError


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
    await asyncio.wait_for(waiting, 5)
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


def test_a_full_disk_does_not_keep_the_lock_from_being_taken() -> None:
    lock = InstanceLock(Path("/dev/full"))
    assert lock.try_acquire()
    assert not InstanceLock(Path("/dev/full")).try_acquire()
    lock.release()
