"""What two doors show of one device: held, draining, moving from one to the other, or not known."""

from __future__ import annotations

import pytest

from node.eligibility import offer
from node.inventory.model import Snapshot
from node.ledger.holds import Hold, HoldState
from node.ledger.offer_context import OfferContext
from node.offer import Cause, Offer
from node.rules import Door, Doors, offered_id
from node.values import replace
from tests.making.offered_devices import gpu, snapshot
from tests.node.offer.doors import (
    GIVEN,
    GPU,
    ONE,
    OTHER,
    PART,
    SIBLING,
    Shown,
    both,
    claim,
    context,
    draining,
    items,
    pod,
    rule,
)


@pytest.mark.parametrize(
    ("holds", "plugin", "dra"),
    [
        ((), GIVEN, GIVEN),
        ((pod(ONE),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.ALLOCATED),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.RECORDED),), GIVEN, (False, Cause.OTHER_DOOR)),
        ((pod(ONE, HoldState.PENDING_RELEASE),), GIVEN, (False, Cause.PENDING_RELEASE)),
        ((claim(ONE),), (False, Cause.OTHER_DOOR), GIVEN),
        ((claim(ONE, state=HoldState.RESERVED),), (False, Cause.OTHER_DOOR), GIVEN),
        ((draining(ONE),), (False, Cause.PENDING_RELEASE), (False, Cause.PENDING_RELEASE)),
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
    assert both(ONE, rule(Doors.BOTH), context(*holds), OTHER) == (plugin, dra)


@pytest.mark.parametrize(
    ("hold", "plugin", "dra"),
    [
        (pod(PART), (False, Cause.OVERLAP), (False, Cause.OTHER_DOOR)),
        (claim(PART), (False, Cause.OTHER_DOOR), (False, Cause.OVERLAP)),
        (draining(PART), (False, Cause.PENDING_RELEASE), (False, Cause.PENDING_RELEASE)),
    ],
)
def test_what_is_held_in_part_is_given_by_no_door_and_its_other_parts_by_all(
    hold: Hold, plugin: Shown, dra: Shown
) -> None:
    rules, state = rule(Doors.BOTH), context(hold)
    assert both(ONE, rules, state, PART, SIBLING) == (plugin, dra)
    assert both(SIBLING, rules, state, ONE, PART) == (GIVEN, GIVEN)


@pytest.mark.parametrize(
    ("hold", "plugin", "dra"),
    [
        (pod(ONE), (False, Cause.OVERLAP), (False, Cause.OTHER_DOOR)),
        (claim(ONE), (False, Cause.OTHER_DOOR), (False, Cause.OVERLAP)),
        (draining(ONE), (False, Cause.PENDING_RELEASE), (False, Cause.PENDING_RELEASE)),
    ],
)
def test_parts_of_what_is_held_are_given_by_no_door(hold: Hold, plugin: Shown, dra: Shown) -> None:
    for part in (PART, SIBLING):
        assert both(part, rule(Doors.BOTH), context(hold), ONE) == (plugin, dra)


def test_the_reason_names_who_is_in_the_way_and_how_it_overlaps() -> None:
    rules = (rule(Doors.BOTH),)
    found = items(offer(snapshot(ONE, PART), rules, context(pod(PART)), Door.PLUGIN))
    why = f"its part, {PART.name}, is held through the plugin door by team/pod"
    assert found[ONE.name].reason == why
    found = items(offer(snapshot(ONE, PART), rules, context(claim(ONE)), Door.PLUGIN))
    why = f"what it is a part of, {ONE.name}, is held through the dra door by team/claim (uid-1)"
    assert found[PART.name].reason == why
    found = items(offer(snapshot(ONE), rules, context(draining(ONE)), Door.DRA))
    assert found[ONE.name].reason == "pending release: process 41"


@pytest.mark.parametrize(
    ("doors", "plugin", "dra"),
    [
        (Doors.PLUGIN, GIVEN, None),
        (Doors.BOTH, GIVEN, (False, Cause.HOLDS_UNKNOWN)),
        (Doors.DRA, None, (False, Cause.HOLDS_UNKNOWN)),
    ],
)
def test_not_knowing_what_pods_have_restricts_the_dra_door_alone(doors: Doors, plugin: Shown, dra: Shown) -> None:
    assert both(ONE, rule(doors), context(known=False)) == (plugin, dra)


def test_a_claim_that_has_its_device_keeps_it_while_nothing_is_known() -> None:
    assert both(ONE, rule(Doors.BOTH), context(claim(ONE), known=False)) == ((False, Cause.OTHER_DOOR), GIVEN)


def test_what_an_instance_before_may_still_allocate_is_withheld_from_claims() -> None:
    answering = context(known=True, settled=False)
    assert both(ONE, rule(Doors.BOTH), answering) == (GIVEN, (False, Cause.HOLDS_UNKNOWN))
    # No instance allocates what only claims can have and the kubelet does not count.
    assert both(ONE, rule(Doors.DRA), answering) == (None, GIVEN)


