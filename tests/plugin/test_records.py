"""Which devices a container gets by the records of schedulers: the protocol, and what holds for any records."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from node.values import replace
from plugin.preferred import PlacementMap
from plugin.record_choice import ContainerSizes, PendingRecord, RecordedChoice, choose
from plugin.records import MOST_PODS, PATIENCE, PAUSE, Arrivals, PodRecord, RecordBook, RecordOutcome
from tests.making.places import even
from tests.making.records import ALL, GPU, book, numbered, record
from tests.making.virtual_time import now, play


def chosen(records: RecordBook, available: list[str], size: int, required: list[str] | None = None) -> list[str]:
    return sorted(records.choose(GPU, available, required or [], size).devices)


def test_a_pod_gets_its_recorded_devices_by_ids_and_by_numbers() -> None:
    assert chosen(book(record("a", "g5", "g2")), ALL, 2) == ["g2", "g5"]
    assert chosen(book(record("a", indices=[5, 2])), ALL, 2) == ["g2", "g5"]
    assert chosen(book(record("a", "g1", "g3", indices=[5, 2])), ALL, 2) == ["g1", "g3"], "ids count before numbers"


def test_of_several_pods_the_one_that_was_bound_first_comes_first() -> None:
    late, early = record("a", "g0", "g1", bound=9), record("b", "g2", "g3", bound=1)
    assert chosen(book(late, early), ALL, 2) == ["g2", "g3"]
    same = replace(record("c", "g4", "g5", bound=1), created="2025-12-31T00:00:00Z")
    assert chosen(book(late, early, same), ALL, 2) == ["g4", "g5"], "bound at the same time, and created before"


def test_pods_that_are_reported_one_by_one_are_asked_for_in_that_order() -> None:
    """Times have whole seconds; the kubelet hears of pods in the order in which the agent does."""
    records = book(record("known", "g0", "g1", bound=5))
    for name, devices in (("z", ("g2", "g3")), ("a", ("g4", "g5"))):
        records.applied(record(name, *devices, bound=1))
    assert [each.pod for each in records.pending(GPU)] == ["uid-known", "uid-z", "uid-a"]
    records.applied(record("z", "g6", "g7", bound=1))
    assert chosen(records, ["g2", *ALL[4:]], 2) == ["g6", "g7"], "a changed pod keeps its place"


def test_a_pod_without_a_record_that_is_before_another_gets_nothing_of_it() -> None:
    records = book(record("plain", sizes=[2], bound=1, is_asking=True), record("a", "g0", "g1", bound=2))
    first, second, third = (records.choose(GPU, ALL, [], 2) for _ in range(3))
    assert first == RecordedChoice("uid-plain", promised=frozenset({"g0", "g1"}))
    assert second == third == RecordedChoice("uid-a", frozenset({"g0", "g1"}))
    assert records.settle({"uid-plain": {GPU: frozenset({"g6", "g7"})}}) == [], "nothing was recorded for it"
    records.deleted("uid-plain")
    assert not records.knows(GPU, ALL, [], 1)


def test_a_pod_whose_devices_others_have_gets_any_and_nothing_of_the_next_pod() -> None:
    records = book(record("a", "g0", "g1", bound=1, is_asking=True), record("b", "g2", "g3", bound=2))
    free = ALL[1:]
    assert records.choose(GPU, free, [], 2) == RecordedChoice("uid-a", promised=frozenset({"g2", "g3"}))
    assert chosen(records, free, 2) == ["g2", "g3"]


def test_the_containers_of_a_pod_without_a_record_ask_one_after_the_other() -> None:
    records = book(record("plain", sizes=[2, 1], before=[1], is_asking=True), record("a", "g0", bound=9))
    assert records.choose(GPU, ALL, [], 1).pod == "uid-plain", "its init container"
    assert records.choose(GPU, ALL, ["g7"], 2).pod == "uid-plain", "the kubelet requires what that has had"
    assert records.choose(GPU, ALL, [], 1).pod == "uid-plain"
    assert records.choose(GPU, ALL, [], 1).pod == "uid-a"


def test_a_pod_asks_for_each_of_its_resources() -> None:
    pod = replace(record("a", "g0"), sizes={GPU: ContainerSizes((1,)), "nic": ContainerSizes((1,))}, is_asking=True)
    records = book(pod)
    records.offered("nic", {}, PlacementMap())
    assert [each.outcome for each in records.settle({"uid-a": {GPU: frozenset({"g0"})}})] == [RecordOutcome.HONOURED]
    assert not records.knows(GPU, ALL, [], 1)
    assert records.knows("nic", ["n0"], [], 1)
    assert records.settle({"uid-a": {GPU: frozenset({"g0"}), "nic": frozenset({"n0"})}}) == []
    assert not records.knows("nic", ["n0"], [], 1)


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        (ALL, [], 1),
        (ALL, [], 3),
        (["g1", "g2", "g3"], [], 2),
        (ALL, ["g7"], 2),
        (ALL, [], 0),
        ([], [], 2),
    ],
    ids=["smaller", "larger", "not-free", "another-is-required", "none", "nothing-free"],
)
def test_a_pod_that_cannot_be_asking_is_no_candidate(available: list[str], required: list[str], size: int) -> None:
    assert chosen(book(record("a", "g0", "g1")), available, size, required) == []


def test_devices_of_other_pods_are_promised_as_far_as_they_are_free() -> None:
    records = book(record("a", "g0", "g1"), record("b", "g4"))
    assert records.choose(GPU, ["g1", "g2", "g4"], ["g4"], 3).promised == {"g1"}


@pytest.mark.parametrize(
    "ignored",
    [
        record("a", "g0", "g1", sizes=[1]),
        record("a", "g0", sizes=[2]),
        record("a", "g0", "g99"),
        record("a", indices=[0, 99]),
        replace(record("a", "g0"), sizes={"amd.com/gpu": ContainerSizes((1,))}),
    ],
    ids=["more-than-asked", "fewer-than-asked", "unknown-id", "unknown-number", "another-resource"],
)
def test_a_record_that_does_not_fit_its_pod_counts_for_nothing(ignored: PodRecord) -> None:
    records = book(ignored)
    assert records.pending(GPU) == ()
    assert records.choose(GPU, ALL, [], 1).promised == frozenset()


def test_shares_of_devices_are_not_recorded() -> None:
    records = RecordBook()
    shares = {f"g0::{n}": replace(numbered(1)["g0"], id=f"g0::{n}", share=str(n)) for n in range(2)}
    records.offered(GPU, shares, PlacementMap())
    records.replaced([record("a", indices=[0]), record("b", "g0::1")])
    assert records.pending(GPU) == ()


def test_the_containers_of_a_pod_get_parts_of_its_record() -> None:
    records = book(record("a", "g0", "g1", "g2", sizes=[2, 1]))
    assert chosen(records, ALL, 2) == ["g0", "g1", "g2"]
    assert chosen(records, ["g2", *ALL[3:]], 1) == ["g2"], "the other container has two of them"
    assert chosen(records, ["g1", "g2", *ALL[3:]], 1) == [], "somebody else has one of them"


def test_an_init_container_passes_its_devices_on() -> None:
    records = book(record("a", "g0", "g1", sizes=[2], before=[1]))
    assert chosen(records, ALL, 1) == ["g0", "g1"]
    assert chosen(records, [*ALL[1:]], 2, ["g0"]) == ["g0", "g1"], "the kubelet requires what the init container had"


def test_pods_that_have_each_others_devices_swap_their_records() -> None:
    first, second = record("a", "g0", "g1", bound=1), record("b", "g2", "g3", bound=2)
    records = book(first, second)
    (settled,) = records.settle({second.uid: {GPU: frozenset({"g0", "g1"})}})
    assert (settled.outcome, settled.pod, settled.partner) == (RecordOutcome.SWAPPED, second, first)
    assert chosen(records, ALL, 2) == ["g2", "g3"], "the first pod has the second one's record now"
    (settled,) = records.settle({first.uid: {GPU: frozenset({"g2", "g3"})}})
    assert (settled.outcome, settled.partner) == (RecordOutcome.SWAPPED, None)
    assert records.settle({first.uid: {GPU: frozenset({"g2", "g3"})}}) == []


def test_pods_of_one_reading_swap_as_well() -> None:
    first, second = record("a", "g0", "g1", bound=1), record("b", "g2", "g3", bound=2)
    found = book(first, second).settle(
        {first.uid: {GPU: frozenset({"g2", "g3"})}, second.uid: {GPU: frozenset({"g0", "g1"})}}
    )
    assert [(each.outcome, each.partner) for each in found] == [
        (RecordOutcome.SWAPPED, second),
        (RecordOutcome.SWAPPED, None),
    ]


def test_cells_that_are_not_equal_are_not_swapped() -> None:
    topology = even(8)
    names = [place.name for place in topology.places if place.gpu]
    devices = {
        name: OfferedDevice(name, Device(name, DeviceKind.GPU, "nvidia", index=str(n)), healthy=True)
        for n, name in enumerate(names)
    }
    near, far, also_near = ((names[a], names[b]) for a, b in ((0, 1), (3, 4), (6, 7)))
    for other, outcome in ((far, RecordOutcome.OTHER), (also_near, RecordOutcome.SWAPPED)):
        records = RecordBook()
        records.offered(GPU, devices, PlacementMap(topology))
        first, second = record("a", *near, bound=1), record("b", *other, bound=2)
        records.replaced([first, second])
        (settled,) = records.settle({first.uid: {GPU: frozenset(other)}})
        assert settled.outcome is outcome


def test_a_pod_is_settled_once_it_has_all_of_its_devices() -> None:
    records = book(record("a", "g0", "g1", sizes=[1, 1]))
    assert records.settle({"uid-a": {GPU: frozenset({"g0"})}}) == []
    (settled,) = records.settle({"uid-a": {GPU: frozenset({"g0", "g1"})}})
    assert settled.outcome is RecordOutcome.HONOURED
    assert records.pending(GPU) == ()


def test_pods_that_are_gone_are_forgotten() -> None:
    records = book(record("a", "g0"), record("b", "g1"))
    records.settle({"uid-a": {GPU: frozenset({"g0"})}})
    records.deleted("uid-a")
    records.deleted("never-seen")
    records.applied(record("a", "g0"))
    assert [each.pod for each in records.pending(GPU)] == ["uid-b", "uid-a"]
    records.replaced([])
    assert records.pending(GPU) == ()
    records.withdrawn(GPU)
    assert records.choose(GPU, ALL, [], 1).devices == frozenset()


def test_ten_thousand_pods_of_one_namespace_leave_room_for_others() -> None:
    records = book(*(record(f"p{n}", "g0", namespace="greedy") for n in range(10_000)), record("mine", "g1", bound=59))
    assert len(records.pending(GPU)) == MOST_PODS + 1
    assert chosen(records, ["g1", "g2"], 1) == ["g1"]


IDS = st.sampled_from([*ALL, "unknown"])
PENDING = st.builds(
    PendingRecord,
    pod=st.just("uid"),
    sizes=st.builds(ContainerSizes, st.lists(st.integers(0, 4), max_size=4).map(tuple), st.just(())),
    devices=st.frozensets(IDS, max_size=5),
)


@given(st.lists(PENDING, max_size=6), st.lists(IDS, unique=True), st.lists(IDS, unique=True), st.integers(-1, 9))
def test_whatever_is_recorded_only_free_devices_are_chosen_and_enough_of_them(
    pending: list[PendingRecord], available: list[str], required: list[str], size: int
) -> None:
    choice = choose(pending, available, required, size)
    free = {*available, *required}
    assert choice.devices <= free
    assert choice.promised <= free - set(required)
    if choice.devices:
        assert set(required) <= choice.devices
        assert len(choice.devices) >= size > 0
        assert not choice.promised


def test_a_request_waits_for_the_pod_that_it_is_about() -> None:
    """The kubelet has heard of it first."""

    async def scenario() -> None:
        records = book(record("other", "g0"))
        waiting = asyncio.create_task(Arrivals(records).wait(GPU, ALL, [], 2))
        await asyncio.sleep(0.5 * PATIENCE)
        records.applied(record("late", "g1", bound=9))
        await asyncio.sleep(0.1 * PATIENCE)
        assert not waiting.done(), "it asks for another number"
        records.applied(record("later", "g2", "g3", bound=9))
        await waiting
        assert now() == pytest.approx(0.6 * PATIENCE)
        assert chosen(records, ALL, 2) == ["g2", "g3"]

    play(scenario())


def test_a_pod_that_is_never_reported_costs_a_moment_once_in_a_while() -> None:
    async def scenario() -> None:
        arrivals = Arrivals(book())
        await arrivals.wait(GPU, ALL, [], 0)
        assert now() == 0, "nobody asks for no device"
        for _ in range(100):
            await arrivals.wait(GPU, ALL, [], 2)
        assert now() == pytest.approx(PATIENCE)
        await asyncio.sleep(PAUSE)
        await arrivals.wait(GPU, ALL, [], 2)
        assert now() == pytest.approx(2 * PATIENCE + PAUSE)

    play(scenario())
