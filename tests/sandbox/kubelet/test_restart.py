"""Restarts and reboots: what the checkpoint keeps, and when a pod is refused for it."""

from __future__ import annotations

import pytest

from node.kubelet.checkpoint import Checkpoint, CheckpointEntry, encode
from sandbox.kubelet.events import PluginRegistered
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, devices, register


async def test_running_pod_keeps_its_devices_while_the_plugin_is_away(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    before = await kubelet.admit(pod("p1"))
    verdicts = await kubelet.restart([pod("p1")])
    assert verdicts["p1"].admitted
    assert verdicts["p1"].devices == before.devices == {"c": {GPU: ("d0",)}}
    assert not plugin.path.exists()
    assert kubelet.capacity().capacity == {GPU: 0}
    assert (await kubelet.admit(pod("p2"))).error == (
        "no healthy devices present; cannot allocate unhealthy devices a.example/gpu"
    )
    again = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p3"))).devices == {"c": {GPU: ("d1",)}}
    assert again.calls[0]["ids"] == ["d1"]
    options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.envs == {"IDS_gpu": "d0"}


async def test_pod_that_ended_meanwhile_frees_its_devices(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    assert (await kubelet.admit(pod("p1"))).admitted
    assert await kubelet.restart([]) == {}
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    assert (await kubelet.admit(pod("p2"))).admitted


async def test_reboot_refuses_pods_until_their_plugin_is_back(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    verdict = (await kubelet.restart(reboot=True))["p1"]
    assert verdict.error == "no healthy devices present; cannot allocate unhealthy devices a.example/gpu"
    assert kubelet.pods() == ()


async def test_finished_init_container_is_not_seen_as_running(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    both = Pod("p1", "p1", "default", (Container("i", "init", {GPU: 1}), Container("c", "app", {GPU: 1})))
    assert (await kubelet.admit(both)).devices == {"i": {GPU: ("d0",)}, "c": {GPU: ("d0",)}}
    verdict = (await kubelet.restart())["p1"]
    assert (verdict.admitted, verdict.container) == (False, "i")


async def test_restart_with_a_damaged_checkpoint_starts_without_state(
    node: KubeletNode, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    checkpoint = kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    verdict = (await kubelet.restart())["p1"]
    assert (verdict.admitted, verdict.devices) == (True, {})
    assert "Continue after failing to read checkpoint file" in caplog.text


async def test_entry_whose_answer_cannot_be_read_is_left_out_and_logged(
    node: KubeletNode, caplog: pytest.LogCaptureFixture
) -> None:
    entries = tuple(
        CheckpointEntry(uid, "c", GPU, {-1: (device_id,)}, answer)
        for uid, device_id, answer in (("p1", "d0", b"\xff\xff"), ("p2", "d1", b""))
    )
    (node.root / "device-plugins").mkdir()
    path = node.root / "device-plugins" / "kubelet_internal_checkpoint"
    path.write_bytes(encode(Checkpoint(entries, {GPU: ("d0", "d1")})))
    kubelet = await node.kubelet(pods=[pod("p1"), pod("p2")])
    assert (kubelet.allocated("p1", "c"), kubelet.allocated("p2", "c")) == ({}, {GPU: {"d1": None}})
    assert "an entry of the checkpoint is left out, because its Allocate response cannot be read" in caplog.text


async def test_event_streams_go_on_over_a_restart(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    await kubelet.restart()
    plugin = await node.plugin(devices("d", 1))
    assert await anext(stream) == PluginRegistered(GPU, str(plugin.path), "register")
    stream.close()


async def test_resource_is_forgotten_after_more_than_five_minutes(node: KubeletNode) -> None:
    clock = ManualClock(1000.0)
    kubelet = await node.kubelet(clock=clock)
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    clock.now += 300
    assert kubelet.capacity().capacity == {GPU: 1}
    clock.now += 0.001
    assert kubelet.capacity().deleted == (GPU,)
    assert kubelet.capacity().capacity == {}
    assert (kubelet.resources(), kubelet.devices(GPU)) == ((), ())


async def test_plugin_back_within_the_grace_period_is_not_forgotten(node: KubeletNode) -> None:
    clock = ManualClock(1000.0)
    kubelet = await node.kubelet(clock=clock)
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    clock.now += 299
    await plugin.start()
    assert await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name) == ""
    await kubelet.wait_for(GPU, healthy=1)
    clock.now += 1000
    assert kubelet.allocatable() == {GPU: 1}


async def test_pre_start_of_a_stopped_plugin_says_so(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1), script=PluginScript(pre_start_required=True))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    with pytest.raises(Exception, match=r"endpoint \{a.example/gpu .*p.sock\} has been stopped"):
        await kubelet.run_options(pod("p1"), "c")


async def test_start_can_take_over_pods_that_ran_before(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    await kubelet.stop()
    async with Kubelet(node.root, generation="1.37") as other:
        assert other.pods() == ()
    await other.start(pods=[pod("p1")], running={("p1", "c")})
    assert other.allocated("p1", "c") == {GPU: {"d0": None}}
    assert [item.uid for item in other.pods()] == ["p1"]
    await other.stop()
