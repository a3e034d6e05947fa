"""The agent as a process on the real NVML binding, served by the compiled stub library."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.facts import NvmlFacts
from node.inventory.recordings.source import read
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.node.nvml import stub
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU = "nvidia.com/gpu"
SOON = """
apiVersion: ostler.dev/v1alpha1
kind: Config
health: {quiet: {looks: 1}}
"""
"""Well again at the first look that finds it so; the next look may be ten seconds away."""


class NvmlHardware:
    """A stub library and the description of what it serves."""

    def __init__(self, folder: Path, name: str) -> None:
        facts = read(path(name)).facts.nvml
        assert facts is not None
        self.facts: NvmlFacts = facts
        self.file = folder / "hardware.txt"
        self.library = stub.build(folder)
        self.write()

    def write(self, *extra: str) -> None:
        stub.write(self.file, "\n".join((stub.describe(self.facts), *extra)))

    def box(self, configuration: str | None = None) -> SandboxNode:
        flags = {"--nvidia-library": str(self.library)}
        return SandboxNode(None, flags=flags, configuration=configuration, reconcile_interval=0.05)


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlHardware:
    made = NvmlHardware(tmp_path, "h100-sxm-8")
    monkeypatch.setenv(stub.VARIABLE, str(made.file))
    return made


async def test_gpus_of_the_real_binding_are_served(hardware: NvmlHardware) -> None:
    async with hardware.box() as box:
        await box.registered()
        given = await box.give(GPU, 8)
        assert set(given.ids) == {gpu.uuid for gpu in hardware.facts.gpus}


async def test_a_gpu_that_is_lost_and_back_is_seen_through_the_binding(hardware: NvmlHardware) -> None:
    async with hardware.box(SOON) as box:
        await box.registered()
        hardware.write(stub.lost(2))
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=7)
        sick = [device.id for device in box.kubelet.devices(GPU) if not device.healthy]
        assert sick == [hardware.facts.gpus[2].uuid]
        hardware.write()
        await box.kubelet.wait_for(GPU, healthy=8, within=120)


async def test_a_gpu_lost_before_the_start_is_listed_unhealthy_under_its_id(hardware: NvmlHardware) -> None:
    async with hardware.box() as box:
        await box.registered()
        hardware.write(stub.lost(5))
        await box.restart_agent()
        await box.registered()
        await box.kubelet.wait_for(GPU, healthy=7)
        shown = {device.id: device.healthy for device in box.kubelet.devices(GPU)}
        assert shown == {str(gpu.uuid): gpu.index != 5 for gpu in hardware.facts.gpus}


async def test_a_driver_that_comes_later_is_found_without_a_restart(hardware: NvmlHardware) -> None:
    hardware.write("init DRIVER_NOT_LOADED")
    async with hardware.box() as box:
        await eventually(lambda: _ready(box))
        status = await box.agent.status()
        assert "waiting for driver" in status.reasons[0]
        assert box.kubelet.resources() == ()
        hardware.write()
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=8)


async def _ready(box: SandboxNode) -> bool:
    return (await box.agent.status()).ready


async def test_a_driver_and_library_that_do_not_match_make_devices_unknown_and_not_gone(hardware: NvmlHardware) -> None:
    async with hardware.box() as box:
        await box.registered()
        hardware.write("init LIB_RM_VERSION_MISMATCH", "error.* UNINITIALIZED")
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=0)
        assert box.kubelet.capacity().capacity[GPU] == 8
        gpus = [device for device in (await box.agent.devices()).devices if device.kind == "gpu"]
        states = {device.health.state for device in gpus}
        assert states == {"unknown"}
        hardware.write()
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=8)
