"""Replicas of a shared device: what the plugin door shows of each, and which of them may be allocated."""

from __future__ import annotations

import pytest

from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.eligibility import offer
from node.health.state import HealthState
from node.inventory.model import Capacity, Device, DeviceKind
from node.ledger.holds import Hold, HoldState, pending_owner, plugin_owner, wholes_of
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Cause, OfferedDevice
from node.rules import Door, Doors, Rule, Selector
from node.sharing import MEMORY, Amounts, Sharing, whole_amounts
from node.values import replace
from tests.making.offered_devices import gpu, ill, mig, snapshot
from tests.node.offer.doors import GPU, context

ONE = gpu(1, capacity=(Capacity(MEMORY, 40 << 30),))
PART = mig(1, 0, capacity=(Capacity(MEMORY, 10 << 30),))
RULE = Rule(GPU, Selector(kinds=(DeviceKind.GPU, DeviceKind.MIG)), Doors.BOTH, sharing=Sharing(replicas=4))


def part_of(device: Device, percent: int) -> Amounts:
    return tuple((name, amount * percent // 100) for name, amount in whole_amounts(device))


def replica(number: int, state: HoldState = HoldState.LISTED, device: Device = ONE, id_: str = "") -> Hold:
    own = plugin_owner(device.name, str(number))
    sizes, ids = (part_of(device, 25), whole_amounts(device)), ((GPU, id_ or f"{device.uuid}::{number}"),)
    within = wholes_of(device)
    return Hold(
        device.name, Door.PLUGIN, "team/pod", 1.0, own, str(number), False, within, state, GPU, False, ids, (), *sizes
    )


def share(percent: int, state: HoldState = HoldState.PREPARED) -> Hold:
    sizes = {"amounts": part_of(ONE, percent), "whole": whole_amounts(ONE)}
    return Hold(ONE.name, Door.DRA, "team/claim", 1.0, "uid", "s", state=state, **sizes)  # type: ignore[arg-type]


def shown(state: OfferContext, rule: Rule = RULE, device: Device = ONE) -> list[OfferedDevice]:
    found = offer(snapshot(device), (rule,), state, Door.PLUGIN)
    return [item for resource in found.resources for item in resource.devices]


def causes(state: OfferContext, rule: Rule = RULE, device: Device = ONE) -> list[Cause | None]:
    return [item.cause for item in shown(state, rule, device)]


def test_a_sick_device_takes_all_of_its_replicas_with_it_whoever_has_them() -> None:
    for device in (ONE, PART):
        sick = replace(device, health=ill("XID 79"))
        items = shown(context(replica(2, device=device)), device=sick)
        assert [(item.healthy, item.reason, item.cause) for item in items] == [(False, "XID 79", Cause.HEALTH)] * 4
        weak = replace(device, health=ill("row remap pending", HealthState.DEGRADED))
        assert [(item.healthy, item.reason) for item in shown(NOTHING_HELD, device=weak)] == [
            (True, "row remap pending")
        ] * 4


def test_only_as_many_replicas_as_fit_beside_claims_may_be_allocated_and_those_of_pods_stay_healthy() -> None:
    assert causes(context(share(25))) == [None, None, None, Cause.OTHER_DOOR]
    assert causes(context(share(26))) == [None, None, Cause.OTHER_DOOR, Cause.OTHER_DOOR]
    assert causes(context(share(50), replica(3))) == [None, Cause.OTHER_DOOR, Cause.OTHER_DOOR, None]
    assert causes(context(share(50, HoldState.RESERVED), replica(3))) == causes(context(share(50), replica(3)))
    full = context(share(50), replica(3), replica(2))
    assert causes(full) == [Cause.OTHER_DOOR, Cause.OTHER_DOOR, None, None]
    # More than there is, because the world has it: what pods have is theirs all the same.
    assert causes(context(share(90), replica(0), replica(1))) == [None, None, Cause.OTHER_DOOR, Cause.OTHER_DOOR]


def test_while_it_is_not_known_which_replicas_pods_have_all_of_them_stay_healthy() -> None:
    assert causes(context(share(75), known=False)) == [None] * 4


@pytest.mark.parametrize(
    ("hold", "cause"),
    [
        (replace(share(100), share="", amounts=(), whole=()), Cause.OTHER_DOOR),
        (replace(share(10), amounts=()), Cause.OTHER_DOOR),
        (Hold(PART.name, Door.DRA, "team/claim", 1.0, "uid", within=(ONE.name,)), Cause.OTHER_DOOR),
        (Hold(PART.name, Door.PLUGIN, "team/pod", 1.0, plugin_owner(PART.name), within=(ONE.name,)), Cause.OVERLAP),
        (
            Hold(ONE.name, None, "process 41", 1.0, pending_owner(ONE.name), state=HoldState.PENDING_RELEASE),
            Cause.PENDING_RELEASE,
        ),
    ],
)
def test_whoever_has_the_device_a_part_of_it_or_nobody_knows_how_much_leaves_no_replica(
    hold: Hold, cause: Cause
) -> None:
    assert causes(context(hold)) == [cause] * 4


def test_looking_on_leaves_everything() -> None:
    assert causes(context(replace(share(100), admin=True))) == [None] * 4


def test_a_replica_whose_pod_has_ended_is_shown_while_allocate_waits_and_counts() -> None:
    waits = replica(0, HoldState.PENDING_RELEASE)
    assert causes(context(waits, share(50))) == [None, None, Cause.OTHER_DOOR, Cause.OTHER_DOOR]
    later = replace(waits, door=None, owner=pending_owner(ONE.name, "0"))
    assert causes(context(later, share(50))) == [
        Cause.PENDING_RELEASE,
        None,
        Cause.OTHER_DOOR,
        Cause.OTHER_DOOR,
    ]


def test_a_replica_that_a_pod_has_under_another_id_is_not_allocated_as_its_own() -> None:
    (first, *others) = shown(context(replica(0, id_="gpu-1::0")))
    assert (first.healthy, first.cause) == (False, Cause.OVERLAP)
    assert all(item.healthy for item in others)


def test_a_rule_that_takes_a_device_from_the_plugin_door_leaves_pods_their_replicas() -> None:
    claims = replace(RULE, door=Doors.DRA)
    assert causes(context(), claims) == []
    assert causes(context(replica(1), at_kubelet=[ONE]), claims) == [Cause.MOVING, None, Cause.MOVING, Cause.MOVING]


def test_what_containers_would_miss_is_missed_by_all_replicas() -> None:
    delegated = EditOptions(strategies=(ListStrategy.CDI_CRI,), cdi_mode=CdiMode.DELEGATE)
    items = shown(NOTHING_HELD, replace(RULE, edits=delegated))
    assert {item.cause for item in items} == {Cause.UNFIT}
    assert "defines nvidia.com/gpu=GPU-1;" in items[3].reason, "CDI knows the device and no replica of it"


def test_a_device_that_is_not_shared_is_one_whole_device_of_the_resource() -> None:
    sharing = Sharing(replicas=4, own_replicas=(("GPU-2", 1),))
    found = offer(snapshot(ONE, gpu(2)), (replace(RULE, sharing=sharing),), NOTHING_HELD, Door.PLUGIN)
    (resource,) = found.resources
    assert [item.id for item in resource.devices] == [*(f"GPU-1::{n}" for n in range(4)), "GPU-2"]
    assert [item.share for item in resource.devices] == ["0", "1", "2", "3", ""]
    assert [item.device_id for item in resource.distinct] == ["GPU-1", "GPU-2"]
