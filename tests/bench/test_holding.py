"""The storms' measure of who has a device: locks that living processes hold."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ledger.holding import PROGRAM, ContainerHolding
from tests.node.nvml import stub
from tests.waiting import until

pytestmark = stub.needs_gcc
GPUS = ["gpu0", "gpu1"]


class _Containers:
    """Processes that see device files of a folder of their own, as containers do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.holding = ContainerHolding(folder / "storm", GPUS)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *devices: str, seconds: str = "3600") -> subprocess.Popen[bytes]:
        dev = self._folder / name
        dev.mkdir()
        for device in devices:
            (dev / device).touch()
        words = [str(self.holding.folder / PROGRAM), f"{dev}/gpu*", str(self.holding.folder), seconds]
        self._started.append(subprocess.Popen(words, env={"HOSTNAME": name}))
        until(lambda: name in self.holding.ran())
        return self._started[-1]

    def end(self) -> None:
        for one in self._started:
            one.kill()
            one.wait()


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[_Containers]:
    made = _Containers(tmp_path)
    yield made
    made.end()


def test_who_finds_a_device_taken_is_a_double(containers: _Containers) -> None:
    containers.start("a", "gpu0", "gpu1")
    assert containers.holding.held() == {"gpu0", "gpu1"}
    containers.start("b", "gpu1")
    assert containers.holding.doubles() == ["gpu1 b"]
    assert containers.holding.ran() == ["a", "b"]


def test_looking_takes_nothing(containers: _Containers) -> None:
    assert containers.holding.held() == set()
    containers.start("a", "gpu0")
    for _ in range(3):
        assert containers.holding.held() == {"gpu0"}
    assert containers.holding.doubles() == []


def test_a_process_that_is_killed_holds_nothing(containers: _Containers) -> None:
    killed = containers.start("a", "gpu0")
    killed.kill()
    killed.wait()
    assert containers.holding.held() == set()
    containers.start("b", "gpu0")
    assert containers.holding.doubles() == []


def test_the_end_of_use_is_told(containers: _Containers) -> None:
    assert containers.holding.last_used() == {"gpu0": 0.0, "gpu1": 0.0}
    containers.start("a", "gpu1")
    began = containers.holding.last_used()["gpu1"]
    assert began > 0
    assert containers.start("b", "gpu0", seconds="0.01").wait() == 0
    assert containers.holding.last_used()["gpu0"] > began
    assert containers.holding.held() == {"gpu1"}


def test_a_container_without_a_device_fails(containers: _Containers, capfd: pytest.CaptureFixture[str]) -> None:
    words = [str(containers.holding.folder / PROGRAM), "/nowhere/gpu*", str(containers.holding.folder), "1"]
    assert subprocess.run(words, check=False).returncode == 2
    assert "/nowhere/gpu*" in capfd.readouterr().err
