"""What an admission ends with beside devices: the words of refusals, the check against the Node's status, conflicts."""

from __future__ import annotations

from functools import partial

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.events import RunOptionsConflict
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, NodeCapacity, Pod
from sandbox.kubelet.reported_resources import OutOfResourceError, ReportedResources, check_fit
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import devices


async def _forgotten(node: KubeletNode, *, report: bool) -> Kubelet:
    """A kubelet that has forgotten the resource; with ``report`` its Node still names it."""
    clock = ManualClock(0.0)
    kubelet = await node.kubelet(clock=clock)
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    if report:
        assert kubelet.report_node_status() == ReportedResources({GPU: 2}, {GPU: 2})
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    clock.now += 301
    if report:
        assert kubelet.report_node_status() == ReportedResources({GPU: 0}, {GPU: 0})
    else:
        assert kubelet.capacity().deleted == (GPU,)
    return kubelet


async def test_pod_is_refused_for_a_resource_that_only_its_node_still_names(node: KubeletNode) -> None:
    kubelet = await _forgotten(node, report=True)
    verdict = await kubelet.admit(pod("p1", 2))
    assert (verdict.admitted, verdict.container, verdict.reason) == (False, "", f"OutOf{GPU}")
    assert verdict.message == f"Node didn't have enough resource: {GPU}, requested: 2, used: 0, capacity: 0"
    assert verdict.status_message == f"Pod was rejected: {verdict.message}"
    assert kubelet.pods() == ()


async def test_pod_runs_without_devices_of_a_resource_that_nobody_names(node: KubeletNode) -> None:
    kubelet = await _forgotten(node, report=False)
    verdict = await kubelet.admit(pod("p1", 2))
    assert (verdict.admitted, verdict.devices, verdict.status_message) == (True, {}, "")


async def test_device_manager_refuses_before_the_nodes_status_does(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    kubelet.report_node_status()
    assert (await kubelet.admit(pod("p1"))).admitted
    verdict = await kubelet.admit(pod("p2"))
    assert verdict.reason == "UnexpectedAdmissionError"
    await plugin.update(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p3"))).admitted, "what was allocated raises an old allocatable"


def test_node_keeps_the_names_of_forgotten_resources() -> None:
    status = ReportedResources({}, {})
    status.report(NodeCapacity({GPU: 2, NIC: 3}, {GPU: 1, NIC: 3}))
    status.report(NodeCapacity({NIC: 2}, {NIC: 2}, (GPU,)))
    assert (status.capacity, status.allocatable) == ({GPU: 0, NIC: 2}, {GPU: 0, NIC: 2})
    status.reset()
    assert status.allocatable == {GPU: 0, NIC: 0}


async def test_node_that_comes_back_with_an_empty_folder_has_nothing_of_what_it_reported(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    kubelet.report_node_status()
    await kubelet.restart()
    assert kubelet.report_node_status().allocatable == {GPU: 0}, "the resource is known, its plugin is not there"
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert kubelet.report_node_status().allocatable == {GPU: 2}
    await kubelet.stop()
    for path in kubelet.settings.device_plugin_dir.iterdir():
        path.unlink()
    await kubelet.start()
    assert kubelet.report_node_status() == ReportedResources({GPU: 0}, {GPU: 0})
    assert (await kubelet.admit(pod("p1"))).reason == f"OutOf{GPU}"


@pytest.mark.parametrize(("skip_claimed", "fits"), [(True, True), (False, False)])
def test_claimed_resources_need_nothing_of_the_node_where_claims_serve_them(skip_claimed: bool, fits: bool) -> None:
    claimed = Pod("p", "p", containers=pod("p").containers, claim_backed=frozenset({("c", GPU)}))
    if fits:
        check_fit(claimed, (), {GPU: 0}, skip_claimed=skip_claimed)
    else:
        with pytest.raises(OutOfResourceError):
            check_fit(claimed, (), {GPU: 0}, skip_claimed=skip_claimed)


def test_fit_counts_the_pods_that_are_there() -> None:
    others = [pod("a", 2), pod("b", 1), pod("c", 5, resource=NIC)]
    check_fit(pod("p", 1), others, {GPU: 4}, skip_claimed=True)
    with pytest.raises(OutOfResourceError, match=r"a\.example/gpu, requested: 2, used: 3, capacity: 4"):
        check_fit(pod("p", 2), others, {GPU: 4}, skip_claimed=True)
    check_fit(pod("p", 0), others, {GPU: 0}, skip_claimed=True)


def _reply(answer: api_pb2.AllocateResponse, *_: object) -> api_pb2.AllocateResponse:
    return answer


async def test_conflicts_of_two_plugins_are_events_and_fail_nothing(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    workload = Pod("p", "p", containers=(Container("c", limits={GPU: 1, NIC: 1}),))
    stubs = []
    for number, (resource, permissions) in enumerate(((GPU, "r"), (NIC, "rw"))):
        stub = PluginStub([listed("d0")], kubelet.settings.device_plugin_dir / f"{number}.sock", resource)
        answer = api_pb2.ContainerAllocateResponse(
            envs={"WHO": resource},
            devices=[api_pb2.DeviceSpec(host_path="/dev/h", container_path="/dev/c", permissions=permissions)],
        )
        stub.set_alloc_func(partial(_reply, api_pb2.AllocateResponse(container_responses=[answer])))
        await stub.start()
        await stub.register(kubelet.manager.socket)
        await kubelet.wait_for(resource, healthy=1)
        stubs.append(stub)
    assert (await kubelet.admit(workload)).admitted
    options = await kubelet.run_options(workload, "c")
    assert options is not None
    assert options.envs == {"WHO": GPU}
    assert [(each.artefact, each.is_logged) for each in options.conflicts] == [("env", True), ("device", False)]
    stream.close()
    told = [event async for event in stream if isinstance(event, RunOptionsConflict)]
    assert [event.conflict for event in told] == list(options.conflicts)
    assert str(told[0].conflict) == f"env 'WHO': '{GPU}' kept, '{NIC}' of {NIC} dropped"
    for stub in stubs:
        await stub.stop()


async def test_seed_chooses_other_devices_and_the_same_ones_again(node: KubeletNode) -> None:
    given = []
    for seed in (1, 1, 2, None):
        kubelet = await node.kubelet(seed=seed)
        plugin = await node.plugin(devices("d", 20))
        await kubelet.wait_for(GPU, healthy=20)
        given.append((await kubelet.admit(pod("p", 4))).devices["c"][GPU])
        await kubelet.stop()
        await plugin.stop()
        (kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint").unlink()
    assert given[0] == given[1] != given[2]
    assert given[3] == ("d0", "d1", "d2", "d3")
