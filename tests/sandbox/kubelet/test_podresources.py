"""podresources, against the answers of a live kubelet and its own rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.json_format import MessageToDict

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from protos.podresources.v1alpha1 import api_pb2 as alpha
from protos.podresources.v1alpha1 import api_pb2_grpc as alpha_grpc
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.podresources import TokenBucket
from sandbox.kubelet.pods import Container, Pod
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import device, devices

_STATES = Path(__file__).parents[2] / "vectors" / "kubelet" / "checkpoints"
_GPU, _NIC = "dp.example.com/gpu", "dp.example.com/nic"
_PODS = {
    "multi": [("init", "init"), ("side", "sidecar"), ("a", "app"), ("b", "app")],
    "single": [("c", "app")],
    "plain": [("c", "app")],
    "dp1": [("c", "app")],
}


@pytest.fixture
async def client(node: KubeletNode) -> AsyncIterator[api_pb2_grpc.PodResourcesListerStub]:
    address = f"unix:{node.root}/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield api_pb2_grpc.PodResourcesListerStub(channel)


def _plain(message: Any) -> Any:
    return _sorted(MessageToDict(message, preserving_proto_field_name=True))


def _sorted(value: Any) -> Any:
    """Lists of devices in one order, for a kubelet's is random; those of pods and containers stay as they are."""
    if isinstance(value, dict):
        return {
            key: sorted(item, key=lambda device: json.dumps(device, sort_keys=True))
            if key == "devices"
            else _sorted(item)
            for key, item in value.items()
        }
    return [_sorted(item) for item in value] if isinstance(value, list) else value


async def _start_recorded(node: KubeletNode, state: str) -> None:
    """A kubelet on the recorded checkpoint, with the pods that were active then."""
    checkpoint = (_STATES / f"{state}.checkpoint.json").read_bytes()
    folder = node.root / "device-plugins"
    folder.mkdir()
    (folder / "kubelet_internal_checkpoint").write_bytes(checkpoint)
    uids = _uids(json.loads(checkpoint))
    pods = {
        name: Pod(uids.get(name, name), name, "default", tuple(Container(item, kind) for item, kind in containers))  # type: ignore[arg-type]
        for name, containers in _PODS.items()
    }
    listed = json.loads((_STATES / f"{state}.list.json").read_text())
    await node.kubelet(pods=[pods[item["name"]] for item in listed.get("pod_resources", ())])


def _uids(checkpoint: dict[str, Any]) -> dict[str, str]:
    """Names of the pods by the containers their entries have."""
    containers: dict[str, set[str]] = {}
    for entry in checkpoint["Data"]["PodDeviceEntries"] or ():
        containers.setdefault(entry["PodUID"], set()).add(entry["ContainerName"])
    single = [uid for uid, names in containers.items() if names == {"c"}]
    several = [uid for uid, names in containers.items() if "side" in names]
    found = {"multi": several, "single": single, "dp1": single}
    return {name: uids[0] for name, uids in found.items() if uids}


@pytest.mark.parametrize(
    "state",
    [
        "one-pod",
        "no-pods",
        "pod-deleted-stale",
        "several-pods",
        "several-pods-unhealthy-and-gone",
        "after-kubelet-restart",
        "plugin-dead-grace",
        "restarted-without-plugin",
    ],
)
async def test_answers_are_those_of_the_live_kubelet(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub, state: str
) -> None:
    await _start_recorded(node, state)
    listed = json.loads((_STATES / f"{state}.list.json").read_text())
    answer = await client.List(api_pb2.ListPodResourcesRequest(), wait_for_ready=True)
    assert _plain(answer) == _sorted(listed)
    for path in _STATES.glob(f"{state}.get-*.json"):
        name, expected = path.name.split(".get-")[1][: -len(".json")], json.loads(path.read_text())
        request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
        if "error" in expected:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.Get(request)
            assert {"code": caught.value.code().name, "details": caught.value.details()} == expected["error"]
        else:
            assert _plain(await client.Get(request)) == _sorted(expected)


async def test_allocatable_are_all_healthy_devices_in_use_or_not(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub
) -> None:
    kubelet = await node.kubelet()
    gpus = [device(f"gpu-{number}") for number in range(8)]
    nics = [device(f"nic-{number}", nodes=[number % 2]) for number in range(4)]
    plugin = await node.plugin(gpus, resource=_GPU)
    await node.plugin(nics, resource=_NIC, name="nic.sock")
    await kubelet.wait_for(_GPU, healthy=8)
    await kubelet.wait_for(_NIC, healthy=4)
    await kubelet.admit(pod("p1", 2, resource=_GPU))
    for state, count in (("several-pods", 8), ("several-pods-unhealthy-and-gone", 6), ("plugin-dead-grace", 0)):
        if count == 6:
            await plugin.update([*gpus[1:7], device("gpu-7", "Unhealthy")])
        elif count == 0:
            await plugin.stop()
        await kubelet.wait_for(_GPU, healthy=count)
        answer = await client.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
        expected = json.loads((_STATES / f"{state}.allocatable.json").read_text())
        assert _plain(answer)["devices"] == _sorted(expected)["devices"]


async def test_device_on_two_nodes_gives_two_entries_and_one_without_nodes_none(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub
) -> None:
    kubelet = await node.kubelet()
    await node.plugin([device("both", nodes=[0, 1]), device("empty", nodes=[]), device("plain")])
    await kubelet.wait_for(GPU, healthy=3)
    answer = await client.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
    seen = [
        (item.device_ids[0], [node.ID for node in item.topology.nodes], item.HasField("topology"))
        for item in answer.devices
    ]
    assert seen == [("both", [0], True), ("both", [1], True), ("plain", [], False)]
    await kubelet.admit(pod("p1", 3))
    listed = (await client.List(api_pb2.ListPodResourcesRequest())).pod_resources[0].containers[0].devices
    assert sorted(item.device_ids[0] for item in listed) == ["both", "both", "empty", "plain"]


