"""MIG devices are made for claims by the real binding, and nothing is left of them, whenever the agent is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster import samples
from sandbox.cluster.cluster import PodOutcome
from sandbox.kubelet.dra.manager import UnprepareError
from sandbox.kubelet.errors import KubeletError
from sandbox.node import NODE_NAME, SandboxNode
from tests.making.mig_nodes import device_files, node, proc_with_driver
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml
from tests.waiting import background, eventually

pytestmark = [
    *stub.needs_gcc,
    pytest.mark.needs_root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root rights: device files are made"),
]

DRIVER = "ostler.dev"
CONFIG = """
apiVersion: ostler.dev/v1alpha1
kind: Config
nodeName: {name}
nvidia: {{devRoot: {folder}}}
roots: {{proc: {folder}/proc}}
resources:
- {{name: nvidia.com/gpu, door: dra, devices: {{vendor: nvidia, kind: gpu}}, partitions: onDemand}}
"""


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    made = InjectedNvml(tmp_path / "driver", node(1))
    device_files(tmp_path, 1)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NVML_STUB_PROC", str(proc_with_driver(tmp_path)))
    return made


@asynccontextmanager
async def divided(hardware: InjectedNvml, folder: Path) -> AsyncIterator[SandboxNode]:
    """A node whose GPU claims divide."""
    flags = {"--nvidia-library": str(hardware.library)}
    text = CONFIG.format(name=NODE_NAME, folder=folder)
    async with SandboxNode(None, flags=flags, configuration=text, reconcile_interval=0.05, cluster=True) as box:
        await box.registered()
        await eventually(lambda: _is_divisible(box), "the partitions of the GPU are published")
        yield box


async def _is_divisible(box: SandboxNode) -> bool:
    assert box.cluster is not None
    return "3g.40gb" in str(await box.cluster.slices(DRIVER)) and await box.cluster.has_whole_pools(DRIVER)


async def run(box: SandboxNode, pod: str, profile: str) -> PodOutcome:
    """A pod with a claim for a partition."""
    assert box.cluster is not None
    choosing = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    await box.cluster.apply([samples.template(pod, kind="mig", choosing=choosing)])
    return await box.cluster.run(samples.pod(pod, pod))


async def runs(box: SandboxNode, pod: str, outcome: PodOutcome) -> PodOutcome:
    """Try again with a pod that may be pending, as schedulers and kubelets do, until it runs.

    A scheduler may see only a part of a pool at first, and a kubelet no driver that is registered and answers.
    """

    async def again() -> PodOutcome | None:
        assert box.cluster is not None
        outcome = await box.cluster.retry(pod)
        return outcome if outcome.running else None

    if outcome.running:
        return outcome
    found = await eventually(again, "the pod runs")
    assert found is not None
    return found


async def started(box: SandboxNode, pod: str, profile: str) -> PodOutcome:
    """A pod with a claim for a partition, which runs."""
    return await runs(box, pod, await run(box, pod, profile))


async def instances(box: SandboxNode) -> list[dict[str, Any]]:
    return [device for device in await box.devices() if device.get("parent")]


def on_hardware(hardware: InjectedNvml) -> list[str]:
    """What the driver has of instances, without asking the agent."""
    return [line for line in state(hardware) if line.startswith(("gpu0.gi", "gpu0.mig0", "gpu0.mig1"))]


def state(hardware: InjectedNvml) -> list[str]:
    """What calls have changed of MIG, as the library keeps it."""
    path = hardware.description.with_name(f"{hardware.description.name}.mig")
    return path.read_text().splitlines() if path.exists() else []


async def test_a_claim_gets_a_mig_device_and_the_next_one_what_is_left(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with divided(hardware, tmp_path) as box:
        assert box.cluster is not None
        pods = [await started(box, f"pod-{number}", "3g.40gb") for number in range(2)]
        assert not (await run(box, "pod-2", "3g.40gb")).running
        made = {str(device["uuid"]) for device in await instances(box)}
        assert len(made) == 2
        given = pods[0].containers["main"]["injected"]["deviceNodes"]
        caps = {each["path"]: (each["major"], each["minor"]) for each in given if "nvidia-caps" in each["path"]}
        assert caps == {
            f"/dev/nvidia-caps/nvidia-cap{minor}": (506, minor) for minor in (min(caps.values())[1] + n for n in (0, 1))
        }
        for number in range(3):
            await box.cluster.end(f"pod-{number}")
        await eventually(lambda: not on_hardware(hardware))
        await eventually(lambda: _none_left(box))


async def _none_left(box: SandboxNode) -> bool:
    return not await instances(box)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceGetInfo",
    ],
)
async def test_an_agent_killed_in_the_middle_of_making_one_leaves_one_and_no_other(
    hardware: InjectedNvml, tmp_path: Path, call: str
) -> None:
    async with divided(hardware, tmp_path) as box:
        assert box.cluster is not None
        hardware.hang(call)
        async with background(run(box, "one", "3g.40gb")) as running:
            await eventually(lambda: hardware.hanging or running.done(), f"{call} hangs")
            assert not running.done(), running.result()
            await box.agent.stop(signal.SIGKILL)
            hardware.release()
            await box.agent.start()
            await box.registered()
            outcome = await running
        await runs(box, "one", outcome)
        assert len(await instances(box)) == 1
        await box.cluster.end("one")
        await eventually(lambda: not on_hardware(hardware), "what the claim had is removed")


@pytest.mark.parametrize("call", ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"])
async def test_an_agent_killed_in_the_middle_of_removing_one_leaves_nothing(
    hardware: InjectedNvml, tmp_path: Path, call: str
) -> None:
    async with divided(hardware, tmp_path) as box:
        await started(box, "one", "3g.40gb")
        hardware.hang(call)
        async with background(ended(box, "one")) as ending:
            await eventually(lambda: hardware.hanging)
            await box.agent.stop(signal.SIGKILL)
            hardware.release()
            await box.agent.start()
            await ending
        assert on_hardware(hardware) == []
        await eventually(lambda: _none_left(box))


async def test_a_partition_in_use_stays_until_its_process_has_ended(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with divided(hardware, tmp_path) as box:
        assert box.cluster is not None
        await started(box, "one", "3g.40gb")
        hardware.processes(0, (4711, 1), mig=0)
        with pytest.raises(UnprepareError, match=r"process 4711 still uses 3g\.40gb at memory slices 4-7"):
            await box.cluster.end("one")
        assert len(await instances(box)) == 1
        hardware.processes(0, mig=0)
        await ended(box, "one")
        assert on_hardware(hardware) == []


async def ended(box: SandboxNode, pod: str) -> None:
    """End the pod, as often as the kubelet asks until its claims are released."""
    assert box.cluster is not None
    while True:
        try:
            await box.cluster.end(pod)
        except KubeletError:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_gpu_given_whole_leaves_mig_mode_first(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with divided(hardware, tmp_path) as box:
        assert box.cluster is not None
        await started(box, "one", "3g.40gb")
        await box.cluster.end("one")
        await eventually(lambda: _none_left(box))
        assert "gpu0.mig_mode 1" in state(hardware)
        await box.cluster.apply([samples.template("whole", kind="gpu")])
        await runs(box, "whole", await box.cluster.run(samples.pod("whole", "whole")))
        assert "gpu0.mig_mode 0" in state(hardware)
