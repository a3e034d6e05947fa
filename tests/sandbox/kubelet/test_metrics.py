"""The embedded kubelet's metrics, under a kubelet's names."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.metrics import KubeletMetrics
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, devices, register


def _samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values -> number, without buckets."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


async def _used(node: KubeletNode) -> Kubelet:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2), script=PluginScript())
    await kubelet.wait_for(GPU, healthy=2)
    assert await register(kubelet.settings.device_plugin_dir, "gpu", "p.sock") != ""
    assert (await kubelet.admit(pod("p1"))).admitted
    plugin.script.allocate = "error"
    assert not (await kubelet.admit(pod("p2"))).admitted
    return kubelet


async def test_registrations_allocations_and_admissions_are_counted_failed_ones_included(node: KubeletNode) -> None:
    kubelet = await _used(node)
    samples = _samples(kubelet.metrics())
    assert samples["kubelet_device_plugin_registration_total", GPU] == 1
    assert samples["kubelet_device_plugin_registration_total", "gpu"] == 1
    assert samples["kubelet_device_plugin_alloc_duration_seconds_count", GPU] == 2
    assert 0 < samples["kubelet_device_plugin_alloc_duration_seconds_sum", GPU] < 60
    assert samples["kubelet_topology_manager_admission_requests_total",] == 2
    assert samples["kubelet_topology_manager_admission_errors_total",] == 1
    assert samples["kubelet_topology_manager_admission_duration_ms_count",] == 2


async def test_calls_to_podresources_are_counted_by_version_and_method(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    address = f"unix:{node.root}/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        client = api_pb2_grpc.PodResourcesListerStub(channel)
        await client.List(api_pb2.ListPodResourcesRequest())
        await client.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
        with pytest.raises(grpc.aio.AioRpcError):
            await client.Get(api_pb2.GetPodResourcesRequest(pod_name="none"))
    samples = _samples(kubelet.metrics())
    prefix = "kubelet_pod_resources_endpoint"
    assert samples[f"{prefix}_requests_total", "v1"] == 3
    for name in ("requests_list", "requests_get", "requests_get_allocatable", "errors_get"):
        assert f'{prefix}_{name}{{server_api_version="v1"}} 1' in kubelet.metrics().splitlines()


def test_buckets_add_up_and_labels_are_escaped() -> None:
    metrics = KubeletMetrics()
    metrics.allocations.observe(0.03, 'a"b\\c\nd')
    metrics.allocations.observe(20.0, 'a"b\\c\nd')
    lines = metrics.text().splitlines()
    label = 'resource_name="a\\"b\\\\c\\nd"'
    name = "kubelet_device_plugin_alloc_duration_seconds"
    assert f'{name}_bucket{{{label},le="0.025"}} 0' in lines
    assert f'{name}_bucket{{{label},le="0.05"}} 1' in lines
    assert f'{name}_bucket{{{label},le="+Inf"}} 2' in lines
    assert f"{name}_count{{{label}}} 2" in lines
