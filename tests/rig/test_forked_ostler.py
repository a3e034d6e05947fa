"""A forked ``ostler`` is what a new process would be: words, folder, environment, output, exit code, and signals."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox import process
from sandbox.nodes import path
from sandbox.process import ostler_output
from tests.making.forked_ostler import SHARED, ForkedOstler
from tests.waiting import eventually


async def test_it_has_the_folder_and_the_environment_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(path("l4-2"), "node.yaml")
    code, out, err = await ostler_output("devices", "--scan", "--recorded", "node.yaml")
    assert (code, err) == (0, "")
    assert "gpu-" in out
    monkeypatch.setenv("OSTLER_HTTP", "nonsense")
    code, out, err = await ostler_output("devices", "--scan", "--recorded", "node.yaml")
    assert (code, out) == (3, "")
    assert "OSTLER_HTTP" in err


async def test_its_exit_code_and_its_errors_are_those_of_the_command() -> None:
    code, out, err = await ostler_output("fly")
    assert (code, out) == (2, "")
    assert "invalid choice: 'fly'" in err


async def test_a_signal_that_ends_it_is_its_exit_code(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as output:
        started = await process.start_ostler(("kubelet", "--root", str(tmp_path / "kubelet")), output, output)
        command = Path(f"/proc/{started.pid}/cmdline").read_bytes()
        assert b"tests.making.forked_ostler" in command
        started.send_signal(signal.SIGKILL)
        assert await started.wait() == -signal.SIGKILL
        assert started.returncode == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            started.send_signal(signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{started.pid}").exists())


async def test_another_loader_s_environment_means_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also where nothing was forked before: this test's environment is none for the forks of the next one.
    monkeypatch.setenv("LD_DEBUG", "files")
    _, _, err = await ostler_output("--version")
    assert "calling init" in err
    monkeypatch.delenv("LD_DEBUG")
    _, _, err = await ostler_output("--version")
    assert err == ""


async def test_workers_share_a_parent_that_ends_their_processes(
    short_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "tests.making.forked_ostler", "--listen"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(short_dir / "forks"))
        listener.listen()
        number = listener.fileno()
        shared = subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, pass_fds=[number])
    with shared, tempfile.TemporaryFile() as output:
        for worker in ("first", "second"):
            monkeypatch.setenv(SHARED, str(short_dir / "forks"))
            forked = ForkedOstler()
            assert SHARED not in os.environ
            started = await forked.start(("kubelet", "--root", str(tmp_path / worker)), output, output)
            assert _parent(_parent(started.pid)) == shared.pid
            forked.close()
            assert not Path(f"/proc/{started.pid}").exists()
            with pytest.raises(ValueError, match="invalid literal"):
                await started.wait()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
