"""What holds at both doors whoever has what, whatever is known, and whichever doors the rules name."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from node.eligibility import offer
from node.inventory.model import Device, DeviceKind
from node.ledger.holds import HoldState, wholes_of
from node.ledger.offer_context import NOTHING_HELD, OfferContext, by_place
from node.offer import OfferedDevice
from node.rules import Door, Doors, Rule, rule_for
from tests.making.offered_devices import snapshot
from tests.node.offer.doors import ALL, claim, draining, items, pod, rule

_DOORS = st.sampled_from(list(Doors))
_SOME = st.sets(st.sampled_from(ALL)).map(lambda devices: frozenset(device.name for device in devices))
_HOLD = st.one_of(
    st.builds(
        pod,
        st.sampled_from(ALL),
        st.sampled_from((HoldState.ALLOCATED, HoldState.LISTED, HoldState.RECORDED, HoldState.PENDING_RELEASE)),
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
    lambda holds, **more: OfferContext(by_place(holds), **more),
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


def _shown(rules: tuple[Rule, ...], state: OfferContext) -> dict[Door, dict[str, OfferedDevice]]:
    return {door: items(offer(_NODE, rules, state, door)) for door in Door}


def _rule_of(device: Device, rules: tuple[Rule, ...]) -> Rule:
    named = rule_for(device, rules)
    assert named is not None
    return named


def _is_held(device: Device, state: OfferContext) -> bool:
    """Whether anybody has it, or what it overlaps, who is not looking on."""
    places = {device.name, *wholes_of(device)}
    holds = {hold for those in state.holds.values() for hold in those if not hold.admin}
    return any(hold.device in places or device.name in hold.within for hold in holds)


def _is_only_wished_for(device: Device, state: OfferContext) -> bool:
    """Whether a claim waits for it, and a pod may have it: its door must not suffer from that."""
    hold = state.held(device, Door.DRA)
    return hold is not None and hold.state is HoldState.RESERVED and not state.known


def no_device_is_given_by_both_doors_unless_its_rule_says_both_and_it_is_free(
    rules: tuple[Rule, ...], state: OfferContext
) -> None:
    found = _shown(rules, state)
    for device in ALL:
        given = [door for door, shown in found.items() if device.name in shown and shown[device.name].healthy]
        if len(given) == 2 and not _is_only_wished_for(device, state):
            named = _rule_of(device, rules)
            assert named.door is Doors.BOTH
            assert not _is_held(device, state)
            assert state.known
            assert state.settled


def what_a_pod_has_or_may_have_is_never_unhealthy_at_the_plugin_door_because_of_holds(
    rules: tuple[Rule, ...], state: OfferContext
) -> None:
    shown = items(offer(_NODE, rules, state, Door.PLUGIN))
    for device in ALL:
        named = _rule_of(device, rules)
        hold, ours = state.held(device, Door.PLUGIN), named.door.has(Door.PLUGIN)
        has = hold is not None and (ours or hold.resource == named.resource_of(device))
        may_have = ours and not state.known and not _is_held(device, state)
        if has or may_have:
            assert shown[device.name].healthy


def what_somebody_has_through_one_door_is_given_to_nobody_by_the_other(
    rules: tuple[Rule, ...], state: OfferContext
) -> None:
    found = _shown(rules, state)
    for door, other in ((Door.PLUGIN, Door.DRA), (Door.DRA, Door.PLUGIN)):
        for device in ALL:
            # Where the world has two holders the plugin door's stays healthy there: the kubelet has it already.
            if state.held(device, door) is not None and not (other is Door.PLUGIN and state.held(device, other)):
                item = found[other].get(device.name)
                wished = other is Door.PLUGIN and _is_only_wished_for(device, state)
                assert item is None or not item.healthy or wished


def a_moving_device_is_given_by_the_new_door_only_when_the_old_one_is_rid_of_it(
    rules: tuple[Rule, ...], state: OfferContext
) -> None:
    found = _shown(rules, state)
    for device in ALL:
        named = _rule_of(device, rules)
        name = device.name
        to_claims, to_pods = found[Door.DRA].get(name), found[Door.PLUGIN].get(name)
        if named.door is Doors.DRA and to_claims is not None and to_claims.healthy:
            assert name not in state.at_kubelet or state.held(device, Door.DRA)
        if named.door is Doors.PLUGIN and to_pods is not None and to_pods.healthy and state.known:
            assert name not in state.at_scheduler or name in state.offered or state.held(device, Door.PLUGIN)


def every_device_is_shown_once_or_withheld_once_and_told_why(rules: tuple[Rule, ...], state: OfferContext) -> None:
    for door in Door:
        found = offer(_NODE, rules, state, door)
        names = [item.device.name for resource in found.resources for item in resource.devices]
        assert sorted(names + [item.device.name for item in found.withheld]) == sorted(device.name for device in ALL)
        assert all(item.reason for item in found.withheld)
        for item in items(found).values():
            assert item.healthy is (item.cause is None)
            assert item.healthy or item.reason


def a_claim_that_has_its_device_finds_it_in_a_slice(rules: tuple[Rule, ...], state: OfferContext) -> None:
    shown = items(offer(_NODE, rules, state, Door.DRA))
    for device in ALL:
        if state.held(device, Door.DRA) is not None or device.name in state.at_scheduler:
            assert device.name in shown


WHATEVER_IS_HELD = (
    no_device_is_given_by_both_doors_unless_its_rule_says_both_and_it_is_free,
    what_a_pod_has_or_may_have_is_never_unhealthy_at_the_plugin_door_because_of_holds,
    what_somebody_has_through_one_door_is_given_to_nobody_by_the_other,
    a_moving_device_is_given_by_the_new_door_only_when_the_old_one_is_rid_of_it,
    every_device_is_shown_once_or_withheld_once_and_told_why,
    a_claim_that_has_its_device_finds_it_in_a_slice,
)
"""What holds for all rules and standings: to make them takes longer than to judge them by everything."""


@given(_RULES, _STANDING)
def test_every_offer_keeps_to_everything_that_holds_whatever_is_held(
    rules: tuple[Rule, ...], state: OfferContext
) -> None:
    for judge in WHATEVER_IS_HELD:
        judge(rules, state)


@given(_RULES, _DOORS)
def test_with_nothing_held_and_all_known_a_device_is_given_by_the_doors_of_its_rule(
    rules: tuple[Rule, ...], doors: Doors
) -> None:
    assume(rules[0].door is doors)
    found = _shown(rules, NOTHING_HELD)
    for device in ALL:
        named = _rule_of(device, rules)
        assert {door for door, shown in found.items() if device.name in shown} == {
            door for door in Door if named.door.has(door)
        }
        assert all(shown[device.name].healthy for shown in found.values() if device.name in shown)
