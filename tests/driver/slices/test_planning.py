from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from driver.slices.content import changed_object, new_object, up_to_date
from driver.slices.model import Pool, Slice
from driver.slices.planning import ByDeviceNames, ByIndex, Matching, PoolKnowledge, PoolPlan, plan, removal
from driver.slices.store import StoredSlice
from kube.bodies import object_at
from node.values import replace

Json = dict[str, Any]
HIGHEST = 2**63 - 1


def devices(*names: str) -> tuple[Json, ...]:
    return tuple({"name": name} for name in names)


def pool(*slices: tuple[str, ...], generation: int = 0) -> Pool:
    return Pool(tuple(Slice(devices(*names)) for names in slices), all_nodes=True, generation=generation)


def stored(name: str, names: tuple[str, ...], *, generation: int = 1, count: int = 1, uid: str = "") -> StoredSlice:
    entry = {"name": "p", "generation": generation, "resourceSliceCount": count}
    spec: Json = {"pool": entry, "allNodes": True, "devices": list(devices(*names))}
    body: Json = {"metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"}, "spec": spec}
    return StoredSlice.of(body)


def published(wanted: Pool, generation: int = 1) -> list[StoredSlice]:
    count = len(wanted.slices)
    return [
        stored(f"{index:05x}-x", each.names, generation=generation, count=count)
        for index, each in enumerate(wanted.slices)
    ]


def known(slices: list[StoredSlice], **fields: Any) -> PoolKnowledge:
    return PoolKnowledge(ours=frozenset(each.uid for each in slices), **fields)


def states(before: list[StoredSlice], made: PoolPlan, wanted: Pool, matching: Matching) -> Iterator[list[StoredSlice]]:
    """What is stored before, between and after the writes of a plan."""
    now = list(before)
    yield now
    for gone in made.excess:
        now = [each for each in now if each.name != gone.name]
        yield now
    for index, old in made.updates:
        body = changed_object(old, name="p", pool=wanted, index=index, generation=made.generation)
        now = [StoredSlice.of(body) if each.name == old.name else each for each in now]
        yield now
    for index in made.creates:
        new: Json = new_object(
            driver="d",
            owner=None,
            node="",
            generate_name=matching.generate_name(index, len(wanted.slices), "d", None),
            name="p",
            pool=wanted,
            index=index,
            generation=made.generation,
        )
        name = f"{new['metadata']['generateName']}new{index}"
        new["metadata"] = {"name": name, "uid": f"uid-{name}-{made.generation}", "resourceVersion": "1"}
        now = [*now, StoredSlice.of(new)]
        yield now
    for gone in made.superseded:
        now = [each for each in now if each.name != gone.name]
        yield now


def complete(slices: list[StoredSlice]) -> bool:
    """Whether a scheduler would use the pool."""
    highest = max([each.generation for each in slices], default=0)
    newest = [each for each in slices if each.generation == highest]
    counts = {object_at(each.spec, "pool")["resourceSliceCount"] for each in newest}
    return counts == {len(newest)}


NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    names = draw(st.lists(NAMES, unique=True, max_size=6))
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), max_size=3)))
    edges = [0, *cuts, len(names)]
    slices = [tuple(names[start:end]) for start, end in pairwise(edges)]
    return pool(*slices, generation=draw(st.integers(0, 3)))


@st.composite
def anything(draw: st.DrawFn) -> list[StoredSlice]:
    """Slices as anybody may have left them."""
    prefixes = st.sampled_from(["00000", "00001", "00002", "00007", "000000", "node"])
    names = draw(st.lists(st.tuples(prefixes, NAMES).map("-".join), unique=True, max_size=5))
    return [
        stored(
            name,
            tuple(draw(st.lists(NAMES, unique=True, max_size=3))),
            generation=draw(st.integers(0, 3)),
            count=draw(st.integers(1, 3)),
        )
        for name in names
    ]


def in_order(slices: list[StoredSlice], wanted: Pool, matching: Matching) -> bool:
    generations = {each.generation for each in slices}
    found = matching.match(slices, wanted.slices)
    return (
        len(slices) == len(wanted.slices)
        and len(generations) == 1
        and sorted(found.values()) == list(range(len(wanted.slices)))
        and all(
            up_to_date(each, name="p", pool=wanted, index=found[each.name], generation=each.generation)
            for each in slices
        )
    )


