"""The kubelet's calls over a real socket: answers, and refusals that name the ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.clocks import SystemClocks
from node.endpoint import Endpoint
from node.events import EventBus
from node.offer import OfferedDevice
from node.sharing import Sharing
from ostler.metrics.counters import PluginMetrics
from plugin.admission import AdmitAll
from plugin.gpu_nic_pairing import RecentGrants
from plugin.listing import DeviceListing
from plugin.preferred import PlacementMap
from plugin.servicer import DevicePluginServicer
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from tests.making.plugin_door import offered, render
from tests.waiting import eventually

RESOURCE = "nvidia.com/gpu"
Stub = api_pb2_grpc.DevicePluginStub


class _Served:
    """A served resource with three devices, one of them sick."""

    def __init__(self, directory: Path) -> None:
        self.metrics = PluginMetrics()
        self.listing = DeviceListing(RESOURCE, EventBus())
        self.listing.update((offered("a", 0), offered("b", 1), offered("sick", 0, healthy=False, reason="lost")))
        self.servicer = DevicePluginServicer(
            self.listing, render, self.metrics, RecentGrants(SystemClocks(monotonic=lambda: 0.0))
        )
        self.endpoint = Endpoint(
            directory,
            "p.sock",
            ["v1beta1.DevicePlugin"],
            lambda server: api_pb2_grpc.add_DevicePluginServicer_to_server(self.servicer, server),
        )


@pytest.fixture
async def served(short_dir: Path) -> AsyncIterator[_Served]:
    made = _Served(short_dir)
    await made.endpoint.start()
    yield made
    await made.endpoint.stop()


@pytest.fixture
async def stub(served: _Served) -> AsyncIterator[Stub]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{served.endpoint.path}", options=options) as channel:
        yield Stub(channel)


async def allocate(stub: Stub, *containers: Sequence[str]) -> list[str]:
    request = api_pb2.AllocateRequest(
        container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    )
    response = await stub.Allocate(request, timeout=60)
    return [container.envs["IDS"] for container in response.container_responses]


async def refusal(stub: Stub, *ids: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await allocate(stub, ids)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(refused.value.details())


async def test_each_container_gets_its_answer_in_the_order_of_the_request(stub: Stub) -> None:
    assert await allocate(stub, ["b", "a"]) == ["b,a"]
    assert await allocate(stub, ["b"], ["a"]) == ["b", "a"]


async def test_unknown_ids_are_refused_with_their_names(stub: Stub) -> None:
    assert await refusal(stub, "a", "x", "y", "x") == (
        "nvidia.com/gpu: unknown device ids x, y; device ids named more than once x"
    )


async def test_a_refusal_of_thousands_of_ids_still_fits_into_a_status(stub: Stub) -> None:
    refused = await refusal(stub, *(f"GPU-c0346a21-b478-eadd-3803-696611e0c6ca::{number}" for number in range(2000)))
    assert refused.endswith("::9 and 1990 more")


async def test_duplicated_ids_are_refused(stub: Stub) -> None:
    assert await refusal(stub, "a", "a") == "nvidia.com/gpu: device ids named more than once a"


async def test_ids_of_two_containers_are_refused(stub: Stub) -> None:
    request = api_pb2.AllocateRequest()
    for _ in range(2):
        request.container_requests.add(devices_ids=["a"])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Allocate(request)
    assert refused.value.details() == "nvidia.com/gpu: device ids named more than once a"


async def test_unhealthy_ids_are_refused_with_the_reason(stub: Stub) -> None:
    assert await refusal(stub, "sick", "a") == "nvidia.com/gpu: unhealthy devices sick (lost)"


async def test_a_request_without_devices_is_refused(stub: Stub) -> None:
    assert await refusal(stub) == "nvidia.com/gpu: the request names no device"


async def test_a_bug_in_rendering_is_told_to_the_kubelet_and_the_next_call_is_served(
    served: _Served, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(devices: Sequence[OfferedDevice]) -> api_pb2.ContainerAllocateResponse:
        raise KeyError("no such thing")

    served.servicer.answer_with(broken)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await allocate(stub, ["a"])
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert refused.value.details() == "nvidia.com/gpu: Allocate failed: KeyError('no such thing')"
    assert "call failed" in caplog.text
    served.servicer.answer_with(render)
    assert await allocate(stub, ["a"]) == ["a"]


async def test_options_announce_preferred_allocation_and_no_pre_start(stub: Stub) -> None:
    options = await stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=60)
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required


async def test_pre_start_may_be_called_again_and_again(stub: Stub) -> None:
    for _ in range(3):
        await stub.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=["a", "unknown"]), timeout=60)


async def test_preferred_allocation_answers_each_container(stub: Stub) -> None:
    wanted = api_pb2.ContainerPreferredAllocationRequest(
        available_deviceIDs=["b", "a", "sick"], must_include_deviceIDs=[], allocation_size=1
    )
    response = await stub.GetPreferredAllocation(
        api_pb2.PreferredAllocationRequest(container_requests=[wanted, wanted]), timeout=60
    )
    assert [list(container.deviceIDs) for container in response.container_responses] == [["a"], ["a"]]


async def test_calls_are_counted_by_method_and_code(served: _Served, stub: Stub) -> None:
    await allocate(stub, ["a"])
    await refusal(stub, "x")
    assert served.metrics.calls.counts == {
        (RESOURCE, "Allocate", "OK"): 1,
        (RESOURCE, "Allocate", "INVALID_ARGUMENT"): 1,
    }
    assert sum(served.metrics.latencies.series[RESOURCE, "Allocate"].counts) == 2


async def test_a_change_reaches_an_open_stream(served: _Served, stub: Stub) -> None:
    stream = stub.ListAndWatch(api_pb2.Empty())
    first = await stream.read()
    assert [device.ID for device in first.devices] == ["a", "b", "sick"]
    served.listing.update((offered("a", 0, healthy=False),))
    second = await stream.read()
    assert [(device.ID, device.health) for device in second.devices] == [("a", "Unhealthy")]
    stream.cancel()


class NeverCertain(AdmitAll):
    """Has every Allocate wait for ever."""

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None]:  # type: ignore[override]
        return self._wait()

    async def _wait(self) -> None:
        await asyncio.Event().wait()


async def test_a_call_that_the_kubelet_gives_up_while_it_waits_is_not_counted_as_answered(
    served: _Served, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[str] = []
    monkeypatch.setattr(served.metrics, "called", lambda *call: codes.append(call[2]))
    monkeypatch.setattr(served.servicer, "_admission", NeverCertain())
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=["a"])])
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Allocate(request, timeout=0.2)
    await eventually(lambda: codes, "the call has ended here, too")
    assert codes == ["CANCELLED"]


class _Listing(AdmitAll):
    """Has the choice of shares wait until the list says what pods have."""

    def __init__(self) -> None:
        self.is_listed = asyncio.Event()
        self.waiting = asyncio.Event()

    def unlisted(self) -> Awaitable[None] | None:  # type: ignore[override]
        return None if self.is_listed.is_set() else self._wait()

    async def _wait(self) -> None:
        self.waiting.set()
        await self.is_listed.wait()


async def test_shares_are_chosen_by_the_list_that_is_waited_for(
    served: _Served, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = _Listing()
    monkeypatch.setattr(served.servicer, "_admission", listing)
    wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=["a", "b"], allocation_size=1)
    request = api_pb2.PreferredAllocationRequest(container_requests=[wanted])
    answer = await stub.GetPreferredAllocation(request)
    assert list(answer.container_responses[0].deviceIDs) == ["a"], "devices that are not shared are chosen at once"
    served.servicer.use(PlacementMap(), Sharing(replicas=2))
    call = stub.GetPreferredAllocation(request)
    await listing.waiting.wait()
    served.listing.update((offered("a", 0, healthy=False), offered("b", 1)))
    served.servicer.use(PlacementMap(), Sharing(replicas=2))
    listing.is_listed.set()
    answer = await call
    assert list(answer.container_responses[0].deviceIDs) == ["b"]
