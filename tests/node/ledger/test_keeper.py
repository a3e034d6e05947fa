"""The ledger of the node: everything that is known of holds, brought together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from node.health.state import Health
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger.events import ClaimRefused, HoldsChanged, ReleasesPending
from node.ledger.holds import HeldError, Hold, HoldState
from node.ledger.ledger import Ledger
from node.ledger.process_check import PendingRelease
from node.ledger.processes import Process
from node.ledger.reader import Holding, Reading
from node.ledger.states import LedgerState
from node.offer import OfferedDevice
from node.rules import Door, Doors, Rule, Selector
from node.values import replace
from ostler.agent.edges import Edges
from tests.making.grants import keeper_of

GPU = "nvidia.com/gpu"
BOTH = Rule(GPU, Selector(kinds=(DeviceKind.GPU, DeviceKind.MIG)), Doors.BOTH)


def gpu(number: int) -> Device:
    return Device(f"gpu-{number}", DeviceKind.GPU, "nvidia", uuid=f"GPU-{number}", health=Health())


def mig(number: int, of: int) -> Device:
    return Device(f"mig-{of}-{number}", DeviceKind.MIG, "nvidia", uuid=f"MIG-{of}-{number}", parent=f"gpu-{of}")


class _Node:
    """A keeper with clocks of its own; looks for processes find what ``left`` says."""

    def __init__(self, *devices: Device, rule: Rule = BOTH, read: bool = True) -> None:
        self.now = 100.0
        self.left: dict[str, tuple[Process, ...]] = {}
        self.changes = 0
        self.refused: list[tuple[str, str]] = []
        self.pending_release = PendingRelease()
        self.keeper, self.grants = keeper_of(
            Ledger(), self.pending_release, Edges(lambda: 1000.0 + self.now, lambda: self.now)
        )
        bus = self.keeper.ledger.bus
        bus.subscribe(HoldsChanged, self._changed)
        bus.subscribe(ClaimRefused, lambda event: self.refused.append((event.uid, event.error.wanted.device)))
        self.devices = devices
        self.keeper.begin(0.0)
        self.keeper.place(Snapshot(1, devices), (rule,))
        if read:
            self.read()

    def _changed(self, _: HoldsChanged) -> None:
        self.changes += 1

    def allocate(self, *devices: Device) -> None:
        self.now += 1.0
        self.grants.allocate(GPU, [OfferedDevice(str(device.uuid), device, healthy=True) for device in devices])

    def read(self, *listed: Device, recorded: Iterable[Device] = ()) -> None:
        self.now += 11.0
        self.keeper.read(
            Reading(
                self.now,
                tuple(Holding(GPU, str(device.uuid), "main", pod="team/pod") for device in listed),
                tuple(Holding(GPU, str(device.uuid), "main", uid="uid-pod") for device in recorded),
                frozenset(),
            )
        )
        self.now += 1.0

    def look(self) -> None:
        self.now += 20.0
        for order in self.pending_release.due(self.now):
            self.pending_release.looked(order, self.left.get(order.device.name, ()), self.now)
        self.keeper.settle()

    def state(self, device: Device) -> tuple[Door | None, HoldState] | None:
        hold = self.keeper.ledger.by_device().get(device.name)
        return None if hold is None else (hold.door, hold.state)


def claim(device: Device, uid: str = "uid-claim", state: HoldState = HoldState.PREPARED) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 0.0, owner=uid, state=state)


def test_a_device_that_nobody_ever_held_waits_for_a_look_and_the_plugin_door_need_not() -> None:
    node = _Node(gpu(0))
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.PENDING_RELEASE)
    with pytest.raises(HeldError, match="gpu-0 is pending release: ostler is checking for processes"):
        node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.allocate(gpu(0))
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.ALLOCATED)


def test_what_allocate_allocates_is_not_given_to_a_claim_until_it_is_proved_to_be_free() -> None:
    node = _Node(gpu(0))
    node.look()
    assert node.state(gpu(0)) is None
    node.allocate(gpu(0))
    node.read(gpu(0))
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.LISTED)
    with pytest.raises(HeldError, match="device gpu-0 is held through the plugin door by team/pod"):
        node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.read()
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.PENDING_RELEASE)
    node.look()
    assert node.state(gpu(0)) is None
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])


def test_allocate_is_refused_what_a_claim_has_and_nothing_of_the_request_is_taken() -> None:
    node = _Node(gpu(0), gpu(1))
    node.look()
    node.keeper.ledger.take("uid-claim", [claim(gpu(1))])
    with pytest.raises(HeldError, match=r"device gpu-1 is held through the dra door by team/claim \(uid-claim\)"):
        node.allocate(gpu(0), gpu(1))
    assert node.state(gpu(0)) is None


def test_a_whole_is_not_allocated_beside_a_part_of_it() -> None:
    node = _Node(gpu(0), mig(1, 0), mig(2, 0))
    node.look()
    node.allocate(mig(1, 0))
    with pytest.raises(HeldError, match="device gpu-0, whose part mig-0-1 is held through the plugin door"):
        node.allocate(gpu(0))
    node.allocate(mig(2, 0))


def test_a_whole_and_a_part_of_it_are_not_allocated_at_once() -> None:
    node = _Node(gpu(0), gpu(1), mig(1, 0), mig(2, 0))
    node.look()
    for both in ((gpu(0), mig(1, 0)), (mig(1, 0), gpu(0))):
        with pytest.raises(HeldError, match=r"device (gpu-0|mig-0-1), (whose|which is) part"):
            node.allocate(gpu(1), *both)
        assert node.keeper.ledger.all == ()
    node.allocate(mig(1, 0), mig(2, 0))


def test_a_device_a_claim_had_is_nobodys_while_a_look_finds_a_process() -> None:
    node = _Node(gpu(0))
    node.look()
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.left = {"gpu-0": (Process(7, "python3"),)}
    node.keeper.ledger.release("uid-claim")
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    node.look()
    with pytest.raises(HeldError, match=r"device gpu-0 is pending release: process 7 \(python3\)"):
        node.allocate(gpu(0))
    node.left = {}
    node.look()
    node.allocate(gpu(0))


def test_a_process_that_a_pod_of_the_plugin_door_left_keeps_that_door_away_too() -> None:
    node = _Node(gpu(0))
    node.look()
    node.allocate(gpu(0))
    node.read(gpu(0))
    node.left = {"gpu-0": (Process(7, "python3"),)}
    node.read()
    node.look()
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    assert node.keeper.release("gpu-0")
    assert node.state(gpu(0)) is None
    assert not node.keeper.release("gpu-0")


def test_a_reservation_waits_behind_a_fact_and_gets_its_turn() -> None:
    node = _Node(gpu(0), gpu(1))
    node.look()
    node.allocate(gpu(0))
    reserved = {"uid-claim": tuple(claim(device, state=HoldState.RESERVED) for device in node.devices)}
    node.keeper.reserve(reserved)
    assert node.refused == [("uid-claim", "gpu-0")]
    assert node.state(gpu(1)) == (Door.DRA, HoldState.RESERVED)
    node.read(gpu(0))
    node.read()
    node.look()
    assert node.state(gpu(0)) == (Door.DRA, HoldState.RESERVED)
    node.keeper.reserve({})
    node.look()
    assert node.state(gpu(0)) is node.state(gpu(1)) is None


def test_a_reservation_never_takes_the_place_of_what_is_prepared() -> None:
    node = _Node(gpu(0))
    node.look()
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.keeper.reserve({"uid-claim": (claim(gpu(0), state=HoldState.RESERVED),)})
    assert node.state(gpu(0)) == (Door.DRA, HoldState.PREPARED)
    node.keeper.ledger.release("uid-claim")
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    node.look()
    assert node.state(gpu(0)) == (Door.DRA, HoldState.RESERVED)


def test_nothing_is_told_where_nothing_changed() -> None:
    node = _Node(gpu(0), gpu(1))
    node.look()
    node.allocate(gpu(0))
    node.keeper.reserve({"uid-claim": (claim(gpu(0), state=HoldState.RESERVED),)})
    before = node.changes
    for _ in range(3):
        node.keeper.settle()
        node.keeper.place(Snapshot(1, node.devices), (BOTH,))
    assert node.changes == before


def test_nothing_is_looked_at_before_it_is_known_what_pods_have() -> None:
    node = _Node(gpu(0), mig(0, 0))
    node.keeper.begin(0.0)
    fresh, _ = keeper_of(Ledger(), PendingRelease(), Edges(lambda: node.now, lambda: node.now))
    fresh.begin(0.0)
    fresh.place(Snapshot(1, node.devices), (BOTH,))
    assert fresh.ledger.all == ()


def test_what_a_claim_waits_for_at_the_start_is_looked_at_as_soon_as_it_is_known_what_pods_have() -> None:
    node = _Node(gpu(0), read=False)
    node.left["gpu-0"] = (Process(41, "python3"),)
    node.keeper.reserve({"uid-claim": (claim(gpu(0), state=HoldState.RESERVED),)})
    assert node.state(gpu(0)) == (Door.DRA, HoldState.RESERVED)
    node.read()
    node.look()
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    node.left.clear()
    node.now += 1.0
    node.look()
    assert node.state(gpu(0)) == (Door.DRA, HoldState.RESERVED)


def test_a_part_is_not_allocated_while_it_is_not_known_whether_a_pod_has_the_whole() -> None:
    node = _Node(gpu(0), mig(0, 0), gpu(1))
    node.now += 100.0
    for device in (gpu(0), mig(0, 0)):
        with pytest.raises(
            HeldError, match="held through the plugin door by a pod, possibly: the kubelet has not reported"
        ):
            node.allocate(device)
    node.allocate(gpu(1))
    node.read()
    node.look()
    node.allocate(mig(0, 0))


def test_a_rule_that_takes_the_whole_from_the_plugin_door_does_not_free_its_parts_while_that_is_not_known() -> None:
    node = _Node(gpu(0), mig(0, 0))
    parts, wholes = (Selector(kinds=(DeviceKind.MIG,)), Selector(kinds=(DeviceKind.GPU,)))
    moved = (Rule("nvidia.com/mig", parts), Rule(GPU, wholes, Doors.DRA))
    node.now += 100.0
    for rules in (moved, moved[:1]):
        node.keeper.place(Snapshot(1, node.devices), rules)
        with pytest.raises(HeldError, match="part of gpu-0, is held through the plugin door by a pod, possibly"):
            node.allocate(mig(0, 0))
    node.read()
    node.look()
    node.allocate(mig(0, 0))
    # Known once, what happens to the kubelet later is no reason: nobody can have been given the whole since.
    node.now += 100.0
    node.allocate(mig(0, 0))


def test_a_device_of_claims_alone_is_looked_at_once_and_free_at_once_from_then_on() -> None:
    node = _Node(gpu(0), rule=Rule(GPU, Selector(), Doors.DRA))
    node.left["gpu-0"] = (Process(41, "python3"),)
    node.look()
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    node.left.clear()
    node.look()
    assert node.state(gpu(0)) is None
    node.left["gpu-0"] = (Process(42, "python3"),)
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.keeper.ledger.release("uid-claim")
    assert node.state(gpu(0)) is None


def test_a_device_that_a_rule_has_moved_is_looked_at_before_the_other_door_has_it() -> None:
    node = _Node(gpu(0), rule=Rule(GPU, Selector(), Doors.PLUGIN))
    node.allocate(gpu(0))
    node.read(gpu(0))
    node.keeper.place(Snapshot(1, node.devices), (Rule(GPU, Selector(), Doors.DRA),))
    node.read()
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.PENDING_RELEASE)
    node.look()
    assert node.state(gpu(0)) is None


def test_a_device_that_nobody_had_when_a_rule_moved_it_is_looked_at_all_the_same() -> None:
    node = _Node(gpu(0), rule=Rule(GPU, Selector(), Doors.PLUGIN))
    node.left["gpu-0"] = (Process(41, "python3"),)
    node.keeper.place(Snapshot(1, node.devices), (Rule(GPU, Selector(), Doors.DRA),))
    node.look()
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)


@pytest.mark.parametrize("rules", [(), (Rule(GPU, Selector(), Doors.DRA),)], ids=["no rule", "moved and moved back"])
def test_what_is_back_at_the_plugin_door_alone_does_not_wait_for_what_pods_left(rules: tuple[Rule, ...]) -> None:
    plugin = Rule(GPU, Selector(), Doors.PLUGIN)
    node = _Node(gpu(0), rule=plugin)
    node.left["gpu-0"] = (Process(41, "exporter"),)
    node.keeper.place(Snapshot(1, node.devices if rules else ()), rules or (plugin,))
    node.keeper.place(Snapshot(1, node.devices), (plugin,))
    node.look()
    assert node.state(gpu(0)) is None


def test_a_claim_that_came_and_went_after_its_rule_had_is_looked_after_all_the_same() -> None:
    node = _Node(gpu(0), rule=Rule(GPU, Selector(), Doors.PLUGIN))
    # Prepared by what was allocated before, and no watch had told of it.
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.left["gpu-0"] = (Process(41, "python3"),)
    node.keeper.ledger.release("uid-claim")
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    with pytest.raises(HeldError, match="pending release"):
        node.allocate(gpu(0))


def test_what_may_be_answered_by_the_instance_before_is_not_known() -> None:
    node = _Node(gpu(0))
    node.keeper.begin(node.now + 30.0)
    node.read()
    assert not node.keeper.known
    assert node.keeper.context().known
    assert not node.keeper.context().settled
    node.keeper.changed_over(node.now)
    node.read()
    assert node.keeper.known


def test_what_no_instance_can_allocate_is_known_however_long_another_one_answers() -> None:
    node = _Node(gpu(0), rule=Rule(GPU, Selector(), Doors.DRA))
    node.keeper.begin(node.now + 100.0)
    assert not node.keeper.known
    node.read()
    assert node.keeper.known


def test_only_a_claim_that_lost_to_the_plugin_door_is_told_so() -> None:
    node = _Node(gpu(0), gpu(1))
    node.look()
    node.keeper.ledger.take("uid-first", [claim(gpu(0), "uid-first")])
    node.allocate(gpu(1))
    holds = tuple(claim(device, "uid-late", HoldState.RESERVED) for device in node.devices)
    node.keeper.reserve({"uid-late": holds})
    assert node.refused == [("uid-late", "gpu-1")]


def test_two_holders_of_one_device_are_both_kept() -> None:
    node = _Node(gpu(0))
    node.look()
    node.keeper.ledger.take("uid-claim", [claim(gpu(0))])
    node.read(gpu(0))
    assert {hold.door for hold in node.keeper.ledger.all} == {Door.PLUGIN, Door.DRA}
    node.keeper.ledger.release("uid-claim")
    assert node.state(gpu(0)) == (Door.PLUGIN, HoldState.LISTED)


def test_a_claim_that_turns_out_only_to_look_on_gives_its_device_back() -> None:
    node = _Node(gpu(0))
    node.look()
    node.keeper.ledger.restore("uid-claim", [claim(gpu(0))])
    node.keeper.ledger.take("uid-claim", [replace(claim(gpu(0)), admin=True)])
    assert node.keeper.states.of("gpu-0") is LedgerState.CLAIM_CHECK
    node.look()
    assert node.keeper.states.of("gpu-0") is LedgerState.FREE


def test_a_claim_that_is_given_back_at_once_keeps_its_device_while_its_pods_have_containers() -> None:
    node = _Node(gpu(0))
    node.look()
    node.keeper.ledger.take("uid-claim", [replace(claim(gpu(0)), pods=("uid-pod",))])
    node.keeper.ledger.release("uid-claim")
    assert node.keeper.states.of("gpu-0") is LedgerState.CLAIM_CONTAINERS
    node.look()
    assert node.state(gpu(0)) == (None, HoldState.PENDING_RELEASE)
    node.keeper.tenants.gone({"uid-pod"})
    node.look()
    assert node.state(gpu(0)) is None


def test_a_checkpoint_is_told_to_the_checks_which_know_whether_it_matters_to_them() -> None:
    node, told = _Node(gpu(0)), list[ReleasesPending]()
    node.keeper.ledger.bus.subscribe(ReleasesPending, told.append)
    for times, found in enumerate(((), (Holding(GPU, "GPU-0", "main", uid="uid-pod"),)), 1):
        node.keeper.attribute(found)
        assert len(told) == times
