"""Every reason has a cause in one word, so that what the sentences say can be counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.edits.options import EditOptions
from node.eligibility import offer
from node.health.state import Health, HealthState
from node.inventory.model import Device, DeviceKind
from node.ledger.holds import Hold
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Cause, OfferedDevice, Withheld
from node.rules import Door, Doors, Rule, Selector
from tests.making.devices import nic
from tests.making.offered_devices import gpu, ill, mig, snapshot
from tests.node.offer.test_nics import ALL, USE, pf

GPUS = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)))


def entries(rules: tuple[Rule, ...], *devices: Device, held: str = "") -> list[OfferedDevice | Withheld]:
    holds = [Hold(held, Door.DRA, "team/claim", 1.0)] if held else []
    found = offer(snapshot(*devices), rules, OfferContext(by_place(holds)), Door.PLUGIN)
    return [*(item for resource in found.resources for item in resource.devices), *found.withheld]


def causes(rules: tuple[Rule, ...], *devices: Device, held: str = "") -> set[Cause | None]:
    return {item.cause for item in entries(rules, *devices, held=held)}


@pytest.mark.parametrize(
    ("rules", "devices", "cause"),
    [
        ((GPUS,), (mig(1, 0),), Cause.NO_RULE),
        ((replace(GPUS, door=Doors.DRA),), (gpu(1),), Cause.OTHER_DOOR),
        ((replace(GPUS, resource="gpu"),), (gpu(1),), Cause.BAD_NAME),
        ((GPUS,), (gpu(1, health=ill("lost")),), Cause.HEALTH),
        ((GPUS,), (gpu(1, health=ill("gone from its GPU; it was destroyed or created again")),), Cause.GONE),
        ((GPUS,), (gpu(1, health=Health(HealthState.UNKNOWN, "gone from sight: no answer")),), Cause.HEALTH),
        ((ALL,), (replace(nic(3), host_use=USE),), Cause.NODE_USE),
        ((ALL,), (pf(8),), Cause.NODE_USE),
        ((replace(ALL, link_health=True),), (nic(3, linkUp=False),), Cause.LINK_DOWN),
        ((replace(ALL, edits=EditOptions(rdma=True)),), (nic(3),), Cause.UNFIT),
    ],
)
def test_each_reason_has_its_cause(rules: tuple[Rule, ...], devices: tuple[Device, ...], cause: Cause) -> None:
    (item,) = entries(rules, *devices)
    assert (item.cause, bool(item.reason)) == (cause, True)


def test_a_device_that_can_be_allocated_has_none() -> None:
    assert causes((GPUS,), gpu(1)) == {None}


def test_a_device_that_a_pod_holds_through_the_other_door_is_that_doors() -> None:
    assert causes((GPUS,), gpu(1), held=gpu(1).name) == {Cause.OTHER_DOOR}


def test_rules_at_odds_are_told_from_rules_that_do_not_fit_the_node() -> None:
    other = replace(GPUS, selector=Selector(uuids=("GPU-2",)), edits=EditOptions(device_specs=False))
    first = replace(GPUS, selector=Selector(uuids=("GPU-1",)))
    assert causes((first, other), gpu(1), gpu(2)) == {None, Cause.RULE_CONFLICT}
    single = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.MIG,)), uniform=True)
    profiles = (mig(1, 0), mig(1, 4, "3g.20gb"))
    assert causes((single,), *profiles) == {Cause.NOT_UNIFORM}


def test_a_nic_whose_interface_moves_is_not_shown_to_claims_while_it_cannot_move() -> None:
    moves = replace(ALL, door=Doors.BOTH, moves_interface=True)
    stuck = OfferContext(unmovable="the runtime is away; start it")
    shown = offer(snapshot(nic(3)), (moves,), stuck, Door.DRA)
    assert [(each.reason, each.cause) for each in shown.withheld] == [
        ("its network interface cannot move into pods: the runtime is away; start it", Cause.UNMOVABLE)
    ]
    held = replace(stuck, holds=by_place([Hold(nic(3).name, Door.DRA, "team/claim", 1.0)]))
    assert offer(snapshot(nic(3)), (moves,), held, Door.DRA).withheld == (), "its claim keeps it"
    assert offer(snapshot(nic(3)), (moves,), stuck, Door.PLUGIN).withheld == (), "the plugin door moves nothing"
    assert offer(snapshot(nic(3)), (replace(moves, moves_interface=False),), stuck, Door.DRA).withheld == ()
