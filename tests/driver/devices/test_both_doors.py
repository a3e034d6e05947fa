"""Devices at both doors: claims take them from the back, pods from the front, and cells stay whole."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from driver.devices.placement import gpu_order, groups
from node.inventory.model import DeviceKind
from node.ledger.offer_context import OfferContext
from node.rules import Doors, Rule, Selector
from node.values import replace
from tests.driver.devices.both_doors import ScheduledDoors
from tests.driver.devices.recorded import GPUS, NICS, NODES, RULES, WHOLE_GPUS, snapshot, view
from tests.driver.devices.test_cells import tree
from tests.making.dra_door import door_view

BOTH = replace(WHOLE_GPUS, door=Doors.BOTH)
SIZES = (1, 2, 4)


def names(node: str, rules: tuple[Rule, ...]) -> list[str]:
    return [item.device.name for item in door_view(snapshot(node), rules).devices]


@pytest.mark.parametrize("name", GPUS)
def test_the_doors_take_whole_gpus_from_opposite_ends(name: str) -> None:
    both = ScheduledDoors(snapshot(name), BOTH)
    root = snapshot(name).topology.root
    assert root is not None
    offered = names(name, (BOTH,))
    free = [gpu for gpu in root.gpus if gpu in offered]
    half = max(len(free) // 2, 1)
    # By their links one beside the first one may be better to take.
    assert both.plugin_choice(1)[0] in free[:half]
    assert both.island_choice(1)[0] in free[-half:]


@pytest.mark.parametrize(("name", "pods", "claims"), list(product(GPUS, SIZES, SIZES)))
def test_choices_made_at_the_same_moment_meet_only_where_there_is_not_enough_for_both(
    name: str, pods: int, claims: int
) -> None:
    both = ScheduledDoors(snapshot(name), BOTH)
    while True:
        pod, claim = both.plugin_choice(pods), both.island_choice(claims)
        if not pod or not claim:
            break
        if set(pod) & set(claim):
            assert both.free() < pods + claims
            claim = []
        both.to_pod(pod)
        if claim:
            both.to_claim(claim)
    assert both.free() < pods + claims


@pytest.mark.parametrize("name", ["h100-sxm-8", "dgx2-v100-16", "mi300x-8"])
def test_an_island_of_four_can_be_had_as_long_as_one_is_free_from_both_ends(name: str) -> None:
    for seed in range(6):
        random = Random(seed)
        both = ScheduledDoors(snapshot(name), BOTH)
        root = snapshot(name).topology.root
        assert root is not None
        while both.free() > 4:
            islands = [
                group
                for group in groups(root)[4]
                if len(group.gpus) == 4 and not set(group.gpus) & set(both.ledger.by_device())
            ]
            assert bool(islands) == bool(both.island_choice(4))
            if random.random() < 0.5:
                both.to_pod(both.plugin_choice(random.choice((1, 2))))
            else:
                both.to_claim(both.island_choice(random.choice((1, 2))) or both.island_choice(1))


@pytest.mark.parametrize("name", ["h100-sxm-8", "dgx1-v100-8", "mi300x-8"])
@pytest.mark.parametrize("count", SIZES)
def test_claims_alone_fill_cells_as_well_from_the_back(name: str, count: int) -> None:
    both = ScheduledDoors(snapshot(name), BOTH)
    islands = []
    while found := both.island_choice(count):
        both.to_claim(found)
        islands.append(found)
    assert len(islands) == GPUS[name] // count
    root = snapshot(name).topology.root
    assert root is not None
    for number in range(0, len(islands), max(4 // count, 1)):
        four = {gpu for each in islands[number : number + max(4 // count, 1)] for gpu in each}
        assert any(four == set(group.gpus) for group in groups(root)[4])


@pytest.mark.parametrize("name", NODES)
def test_devices_of_this_door_alone_keep_their_order_and_come_before_those_of_both(name: str) -> None:
    rules = tuple(replace(rule, door=Doors.BOTH) if rule.selector.kinds == NICS else rule for rule in RULES)
    nics = {item.device.name for item in view(name).devices if item.device.kind in NICS}
    mixed = names(name, rules)
    assert [each for each in mixed if each not in nics] == [
        item.device.name for item in view(name).devices if item.device.name not in nics
    ]
    some = replace(WHOLE_GPUS, selector=replace(WHOLE_GPUS.selector, names=tuple(mixed[:2])), door=Doors.BOTH)
    first = names(name, (some, *RULES))
    gpus = [item.device.name for item in view(name).devices if item.device.kind == "gpu"]
    alone = [gpu for gpu in gpus if gpu not in mixed[:2]]
    assert first[: len(alone)] == alone


def test_parts_of_gpus_and_virtual_functions_come_from_the_back() -> None:
    migs = replace(RULES[1], door=Doors.BOTH)
    devices = [item.device for item in door_view(snapshot("a100-mig-4"), (migs,)).devices]
    parents = [device.parent for device in devices]
    assert parents == sorted(parents, key=str, reverse=True)
    starts = [device.attribute("placementStart") for device in devices if device.parent == parents[0]]
    assert starts == sorted(starts, key=str, reverse=True)
    functions = Rule("example.com/vf", Selector(kinds=NICS), Doors.BOTH)
    found = [item.device.attribute("vfIndex") for item in door_view(snapshot("sriov-2"), (functions,)).devices]
    numbers = [number for number in found if number is not None]
    assert numbers[:8] == list(reversed(range(8)))


def test_parts_of_gpus_are_taken_from_opposite_ends() -> None:
    profile = Rule("nvidia.com/mig", Selector(kinds=(DeviceKind.MIG,), profiles=("1g.*",)), Doors.BOTH)
    both = ScheduledDoors(snapshot("a100-mig-4"), profile)
    while both.free() > 1:
        held = both.ledger.by_device()
        shown = door_view(both.snapshot, both.rules, both.context).devices
        claim = [item.device.name for item in shown if item.healthy and item.device.name not in held][:1]
        pod = both.plugin_choice(1)
        assert set(pod).isdisjoint(claim)
        both.to_pod(pod)
        both.to_claim(claim)


def test_devices_of_one_resource_may_have_rules_for_different_doors() -> None:
    gpus = names("h100-sxm-8", (WHOLE_GPUS,))
    here = replace(WHOLE_GPUS, selector=replace(WHOLE_GPUS.selector, names=(gpus[0],)))
    away = replace(here, selector=replace(here.selector, names=(gpus[1],)), door=Doors.PLUGIN)
    context = OfferContext(at_scheduler=frozenset(gpus))
    shown = door_view(snapshot("h100-sxm-8"), (here, away, BOTH), context).devices
    doors = {item.device.name: item.rule.door for item in shown}
    assert [doors[gpu] for gpu in gpus] == [Doors.DRA, Doors.PLUGIN, *[Doors.BOTH] * 6]


def test_incomplete_cells_come_first_from_the_back_as_well() -> None:
    assert " ".join(gpu_order(groups(tree(4, 3)), from_back=True)) == "g6 g5 g4 g3 g2 g1 g0"
    assert " ".join(gpu_order(groups(tree(4, 4)), from_back=True)) == "g7 g6 g5 g4 g3 g2 g1 g0"
    assert " ".join(gpu_order(groups(tree(3, 4)), from_back=True)) == "g2 g1 g0 g6 g5 g4 g3"


def test_a_standing_with_a_contested_device_marks_it() -> None:
    name = names("l4-2", (BOTH,))[0]
    shown = door_view(snapshot("l4-2"), (BOTH,), OfferContext(contested=frozenset({name})))
    assert [item.contested for item in shown.devices] == [item.device.name == name for item in shown.devices]
