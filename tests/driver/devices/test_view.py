"""The view of the DRA door: what is offered, how fit, where, and in which order."""

from __future__ import annotations

import pytest

from driver.devices.view import DraDevice, without_holds
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.health.state import Health, HealthState
from node.inventory.model import Attribute, Device, DeviceKind, Host
from node.ledger.holds import Hold
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Cause
from node.rules import Door, Doors, Rule, Selector
from node.values import replace
from tests.driver.devices.recorded import NODES, RULES, snapshot, snapshot_of, view
from tests.making.devices import gpu
from tests.making.dra_door import door_view

GPUS = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)), Doors.DRA)


def test_only_devices_of_rules_for_this_door_are_shown() -> None:
    rules = (Rule("nvidia.com/gpu", Selector(uuids=("GPU-0",)), Doors.PLUGIN), GPUS)
    shown = door_view(snapshot_of((gpu(0), gpu(1))), rules)
    assert [item.device.name for item in shown.devices] == [gpu(1).name]
    assert shown.device(gpu(1).name) is not None
    assert shown.device(gpu(0).name) is None
    looked_at = shown.device_for(gpu(0).name, looking=True)
    assert looked_at is not None
    assert without_holds(looked_at, shown.host).healthy
    assert shown.device_for(gpu(0).name, looking=False) is None
    assert shown.device_for(gpu(1).name, looking=True) is shown.device(gpu(1).name)
    assert shown.device_for("gpu-none", looking=True) is None


def test_host_and_generation_are_the_snapshots() -> None:
    host = Host(cdi_devices=frozenset({"a.com/b=c"}))
    shown = door_view(replace(snapshot_of((gpu(0),), host=host), generation=9), [GPUS])
    assert (shown.host, shown.generation) == (host, 9)


def test_a_device_held_through_the_plugin_door_is_shown_and_not_given() -> None:
    holds = [Hold(gpu(0).name, Door.PLUGIN, "team/pod", 1.0)]
    (item,) = door_view(snapshot_of((gpu(0),)), [GPUS], OfferContext(by_place(holds))).devices
    assert (item.healthy, item.cause) == (False, Cause.OTHER_DOOR)
    assert item.reason == "held through the plugin door by team/pod"


def test_a_device_held_by_a_claim_stays_healthy() -> None:
    holds = [Hold(gpu(0).name, Door.DRA, "team/claim", 1.0)]
    (item,) = door_view(snapshot_of((gpu(0),)), [GPUS], OfferContext(by_place(holds))).devices
    assert item.healthy


def test_an_ill_device_keeps_its_reason_and_cause() -> None:
    ill = replace(gpu(0), health=Health(HealthState.UNHEALTHY, "Xid 79"))
    (item,) = door_view(snapshot_of((ill,)), [GPUS]).devices
    assert (item.healthy, item.reason, item.cause) == (False, "Xid 79", Cause.HEALTH)


@pytest.mark.parametrize("strategy", ListStrategy)
def test_devices_are_given_by_cdi_whatever_strategy_the_rule_has(strategy: ListStrategy) -> None:
    rule = replace(GPUS, edits=EditOptions(strategies=(strategy,), cdi_mode=CdiMode.DELEGATE))
    (item,) = door_view(snapshot_of((gpu(0),)), [rule]).devices
    assert item.rule.edits.strategies == (ListStrategy.CDI_CRI,)
    assert item.reason == "no CDI spec on this node defines nvidia.com/gpu=GPU-0; run 'nvidia-ctk cdi generate'"


def test_kinds_come_in_order_and_parts_gpu_by_gpu() -> None:
    ranks = {"gpu": 0, "mig": 1, "partition": 1, "nic": 2, "rdma": 2}
    for name in NODES:
        kinds = [ranks[item.device.kind] for item in view(name).devices]
        assert kinds == sorted(kinds)
    parents = [item.device.parent for item in view("a100-mig-4").devices if item.device.parent]
    assert parents == sorted(parents)


def test_parts_of_a_gpu_and_of_a_port_come_by_their_numbers() -> None:
    starts = [
        item.device.attribute("placementStart")
        for item in view("a100-mig-4").devices
        if item.device.parent == "gpu-0000-c1-00-0"
    ]
    assert starts == [0, 1, 2, 3, 4, 5, 6]
    functions = [item.device.attribute("vfIndex") for item in view("sriov-2").devices]
    assert functions[:8] == list(range(8))
    assert functions[8:16] == list(range(8))


@pytest.mark.parametrize("name", NODES)
def test_the_order_does_not_depend_on_that_of_the_snapshot(name: str) -> None:
    one = snapshot(name)
    turned = replace(one, devices=tuple(reversed(one.devices)))
    assert door_view(turned, RULES).devices == view(name).devices


def test_a_device_that_is_nowhere_comes_last_among_its_kind() -> None:
    gone = replace(
        gpu(0), health=Health(HealthState.UNHEALTHY, "gone from the bus"), name="gpu-0000-00-00-0", pci_address=None
    )
    shown = door_view(snapshot_of((gone, gpu(1), gpu(2))), [GPUS])
    assert [item.device.name for item in shown.devices] == [gpu(1).name, gpu(2).name, gone.name]
    assert shown.devices[-1].cause is Cause.GONE
    assert shown.devices[-1].placement == ()


class TestWithoutHolds:
    """What is wrong with a device apart from who has it."""

    def shown(self, device: Device, rule: Rule = GPUS, host: Host | None = None) -> DraDevice:
        held = DraDevice(device, rule, False, "held", Cause.OTHER_DOOR, contested=True)
        return without_holds(held, host or Host())

    def test_a_device_with_which_nothing_else_is_wrong_may_be_given(self) -> None:
        assert self.shown(gpu(0)) == DraDevice(gpu(0), GPUS, True)

    @pytest.mark.parametrize("door", Doors)
    def test_the_door_of_its_rule_is_no_matter(self, door: Doors) -> None:
        assert self.shown(gpu(0), replace(GPUS, door=door)).healthy

    def test_what_is_wrong_with_it_is_told(self) -> None:
        rule = replace(GPUS, edits=EditOptions(strategies=(ListStrategy.CDI_CRI,), cdi_mode=CdiMode.DELEGATE))
        found = self.shown(gpu(0), rule)
        assert (found.healthy, found.cause) == (False, Cause.UNFIT)
        assert found.reason.startswith("no CDI spec on this node defines")

    def test_what_would_not_even_be_shown_is_told_as_well(self) -> None:
        in_mig_mode = replace(gpu(0), attributes=(*gpu(0).attributes, Attribute("migEnabled", True)))
        found = self.shown(in_mig_mode)
        assert (found.healthy, found.cause) == (False, Cause.MIG_MODE)
