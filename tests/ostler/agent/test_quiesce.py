"""A driver replaced under the running agent, on the real binding and the compiled stub library."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from node.inventory.facts import NvmlFacts
from node.inventory.recordings.source import read
from ostler.cli.main import main
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.node.nvml import stub
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU = "nvidia.com/gpu"


class _Driver:
    """The stub library as a driver of some version."""

    def __init__(self, folder: Path) -> None:
        facts = read(path("l4-2")).facts.nvml
        assert facts is not None
        self._facts: NvmlFacts = facts
        self._file = folder / "hardware.txt"
        self.library = stub.build(folder)
        self.install("570.172.08")

    def install(self, version: str) -> None:
        stub.write(self._file, stub.describe(replace(self._facts, driver_version=version)))

    def unload(self) -> None:
        stub.write(self._file, "init DRIVER_NOT_LOADED\nerror.* UNINITIALIZED")

    def mapped_by(self, pid: int) -> bool:
        return self.library.name in Path(f"/proc/{pid}/maps").read_text()

    @property
    def environment(self) -> tuple[str, str]:
        return stub.VARIABLE, str(self._file)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Driver:
    made = _Driver(tmp_path)
    monkeypatch.setenv(*made.environment)
    return made


@pytest.fixture
def box(driver: _Driver) -> SandboxNode:
    return SandboxNode(None, flags={"--nvidia-library": str(driver.library)}, reconcile_interval=0.05)


async def ostler(box: SandboxNode, *words: str) -> int:
    return await asyncio.to_thread(main, [*words, "--socket", str(box.root / "ostler.sock")])


async def version(box: SandboxNode) -> str:
    devices = (await box.agent.devices()).devices
    return next(item.version_value for item in devices[0].attributes if item.name == "driverVersion")


async def test_quiesce_frees_the_library_and_resume_meets_the_new_driver(
    driver: _Driver, box: SandboxNode, capsys: pytest.CaptureFixture[str]
) -> None:
    async with box:
        await box.registered()
        assert driver.mapped_by(box.agent.pid)
        assert await ostler(box, "quiesce", "--reason", "570 to 580") == 0
        assert not driver.mapped_by(box.agent.pid)
        told = capsys.readouterr().out
        assert "the driver is left alone until 'ostler resume' (QUIESCED): 570 to 580" in told
        assert told.endswith("the driver is free of this agent; end with 'ostler resume'\n")
        await box.kubelet.wait_for(GPU, healthy=0)
        assert box.kubelet.capacity().capacity[GPU] == 2  # The ids stay: running pods may hold them.
        driver.unload()
        await box.agent.rescan()
        assert not driver.mapped_by(box.agent.pid)
        driver.install("580.65.06")
        assert await ostler(box, "resume") == 0
        await box.kubelet.wait_for(GPU, healthy=2)
        assert await version(box) == "580.65.6"


async def test_status_says_that_it_is_quiesced(box: SandboxNode, capsys: pytest.CaptureFixture[str]) -> None:
    async with box:
        await box.registered()
        await ostler(box, "quiesce")
        status = await box.agent.status()
        assert status.quiesced
        assert status.ready
        await ostler(box, "status")
        assert "quiesced: the driver is left alone until 'ostler resume'" in capsys.readouterr().out
        assert [event.reason for event in status.events if event.reason == "Quiesced"]


async def test_quiesce_outlives_the_agent_and_keeps_the_ids(driver: _Driver, box: SandboxNode) -> None:
    async with box:
        await box.registered()
        await ostler(box, "quiesce")
        driver.unload()
        await box.restart_agent()
        await eventually(lambda: _quiesced(box))
        assert not driver.mapped_by(box.agent.pid)
        driver.install("580.65.06")
        assert await ostler(box, "resume") == 0
        await box.kubelet.wait_for(GPU, healthy=2)


async def _quiesced(box: SandboxNode) -> bool:
    return (await box.agent.status()).quiesced


async def test_a_standby_lets_go_of_the_driver_too(driver: _Driver, box: SandboxNode) -> None:
    async with box:
        await box.registered()
        flags = {**box.agent.flags, "--socket": str(box.root / "standby.sock")}
        standby = AgentProcess(flags, log=box.root / "standby.log")
        await standby.spawn()
        try:
            await eventually(lambda: driver.mapped_by(standby.pid))
            await ostler(box, "quiesce")
            await eventually(lambda: not driver.mapped_by(standby.pid))
            await ostler(box, "resume")
            await eventually(lambda: driver.mapped_by(standby.pid))
        finally:
            await standby.stop()


async def test_resume_without_quiesce_does_no_harm(box: SandboxNode) -> None:
    async with box:
        await box.registered()
        assert await ostler(box, "resume") == 0
        await box.kubelet.wait_for(GPU, healthy=2)
