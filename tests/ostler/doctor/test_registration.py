"""Checks of registrations, of both sides' devices, of the kubelet's record, and of other plugins."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from node.kubelet.checkpoint import Checkpoint, encode
from node.sockets import PREFIX
from ostler.doctor.answers import LISTENING, AgentAnswers, KubeletAnswers
from ostler.doctor.check import CheckVerdict
from ostler.doctor.node import Once
from ostler.doctor.registration import (
    PluginSocket,
    judge_checkpoint,
    judge_devices,
    judge_plugins,
    judge_states,
    read_checkpoint,
    read_sockets,
)
from protos.agent.v1alpha1 import agent_pb2
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.ostler.doctor.nodes import examined, says, view
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices

GPU = "nvidia.com/gpu"
REGISTRY = Path("/r")


def state(registration: str, detail: str = "") -> AgentAnswers:
    resource = agent_pb2.ResourceStatus(name=GPU, registration=registration, detail=detail)
    return AgentAnswers(agent_pb2.GetStatusResponse(resources=[resource]), agent_pb2.ListDevicesResponse())


@pytest.mark.parametrize(
    ("registration", "verdict", "fix"),
    [
        ("contested", CheckVerdict.FAILED, "see the check foreign-plugins"),
        ("failed", CheckVerdict.FAILED, "follow the message"),
        ("waiting", CheckVerdict.WARNING, "start the kubelet"),
        ("offered", CheckVerdict.WARNING, "wait a few seconds"),
    ],
)
def test_a_registration_that_is_not_there_is_told(registration: str, verdict: CheckVerdict, fix: str) -> None:
    says(judge_states(state(registration, "why")), verdict, f"{GPU} is {registration} (why)", fix)


def test_registered_resources_are_well() -> None:
    says(judge_states(state("registered")), CheckVerdict.OK, f"registered: {GPU}")
    says(judge_states(AgentAnswers(agent_pb2.GetStatusResponse())), CheckVerdict.OK, "nothing is offered")
    says(judge_states(AgentAnswers()), CheckVerdict.SKIPPED, "no agent answers")


AB, A = frozenset({"a", "b"}), frozenset({"a"})


def test_both_sides_with_the_same_devices_are_well() -> None:
    says(
        judge_devices({GPU: AB}, {GPU: AB}, {GPU: AB}),
        CheckVerdict.OK,
        f"both sides agree on healthy devices ({GPU}: 2)",
    )
    says(judge_devices({GPU: AB}, None, {GPU: AB}), CheckVerdict.OK, "both sides agree")
    says(judge_devices({GPU: frozenset()}, {}, {}), CheckVerdict.OK, "both sides agree")
    says(judge_devices({}, {}, {}), CheckVerdict.OK, "nothing is offered")
    says(judge_devices({GPU: AB}, None, None), CheckVerdict.SKIPPED, "neither the pod resources API nor the checkpoint")


def test_devices_that_one_side_lacks_are_named() -> None:
    fewer = judge_devices({GPU: AB}, {GPU: A}, None)
    says(
        fewer,
        CheckVerdict.FAILED,
        "the agent shows 2 healthy devices, the kubelet has 1 (missing: b)",
        "restart the agent",
    )
    more = judge_devices({GPU: A}, None, {GPU: AB})
    says(more, CheckVerdict.FAILED, "its checkpoint has 2 (not ours: b)", "restart the agent")
    stale = judge_devices({GPU: AB}, {GPU: AB}, {GPU: A})
    says(stale, CheckVerdict.WARNING, "the checkpoint does not have what the kubelet shows", "full or read-only")


def test_the_kubelets_record_is_read_and_a_damaged_one_told(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    says(judge_checkpoint(read_checkpoint(file), file), CheckVerdict.SKIPPED, "no plugin has registered yet")
    good = encode(Checkpoint((), {GPU: ("a",)}))
    file.write_bytes(good)
    says(
        judge_checkpoint(read_checkpoint(file), file), CheckVerdict.OK, f"0 containers hold devices; registered: {GPU}"
    )
    file.write_bytes(good.replace(b'"a"', b'"b"'))
    damaged = judge_checkpoint(read_checkpoint(file), file)
    says(damaged, CheckVerdict.FAILED, "cannot be used: checkpoint is corrupted", "drain the node, stop the kubelet")


async def test_a_real_agent_and_kubelet_agree() -> None:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
        await box.registered()
        node = view(box.root)
        for name, found in (
            ("registration", "registered: nvidia.com/gpu"),
            ("kubelet-devices", "both sides agree on healthy devices (nvidia.com/gpu: 2)"),
            ("kubelet-checkpoint", "registered: nvidia.com/gpu"),
            ("foreign-plugins", "no other plugin"),
        ):
            says(await asyncio.to_thread(examined, node, name), CheckVerdict.OK, found)


async def test_a_difference_that_is_gone_when_asked_again_was_only_on_its_way() -> None:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
        await box.registered()
        node = view(box.root)
        node.kubelet = Once(lambda: KubeletAnswers(LISTENING, {}, {}))
        says(await asyncio.to_thread(examined, node, "kubelet-devices"), CheckVerdict.OK, "both sides agree")


async def test_a_kubelet_that_lost_us_is_seen() -> None:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
        await box.registered()
        node = view(box.root)
        await asyncio.to_thread(node.agent)
        await box.agent.stop()
        await box.kubelet.wait_for(GPU, healthy=0)
        answers, kubelet = node.agent(), await asyncio.to_thread(node.kubelet)
        finding = judge_devices(answers.healthy_ids(), kubelet.allocatable, None)
        says(
            finding,
            CheckVerdict.FAILED,
            "the agent shows 2 healthy devices, the kubelet has 0 (missing: GPU-",
            "restart the agent",
        )


async def test_another_plugin_for_the_same_resource_is_found_by_asking_its_name(short_dir: Path) -> None:
    for folder in ("kubelet/plugins_registry", "kubelet/device-plugins"):
        (short_dir / folder).mkdir(parents=True)
    registry, plugins = short_dir / "kubelet/plugins_registry", short_dir / "kubelet/device-plugins"
    foreign = ScriptedPlugin(GPU, plugins / "p.sock", devices("g", 2), PluginScript())
    friend = ScriptedPlugin("example.com/fpga", registry / "fpga.sock", devices("f", 1), PluginScript())
    await foreign.start()
    await friend.start()
    try:
        finding = await asyncio.to_thread(examined, view(short_dir), "foreign-plugins")
        says(
            finding,
            CheckVerdict.FAILED,
            f"{plugins}/p.sock serves {GPU}, too",
            "remove the other plugin (its DaemonSet)",
        )
        assert foreign.streams == 0, "no stream was opened that could take an update from the kubelet"
        await foreign.stop()
        (plugins / "p.sock").unlink(missing_ok=True)
        finding = await asyncio.to_thread(examined, view(short_dir), "foreign-plugins")
        says(finding, CheckVerdict.OK, "other plugins: example.com/fpga")
    finally:
        await foreign.stop()
        await friend.stop()


def test_a_dead_socket_in_the_registry_is_a_warning(short_dir: Path) -> None:
    registry = short_dir / "kubelet" / "plugins_registry"
    registry.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(registry / "old.sock"))
    assert read_sockets((registry,)) == (PluginSocket(registry / "old.sock", answered=False),)
    finding = examined(view(short_dir), "foreign-plugins")
    says(finding, CheckVerdict.WARNING, f"no process listens at {registry}/old.sock", f"rm {registry}/old.sock")


def test_a_dead_socket_of_our_own_is_told_as_well_where_no_agent_answers(short_dir: Path) -> None:
    registry = short_dir / "kubelet" / "plugins_registry"
    registry.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(registry / f"{PREFIX}x.sock"))
    says(examined(view(short_dir), "foreign-plugins"), CheckVerdict.WARNING, "no process listens at", f"{PREFIX}x.sock")


def test_a_socket_of_another_agent_of_ours_is_no_other_plugin() -> None:
    ours = PluginSocket(REGISTRY / f"{PREFIX}x.sock", answered=True, type="DevicePlugin", name="example.com/x")
    says(judge_plugins([ours], frozenset(), (GPU,), REGISTRY), CheckVerdict.OK, "no other plugin")


@pytest.mark.parametrize(
    ("file", "resource", "guessed"),
    [
        ("nvidia-gpu.sock", GPU, True),
        ("nvidia-mig-1g.5gb.sock", "nvidia.com/mig-{profile}", True),
        ("amd.com_gpu", "amd.com/gpu", True),
        ("intel.com_sriov_net.sock", "intel.com/sriov_net", True),
        ("amd.com_gpu", GPU, False),
        ("kvm.sock", GPU, False),
    ],
)
def test_a_plugin_that_does_not_say_its_name_is_guessed_by_its_socket(file: str, resource: str, guessed: bool) -> None:
    finding = judge_plugins([PluginSocket(Path("/p") / file, answered=True)], frozenset(), (resource,), REGISTRY)
    if guessed:
        says(finding, CheckVerdict.WARNING, f"its name suggests {resource}", "an older plugin is still installed")
    else:
        says(finding, CheckVerdict.OK, f"other plugins: {file}")


def test_a_dra_driver_for_the_same_gpus_has_failed() -> None:
    driver = PluginSocket(Path("/r/gpu.nvidia.com-reg.sock"), answered=True, type="DRAPlugin", name="gpu.nvidia.com")
    finding = judge_plugins([driver], frozenset(), (GPU,), REGISTRY)
    says(
        finding,
        CheckVerdict.FAILED,
        "offers the same devices through DRA (gpu.nvidia.com)",
        "let only one of the two offer them",
    )
    gaudi = PluginSocket(Path("/r/gaudi.intel.com-reg.sock"), answered=True, type="DRAPlugin", name="gaudi.intel.com")
    found = judge_plugins([gaudi], frozenset(), ("habana.ai/gaudi",), REGISTRY)
    says(found, CheckVerdict.FAILED, "through DRA (gaudi.intel.com)", "remove the driver, or the agent's rule")
    says(
        judge_plugins([driver], frozenset(), ("amd.com/gpu",), REGISTRY),
        CheckVerdict.OK,
        "other plugins: gpu.nvidia.com",
    )
    own = judge_plugins([driver], frozenset(), (GPU,), REGISTRY, "gpu.nvidia.com")
    says(own, CheckVerdict.OK, "no other plugin")
    other = PluginSocket(Path("/r/csi.sock"), answered=True, type="CSIPlugin", name="disk.example.com")
    says(judge_plugins([other], frozenset(), (GPU,), REGISTRY), CheckVerdict.OK, "other plugins: disk.example.com")


def test_our_own_sockets_are_nobody_elses() -> None:
    own = PluginSocket(Path("/r/ostler-x.sock"), answered=True, type="DevicePlugin", name=GPU)
    says(judge_plugins([own], frozenset({own.path}), (GPU,), REGISTRY), CheckVerdict.OK, "no other plugin")
    says(
        judge_plugins([own], frozenset(), (GPU,), REGISTRY),
        CheckVerdict.FAILED,
        "/r/ostler-x.sock serves",
        "remove the other plugin",
    )
    profile = PluginSocket(Path("/r/x"), answered=True, type="DevicePlugin", name="nvidia.com/mig-1g.5gb")
    says(
        judge_plugins([profile], frozenset(), ("nvidia.com/mig-{profile}",), REGISTRY),
        CheckVerdict.FAILED,
        "mig-1g.5gb, too",
        "resource another name",
    )
