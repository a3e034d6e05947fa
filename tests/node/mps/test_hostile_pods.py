"""Pods can write to their daemon's folder of pipes: nothing that they put there harms the agent or the node."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from node.mps import daemon as daemon_module
from node.mps import processes
from node.mps.daemon import MpsDaemon, MpsDevice, MpsError, MpsResource
from node.mps.folders import REMOVED
from node.mps.processes import PROGRAM, find_daemons
from node.mps.storage import folders_below
from node.opening import read_regular
from node.values import replace
from tests.making.mps import MpsStandIn

NAME = "nvidia.com/gpu.shared"
RESOURCE = MpsResource(NAME, (MpsDevice("gpu-0", "GPU-0"),))


@pytest.fixture
def driver() -> Iterator[MpsStandIn]:
    """Its folders are in memory, as those of a node."""
    with TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as folder:
        yield MpsStandIn(Path(folder))


@asynccontextmanager
async def daemon_of(driver: MpsStandIn) -> AsyncIterator[MpsDaemon]:
    daemon = MpsDaemon(RESOURCE, driver.home)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.kill()


def pipe_of(driver: MpsStandIn) -> Path:
    return driver.home.root / NAME / "pipe"


def dig(folder: Path, depth: int) -> None:
    """Make a tree that is deeper than any path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def left_below(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in (root / REMOVED).rglob("*")]


