"""What holds of allocation whatever plugins list, prefer and answer, and whatever pods come and go. No sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.allocation import DeviceAllocator
from sandbox.kubelet.devices import HEALTHY, DeviceSet, PluginDevice, in_order, random_order
from sandbox.kubelet.errors import KubeletError, PluginError
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import AllocationRecord, ContainerResource, PodDevices
from sandbox.kubelet.pods import Container, Kind, Pod
from sandbox.kubelet.topology import TopologyHint
from tests.sandbox.kubelet.conftest import GPU, NIC

IDS = [f"d{number}" for number in range(6)]
Snapshot = dict[ContainerResource, frozenset[str]]


class ToldEndpoint(PluginEndpoint):
    """A plugin that prefers ``ids`` and answers Allocate as ``answer`` says; every call lets others run."""

    def __init__(self, resource: str, ids: Sequence[str], answer: str) -> None:
        super().__init__(resource, f"/{resource}")
        self.options = api_pb2.DevicePluginOptions(get_preferred_allocation_available=True)
        self._ids = ids
        self._answer = answer

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
        await asyncio.sleep(0)
        if self._answer == "no preference":
            raise PluginError(grpc.StatusCode.UNKNOWN, "no preference today")
        assert set(must_include) <= set(available)
        assert size > len(must_include)
        return tuple(self._ids)

    async def allocate(self, ids: Sequence[str]) -> api_pb2.AllocateResponse:
        await asyncio.sleep(0)
        if self._answer == "error":
            raise PluginError(grpc.StatusCode.UNKNOWN, "cannot allocate today")
        answers = [] if self._answer == "empty" else [api_pb2.ContainerAllocateResponse()]
        return api_pb2.AllocateResponse(container_responses=answers)


class BareNode:
    """The node as far as allocation needs it, without a checkpoint."""

    def __init__(self) -> None:
        self.records = PodDevices()
        self.devices: dict[str, DeviceSet] = {}
        self.endpoints: dict[str, PluginEndpoint] = {}
        self.active: set[str] = set()

    def device_set(self, resource: str) -> DeviceSet | None:
        return self.devices.get(resource)

    def endpoint(self, resource: str) -> PluginEndpoint | None:
        return self.endpoints.get(resource)

    def runs_since_start(self, pod_uid: str, container: str) -> bool:
        return False

    def collect_garbage(self) -> None:
        self.records.drop_all_but(self.active)

    def write_checkpoint(self) -> None:
        assert not any(self.records._reserved.get(holder) for holder in self.records._committed)

    def held(self) -> Snapshot:
        return {holder: record.ids for holder, record in self.records._committed.items()}


@dataclass(frozen=True)
class _Listing:
    """A ListAndWatch message, and how the plugin answers from then on."""

    resource: str
    devices: tuple[PluginDevice, ...]
    preference: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Arrival:
    """Pods that are admitted side by side."""

    pods: tuple[Pod, ...]
    affinity: TopologyHint


@dataclass(frozen=True)
class Departure:
    """Pods that end, by their place among the active ones."""

    places: tuple[int, ...] = field(default=())


_HINTS = st.builds(TopologyHint, st.none() | st.frozensets(st.integers(0, 2), min_size=1, max_size=2))
_NODES = st.none() | st.lists(st.integers(0, 2), max_size=2, unique=True).map(tuple)
_DEVICES = st.lists(
    st.builds(PluginDevice, st.sampled_from(IDS), st.sampled_from([HEALTHY, HEALTHY, HEALTHY, "Sick"]), _NODES),
    max_size=7,
).map(tuple)
_LISTINGS = st.builds(
    _Listing,
    st.sampled_from([GPU, NIC]),
    _DEVICES,
    st.lists(st.sampled_from([*IDS, "bogus"]), max_size=6).map(tuple),
    st.sampled_from(["ok", "ok", "ok", "error", "empty", "no preference"]),
)
_KINDS: list[Kind] = ["init", "sidecar", "app", "app"]
_LIMITS = st.dictionaries(st.sampled_from([GPU, NIC, "x.example/none"]), st.integers(0, 3), max_size=2)
_CONTAINERS = st.lists(st.tuples(st.sampled_from(_KINDS), _LIMITS), min_size=1, max_size=4)
_ARRIVALS = st.builds(
    lambda plans, hint: Arrival(
        tuple(
            Pod("", "", containers=tuple(Container(f"c{place}", *each) for place, each in enumerate(plan)))
            for plan in plans
        ),
        hint,
    ),
    st.lists(_CONTAINERS, min_size=1, max_size=3),
    _HINTS,
)
_STEPS = st.lists(
    st.one_of(_ARRIVALS, _LISTINGS, st.builds(Departure, st.lists(st.integers(0, 5), max_size=2).map(tuple))),
    min_size=2,
    max_size=8,
)
_SEEDS = st.none() | st.integers(0, 3)


async def _run(steps: Iterable[Arrival | _Listing | Departure], seed: int | None) -> None:
    node = BareNode()
    ids = in_order if seed is None else random_order(seed)
    allocator = DeviceAllocator(node, node.records, ids=ids, order=sorted if seed is None else ids)
    pods: dict[str, Pod] = {}
    for number, step in enumerate(steps):
        if isinstance(step, _Listing):
            node.devices[step.resource] = DeviceSet(
                {device.id: device for device in step.devices},
                frozenset(device.id for device in step.devices if device.healthy),
                frozenset(device.id for device in step.devices if not device.healthy),
            )
            node.endpoints[step.resource] = ToldEndpoint(step.resource, step.preference, step.answer)
        elif isinstance(step, Departure):
            for place in step.places:
                if place < len(pods):
                    node.active.discard(sorted(pods)[place])
        else:
            arriving = [Pod(f"p{number}-{place}", "", "", pod.containers) for place, pod in enumerate(step.pods)]
            pods.update((pod.uid, pod) for pod in arriving)
            node.active.update(pod.uid for pod in arriving)
            await asyncio.gather(*(_admit(node, allocator, pod, step.affinity) for pod in arriving))
        _check(node, pods)


async def _admit(node: BareNode, allocator: DeviceAllocator, pod: Pod, affinity: TopologyHint) -> None:
    for container in pod.in_start_order():
        try:
            await allocator.allocate(pod, container, affinity)
        except KubeletError:
            node.active.discard(pod.uid)
            return
        for resource, quantity in container.limits.items():
            if node.devices.get(resource) is None:
                continue
            record = node.records.get(ContainerResource(pod.uid, container.name, resource))
            assert len(record.ids if record is not None else ()) == quantity
            assert record is None or record.ids <= node.devices[resource].healthy


def _check(node: BareNode, pods: dict[str, Pod]) -> None:
    """No reservation is left, what is taken is what is recorded, and no id has two owners."""
    held = node.held()
    assert node.records._reserved == {}
    for resource in (GPU, NIC):
        recorded = frozenset().union(*(ids for holder, ids in held.items() if holder.resource == resource))
        assert node.records.taken(resource) == recorded
        owners: Counter[str] = Counter()
        for uid, pod in pods.items():
            own = {name: held.get(ContainerResource(uid, name, resource), frozenset()) for name in _names(pod)}
            owners.update(frozenset().union(*own.values()))
            lasting = Counter(id_ for each in pod.containers if each.kind != "init" for id_ in own[each.name])
            assert all(count == 1 for count in lasting.values()), "sidecars and apps share nothing"
        assert all(count == 1 for count in owners.values()), "no id of two pods"


def _names(pod: Pod) -> list[str]:
    return [container.name for container in pod.containers]


@settings(max_examples=25)
@given(_STEPS, _SEEDS)
def test_no_device_is_given_twice_and_no_error_keeps_any(
    steps: list[Arrival | _Listing | Departure], seed: int | None
) -> None:
    asyncio.run(_run(steps, seed))


_HOLDERS = st.builds(
    ContainerResource, st.sampled_from(["p1", "p2"]), st.sampled_from(["a", "b"]), st.sampled_from([GPU, NIC])
)


def _record(ids: Iterable[str]) -> AllocationRecord:
    return AllocationRecord({-1: tuple(ids)}, api_pb2.ContainerAllocateResponse())


def _state(records: PodDevices) -> tuple[object, ...]:
    return records.entries(), records.taken(GPU), records.taken(NIC), records.resources(), records.pods()


@given(st.dictionaries(_HOLDERS, st.frozensets(st.sampled_from(IDS), min_size=1), max_size=3), _HOLDERS, st.data())
def test_a_reservation_is_what_commit_and_roll_back_make_of_it(
    before: Snapshot, holder: ContainerResource, data: st.DataObject
) -> None:
    records = PodDevices()
    for other, ids in before.items():
        records.reserve(other)
        records.commit(other, _record(ids))
    start = _state(records)
    chosen = data.draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True))
    records.reserve(holder)
    for device_id in chosen:
        records.take(holder, (device_id,))
    assert records.taken(holder.resource) == {*chosen, *_ids(before, holder.resource)}
    assert records.entries() == start[0], "a reservation is in no checkpoint"
    assert records.pods() == start[4]
    records.drop_all_but({"p1", "p2"})
    records.release(holder)
    assert _state(records) == start, "rolled back: as if nothing had been"
    records.reserve(holder)
    records.take(holder, chosen)
    records.commit(holder, _record(chosen))
    assert records.taken(holder.resource) == {
        *chosen,
        *_ids({key: ids for key, ids in before.items() if key != holder}, holder.resource),
    }
    records.release(holder)
    record = records.get(holder)
    assert record is not None
    assert record.ids == set(chosen), "committed: no roll-back takes it away"


def _ids(held: Snapshot, resource: str) -> set[str]:
    return {device_id for holder, ids in held.items() if holder.resource == resource for device_id in ids}


def test_a_seed_gives_the_same_random_order_again() -> None:
    first, again, other = (random_order(seed) for seed in (1, 1, 2))
    orders = [first(IDS) for _ in range(5)]
    assert orders == [again(IDS) for _ in range(5)]
    assert orders != [other(IDS) for _ in range(5)]
    assert all(sorted(order) == sorted(IDS) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
