"""A GPU that is replaced under a pod: the pod has the device files of the one in its place."""

from __future__ import annotations

import pytest

from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
NEW = "GPU-aaaaaaaa-0d6e-4b7a-9c11-2f4e5d6a7b81"


@pytest.mark.parametrize("restarted", [False, True], ids=["same agent", "restarted agent"])
async def test_the_gpu_in_the_place_of_a_pods_is_given_to_nobody_else(*, restarted: bool) -> None:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
        await box.registered()
        (old,) = (await box.give(GPU, 1)).devices[GPU]
        assert box.hardware is not None
        recording = box.hardware.path
        recording.write_text(recording.read_text().replace(old, NEW))
        await box.agent.rescan()
        await eventually(lambda: NEW in {device.id for device in box.kubelet.devices(GPU)})
        if restarted:
            await box.restart_agent()
        await box.kubelet.wait_for(GPU, healthy=1)
        (other,) = (await box.give(GPU, 1)).devices[GPU]
        assert other not in (old, NEW)
        assert not (await box.give(GPU, 1)).admission.admitted