@given(anything(), pools(), st.booleans())
def test_one_plan_brings_anything_to_what_is_wanted(before: list[StoredSlice], wanted: Pool, mine: bool) -> None:
    matching = ByIndex()
    knowledge = known(before) if mine else PoolKnowledge()
    made = plan(before, "p", wanted, matching, knowledge)
    *_, after = states(before, made, wanted, matching)
    assert in_order(after, wanted, matching)
    assert plan(after, "p", wanted, matching, knowledge).empty
    highest = max([each.generation for each in before], default=0)
    assert made.generation >= highest
    assert made.generation >= wanted.generation


@given(anything(), pools(), st.data())
def test_whoever_is_stopped_between_two_writes_is_finished_by_the_next(
    before: list[StoredSlice], wanted: Pool, data: st.DataObject
) -> None:
    matching = ByIndex()
    made = plan(before, "p", wanted, matching, PoolKnowledge())
    halfway = data.draw(st.sampled_from([*states(before, made, wanted, matching)]))
    for knowledge in (PoolKnowledge(), known(halfway, unfinished=made.generation if made.raised else 0)):
        *_, after = states(halfway, plan(halfway, "p", wanted, matching, knowledge), wanted, matching)
        assert in_order(after, wanted, matching)


@given(pools(), pools(), st.integers(1, 3))
def test_a_generation_carries_one_content_but_for_one_slice(old: Pool, wanted: Pool, generation: int) -> None:
    before = published(old, generation)
    made = plan(before, "p", wanted, ByIndex(), known(before))
    if made.generation == generation and before:
        assert len(made.updates) <= 1
        assert not made.creates


@given(pools(), pools())
def test_another_layout_is_replaced_without_a_gap(old: Pool, wanted: Pool) -> None:
    before = [replace(each, name=f"node-{each.name}") for each in published(old, 2)]
    before = [StoredSlice.of({**each.body, "metadata": {"name": each.name, "uid": each.uid}}) for each in before]
    made = plan(before, "p", wanted, ByIndex(), PoolKnowledge())
    stages = [*states(before, made, wanted, ByIndex())]
    first_deletion = len(stages) - len(made.superseded)
    assert len(made.superseded) == len(before)
    assert not made.excess
    assert all(each in stage for stage in stages[:first_deletion] for each in before)
    assert all(complete(stage) for stage in stages[first_deletion - 1 :])


@given(pools(), pools())
def test_going_back_to_the_old_layout_ends_at_it(old: Pool, wanted: Pool) -> None:
    sets = [frozenset(each.names) for each in wanted.slices]
    if len(set(sets)) < len(sets):
        return
    before = published(old, 2)
    *_, after = states(before, plan(before, "p", wanted, ByDeviceNames(), PoolKnowledge()), wanted, ByDeviceNames())
    assert in_order(after, wanted, ByDeviceNames())


def test_one_change_is_one_update_in_place() -> None:
    before = published(pool(("a",), ("b",), ("c",)), 4)
    made = plan(before, "p", pool(("a",), ("x",), ("c",)), ByIndex(), PoolKnowledge())
    assert (made.generation, [index for index, _ in made.updates]) == (4, [1])
    assert (made.creates, made.excess, made.superseded) == ((), (), ())


def test_what_was_never_complete_is_completed_and_not_raised_again() -> None:
    wanted = pool(("a",), ("b",), ("c",))
    before = published(wanted, 4)[:1]
    made = plan(before, "p", wanted, ByIndex(), known(before, unfinished=4))
    assert (made.generation, made.updates, made.creates) == (4, (), (1, 2))


def test_a_slice_of_ours_that_fell_behind_is_changed_and_a_strangers_replaced() -> None:
    wanted = pool(("a",), ("b",))
    before = [published(wanted, 6)[0], published(wanted, 1)[1]]
    ours = plan(before, "p", wanted, ByIndex(), known(before))
    assert (ours.generation, len(ours.updates), ours.creates, ours.superseded) == (7, 2, (), ())
    theirs = plan(before, "p", wanted, ByIndex(), PoolKnowledge())
    assert (theirs.generation, len(theirs.updates), theirs.creates, len(theirs.superseded)) == (7, 1, (1,), 1)


