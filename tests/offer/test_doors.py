"""What two doors show of one device: held, draining, moving from one to the other, or not known."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from node.holds.standing import NOTHING_HELD, Standing, by_place
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger import Hold, HoldState, draining_owner, plugin_owner
from node.offer import Cause, Offer, OfferedDevice, offer
from node.overlap import wholes_of
from node.rules import Door, Doors, Rule, Selector, offered_id, rule_for
from node.values import replace
from tests.offer.making import gpu, mig, snapshot

GPU = "nvidia.com/gpu"
ONE = gpu(1)
PART = mig(1, 0)
SIBLING = mig(1, 4)
OTHER = gpu(2)
ALL = (ONE, PART, SIBLING, OTHER)

Shown = tuple[bool, Cause | None] | None
"""Whether it is given out, and why not; None where the door does not show it."""


def rule(door: Doors, *kinds: DeviceKind, name: str = GPU) -> Rule:
    return Rule(name, Selector(kinds=kinds or (DeviceKind.GPU, DeviceKind.MIG)), door)


def pod(device: Device, state: HoldState = HoldState.LISTED, resource: str = GPU) -> Hold:
    """What a pod has through the plugin door; DRAINING: what that door may still give out again."""
    owner = plugin_owner(device.name)
    return Hold(
        device.name, Door.PLUGIN, "team/pod", 1.0, owner, within=wholes_of(device), state=state, resource=resource
    )


def claim(device: Device, uid: str = "uid-1", state: HoldState = HoldState.PREPARED, *, admin: bool = False) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 1.0, uid, admin=admin, within=wholes_of(device), state=state)


def draining(device: Device, door: Door | None = None) -> Hold:
    owner = draining_owner(device.name)
    return Hold(device.name, door, "process 41", 1.0, owner, within=wholes_of(device), state=HoldState.DRAINING)


def standing(*holds: Hold, known: bool = True, **more: object) -> Standing:
    named = {key: frozenset(device.name for device in value) for key, value in more.items() if key != "settled"}  # type: ignore[attr-defined]
    return replace(Standing(by_place(holds), known, bool(more.get("settled", known))), **named)


def items(found: Offer) -> dict[str, OfferedDevice]:
    return {item.device.name: item for resource in found.resources for item in resource.devices}


def at(door: Door, device: Device, rules: Rule | Iterable[Rule], state: Standing, *others: Device) -> Shown:
    rules = (rules,) if isinstance(rules, Rule) else rules
    item = items(offer(snapshot(device, *others), rules, state, door)).get(device.name)
    return None if item is None else (item.healthy, item.cause)


def both(device: Device, rules: Rule | Iterable[Rule], state: Standing, *others: Device) -> tuple[Shown, Shown]:
    """At the plugin door, and at the DRA door."""
    rules = (rules,) if isinstance(rules, Rule) else tuple(rules)
    return at(Door.PLUGIN, device, rules, state, *others), at(Door.DRA, device, rules, state, *others)


GIVEN: Shown = (True, None)


@pytest.mark.parametrize(
    ("holds", "plugin", "dra"),
    [
        ((), GIVEN, GIVEN),
        ((pod(ONE),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.ALLOCATED),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.RECORDED),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.DRAINING),), GIVEN, (False, Cause.DRAINING)),
        ((claim(ONE),), (False, Cause.OTHER_DOOR), GIVEN),
        ((claim(ONE, state=HoldState.RESERVED),), (False, Cause.OTHER_DOOR), GIVEN),
        ((draining(ONE),), (False, Cause.DRAINING), (False, Cause.DRAINING)),
        # Looking on is no holding.
        ((claim(ONE, admin=True),), GIVEN, GIVEN),
        ((claim(ONE, admin=True), pod(ONE)), GIVEN, (False, Cause.OTHER_DOOR)),
        # The world has both: neither door gives it to anybody else, and what a pod has stays healthy there.
        ((pod(ONE), claim(ONE)), GIVEN, (False, Cause.OTHER_DOOR)),
        # Nothing of another device matters.
        ((pod(OTHER), claim(OTHER), draining(OTHER)), GIVEN, GIVEN),
    ],
)
def test_a_device_of_both_doors_is_given_by_the_one_through_which_it_is_held(
    holds: tuple[Hold, ...], plugin: Shown, dra: Shown
) -> None:
    assert both(ONE, rule(Doors.BOTH), standing(*holds), OTHER) == (plugin, dra)


@pytest.mark.parametrize(
    ("hold", "plugin", "dra"),
    [
        (pod(PART), (False, Cause.OVERLAP), (False, Cause.OTHER_DOOR)),
        (claim(PART), (False, Cause.OTHER_DOOR), (False, Cause.OVERLAP)),
        (draining(PART), (False, Cause.DRAINING), (False, Cause.DRAINING)),
    ],
)
def test_what_is_held_in_part_is_given_by_no_door_and_its_other_parts_by_all(
    hold: Hold, plugin: Shown, dra: Shown
) -> None:
    rules, state = rule(Doors.BOTH), standing(hold)
    assert both(ONE, rules, state, PART, SIBLING) == (plugin, dra)
    assert both(SIBLING, rules, state, ONE, PART) == (GIVEN, GIVEN)


@pytest.mark.parametrize(
    ("hold", "plugin", "dra"),
    [
        (pod(ONE), (False, Cause.OVERLAP), (False, Cause.OTHER_DOOR)),
        (claim(ONE), (False, Cause.OTHER_DOOR), (False, Cause.OVERLAP)),
        (draining(ONE), (False, Cause.DRAINING), (False, Cause.DRAINING)),
    ],
)
def test_parts_of_what_is_held_are_given_by_no_door(hold: Hold, plugin: Shown, dra: Shown) -> None:
    for part in (PART, SIBLING):
        assert both(part, rule(Doors.BOTH), standing(hold), ONE) == (plugin, dra)


def test_the_reason_names_who_is_in_the_way_and_how_it_overlaps() -> None:
    rules = (rule(Doors.BOTH),)
    found = items(offer(snapshot(ONE, PART), rules, standing(pod(PART)), Door.PLUGIN))
    why = f"its part, {PART.name}, is held through the plugin door by team/pod"
    assert found[ONE.name].reason == why
    found = items(offer(snapshot(ONE, PART), rules, standing(claim(ONE)), Door.PLUGIN))
    why = f"what it is a part of, {ONE.name}, is held through the dra door by team/claim (uid-1)"
    assert found[PART.name].reason == why
    found = items(offer(snapshot(ONE), rules, standing(draining(ONE)), Door.DRA))
    assert found[ONE.name].reason == "draining: process 41"


@pytest.mark.parametrize(
    ("doors", "plugin", "dra"),
    [
        (Doors.PLUGIN, GIVEN, None),
        (Doors.BOTH, GIVEN, (False, Cause.HOLDS_UNKNOWN)),
        (Doors.DRA, None, (False, Cause.HOLDS_UNKNOWN)),
    ],
)
def test_not_knowing_what_pods_have_restricts_the_dra_door_alone(doors: Doors, plugin: Shown, dra: Shown) -> None:
    assert both(ONE, rule(doors), standing(known=False)) == (plugin, dra)


def test_a_claim_that_has_its_device_keeps_it_while_nothing_is_known() -> None:
    assert both(ONE, rule(Doors.BOTH), standing(claim(ONE), known=False)) == ((False, Cause.OTHER_DOOR), GIVEN)


def test_what_an_instance_before_may_still_give_out_is_withheld_from_claims() -> None:
    answering = standing(known=True, settled=False)
    assert both(ONE, rule(Doors.BOTH), answering) == (GIVEN, (False, Cause.HOLDS_UNKNOWN))
    # No instance gives out what only claims can have and the kubelet does not count.
    assert both(ONE, rule(Doors.DRA), answering) == (None, GIVEN)


@pytest.mark.parametrize(
    ("state", "plugin", "dra"),
    [
        (standing(), None, GIVEN),
        (standing(at_kubelet=[ONE]), None, (False, Cause.MOVING)),
        (standing(at_kubelet=[ONE], listed=[ONE]), (False, Cause.MOVING), (False, Cause.MOVING)),
        # The kubelet forgets what nobody lists.
        (standing(listed=[ONE]), None, GIVEN),
        (standing(pod(ONE), at_kubelet=[ONE], listed=[ONE]), GIVEN, (False, Cause.OTHER_DOOR)),
        # Held, and this instance has not listed anything yet.
        (standing(pod(ONE)), GIVEN, (False, Cause.OTHER_DOOR)),
        (standing(draining(ONE), at_kubelet=[ONE], listed=[ONE]), (False, Cause.DRAINING), (False, Cause.MOVING)),
        (standing(draining(ONE)), None, (False, Cause.DRAINING)),
        # A pod has given it back, and it is being looked at.
        (
            standing(draining(ONE, Door.PLUGIN), at_kubelet=[ONE], listed=[ONE]),
            (False, Cause.MOVING),
            (False, Cause.MOVING),
        ),
        (standing(draining(ONE, Door.PLUGIN)), None, (False, Cause.DRAINING)),
        (standing(claim(ONE), at_kubelet=[ONE]), None, GIVEN),
    ],
)
def test_a_rule_that_gives_a_device_to_claims_moves_it_when_the_kubelet_counts_it_no_more(
    state: Standing, plugin: Shown, dra: Shown
) -> None:
    assert both(ONE, rule(Doors.DRA), state) == (plugin, dra)


def test_a_resource_of_another_plugin_is_not_shown_for_what_a_pod_has_of_it() -> None:
    theirs = standing(pod(ONE, resource="example.com/other"), at_kubelet=[ONE], listed=[ONE])
    assert both(ONE, rule(Doors.DRA), theirs) == (None, (False, Cause.OTHER_DOOR))


@pytest.mark.parametrize(
    ("state", "plugin", "dra"),
    [
        (standing(), GIVEN, None),
        (standing(at_scheduler=[ONE]), (False, Cause.MOVING), (False, Cause.MOVING)),
        # What it gave out already it goes on to give: it was free of claims then, or both doors had it.
        (standing(at_scheduler=[ONE], offered=[ONE]), GIVEN, (False, Cause.MOVING)),
        (standing(pod(ONE), at_scheduler=[ONE]), GIVEN, (False, Cause.OTHER_DOOR)),
        # Looked at after it came from claims, so that no pod has it yet.
        (standing(draining(ONE, Door.PLUGIN), at_scheduler=[ONE]), (False, Cause.MOVING), (False, Cause.DRAINING)),
        # It may be a pod's: Allocate has the last word.
        (standing(at_scheduler=[ONE], known=False), GIVEN, (False, Cause.MOVING)),
        (standing(claim(ONE), at_scheduler=[ONE]), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
        # The slice is rid of it, the claim is not.
        (standing(claim(ONE)), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
        (standing(claim(ONE), at_scheduler=[ONE], known=False), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
    ],
)
def test_a_rule_that_gives_a_device_to_pods_moves_it_when_no_claim_can_get_it_any_more(
    state: Standing, plugin: Shown, dra: Shown
) -> None:
    assert both(ONE, rule(Doors.PLUGIN), state) == (plugin, dra)


def test_what_both_doors_have_waits_for_neither() -> None:
    state = standing(at_scheduler=[ONE], at_kubelet=[ONE], listed=[ONE], offered=[ONE])
    assert both(ONE, rule(Doors.BOTH), state) == (GIVEN, GIVEN)
    assert both(ONE, rule(Doors.BOTH), replace(state, offered=frozenset())) == (GIVEN, GIVEN)


def test_a_gpu_in_mig_mode_is_nothing_for_claims() -> None:
    whole = gpu(1, mig=True)
    assert both(whole, rule(Doors.BOTH), standing(), PART) == (GIVEN, None)


def test_what_a_pod_has_is_shown_although_the_node_would_keep_it() -> None:
    kept = replace(ONE, host_use="it is the node's")
    assert both(kept, rule(Doors.PLUGIN), standing()) == (None, None)
    assert both(kept, rule(Doors.PLUGIN), standing(pod(ONE))) == ((False, Cause.NODE_USE), None)


_DOORS = st.sampled_from(list(Doors))
_SOME = st.sets(st.sampled_from(ALL)).map(lambda devices: frozenset(device.name for device in devices))
_HOLD = st.one_of(
    st.builds(
        pod,
        st.sampled_from(ALL),
        st.sampled_from((HoldState.ALLOCATED, HoldState.LISTED, HoldState.RECORDED, HoldState.DRAINING)),
    ),
    st.builds(
        claim,
        st.sampled_from(ALL),
        st.sampled_from(("uid-1", "uid-2")),
        st.sampled_from((HoldState.RESERVED, HoldState.PREPARED)),
        admin=st.booleans(),
    ),
    st.builds(draining, st.sampled_from(ALL)),
)
_STANDING = st.builds(
    lambda holds, **more: Standing(by_place(holds), **more),
    st.lists(_HOLD, max_size=4),
    known=st.booleans(),
    settled=st.booleans(),
    at_kubelet=_SOME,
    at_scheduler=_SOME,
    listed=_SOME,
    offered=_SOME,
)
_RULES = st.tuples(_DOORS, _DOORS).map(
    lambda doors: (rule(doors[0], DeviceKind.GPU), rule(doors[1], DeviceKind.MIG, name="nvidia.com/mig"))
)
_NODE = snapshot(*ALL)


def _shown(rules: tuple[Rule, ...], state: Standing) -> dict[Door, dict[str, OfferedDevice]]:
    return {door: items(offer(_NODE, rules, state, door)) for door in Door}


def _is_held(device: Device, state: Standing) -> bool:
    """Whether anybody has it, or what it overlaps, who is not looking on."""
    places = {device.name, *wholes_of(device)}
    holds = {hold for those in state.holds.values() for hold in those if not hold.admin}
    return any(hold.device in places or device.name in hold.within for hold in holds)


def _is_only_wished_for(device: Device, state: Standing) -> bool:
    """Whether a claim waits for it, and a pod may have it: its door must not suffer from that."""
    hold = state.held(device, Door.DRA)
    return hold is not None and hold.state is HoldState.RESERVED and not state.known


@given(_RULES, _STANDING)
def test_no_device_is_given_by_both_doors_unless_its_rule_says_both_and_it_is_free(
    rules: tuple[Rule, ...], state: Standing
) -> None:
    found = _shown(rules, state)
    for device in ALL:
        given = [door for door, shown in found.items() if device.name in shown and shown[device.name].healthy]
        if len(given) == 2 and not _is_only_wished_for(device, state):
            named = rule_for(device, rules)
            assert named is not None
            assert named.door is Doors.BOTH
            assert not _is_held(device, state)
            assert state.known
            assert state.settled


@given(_RULES, _STANDING)
def test_what_a_pod_has_or_may_have_is_never_unhealthy_at_the_plugin_door_because_of_holds(
    rules: tuple[Rule, ...], state: Standing
) -> None:
    shown = items(offer(_NODE, rules, state, Door.PLUGIN))
    for device in ALL:
        named = rule_for(device, rules)
        assert named is not None
        hold, ours = state.held(device, Door.PLUGIN), named.door.has(Door.PLUGIN)
        has = hold is not None and (ours or hold.resource == named.resource_of(device))
        may_have = ours and not state.known and not _is_held(device, state)
        if has or may_have:
            assert shown[device.name].healthy


@given(_RULES, _STANDING)
def test_what_somebody_has_through_one_door_is_given_to_nobody_by_the_other(
    rules: tuple[Rule, ...], state: Standing
) -> None:
    found = _shown(rules, state)
    for door, other in ((Door.PLUGIN, Door.DRA), (Door.DRA, Door.PLUGIN)):
        for device in ALL:
            # Where the world has two holders the plugin door's stays healthy there: the kubelet has it already.
            if state.held(device, door) is not None and not (other is Door.PLUGIN and state.held(device, other)):
                item = found[other].get(device.name)
                wished = other is Door.PLUGIN and _is_only_wished_for(device, state)
                assert item is None or not item.healthy or wished


@given(_RULES, _STANDING)
def test_a_moving_device_is_given_by_the_new_door_only_when_the_old_one_is_rid_of_it(
    rules: tuple[Rule, ...], state: Standing
) -> None:
    found = _shown(rules, state)
    for device in ALL:
        named = rule_for(device, rules)
        assert named is not None
        name = device.name
        to_claims, to_pods = found[Door.DRA].get(name), found[Door.PLUGIN].get(name)
        if named.door is Doors.DRA and to_claims is not None and to_claims.healthy:
            assert name not in state.at_kubelet or state.held(device, Door.DRA)
        if named.door is Doors.PLUGIN and to_pods is not None and to_pods.healthy and state.known:
            assert name not in state.at_scheduler or name in state.offered or state.held(device, Door.PLUGIN)


@given(_RULES, _STANDING, st.sampled_from(list(Door)))
def test_every_device_is_shown_once_or_withheld_once_and_told_why(
    rules: tuple[Rule, ...], state: Standing, door: Door
) -> None:
    found = offer(_NODE, rules, state, door)
    names = [item.device.name for resource in found.resources for item in resource.devices]
    assert sorted(names + [item.device.name for item in found.withheld]) == sorted(device.name for device in ALL)
    assert all(item.reason for item in found.withheld)
    for item in items(found).values():
        assert item.healthy is (item.cause is None)
        assert item.healthy or item.reason


@given(_RULES, _STANDING)
def test_a_claim_that_has_its_device_finds_it_in_a_slice(rules: tuple[Rule, ...], state: Standing) -> None:
    shown = items(offer(_NODE, rules, state, Door.DRA))
    for device in ALL:
        if state.held(device, Door.DRA) is not None or device.name in state.at_scheduler:
            assert device.name in shown


@given(_RULES, _DOORS)
def test_with_nothing_held_and_all_known_a_device_is_given_by_the_doors_of_its_rule(
    rules: tuple[Rule, ...], doors: Doors
) -> None:
    assume(rules[0].door is doors)
    found = _shown(rules, NOTHING_HELD)
    for device in ALL:
        named = rule_for(device, rules)
        assert named is not None
        assert {door for door, shown in found.items() if device.name in shown} == {
            door for door in Door if named.door.has(door)
        }
        assert all(shown[device.name].healthy for shown in found.values() if device.name in shown)


def test_an_empty_node_has_nothing_at_either_door() -> None:
    for door in Door:
        assert offer(Snapshot(1), (rule(Doors.BOTH),), standing(pod(ONE), claim(OTHER)), door) == Offer()


def test_a_device_that_a_pod_has_under_another_id_or_resource_is_not_given_to_another_pod() -> None:
    at_plugin = rule(Doors.PLUGIN)
    own = (GPU, offered_id(at_plugin, ONE))
    for ids, healthy in (((own,), True), ((("corp/gpu", own[1]),), False), (((GPU, "0"), own), True)):
        hold = replace(pod(ONE, resource=ids[0][0]), ids=ids)
        found = items(offer(snapshot(ONE), (at_plugin,), standing(hold), Door.PLUGIN))[ONE.name]
        assert found.healthy is healthy
        if not healthy:
            assert found.cause is Cause.OVERLAP
            assert found.reason == f"held through the plugin door by team/pod as {own[1]} of corp/gpu"
