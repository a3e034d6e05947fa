"""Themes of the end-to-end tests: what restarts, reboots and failures of kubelet and plugin do to pods."""

from __future__ import annotations

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.events import PluginDeregistered
from sandbox.kubelet.pods import Container, Pod
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import device, devices, register
from tests.waiting import eventually


async def test_plugin_restart_keeps_assignments_of_running_pods(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    held = (await kubelet.admit(pod("p1"))).devices
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert {"c": {resource: tuple(ids) for resource, ids in kubelet.allocated("p1", "c").items()}} == held
    options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.envs == {"IDS_gpu": "d0"}, "a restarted container gets the same device"
    assert (await kubelet.admit(pod("p2"))).devices == {"c": {GPU: ("d1",)}}


async def test_kubelet_restart_keeps_assignments_of_running_pods(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 2), door="watcher")
    await kubelet.wait_for(GPU, healthy=2)
    held = (await kubelet.admit(pod("p1"))).devices
    verdicts = await kubelet.restart()
    assert (verdicts["p1"].admitted, verdicts["p1"].devices) == (True, held)
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p2"))).devices == {"c": {GPU: ("d1",)}}


async def test_reboot_with_a_late_plugin_rejects_the_pod(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    assert (await kubelet.admit(pod("p1"))).admitted
    verdict = (await kubelet.restart(reboot=True))["p1"]
    assert (verdict.admitted, verdict.reason) == (False, "UnexpectedAdmissionError")
    assert verdict.message == (
        f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {GPU}, "
        "which is unexpected"
    )


async def test_unhealthy_device_keeps_the_pod_running_and_shows_in_its_status(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p1"))).admitted
    await plugin.update([device("d0", "Unhealthy"), device("d1")])
    await kubelet.wait_for(GPU, healthy=1)
    assert kubelet.manager.updates.drain() == (("p1",),)
    assert kubelet.manager.allocated_resources_status(pod("p1")) == {"c": {GPU: {"d0": "Unhealthy"}}}
    assert [item.uid for item in kubelet.pods()] == ["p1"]
    assert await kubelet.run_options(pod("p1"), "c") is not None
    await plugin.update(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert kubelet.manager.allocated_resources_status(pod("p1")) == {"c": {GPU: {"d0": "Healthy"}}}


async def test_slow_second_plugin_for_one_resource_takes_over_without_a_gap(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    first = await node.plugin(devices("d", 2), name="first.sock")
    await kubelet.wait_for(GPU, healthy=2)
    slow = await node.plugin(devices("d", 2), name="slow.sock", door=None)
    lost = kubelet.events()
    assert kubelet.allocatable() == {GPU: 2}
    assert await register(kubelet.settings.device_plugin_dir, GPU, slow.path.name) == ""
    await eventually(lambda: kubelet.list_messages[GPU] == 2, "the second list")
    await first.stop()
    event = await anext(event async for event in lost if isinstance(event, PluginDeregistered))
    assert not event.devices_lost
    assert (await kubelet.admit(pod("p1", 2))).admitted
    assert [call["rpc"] for call in slow.calls] == ["Allocate"]


async def test_init_sidecar_and_app_containers_share_only_what_an_init_container_had(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 4))
    await node.plugin(devices("n", 2), resource=NIC, name="n.sock")
    await kubelet.wait_for(GPU, healthy=4)
    await kubelet.wait_for(NIC, healthy=2)
    workload = Pod(
        "p",
        "p",
        containers=(
            Container("early", "init", {GPU: 2, NIC: 1}),
            Container("side", "sidecar", {GPU: 1}),
            Container("late", "init", {GPU: 3}),
            Container("main", limits={GPU: 2, NIC: 1}),
            Container("other", limits={GPU: 1, NIC: 1}),
        ),
    )
    given = (await kubelet.admit(workload)).devices
    assert given["early"] == {GPU: ("d0", "d1"), NIC: ("n0",)}
    assert given["side"] == {GPU: ("d0",)}
    assert given["late"] == {GPU: ("d1", "d2", "d3")}
    assert given["main"] == {GPU: ("d1", "d2"), NIC: ("n0",)}
    assert given["other"] == {GPU: ("d3",), NIC: ("n1",)}
    for container in workload.containers:
        options = await kubelet.run_options(workload, container.name)
        assert options is not None
        assert options.envs["IDS_gpu"] == ",".join(given[container.name][GPU])


async def test_cdi_injection(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = PluginStub([listed("d0")], kubelet.settings.device_plugin_dir / "p.sock", GPU)
    names = [api_pb2.CDIDevice(name="vendor.com/gpu=0"), api_pb2.CDIDevice(name="vendor.com/gpu=all")]
    answer = api_pb2.ContainerAllocateResponse(cdi_devices=names)
    plugin.set_alloc_func(lambda _request, _devices: api_pb2.AllocateResponse(container_responses=[answer]))
    async with plugin:
        await plugin.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=1)
        assert (await kubelet.admit(pod("p1"))).admitted
        options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.cdi_devices == ("vendor.com/gpu=0", "vendor.com/gpu=all")


async def test_list_over_4_mib_ends_the_stream_for_good(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    seen = kubelet.events()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await plugin.update([device(f"{number:063}") for number in range(60_000)])
    event = await anext(event async for event in seen if isinstance(event, PluginDeregistered))
    assert "code = ResourceExhausted" in event.reason
    assert event.reason.endswith(
        "a message of the plugin exceeds the kubelet's limit of 4 MiB; send fewer or shorter device ids"
    )
    assert (kubelet.capacity().capacity, kubelet.allocatable()) == ({GPU: 1}, {GPU: 0})
    with pytest.raises(TimeoutError):
        await kubelet.wait_for(GPU, healthy=1, within=0.1)
