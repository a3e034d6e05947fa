"""The agent as a process whose claims share GPUs: real gRPC and NVML binding, the driver's programs as stand-ins."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster import samples
from sandbox.cluster.cluster import PodOutcome
from sandbox.node import SandboxNode
from tests.making.mig_nodes import device_files
from tests.making.mounts import needs_mounts
from tests.making.mps import SmiStandIn
from tests.node.nvml import stub
from tests.ostler.agent.test_mps_node import GPU, SharingNode, with_hardware
from tests.waiting import background, eventually

pytestmark = [
    *stub.needs_gcc,
    pytest.mark.needs_root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root rights: device files are made"),
    needs_mounts,
]

PEER = "gpu.nvidia.com"
NVIDIA = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
BY_MPS = {**NVIDIA, "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}}}
LONG = {**NVIDIA, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}


class ClaimingNode(SharingNode):
    """The node, whose GPUs are offered to claims: whole, or in shares."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.smi = SmiStandIn(self.driver.home.driver_root)
        self.dev_root = str(folder)
        device_files(folder, 8)

    def whole(self) -> SandboxNode:
        return self.box(dra={"alsoPublishAs": [PEER]}, door="dra", sharing=None)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left of any claim."""
        return not self.daemons and not self.smi.slices and self.modes == {"0"} and not [*self.root.glob("claim-*")]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClaimingNode]:
    with with_hardware(ClaimingNode(tmp_path), monkeypatch) as made:
        yield made


async def run(box: SandboxNode, pod: str, parameters: dict[str, Any] | None = None, **capacity: str) -> PodOutcome:
    """A pod with a claim of its own, with these parameters and capacity."""
    assert box.cluster is not None
    template = samples.template(pod)
    devices = template["spec"]["spec"]["devices"]
    if parameters is not None:
        devices["config"] = [{"opaque": {"driver": PEER, "parameters": parameters}}]
    if capacity:
        devices["requests"][0]["exactly"]["capacity"] = {"requests": capacity}
    await box.cluster.apply([template])
    return await box.cluster.run(samples.pod(pod, pod))


def variables(outcome: PodOutcome) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in outcome.containers["main"]["injected"]["env"])


async def test_a_claim_for_nvidias_driver_has_a_daemon_from_its_first_pod_to_its_last(node: ClaimingNode) -> None:
    async with node.whole() as box:
        await box.registered()
        outcome = await run(box, "one", BY_MPS)
        assert outcome.running, outcome.message
        pipe = variables(outcome)["CUDA_MPS_PIPE_DIRECTORY"]
        name = pipe.split("/")[2]
        assert name.startswith("claim-")
        assert (node.root / name / "pipe").is_dir()
        assert any(line.endswith("10240M") for line in node.driver.log(name))
        (pid,) = node.daemons
        assert node.modes == {"0", "3"}
        await box.restart_agent()
        await box.registered()
        assert node.daemons == [pid]
        assert box.cluster is not None
        await box.cluster.end("one")
        await eventually(lambda: node.is_clean, "the daemon is stopped", within=60)


async def test_a_time_slice_ends_with_its_claim_though_the_agent_was_killed(node: ClaimingNode) -> None:
    async with node.whole() as box:
        await box.registered()
        outcome = await run(box, "one", LONG)
        assert outcome.running, outcome.message
        assert [*node.smi.slices.values()] == [3]
        await box.restart_agent()
        await box.registered()
        assert [*node.smi.slices.values()] == [3]
        assert box.cluster is not None
        await box.cluster.end("one")
        await eventually(lambda: node.is_clean, "the time slice is set back", within=60)


async def test_an_agent_killed_while_it_prepares_leaves_nothing(node: ClaimingNode) -> None:
    async with node.whole() as box:
        await box.registered()
        assert box.cluster is not None
        node.smi.misbehave("hang")
        async with background(run(box, "one", LONG)) as running:
            record = box.root / "state" / "claim-sharing.json"
            await eventually(record.exists, "it is on record what is about to be done")
            await box.agent.stop(signal.SIGKILL)
            node.smi.misbehave("hang", now=False)
            await box.agent.start()
            await box.registered()
            await asyncio.wait([running])
        await box.cluster.end("one")
        await eventually(lambda: node.is_clean and not record.exists(), "nothing is left", within=60)
        outcome = await run(box, "two", LONG)
        assert outcome.running, outcome.message


async def test_what_the_node_cannot_do_is_a_message_of_the_pod_and_a_condition_of_its_claim(node: ClaimingNode) -> None:
    node.smi.program.unlink()
    async with node.whole() as box:
        await box.registered()
        outcome = await run(box, "one", LONG)
        assert not outcome.running
        assert "has no nvidia-smi, which alone can set it" in outcome.message
        assert box.server is not None
        store = box.server.store

        def condition() -> bool:
            (claim,) = store.list("resourceclaims")
            devices: Any = claim["status"].get("devices") or []
            return any(each["reason"] == "SharingNotDone" for device in devices for each in device["conditions"])

        await eventually(condition, "the claim has the condition")
        assert node.is_clean


async def test_claims_share_a_gpu_by_mps_with_the_limits_of_what_they_consume(node: ClaimingNode) -> None:
    async with node.box(door="dra") as box:
        await box.registered()
        assert box.cluster is not None
        pods = [await run(box, f"pod-{number}", memory="30Gi", compute="40") for number in range(2)]
        assert [pod.running for pod in pods] == [True, True], pods[1].message
        for pod in pods:
            found = variables(pod)
            assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=30720M"
            assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
            assert found["CUDA_MPS_PIPE_DIRECTORY"] == f"/mps/{GPU}/pipe"
        assert len(node.daemons) == 1
        assert len({device for pod in pods for devices in pod.claims.values() for device in devices}) == 1
        for number in range(2):
            await box.cluster.end(f"pod-{number}")
        await eventually(lambda: node.is_clean, "the daemon is stopped", within=60)
