"""Replicas of a shared device through the plugin door: who holds which, what is left, and when one is free again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from node.eligibility import offer
from node.inventory.model import Capacity, Device, DeviceKind, Snapshot
from node.ledger.holds import HeldError, Hold, HoldState, conflict
from node.ledger.ledger import Ledger
from node.ledger.process_check import PendingRelease
from node.ledger.reader import Holding, Reading
from node.ledger.releases import remembered
from node.ledger.states import LedgerState
from node.ledger.tenants import WAIT
from node.offer import Cause, OfferedDevice
from node.rules import Door, Doors, Rule, Selector
from node.sharing import COMPUTE, MEMORY, MILLION, Amounts, Sharing
from node.values import replace
from ostler.agent.edges import Edges
from tests.making.grants import keeper_of
from tests.making.offered_devices import gpu, mig

GPU = "nvidia.com/gpu"
SIZE = 40 << 30
ONE = replace(gpu(1), capacity=(Capacity(MEMORY, SIZE),))
WHOLE: Amounts = ((COMPUTE, MILLION), (MEMORY, SIZE))
RULE = Rule(GPU, Selector(kinds=(DeviceKind.GPU, DeviceKind.MIG)), Doors.BOTH, sharing=Sharing(replicas=4))


def claim(percent: int, uid: str = "uid-claim", share: str = "s", pods: tuple[str, ...] = ()) -> Hold:
    """A claim that consumes so much of the GPU; all of it for no share."""
    amounts = tuple((name, amount * percent // 100) for name, amount in WHOLE) if share else ()
    whole = WHOLE if share else ()
    return Hold(ONE.name, Door.DRA, "team/claim", 0.0, uid, share, amounts=amounts, whole=whole, pods=pods)


class _Node:
    """A keeper with clocks of its own, and what the plugin door shows by it."""

    def __init__(self, *devices: Device, rule: Rule = RULE, looked: bool = True) -> None:
        self.now = 100.0
        self.pending_release = PendingRelease()
        self.keeper, self.grants = keeper_of(
            Ledger(), self.pending_release, Edges(lambda: 1000.0 + self.now, lambda: self.now)
        )
        self.plugin, self.tenants = self.keeper.plugin, self.keeper.tenants
        self.keeper.begin(0.0)
        self.place(rule, *(devices or (ONE,)))
        self.read()
        if looked:
            self.look()

    def place(self, rule: Rule, *devices: Device) -> None:
        self.rule, self.snapshot = rule, Snapshot(1, tuple(sorted(devices, key=lambda device: device.name)))
        self.keeper.place(self.snapshot, (rule,))

    def shown(self) -> dict[str, OfferedDevice]:
        """What the plugin door shows, by id."""
        found = offer(self.snapshot, (self.rule,), self.keeper.context(), Door.PLUGIN)
        return {item.id: item for resource in found.resources for item in resource.devices}

    def at_claims(self) -> tuple[bool, Cause | None]:
        """Whether claims may have shares of GPU 1, and why not."""
        (resource,) = offer(self.snapshot, (self.rule,), self.keeper.context(), Door.DRA).resources
        (item,) = [item for item in resource.devices if item.device.name == ONE.name]
        return item.healthy, item.cause

    def given(self) -> list[str]:
        """The replicas (of GPU 1) that may be allocated."""
        return [item.share for item in self.shown().values() if item.healthy and item.device.name == ONE.name]

    def allocate(self, *ids: str) -> None:
        self.now += 1.0
        shown = self.shown()
        self.grants.allocate(GPU, [shown[id_] for id_ in ids])

    def read(self, *had: tuple[str, str], resource: str = GPU) -> None:
        """The kubelet has these ids for these pods."""
        self.now += 11.0
        listed = tuple(Holding(resource, id_, "main", pod=f"team/{pod}") for id_, pod in had)
        recorded = tuple(Holding(resource, id_, "main", uid=pod) for id_, pod in had)
        self.keeper.read(Reading(self.now, listed, recorded, frozenset()))
        self.now += 1.0

    def look(self) -> None:
        """No process is found on anything."""
        self.now += 20.0
        for order in self.pending_release.due(self.now):
            self.pending_release.looked(order, (), self.now)
        self.keeper.settle()

    def ended(self, *pods: str) -> None:
        """No container of these pods runs."""
        self.tenants.gone(pods)
        self.keeper.settle()

    def take(self, hold: Hold) -> None:
        self.keeper.ledger.take(hold.owner, [hold])

    def held(self) -> dict[str, HoldState]:
        return {hold.owner: hold.state for hold in self.keeper.ledger.all}

    def state(self) -> LedgerState:
        return self.keeper.states.of(ONE.name)


def ids(numbers: Iterable[int]) -> list[str]:
    return [f"GPU-1::{number}" for number in numbers]


def test_every_replica_has_a_hold_of_its_own() -> None:
    node = _Node()
    assert list(node.shown()) == ids(range(4))
    node.allocate("GPU-1::2", "GPU-1::0")
    assert node.held() == {f"plugin/{ONE.name}::{n}": HoldState.ALLOCATED for n in (2, 0)}
    node.read(("GPU-1::0", "a"), ("GPU-1::2", "b"))
    holds = {hold.share: hold for hold in node.keeper.ledger.all}
    assert holds["2"].words == "held through the plugin door by team/b as share 2"
    assert holds["2"].pods == ("b",)
    assert holds["2"].amounts == ((COMPUTE, 250_000), (MEMORY, SIZE // 4))
    node.read(("GPU-1::0", "a"))
    node.ended("b")
    assert node.held() == {f"plugin/{ONE.name}::0": HoldState.LISTED}


def test_claims_and_replicas_share_a_device_as_far_as_it_goes() -> None:
    node = _Node()
    node.allocate("GPU-1::3")
    assert node.at_claims() == (True, None), "how much is left is what the slice says"
    node.take(claim(50))
    assert node.given() == ["0", "3"], "one more fits, and what a pod has stays healthy"
    assert node.shown()["GPU-1::1"].cause is Cause.OTHER_DOOR
    assert node.shown()["GPU-1::1"].reason == (
        "other shares leave too little of it for this one: it is held through the dra door by team/claim (uid-claim) "
        "as share s"
    )
    node.allocate("GPU-1::0")
    assert node.given() == ["0", "3"]
    with pytest.raises(HeldError, match="has too little left for share 1"):
        node.allocate("GPU-1::1")
    with pytest.raises(HeldError, match="has too little left for share t"):
        node.take(claim(10, "uid-2", "t"))
    assert node.state() is LedgerState.BOTH
    node.keeper.ledger.release("uid-claim")
    assert node.given() == ["0", "1", "2", "3"]
    assert node.state() is LedgerState.POD


def test_a_claim_for_the_whole_device_leaves_no_replica_and_a_replica_leaves_no_whole() -> None:
    node = _Node()
    node.take(claim(100, share=""))
    assert node.given() == []
    assert {item.cause for item in node.shown().values()} == {Cause.OTHER_DOOR}
    node.keeper.ledger.release("uid-claim")
    node.look()
    node.allocate("GPU-1::0")
    with pytest.raises(HeldError):
        node.take(claim(100, share=""))


def test_a_share_given_back_is_free_when_its_own_containers_are_gone_whatever_the_others_do() -> None:
    node = _Node()
    node.allocate(*ids(range(3)))
    node.read(("GPU-1::0", "a"), ("GPU-1::1", "b"), ("GPU-1::2", "c"))
    node.read(("GPU-1::0", "a"), ("GPU-1::1", "b"))
    assert node.held()[f"plugin/{ONE.name}::2"] is HoldState.PENDING_RELEASE
    assert node.given() == ["0", "1", "2", "3"], "an Allocate waits for the containers"
    with pytest.raises(HeldError, match="has too little left for share s"):
        node.take(claim(50))
    node.now += WAIT
    node.keeper.settle()
    assert node.given() == ["0", "1", "3"]
    assert node.shown()["GPU-1::2"].cause is Cause.PENDING_RELEASE
    assert "containers of pod team/c (UID c) still run" in node.shown()["GPU-1::2"].reason
    node.ended("c")
    assert node.given() == ["0", "1", "2", "3"]
    node.take(claim(50))
    assert node.pending_release.wanted() == {}, "processes of the other pods are on the device"


def test_an_allocate_of_one_replica_waits_for_nobody_who_has_another() -> None:
    node = _Node()
    node.read(("GPU-1::0", "a"), ("GPU-1::1", "b"))
    assert node.tenants.suspects(ONE.name, (), "1") == {"b"}
    assert node.tenants.suspects(ONE.name, (), "2") == frozenset()
    assert node.tenants.suspects(ONE.name, ()) == {"a", "b"}, "the whole device waits for both"
    assert set(node.plugin.ids.of(ONE.name, "1")) == {(GPU, "GPU-1::1")}
    assert set(node.plugin.ids.of(ONE.name)) == {(GPU, "GPU-1::0"), (GPU, "GPU-1::1")}


def test_the_last_share_that_is_given_back_is_followed_by_a_check_for_processes() -> None:
    node = _Node()
    node.allocate("GPU-1::0", "GPU-1::1")
    node.read(("GPU-1::0", "a"), ("GPU-1::1", "b"))
    node.read(("GPU-1::1", "b"))
    node.ended("a")
    assert not node.pending_release.wanted()
    node.read()
    assert node.state() is LedgerState.POD_CONTAINERS
    node.ended("b")
    assert node.state() is LedgerState.POD_CHECK
    assert node.given() == ["0", "1", "2", "3"]
    with pytest.raises(HeldError, match="pending release: ostler is checking"):
        node.take(claim(10))
    node.look()
    node.take(claim(10))


def test_containers_that_run_keep_the_share_of_a_claim_too() -> None:
    node = _Node()
    node.allocate("GPU-1::0")
    node.take(claim(50, pods=("p",)))
    node.keeper.settle()
    node.keeper.ledger.release("uid-claim")
    assert node.held()[f"draining/{ONE.name}::s"] is HoldState.PENDING_RELEASE
    assert node.given() == ["0", "1"]
    node.ended("p")
    assert node.given() == ["0", "1", "2", "3"]


def test_replicas_that_another_plugin_left_in_the_kubelets_checkpoint_are_taken_over() -> None:
    node = _Node()
    node.read(("GPU-1::7", "a"), ("GPU-1::8", "b"))
    assert node.held() == {f"plugin/{ONE.name}::{n}": HoldState.LISTED for n in (7, 8)}
    shown = node.shown()
    assert list(shown) == ids((0, 1, 2, 3, 7, 8)), "the kubelet would end pods whose replica it does not know"
    assert node.given() == ["0", "1", "7", "8"]
    assert shown["GPU-1::2"].cause is Cause.OVERLAP
    node.read(("GPU-1::7", "a"))
    node.ended("b")
    assert list(node.shown()) == ids((0, 1, 2, 3, 7))


def test_a_device_that_a_pod_had_whole_before_it_was_shared_stays_its_own() -> None:
    node = _Node(rule=replace(RULE, sharing=None))
    node.read(("GPU-1", "a"))
    node.place(RULE, ONE)
    shown = node.shown()
    assert {id_: item.cause for id_, item in shown.items()} == dict.fromkeys(ids(range(4)), Cause.OVERLAP) | {
        "GPU-1": None
    }
    assert node.at_claims() == (False, Cause.OTHER_DOOR)
    with pytest.raises(HeldError, match="held through the plugin door by team/a"):
        node.allocate("GPU-1::0")
    node.read()
    node.ended("a")
    assert list(node.shown()) == ids(range(4))
    assert len(node.given()) == 4


def test_pods_with_shares_of_a_device_that_is_no_longer_shared_keep_it_from_others() -> None:
    node = _Node()
    node.read(("GPU-1::0", "a"), ("GPU-1::3", "b"))
    node.place(replace(RULE, sharing=None), ONE)
    assert node.held() == {f"plugin/{ONE.name}": HoldState.LISTED}
    assert node.shown()["GPU-1"].cause is Cause.OVERLAP
    with pytest.raises(HeldError):
        node.take(claim(10))


def test_replicas_that_another_resource_has_are_the_whole_device() -> None:
    node = _Node()
    node.read(("GPU-1::0", "a"), resource="other.com/gpu")
    assert node.held() == {f"plugin/{ONE.name}": HoldState.LISTED}
    assert node.given() == []


def test_mig_devices_are_shared_too_and_keep_their_gpu() -> None:
    part = replace(mig(1, 0), capacity=(Capacity(MEMORY, 5 << 30),))
    node = _Node(ONE, part)
    node.allocate("MIG-1-0::1")
    assert node.held() == {f"plugin/{part.name}::1": HoldState.ALLOCATED}
    assert [id_ for id_, item in node.shown().items() if item.healthy] == [f"MIG-1-0::{n}" for n in range(4)]
    with pytest.raises(HeldError, match=f"device {ONE.name}, whose part {part.name} is held"):
        node.take(claim(10))


def test_a_claims_reservation_of_a_share_is_entered_beside_pods_and_makes_none_of_them_ill() -> None:
    node = _Node()
    node.allocate("GPU-1::0")
    wish = replace(claim(50), state=HoldState.RESERVED)
    node.keeper.reserve({"uid-claim": (wish,)})
    assert node.held()["uid-claim"] is HoldState.RESERVED
    assert node.state() is LedgerState.POD
    assert node.given() == ["0", "1"]
    node.keeper.reserve({})
    assert node.given() == ["0", "1", "2", "3"]


def test_what_the_plugin_door_shows_as_free_can_be_allocated_in_any_order() -> None:
    node = _Node()
    node.take(claim(30))
    while free := [id_ for id_ in node.shown() if id_ not in {hold.ids[0][1] for hold in pods(node)} and ok(node, id_)]:
        node.allocate(free[-1])
    assert len(pods(node)) == 2
    every = node.keeper.ledger.all
    assert all(conflict(hold, [each for each in every if each is not hold]) is None for hold in every)


def pods(node: _Node) -> list[Hold]:
    return [hold for hold in node.keeper.ledger.all if hold.door is Door.PLUGIN]


def ok(node: _Node, id_: str) -> bool:
    return node.shown()[id_].healthy


def test_shares_of_pods_are_remembered_by_the_next_process(tmp_path: Path) -> None:
    from node.files import write_record
    from node.ledger.releases import FILE_NAME, SCHEMA, _json

    node = _Node()
    node.read(("GPU-1::0", "a"))
    node.take(claim(50, pods=("p",)))
    node.take(Hold("mig-2", Door.DRA, "team/part", 0.0, "uid-2", within=("gpu-2",), pods=("q",), slices=(4, 2)))
    node.keeper.settle()
    write_record(tmp_path / FILE_NAME, SCHEMA, _json(node.tenants.all))
    assert set(remembered(tmp_path)) == set(node.tenants.all)
    assert {(each.share, each.slices) for each in remembered(tmp_path)} == {("0", None), ("s", None), ("", (4, 2))}


def test_while_containers_keep_the_last_share_claims_wait_for_the_check_and_pods_have_the_others() -> None:
    node = _Node()
    node.read(("GPU-1::0", "a"))
    node.read()
    assert node.state() is LedgerState.POD_CONTAINERS
    assert node.given() == ["0", "1", "2", "3"]
    assert node.at_claims() == (False, Cause.PENDING_RELEASE)
    with pytest.raises(HeldError, match="pending release"):
        node.take(claim(10))
    node.now += WAIT
    node.keeper.settle()
    assert node.given() == ["1", "2", "3"]
    node.ended("a")
    node.look()
    assert node.at_claims() == (True, None)


def test_claims_get_no_share_of_a_device_that_pods_have_nearly_all_of() -> None:
    node = _Node()
    node.allocate(*ids(range(3)))
    assert node.at_claims() == (True, None)
    node.allocate("GPU-1::3")
    assert node.at_claims() == (False, Cause.OTHER_DOOR)


def test_a_share_that_was_reserved_beside_pods_waits_for_the_check_after_them() -> None:
    node = _Node()
    node.allocate("GPU-1::0")
    node.read(("GPU-1::0", "a"))
    node.keeper.reserve({"uid-claim": (replace(claim(50), state=HoldState.RESERVED),)})
    assert node.held()["uid-claim"] is HoldState.RESERVED
    node.read()
    node.ended("a")
    assert node.state() is LedgerState.POD_CHECK
    with pytest.raises(HeldError, match="pending release: ostler is checking"):
        node.take(claim(50))
    node.look()
    assert node.state() is LedgerState.RESERVED
    node.take(claim(50))


def test_a_claims_share_counts_while_its_containers_run_although_the_kubelet_was_never_read() -> None:
    node = _Node()
    node.keeper.begin(1e9)
    for uid, share in (("uid-1", "s"), ("uid-2", "t")):
        node.take(claim(50, uid, share, pods=(f"pod-{uid}",)))
    node.keeper.ledger.release("uid-1")
    assert node.held()[f"draining/{ONE.name}::s"] is HoldState.PENDING_RELEASE
    with pytest.raises(HeldError):
        node.allocate("GPU-1::0")
    node.ended("pod-uid-1")
    node.keeper.attribute(())
    node.allocate("GPU-1::0")


def test_shares_of_ended_pods_that_an_earlier_rule_gave_keep_no_replica_from_the_list() -> None:
    node = _Node(rule=replace(RULE, door=Doors.PLUGIN, sharing=Sharing(replicas=6)))
    node.allocate(*ids(range(6)))
    node.read(*((id_, f"pod-{number}") for number, id_ in enumerate(ids(range(6)))))
    node.place(replace(RULE, door=Doors.PLUGIN), ONE)
    node.read(*((id_, f"pod-{number}") for number, id_ in enumerate(ids(range(6))) if number in (0, 4, 5)))
    assert [state for state in node.held().values() if state is HoldState.PENDING_RELEASE] != []
    assert node.given() == ["0", "1", "4", "5"], "Allocate waits for the containers of the pods that ended"
    node.ended("pod-1", "pod-2", "pod-3")
    assert node.given() == ["0", "1", "4", "5"]
    node.allocate("GPU-1::1")