async def test_topology_of_a_held_device_is_that_of_its_allocation(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub
) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin([device("d0", nodes=[0])])
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    await plugin.update([device("d0", nodes=[1]), device("d1", nodes=[1])])
    await kubelet.wait_for(GPU, healthy=2)
    held = (await client.List(api_pb2.ListPodResourcesRequest())).pod_resources[0].containers[0].devices[0]
    assert [node.ID for node in held.topology.nodes] == [0]


async def test_listing_drops_the_records_of_ended_pods_but_not_from_the_file(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub
) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.admit(pod("p1"))
    checkpoint = kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint"
    before = checkpoint.read_bytes()
    kubelet.terminate("p1")
    assert kubelet.allocated("p1", "c") == {GPU: {"d0": None}}
    await client.List(api_pb2.ListPodResourcesRequest())
    assert kubelet.allocated("p1", "c") == {}
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize(("generation", "ended"), [("1.24", {"refused": (), "p2": ()}), ("1.35", {})])
async def test_kubelets_of_1_24_list_ended_pods_until_they_are_deleted(
    node: KubeletNode,
    client: api_pb2_grpc.PodResourcesListerStub,
    generation: Generation,
    ended: Mapping[str, Sequence[str]],
) -> None:
    kubelet = await node.kubelet(generation=generation)
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    for name in ("p1", "p2", "refused"):
        await kubelet.admit(pod(name))

    async def listed() -> dict[str, tuple[str, ...]]:
        answer = await client.List(api_pb2.ListPodResourcesRequest(), wait_for_ready=True)
        return {
            each.name: tuple(id_ for entry in each.containers[0].devices for id_ in entry.device_ids)
            for each in answer.pod_resources
        }

    assert await listed() == {"p1": ("d0",), "p2": ("d1",), **{name: () for name in ended if name == "refused"}}
    kubelet.terminate("p2")
    assert await listed() == {"p1": ("d0",), **ended}
    await kubelet.restart()
    assert await listed() == {"p1": ("d0",), **ended}
    for uid in ("p2", "refused"):
        kubelet.delete(uid)
    await kubelet.end(pod("p1"))
    assert await listed() == {}


async def test_of_forty_calls_at_once_about_ten_pass(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub
) -> None:
    await node.kubelet()
    calls = [client.List(api_pb2.ListPodResourcesRequest()) for _ in range(40)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [item for item in results if isinstance(item, grpc.aio.AioRpcError)]
    # The bucket fills while the calls come in, by one every 10 ms.
    assert 10 <= len(results) - len(refused) < 40
    assert {(item.code(), item.details()) for item in refused} == {
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    }


@pytest.fixture
async def alpha_client(node: KubeletNode) -> AsyncIterator[alpha_grpc.PodResourcesListerStub]:
    address = f"unix:{node.root}/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield alpha_grpc.PodResourcesListerStub(channel)


async def test_v1alpha1_lists_app_containers_without_topology(
    node: KubeletNode, alpha_client: alpha_grpc.PodResourcesListerStub
) -> None:
    kubelet = await node.kubelet()
    await node.plugin([device("d0", nodes=[0, 1]), device("d1"), device("d2")])
    await kubelet.wait_for(GPU, healthy=3)
    containers = (Container("s", "sidecar", {GPU: 1}), Container("c", limits={GPU: 2}))
    assert (await kubelet.admit(Pod("p1", "p1", containers=containers))).admitted
    answer = await alpha_client.List(alpha.ListPodResourcesRequest())
    assert [(item.name, item.namespace) for item in answer.pod_resources] == [("p1", "default")]
    (shown,) = answer.pod_resources[0].containers
    assert (shown.name, [tuple(entry.device_ids) for entry in shown.devices]) == ("c", [("d1",), ("d2",)])


async def test_all_versions_and_methods_share_one_bucket(
    node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub, alpha_client: alpha_grpc.PodResourcesListerStub
) -> None:
    clock = ManualClock(0.0)
    await node.kubelet(clock=clock)
    for _ in range(5):
        await client.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), wait_for_ready=True)
        await alpha_client.List(alpha.ListPodResourcesRequest(), wait_for_ready=True)
    for call in (alpha_client.List(alpha.ListPodResourcesRequest()), client.List(api_pb2.ListPodResourcesRequest())):
        with pytest.raises(grpc.aio.AioRpcError, match="rejected by rate limit"):
            await call
    clock.now += 0.01
    await client.List(api_pb2.ListPodResourcesRequest())


async def test_kubelets_of_1_24_have_no_get(node: KubeletNode, client: api_pb2_grpc.PodResourcesListerStub) -> None:
    await node.kubelet(generation="1.24")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.Get(api_pb2.GetPodResourcesRequest(pod_name="p"), wait_for_ready=True)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "unknown method Get for service v1.PodResourcesLister"


def test_bucket_lets_ten_pass_at_once_and_a_hundred_a_second() -> None:
    now = 0.0
    bucket = TokenBucket(lambda: now)
    assert [bucket.allow() for _ in range(40)].count(True) == 10
    now = 0.05
    assert [bucket.allow() for _ in range(40)].count(True) == 5
    now = 100.0
    assert [bucket.allow() for _ in range(40)].count(True) == 10