async def test_nothing_that_a_pod_puts_into_the_folder_survives_the_daemon(driver: MpsStandIn, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    async with daemon_of(driver) as daemon:
        pipe = pipe_of(driver)
        (pipe / "link").symlink_to(outside)
        (pipe / "up").symlink_to("../../..")
        os.mkfifo(pipe / "fifo")
        dig(pipe, 3000)
        for number in range(10_000):
            (pipe / f"file-{number}").touch()
        for number in range(1500):
            (pipe / f"folder-{number}" / "inner").mkdir(parents=True)
        await daemon.stop()
    assert not (driver.home.root / NAME).exists()
    assert left_below(driver.home.root) == []
    assert (outside / "kept").read_text() == "kept"


async def test_a_daemon_never_starts_in_a_folder_that_a_pod_has(driver: MpsStandIn, tmp_path: Path) -> None:
    async with daemon_of(driver):
        pod = os.open(pipe_of(driver), os.O_RDONLY)
    try:
        os.symlink(tmp_path / "victim", "nvidia-cuda-mps-control.pid", dir_fd=pod)
        async with daemon_of(driver):
            assert [entry.name for entry in pipe_of(driver).iterdir()] == ["control"]
            with pytest.raises(FileNotFoundError):
                os.mkdir("late", dir_fd=pod)
    finally:
        os.close(pod)


async def test_a_folder_that_a_pod_fills_meanwhile_keeps_no_daemon_from_starting(driver: MpsStandIn) -> None:
    async with daemon_of(driver):
        pod = os.open(pipe_of(driver), os.O_RDONLY)
    script = f"import os, itertools\nfor i in itertools.count():\n  os.mkdir(str(i), dir_fd={pod})"
    filling = subprocess.Popen([sys.executable, "-c", script], pass_fds=(pod,), stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(120), daemon_of(driver) as daemon:
            assert daemon.is_running
            await daemon.stop()
    finally:
        filling.kill()
        filling.wait()
        os.close(pod)


@pytest.mark.parametrize("answer", ["²".encode(), b"9" * 5000, b""], ids=["digit", "long", "none"])
async def test_an_answer_of_a_pod_names_no_servers(driver: MpsStandIn, answer: bytes) -> None:
    async with daemon_of(driver) as daemon, impostor(driver, answer):
        assert await daemon.servers() == frozenset()


async def test_an_answer_without_end_is_refused(driver: MpsStandIn) -> None:
    async with daemon_of(driver) as daemon, impostor(driver, b"4001\n" * 100_000):
        with pytest.raises(MpsError, match="answers 'get_server_list' with more than 65536 bytes"):
            await daemon.servers()


async def test_an_answer_that_is_longer_than_the_agent_reads_blocks_nobody(driver: MpsStandIn) -> None:
    flood = "fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\nos.write(1, bytes(1 << 20))\ntime.sleep(600)\n"
    (driver.binaries / PROGRAM).write_text(f"#!{sys.executable} -SE\nimport fcntl, os, time\n{flood}")
    async with asyncio.timeout(60):
        with pytest.raises(MpsError, match="answers 'get_server_list' with more than 65536 bytes"):
            await MpsDaemon(RESOURCE, driver.home).servers()


async def test_of_servers_that_a_pod_names_few_are_told_new_limits(
    driver: MpsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(_: MpsDaemon, command: str) -> str:
        asked.append(command)
        return " ".join(map(str, range(1, 10_000))) if command == "get_server_list" else ""

    monkeypatch.setattr(MpsDaemon, "ask", ask)
    await MpsDaemon(RESOURCE, driver.home).limit(replace(RESOURCE, thread_percentage=50))
    assert len([each for each in asked if each.startswith("set_active_thread_percentage")]) == 64


async def test_a_pod_that_answers_late_delays_no_look_for_long(
    driver: MpsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_: MpsDaemon, command: str) -> str:
        await asyncio.sleep(0.05)
        return "5001"

    monkeypatch.setattr(MpsDaemon, "ask", ask)
    monkeypatch.setattr(daemon_module, "_ANSWER", 0.5)
    monkeypatch.setattr(daemon_module, "_LIMITS", 0.5)
    daemon = MpsDaemon(RESOURCE, driver.home)
    assert 0 < await daemon.clients(range(64)) < 64
    limits = replace(RESOURCE, devices=tuple(MpsDevice(f"gpu-{n}", f"GPU-{n}", 1 << 30) for n in range(64)))
    with pytest.raises(MpsError, match=r"does not take the limits of its clients within 0\.5 s"):
        await daemon.limit(limits)


@asynccontextmanager
async def impostor(driver: MpsStandIn, answer: bytes) -> AsyncIterator[None]:
    """A pod's server in place of the daemon's."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    here, pipe = Path.cwd(), pipe_of(driver)
    (pipe / "control").unlink()
    listening = socket.socket(socket.AF_UNIX)
    os.chdir(pipe)  # The path of a socket is short.
    try:
        listening.bind("control")
    finally:
        os.chdir(here)
    server = await asyncio.start_unix_server(serve, sock=listening)
    try:
        yield
    finally:
        server.close()


@pytest.fixture
def forged() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def forge(driver: MpsStandIn, name: str, *launcher: str) -> subprocess.Popen[bytes]:
    """Start a process that looks like a daemon with this name."""
    command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)", PROGRAM, "-f"]
    # One word for the launcher, which would look like a daemon itself.
    process = subprocess.Popen(
        [*launcher, "sh", "-c", f"exec {shlex.join(command)}"] if launcher else command,
        env={"CUDA_MPS_PIPE_DIRECTORY": f"{driver.home.root}/{name}/pipe", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize("name", ["/../../../etc", "../x/y", "..", "nvidia.com/..", "nvidia.com/a/b", "a//b", ""])
def test_no_process_has_a_folder_outside_removed(
    driver: MpsStandIn, forged: list[subprocess.Popen[bytes]], name: str
) -> None:
    forged.append(forge(driver, name))
    assert find_daemons(driver.home.root, driver.home.proc) == ()


def test_a_process_of_a_pod_is_no_daemon(driver: MpsStandIn, forged: list[subprocess.Popen[bytes]]) -> None:
    forged.append(forge(driver, NAME))
    assert [name for name, _ in find_daemons(driver.home.root, driver.home.proc)] == [NAME]
    forged.append(forge(driver, "nvidia.com/gpu.other", "unshare", "--pid", "--fork", "--kill-child"))
    assert [name for name, _ in find_daemons(driver.home.root, driver.home.proc)] == [NAME]


def test_nothing_of_a_pods_process_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def reading(path: Path, most: int) -> bytes:
        read.append(path)
        return read_regular(path, most)

    monkeypatch.setattr(processes, "read_regular", reading)
    for pid, namespace in (("self", "pid:[1]"), ("17", "pid:[2]"), ("18", "pid:[1]")):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns" / "pid").symlink_to(namespace)
        (tmp_path / pid / "cmdline").write_bytes(b"sleep\0")
    assert find_daemons(Path("/mps"), tmp_path) == ()
    assert read == [tmp_path / "18" / "cmdline"]


def test_no_folder_of_a_pod_is_taken_for_a_daemons(tmp_path: Path) -> None:
    for folder in ("claim-1/pipe", "claim-1/shm", f"{NAME}/pipe"):
        (tmp_path / folder).mkdir(parents=True)
    assert folders_below(tmp_path) == ["claim-1", NAME]
    (tmp_path / "claim-1/pipe/pipe").mkdir()
    (tmp_path / "claim-1/shm/pipe").symlink_to("/")
    (tmp_path / NAME / "pipe/pipe").mkdir()
    assert folders_below(tmp_path) == ["claim-1", NAME]
