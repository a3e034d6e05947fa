"""Whatever records there are, the plugin gives every container enough free devices, and the records end true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from node.clocks import SystemClocks
from node.events import EventBus
from node.values import replace
from ostler.metrics.counters import PluginMetrics
from plugin.gpu_nic_pairing import RecentGrants
from plugin.listing import DeviceListing
from plugin.preferred import PlacementMap
from plugin.records import (
    PodRecord,
    RecordBook,
    RecordOutcome,
)
from plugin.servicer import DevicePluginServicer
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.plugin_door import render
from tests.making.records import ALL, GPU, book, numbered, record
from tests.making.virtual_time import play


class _Node:
    """A kubelet in miniature: it takes what the plugin prefers of what is free, and records it."""

    def __init__(self, records: RecordBook | None, count: int = 8) -> None:
        devices = numbered(count)
        listing = DeviceListing(GPU, EventBus())
        listing.update(tuple(devices.values()))
        self.servicer = DevicePluginServicer(
            listing, render, PluginMetrics(), RecentGrants(SystemClocks(monotonic=lambda: 0.0)), records=records
        )
        self.servicer.use(PlacementMap())
        self.free = list(devices)
        self.pods: dict[str, dict[str, frozenset[str]]] = {}

    def admit(self, uid: str, size: int) -> frozenset[str]:
        (answer,) = self.servicer._preferred(self.request(size)).container_responses
        return self.take(uid, size, answer)

    async def admit_late(self, uid: str, size: int, news: Callable[[], None]) -> None:
        """Ask before the agent hears the ``news`` of the pod."""
        asyncio.get_running_loop().call_later(0.1, news)
        (answer,) = (await self.servicer._advised(self.request(size))).container_responses
        self.take(uid, size, answer)

    def request(self, size: int) -> api_pb2.PreferredAllocationRequest:
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=self.free, allocation_size=size)
        return request

    def take(self, uid: str, size: int, answer: api_pb2.ContainerPreferredAllocationResponse) -> frozenset[str]:
        ids = frozenset(answer.deviceIDs)
        assert len(ids) == size == len(answer.deviceIDs)
        assert ids <= set(self.free)
        self.free = [id_ for id_ in self.free if id_ not in ids]
        self.pods[uid] = {GPU: ids}
        return ids


def test_a_pod_without_a_record_gets_what_nobody_is_promised_and_more_only_if_that_is_too_little() -> None:
    node = _Node(book(record("a", "g0", "g1")))
    assert node.admit("other", 1).isdisjoint({"g0", "g1"})
    assert len(node.admit("greedy", 7)) == 7, "a promise withholds nothing"


def test_a_promise_does_not_bring_up_an_unhealthy_device() -> None:
    records = book(record("a", "g0"))
    node = _Node(records, 2)
    listing = {"g0": numbered(2)["g0"], "g1": replace(numbered(2)["g1"], healthy=False, reason="lost")}
    node.servicer._listing.update(tuple(listing.values()))
    node.servicer.use(PlacementMap())
    records.replaced([record("b", "g0", sizes=[1], namespace="else")])
    records.settle({})
    assert node.servicer._recorded(records, _asking(["g0", "g1"], 1), ()) == ["g0"]


def _asking(available: list[str], size: int) -> api_pb2.ContainerPreferredAllocationRequest:
    return api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_pods_of_one_size_always_end_with_one_record_each_in_whatever_order_they_arrive(
    random: Random, late: bool
) -> None:
    """``late``: the kubelet's record is read once at the end, and not after every allocation."""
    size = random.choice([1, 2, 4])
    ids = random.sample(ALL, 8)
    pods = [record(f"p{n}", *ids[n * size : (n + 1) * size], bound=n) for n in range(8 // size)]
    records = book(*pods)
    node = _Node(records)
    recorded = {frozenset(pod.devices) for pod in pods}
    outcomes = []
    for pod in random.sample(pods, len(pods)):
        assert node.admit(pod.uid, size) in recorded
        outcomes += [] if late else records.settle(node.pods)
    outcomes += records.settle(node.pods)
    assert len(outcomes) == len(pods)
    assert RecordOutcome.OTHER not in {each.outcome for each in outcomes}
    assert {uid: records.recorded(GPU, next(p for p in pods if p.uid == uid)) for uid in node.pods} == {
        uid: given[GPU] for uid, given in node.pods.items()
    }


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_mixture_of_pods_gets_as_many_devices_as_it_asks_for_and_the_records_end_true(random: Random) -> None:
    pods = []
    for n in range(random.randrange(8)):
        size = random.choice([1, 1, 2, 3])
        devices = random.sample(ALL, size)
        pods.append(record(f"p{n}", *devices, sizes=[random.choice([size, size, 1])], bound=random.randrange(4)))
    records = book(*pods)
    node = _Node(records)
    asking = [(pod.uid, pod.sizes[GPU].total) for pod in pods] + [(f"x{n}", 1) for n in range(3)]
    for uid, size in random.sample(asking, len(asking)):
        if size <= len(node.free):
            node.admit(uid, size)
            if random.random() < 0.5:
                records.settle(node.pods)
    records.settle(node.pods)
    for pod in pods:
        if pod.uid in node.pods and records.recorded(GPU, pod):
            assert records.recorded(GPU, pod) == node.pods[pod.uid][GPU]


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_pods_that_arrive_in_the_order_in_which_they_were_bound_have_their_own_records(random: Random) -> None:
    ids = random.sample(ALL, 8)
    pods: list[PodRecord] = []
    while ids:
        size = min(random.choice([1, 2, 4]), len(ids))
        pods.append(record(f"p{len(pods)}", *ids[:size], bound=len(pods)))
        ids = ids[size:]
    node = _Node(book(*pods))
    for pod in pods:
        assert node.admit(pod.uid, len(pod.devices)) == frozenset(pod.devices)


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_pod_gets_what_is_recorded_for_it_however_late_the_agent_hears_of_it(random: Random) -> None:
    """Pods with and without records, in any order, each known before or after the kubelet asks for it."""
    ids = random.sample(ALL, 8)
    pods: list[PodRecord] = []
    while ids:
        size = min(random.choice([1, 1, 2, 4]), len(ids))
        taken, ids = ids[:size], ids[size:]
        recorded = taken if random.random() < 0.7 else []
        pods.append(record(f"p{len(pods)}", *recorded, sizes=[size], is_asking=True))

    async def scenario() -> None:
        records = book()
        node = _Node(records)
        early = random.randrange(len(pods) + 1)
        for pod in pods[:early]:
            records.applied(pod)
        for number, pod in enumerate(pods):
            size = pod.sizes[GPU].total
            is_free = set(pod.devices) <= set(node.free)
            await node.admit_late(pod.uid, size, partial(records.applied, pod if number >= early else pods[0]))
            if pod.devices and is_free:
                assert node.pods[pod.uid][GPU] == frozenset(pod.devices)
            if random.random() < 0.5:
                records.settle(node.pods)

    play(scenario())