def test_a_refused_slice_leaves_the_others_their_changes() -> None:
    before = published(pool(("a",), ("b",)), 1)
    wanted = pool(("x",), ("y",))
    made = plan(before, "p", wanted, ByIndex(), known(before, refused=frozenset({1})))
    assert [index for index, _ in made.updates] == [0]
    assert [index for index, _ in made.left_behind] == [1]
    *_, after = states(before, made, wanted, ByIndex())
    after = [each for each in after if each.generation == 2]
    rest = plan(after, "p", wanted, ByIndex(), PoolKnowledge(refused=frozenset({1})))
    assert rest.empty


def test_a_refused_slice_alone_stays_as_it_is() -> None:
    before = published(pool(("a",), ("b",)), 1)
    assert plan(before, "p", pool(("a",), ("y",)), ByIndex(), PoolKnowledge(refused=frozenset({1}))).empty
    alone = pool(("y",), generation=9)
    assert plan(before[:1], "p", alone, ByIndex(), PoolKnowledge(refused=frozenset({0}))).empty


def test_nothing_is_created_beyond_a_refused_slice() -> None:
    wanted = pool(("a",), ("b",), ("c",))
    assert plan([], "p", wanted, ByIndex(), PoolKnowledge(refused=frozenset({1}))).creates == (0,)
    assert plan([], "p", wanted, ByIndex(), PoolKnowledge(refused=frozenset({0}))).empty


def test_at_the_highest_generation_only_one_slice_can_change() -> None:
    before = published(pool(("a",), ("b",)), HIGHEST)
    one = plan(before, "p", pool(("a",), ("x",)), ByIndex(), PoolKnowledge())
    assert (one.generation, len(one.updates), one.exhausted) == (HIGHEST, 1, False)
    two = plan(before, "p", pool(("y",), ("x",)), ByIndex(), PoolKnowledge())
    assert (two.generation, two.updates, two.exhausted) == (HIGHEST, (), True)


def test_what_is_being_deleted_is_not_deleted_again() -> None:
    leaving = replace(stored("00000-a", ("a",)), leaving=True)
    assert removal([leaving]).empty
    assert plan([leaving], "p", pool(), ByIndex(), PoolKnowledge()).empty
    assert plan([leaving], "p", pool(("a",)), ByIndex(), PoolKnowledge()).empty


def test_of_two_slices_with_one_number_the_newer_stays_and_of_two_as_new_ours() -> None:
    wanted = pool(("a",))
    ours, theirs = stored("00000-b", ("a",)), stored("00000-a", ("a",))
    made = plan([theirs, ours], "p", wanted, ByIndex(), known([ours]))
    assert ([each.name for each in made.excess], made.updates, made.creates) == (["00000-a"], (), ())
    newer = stored("00000-c", ("a",), generation=2)
    made = plan([newer, ours], "p", wanted, ByIndex(), known([ours]))
    assert ([each.name for each in made.excess], made.updates, made.creates) == (["00000-b"], (), ())


def test_a_slice_of_ours_that_fell_behind_and_is_refused_is_left_behind() -> None:
    first, second = stored("00000-a", ("a",), generation=7, count=2), stored("00001-b", ("b",), generation=6, count=2)
    made = plan([first, second], "p", pool(("a",), ("x",)), ByIndex(), known([first, second], refused=frozenset({1})))
    assert [each.name for _, each in made.left_behind] == ["00001-b"]
    assert ([index for index, _ in made.updates], made.creates, made.generation) == ([0], (), 8)


def test_nodes_that_are_chosen_otherwise_are_a_change() -> None:
    all_nodes = pool(("a",))
    none = replace(all_nodes, all_nodes=False)
    some = replace(none, node_selector={"nodeSelectorTerms": [{"matchFields": []}]})
    before = published(all_nodes)
    for wanted, updates in ((all_nodes, 0), (none, 1), (some, 1)):
        assert len(plan(before, "p", wanted, ByIndex(), PoolKnowledge()).updates) == updates