@pytest.mark.parametrize(
    ("state", "plugin", "dra"),
    [
        (context(), None, GIVEN),
        (context(at_kubelet=[ONE]), None, (False, Cause.MOVING)),
        (context(at_kubelet=[ONE], listed=[ONE]), (False, Cause.MOVING), (False, Cause.MOVING)),
        # The kubelet forgets what nobody lists.
        (context(listed=[ONE]), None, GIVEN),
        (context(pod(ONE), at_kubelet=[ONE], listed=[ONE]), GIVEN, (False, Cause.OTHER_DOOR)),
        # Held, and this instance has not listed anything yet.
        (context(pod(ONE)), GIVEN, (False, Cause.OTHER_DOOR)),
        (context(draining(ONE), at_kubelet=[ONE], listed=[ONE]), (False, Cause.PENDING_RELEASE), (False, Cause.MOVING)),
        (context(draining(ONE)), None, (False, Cause.PENDING_RELEASE)),
        # A pod has given it back, and it is being looked at.
        (
            context(draining(ONE, Door.PLUGIN), at_kubelet=[ONE], listed=[ONE]),
            (False, Cause.MOVING),
            (False, Cause.MOVING),
        ),
        (context(draining(ONE, Door.PLUGIN)), None, (False, Cause.PENDING_RELEASE)),
        (context(claim(ONE), at_kubelet=[ONE]), None, GIVEN),
    ],
)
def test_a_rule_that_gives_a_device_to_claims_moves_it_when_the_kubelet_counts_it_no_more(
    state: OfferContext, plugin: Shown, dra: Shown
) -> None:
    assert both(ONE, rule(Doors.DRA), state) == (plugin, dra)


def test_a_resource_of_another_plugin_is_not_shown_for_what_a_pod_has_of_it() -> None:
    theirs = context(pod(ONE, resource="example.com/other"), at_kubelet=[ONE], listed=[ONE])
    assert both(ONE, rule(Doors.DRA), theirs) == (None, (False, Cause.OTHER_DOOR))


def test_what_a_pod_has_under_several_names_is_shown_under_ours() -> None:
    ids = (("example.com/other", "0"), (GPU, str(ONE.uuid)))
    both_names = replace(pod(ONE, resource="example.com/other"), ids=ids)
    state = context(both_names, at_kubelet=[ONE], listed=[ONE])
    assert both(ONE, rule(Doors.DRA), state) == (GIVEN, (False, Cause.OTHER_DOOR))


@pytest.mark.parametrize(
    ("state", "plugin", "dra"),
    [
        (context(), GIVEN, None),
        (context(at_scheduler=[ONE]), (False, Cause.MOVING), (False, Cause.MOVING)),
        # What it allocated already it goes on to give: it was free of claims then, or both doors had it.
        (context(at_scheduler=[ONE], offered=[ONE]), GIVEN, (False, Cause.MOVING)),
        (context(pod(ONE), at_scheduler=[ONE]), GIVEN, (False, Cause.OTHER_DOOR)),
        # Looked at after it came from claims, so that no pod has it yet.
        (
            context(draining(ONE, Door.PLUGIN), at_scheduler=[ONE]),
            (False, Cause.MOVING),
            (False, Cause.PENDING_RELEASE),
        ),
        # It may be a pod's: Allocate has the last word.
        (context(at_scheduler=[ONE], known=False), GIVEN, (False, Cause.MOVING)),
        (context(claim(ONE), at_scheduler=[ONE]), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
        # The slice is rid of it, the claim is not.
        (context(claim(ONE)), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
        (context(claim(ONE), at_scheduler=[ONE], known=False), (False, Cause.OTHER_DOOR), (False, Cause.MOVING)),
    ],
)
def test_a_rule_that_gives_a_device_to_pods_moves_it_when_no_claim_can_get_it_any_more(
    state: OfferContext, plugin: Shown, dra: Shown
) -> None:
    assert both(ONE, rule(Doors.PLUGIN), state) == (plugin, dra)


def test_what_both_doors_have_waits_for_neither() -> None:
    state = context(at_scheduler=[ONE], at_kubelet=[ONE], listed=[ONE], offered=[ONE])
    assert both(ONE, rule(Doors.BOTH), state) == (GIVEN, GIVEN)
    assert both(ONE, rule(Doors.BOTH), replace(state, offered=frozenset())) == (GIVEN, GIVEN)


def test_a_gpu_in_mig_mode_is_nothing_for_claims() -> None:
    whole = gpu(1, mig=True)
    assert both(whole, rule(Doors.BOTH), context(), PART) == (GIVEN, None)


def test_what_a_pod_has_is_shown_although_the_node_would_keep_it() -> None:
    kept = replace(ONE, host_use="it is the node's")
    assert both(kept, rule(Doors.PLUGIN), context()) == (None, None)
    assert both(kept, rule(Doors.PLUGIN), context(pod(ONE))) == ((False, Cause.NODE_USE), None)


def test_an_empty_node_has_nothing_at_either_door() -> None:
    for door in Door:
        assert offer(Snapshot(1), (rule(Doors.BOTH),), context(pod(ONE), claim(OTHER)), door) == Offer()


def test_a_device_that_a_pod_has_under_another_id_or_resource_is_not_given_to_another_pod() -> None:
    at_plugin = rule(Doors.PLUGIN)
    own = (GPU, offered_id(at_plugin, ONE))
    for ids, healthy in (((own,), True), ((("corp/gpu", own[1]),), False), (((GPU, "0"), own), True)):
        hold = replace(pod(ONE, resource=ids[0][0]), ids=ids)
        found = items(offer(snapshot(ONE), (at_plugin,), context(hold), Door.PLUGIN))[ONE.name]
        assert found.healthy is healthy
        if not healthy:
            assert found.cause is Cause.OVERLAP
            assert found.reason == f"held through the plugin door by team/pod as {own[1]} of corp/gpu"
