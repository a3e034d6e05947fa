"""GPUs are divided as the configuration says, while nothing uses them, and offered as what they are then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.node import SandboxNode
from tests.making.mig_nodes import node
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU, LARGE, SMALL = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
RULES = """
resources:
- name: nvidia.com/gpu
  devices: {{vendor: nvidia, kind: gpu{which}}}
  mig: {{layout: [{layout}]}}
- name: nvidia.com/mig-{{profile}}
  devices: {{kind: mig}}
"""
FIRST = ', uuid: "GPU-00000000-*"'


def configured(layout: str, which: str = "") -> str:
    return HEADER + RULES.format(layout=layout, which=which)


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    made = InjectedNvml(tmp_path / "driver", node(2))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def box(hardware: InjectedNvml, configuration: str) -> SandboxNode:
    flags = {"--nvidia-library": str(hardware.library)}
    return SandboxNode(None, flags=flags, configuration=configuration, reconcile_interval=0.05)


async def events(node: SandboxNode, reason: str) -> list[str]:
    return [event.message for event in (await node.agent.status()).events if event.reason == reason]


async def test_gpus_are_divided_and_their_instances_offered(hardware: InjectedNvml) -> None:
    async with box(hardware, configured("3g.40gb, 1g.10gb, 1g.10gb")) as node:
        await node.kubelet.wait_for(LARGE, healthy=2, within=60)
        await node.kubelet.wait_for(SMALL, healthy=4, within=60)
        told = await events(node, "MigLayoutApplied")
        assert sorted(told) == [f"gpu-0000-{bus}b-00-0 is divided into 2 x 1g.10gb, 1 x 3g.40gb" for bus in (1, 2)]
        await node.restart_agent()
        await node.registered()
        given = await node.give(LARGE, 2)
        assert given.admission.admitted, given.admission.message
        assert await events(node, "MigLayoutApplied") == []


async def test_a_gpu_that_a_pod_has_is_divided_when_it_is_free(hardware: InjectedNvml) -> None:
    async with box(hardware, HEADER) as node:
        await node.registered()
        given = await node.give(GPU, 1)
        await node.change_configuration(configured("3g.40gb"))
        await node.kubelet.wait_for(LARGE, healthy=1, within=60)
        (told,) = await eventually(lambda: events(node, "MigLayoutPending"))
        assert "is not divided into 1 x 3g.40gb yet: device gpu-" in told
        assert "is held through the plugin door by" in told
        node.end(given.pod)
        # The kubelet drops its record of the pod when it allocates the next device.
        assert (await node.give(LARGE, 1)).admission.admitted
        await node.kubelet.wait_for(LARGE, healthy=2, within=120)


async def test_a_layout_that_does_not_fit_is_told_once_and_changes_nothing(hardware: InjectedNvml) -> None:
    async with box(hardware, configured("4g.40gb, 4g.40gb", FIRST)) as node:
        (told,) = await eventually(lambda: events(node, "MigLayoutPending"))
        assert "its layout cannot be made: 2 x 4g.40gb do not fit on it together" in told
        await node.kubelet.wait_for(GPU, healthy=1, within=60)
        await node.change_configuration(configured("4g.40gb", FIRST))
        await node.kubelet.wait_for("nvidia.com/mig-4g.40gb", healthy=1, within=60)


async def test_a_gpu_that_cannot_be_divided_is_told(hardware: InjectedNvml) -> None:
    facts = hardware.facts
    incapable = replace(facts.gpus[0], mig_mode=None, mig_pending=None, mig_max_devices=None)
    hardware.serve(replace(facts, gpus=(incapable, facts.gpus[1])))
    hardware.fail("nvmlDeviceGetGpuInstancePossiblePlacements", "NO_PERMISSION", gpu=1)
    async with box(hardware, configured("3g.40gb")) as node:
        await eventually(lambda: _told(node, 2))
        told = sorted(await events(node, "MigLayoutPending"))
        assert told[0].endswith("it does not support MIG; select GPUs that do")
        assert "its driver does not report its MIG profiles; run the agent as root" in told[1]


async def _told(node: SandboxNode, count: int) -> bool:
    return len(await events(node, "MigLayoutPending")) == count


async def test_a_file_of_mig_parted_divides_gpus_by_their_index(hardware: InjectedNvml, tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text(
        'version: v1\nmig-configs:\n  half:\n  - {devices: [1], mig-enabled: true, mig-devices: {"3g.40gb": 2}}\n'
    )
    text = f"{HEADER}nvidia: {{migStrategy: mixed, migConfigFile: {tmp_path / 'mig.yaml'}, migConfig: half}}\n"
    async with box(hardware, text) as node:
        await node.kubelet.wait_for(LARGE, healthy=2, within=60)
        await node.kubelet.wait_for(GPU, healthy=1, within=60)


async def test_a_rule_may_keep_the_mode(hardware: InjectedNvml) -> None:
    text = configured("3g.40gb").replace("]}", "], modeChange: never}")
    async with box(hardware, text) as node:
        told = await eventually(lambda: events(node, "MigLayoutPending"))
        assert "which its rule does not allow; turn it on (nvidia-smi -i" in told[0]
