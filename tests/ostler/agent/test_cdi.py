"""The agent process with CDI: specs are there before lists, answers resolve in them, and they go when CDI goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.inventory.cdi_specs import CdiSpecSource
from sandbox.kubelet.events import KubeletEvent, ListReceived
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.node.cdi.judging import faults
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
GPU_FILE = "k8s.device-plugin.nvidia.com-gpu.json"
NODES = {"--device-list-strategy": "cdi-cri", "--cdi-mode": "nodes"}
FULL = {"--device-list-strategy": "cdi-cri", "--cdi-mode": "full", "--cdi-hook": "/usr/bin/nvidia-cdi-hook"}

BY_NAME = """\
apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
- name: nvidia.com/gpu
  devices: {kind: gpu}
  ids: name
"""


def node(flags: dict[str, str], name: str = "h100-sxm-8") -> SandboxNode:
    return SandboxNode(path(name), flags=flags, reconcile_interval=0.05)


def specs(box: SandboxNode) -> dict[str, object]:
    """Specs as a runtime finds them, each judged."""
    folder = box.root / "cdi"
    found = {file.name: json.loads(file.read_bytes()) for file in sorted(folder.glob("*.json"))}
    assert all(faults(document) == [] for document in found.values())
    return found


def resolvable(box: SandboxNode) -> set[str]:
    """Names that a runtime can resolve on this node."""
    facts = CdiSpecSource([box.root / "cdi"]).read().cdi
    assert facts is not None
    assert facts.errors == ()
    return set(facts.devices)


@pytest.mark.parametrize("flags", [NODES, FULL], ids=["nodes", "full"])
async def test_spec_is_there_before_the_list_is_shown_and_a_pods_names_resolve_in_it(flags: dict[str, str]) -> None:
    box = node(flags)
    seen: list[bool] = []

    def look(event: KubeletEvent) -> None:
        if isinstance(event, ListReceived):
            seen.append((box.root / "cdi" / GPU_FILE).is_file())

    forget = box.kubelet.on_event(look)
    async with box:
        await box.registered()
        assert seen
        assert all(seen)
        given = await box.give(GPU, 3)
        assert given.admission.admitted
        names = given.response["cdi_devices"]
        assert names == tuple(f"k8s.device-plugin.nvidia.com/gpu={id_}" for id_ in given.ids)
        assert set(names) <= resolvable(box)
        assert set(given.response) == {"cdi_devices"}
        file = box.root / "cdi" / GPU_FILE
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o644, 0o755)
        assert set(specs(box)) == {GPU_FILE}
    forget()


async def test_mig_devices_are_named_by_index_and_resolve() -> None:
    flags = {**NODES, "--mig-strategy": "mixed", "--device-id-strategy": "index"}
    async with node(flags, "a100-mig-4") as box:
        await box.registered()
        given = await box.give("nvidia.com/mig-1g.5gb", 2)
        assert given.admission.admitted
        names = given.response["cdi_devices"]
        assert isinstance(names, tuple)
        assert len(names) == 2
        assert all(":" in name.partition("=")[2] for name in names)
        assert set(names) <= resolvable(box)


@pytest.mark.parametrize("strategy", ["uuid", "index"])
async def test_pod_is_told_the_vendors_ids_where_the_kubelet_has_names(strategy: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(BY_NAME)
    flags = {**NODES, "--device-id-strategy": strategy}
    box = SandboxNode(path("l4-2"), flags=flags, arguments=["--config", str(config)], reconcile_interval=0.05)
    async with box:
        await box.registered()
        given = await box.give(GPU, 2)
        assert given.admission.admitted
        assert all(id_.startswith("gpu-") for id_ in given.ids)
        names = given.response["cdi_devices"]
        assert isinstance(names, tuple)
        told = [name.partition("=")[2] for name in names]
        assert told == ["0", "1"] if strategy == "index" else all(id_.startswith("GPU-") for id_ in told)
        assert set(names) <= resolvable(box)


async def test_mode_full_on_a_host_without_the_driver_is_unhealthy_without_a_spec_and_told() -> None:
    async with node(FULL, "l4-2") as box:
        status = await box.registered()
        assert [(each.name, each.healthy, each.devices) for each in status.resources] == [(GPU, 0, 2)]
        assert specs(box) == {}
        assert not (await box.give(GPU, 1)).admission.admitted
        why = "no libraries of the driver were found below /"
        devices = [device for device in (await box.agent.devices()).devices if device.kind == "gpu"]
        assert [device.offer_reason for device in devices] == [f"no CDI spec can describe it, {why}"] * 2
        told = [event.message for event in status.events if event.message.startswith("CDI")]
        assert told == [f"CDI: {device.name} is left out, {why}" for device in devices]


async def test_restarted_agent_leaves_its_spec_as_it_is_and_writes_a_lost_one_again() -> None:
    async with node(NODES) as box:
        await box.registered()
        file = box.root / "cdi" / GPU_FILE
        before = file.stat()
        content = file.read_bytes()
        await box.restart_agent()
        await box.registered()
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        await box.agent.stop()
        file.unlink()
        file.parent.rmdir()
        await box.agent.start()
        await box.registered()
        assert file.read_bytes() == content


async def test_agent_restarted_without_cdi_sweeps_its_spec_and_nothing_else() -> None:
    async with node(NODES) as box:
        await box.registered()
        theirs = box.root / "cdi" / "nvidia.yaml"
        theirs.write_text("cdiVersion: 0.5.0\n")
        await box.agent.stop()
        assert set(specs(box)) == {GPU_FILE}
        box.follow(AgentProcess(box._flags(), log=box.log))
        await box.agent.start()
        await box.registered()

        def left() -> bool:
            return [file.name for file in (box.root / "cdi").iterdir()] == ["nvidia.yaml"]

        await eventually(left, "the spec is swept")
        given = await box.give(GPU, 1)
        assert given.response["envs"] == {"NVIDIA_VISIBLE_DEVICES": given.ids[0]}
        assert "cdi_devices" not in given.response


async def test_folder_that_cannot_be_written_is_an_event_that_names_it(tmp_path: Path) -> None:
    blocked = tmp_path / "cdi"
    blocked.write_text("no folder")
    async with node({**NODES, "--cdi-dir": str(blocked)}) as box:
        status = await box.agent.status()

        async def told() -> list[str]:
            nonlocal status
            status = await box.agent.status()
            return [event.message for event in status.events if str(blocked) in event.message]

        (message,) = await eventually(told, "an event about the folder")
        assert message == (
            f"CDI file {blocked / GPU_FILE}: cannot be written (File exists); check the folder and the disk"
        )
