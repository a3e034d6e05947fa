"""Changes that nobody tells the agent of reach the kubelet: no rescan is asked for here."""

from __future__ import annotations

from dataclasses import replace
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


class _Machine:
    """The stub library, and a /proc that shows the driver and its MIG instances."""

    def __init__(self, folder: Path, name: str) -> None:
        facts = read(path(name)).facts.nvml
        assert facts is not None
        self.facts: NvmlFacts = facts
        self._file = folder / "hardware.txt"
        self._library = stub.build(folder)
        self._driver = folder / "proc/driver/nvidia"
        (folder / "sys/bus").mkdir(parents=True)
        self._driver.parent.mkdir(parents=True)
        self._folder = folder

    def load_driver(self) -> None:
        self._driver.mkdir()
        (self._driver / "version").write_text(f"NVRM version: NVIDIA Kernel Module  {self.facts.driver_version}\n")

    def describe(self, *lines: str) -> None:
        stub.write(self._file, "\n".join((stub.describe(self.facts), *lines)))

    def show_instance(self, gpu: int, instance: int) -> None:
        """The access files that the driver makes with an instance."""
        (self._driver / f"capabilities/gpu{gpu}/mig/gi{instance}/ci0").mkdir(parents=True)

    def environment(self) -> tuple[str, str]:
        return stub.VARIABLE, str(self._file)

    def box(self, **flags: str) -> SandboxNode:
        roots = {"--sys-root": str(self._folder / "sys"), "--proc-root": str(self._folder / "proc")}
        given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
        library = {"--nvidia-library": str(self._library)}
        return SandboxNode(None, flags={**roots, **library, **given}, reconcile_interval=0.05)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Machine:
    made = _Machine(tmp_path, "a100-mig-4")
    monkeypatch.setenv(*made.environment())
    return made


async def polling(box: SandboxNode) -> None:
    """Wait until somebody looks, so that what follows is a change."""

    async def listening() -> bool:
        status = await box.agent.status()
        return any(each.name == "events" and each.state != "waiting" for each in status.sources)

    await eventually(listening)


async def test_a_driver_loaded_late_is_found_by_itself(machine: _Machine) -> None:
    machine.describe("init DRIVER_NOT_LOADED")
    async with machine.box() as box:
        await polling(box)
        assert box.kubelet.resources() == ()
        machine.describe()
        machine.load_driver()
        await box.kubelet.wait_for(GPU, healthy=4, within=120)


async def test_gpus_cut_into_other_instances_are_offered_anew_and_the_old_ones_marked(machine: _Machine) -> None:
    whole = machine.facts
    gpus = tuple(replace(gpu, mig_devices=gpu.mig_devices[:1]) for gpu in whole.gpus)
    machine.facts = replace(whole, gpus=gpus)
    machine.describe()
    machine.load_driver()
    async with machine.box(mig_strategy="mixed") as box:
        await polling(box)
        before = dict(box.kubelet.capacity().capacity)
        machine.facts = whole
        machine.describe()
        machine.show_instance(0, 1)
        await eventually(lambda: sum(box.kubelet.capacity().capacity.values()) > sum(before.values()), within=120)
        await box.registered()
        # And back: what pods may hold stays in the list, unhealthy.
        machine.facts = replace(whole, gpus=gpus)
        grown = dict(box.kubelet.capacity().capacity)
        machine.describe()
        machine.show_instance(1, 1)
        await eventually(lambda: sum(box.kubelet.allocatable().values()) < sum(grown.values()), within=120)
        assert dict(box.kubelet.capacity().capacity) == grown
