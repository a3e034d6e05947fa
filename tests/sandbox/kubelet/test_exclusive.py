"""No device is ever held twice, whatever pods, plugins and clients do at the same time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import grpc
import grpc.aio
import pytest

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, device


async def _live(kubelet: Kubelet, chance: random.Random, names: list[str]) -> None:
    """Admit and end pods at random; what each admitted pod was given must be its own."""
    for uid in names:
        containers = tuple(
            Container(f"c{number}", "app", {GPU: chance.randrange(3), NIC: chance.randrange(2)})
            for number in range(chance.randrange(1, 3))
        )
        pod = Pod(uid, uid, "default", containers)
        verdict = await kubelet.admit(pod)
        _nothing_is_held_twice(kubelet)
        if verdict.admitted and chance.random() < 0.7:
            await kubelet.run_options(pod, "c0")
            kubelet.terminate(uid)


async def _flap(plugin: ScriptedPlugin, chance: random.Random, done: asyncio.Event) -> None:
    """Send lists in which a random part of the devices is healthy, with random preferences and failures."""
    while not done.is_set():
        ids = [item.ID for item in plugin.devices]
        await plugin.update([device(name, chance.choice(["Healthy", "Healthy", "Unhealthy"])) for name in ids])
        plugin.script.preferred_ids = tuple(chance.sample(ids, 3))
        plugin.script.allocate = chance.choice(["ok", "ok", "ok", "error", "empty"])
        await asyncio.sleep(0)


async def _watch(kubelet: Kubelet, client: api_pb2_grpc.PodResourcesListerStub, done: asyncio.Event) -> None:
    """podresources must never show a device in two places either."""
    while not done.is_set():
        try:
            answer = await client.List(api_pb2.ListPodResourcesRequest(), wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            continue
        shown = Counter(
            (item.resource_name, item.device_ids[0])
            for entry in answer.pod_resources
            for container in entry.containers
            for item in container.devices
        )
        assert all(count == 1 for count in shown.values()), shown


def _nothing_is_held_twice(kubelet: Kubelet) -> None:
    held = Counter(
        (resource, device_id)
        for pod in kubelet.pods()
        for container in pod.containers
        for resource, ids in kubelet.allocated(pod.uid, container.name).items()
        for device_id in ids
    )
    assert all(count == 1 for count in held.values()), held


@pytest.mark.parametrize("seed", range(4))
async def test_device_is_never_held_or_shown_twice(node: KubeletNode, seed: int) -> None:
    chance = random.Random(seed)
    kubelet = await node.kubelet(watch_plugins=False)
    script = PluginScript(preferred="fixed", preferred_available=True)
    gpus = await node.plugin([device(f"d{number}") for number in range(6)], script=script)
    nics = await node.plugin([device(f"d{number}") for number in range(4)], resource=NIC, name="nic.sock")
    await kubelet.wait_for(GPU, healthy=6)
    await kubelet.wait_for(NIC, healthy=4)
    done = asyncio.Event()
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{node.root}/pod-resources/kubelet.sock", options=options) as channel:
        client = api_pb2_grpc.PodResourcesListerStub(channel)
        async with asyncio.TaskGroup() as others:
            others.create_task(_flap(gpus, chance, done))
            others.create_task(_flap(nics, chance, done))
            others.create_task(_watch(kubelet, client, done))
            async with asyncio.TaskGroup() as tasks:
                for worker in range(4):
                    names = [f"p{worker}-{number}" for number in range(15)]
                    tasks.create_task(_live(kubelet, chance, names))
            done.set()
    assert not kubelet.manager.records._reserved
