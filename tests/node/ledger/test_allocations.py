"""What ends a hold of the plugin door, and what does not."""

from __future__ import annotations

import pytest

from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.ledger.allocations import ENTERED, KubeletAllocations
from node.ledger.holds import HoldState
from node.ledger.pods import NoPodsKnown
from node.rules import Door
from tests.making.grants import GPU, GrantedPods, grant, reading
from tests.making.offered_devices import gpu, mig, snapshot

ONE, TWO = gpu(0), gpu(1)
ID = ONE.uuid or ""
PART = mig(2, 0)


@pytest.fixture
def pods() -> GrantedPods:
    return GrantedPods()


def _holds(*devices: Device) -> KubeletAllocations:
    holds = KubeletAllocations()
    holds.place(snapshot(*(devices or (ONE, TWO, PART))), (GPU,))
    holds.barrier(0.0)
    return holds


def _states(holds: KubeletAllocations) -> dict[str, HoldState]:
    return {name: hold.state for name, hold in holds.wanted().items()}


def test_a_grant_holds_from_the_moment_of_the_answer() -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    (hold,) = holds.wanted().values()
    assert (hold.device, hold.door, hold.owner) == (ONE.name, Door.PLUGIN, f"plugin/{ONE.name}")
    assert (hold.state, hold.since, hold.resource) == (HoldState.ALLOCATED, 1000.0, GPU)
    assert hold.holder == "a pod that asked for nvidia.com/gpu"
    assert holds.unseen == 1


def test_a_reading_that_began_before_a_grant_says_nothing_of_it(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    for began in (4.0, 4.9, 5.0):
        holds.read(reading(began), pods, 0.0)
    assert _states(holds) == {ONE.name: HoldState.ALLOCATED}


def test_a_grant_that_nothing_shows_ends_after_two_readings_ten_seconds_apart(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    for began in (5.1, 9.0, 15.0):
        holds.read(reading(began), pods, 0.0)
        assert holds.wanted()
    holds.read(reading(15.1), pods, 0.0)
    assert not holds.wanted()


def test_devices_are_held_only_by_pods_that_a_whole_reading_shows(pods: GrantedPods) -> None:
    holds = _holds()
    pods.names["u1"] = "team/one"
    assert not holds.are_held_only_by({"u1"}, {"team/one"})
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 0.0)
    assert holds.are_held_only_by({"u1", "u2"}, {"team/one"})
    assert not holds.are_held_only_by({"u2"}, {"team/one"})
    assert not holds.are_held_only_by({"u1"}, {"team/two"})
    holds.read(reading(7.0, None, ()), pods, 0.0)
    assert not holds.are_held_only_by({"u1"}, {"team/one"})
    holds.read(reading(8.0), pods, 0.0)
    assert holds.are_held_only_by((), ())


def test_who_holds_a_device_is_open_until_a_reading_knows_the_pods_name(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, (), [(ID, "u1")]), pods, 0.0)
    assert not holds.are_held_only_by({"u1"}, {"team/one"})
    pods.names["u1"] = "team/one"
    assert not holds.are_held_only_by({"u1"}, {"team/one"})
    holds.read(reading(7.0, (), [(ID, "u1")]), pods, 0.0)
    assert holds.are_held_only_by({"u1"}, {"team/one"})


def test_who_holds_a_device_is_open_while_a_grant_is_unseen(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(4.0), pods, 0.0)
    holds.granted([grant(ONE)], 5.0, 0.0)
    late = 5.0 + ENTERED
    holds.attribute((), late)
    assert (holds.unattributed, holds.unseen) == (False, 1)
    assert not holds.are_held_only_by((), ())
    holds.read(reading(late + 1.0), pods, 0.0)
    assert not holds.are_held_only_by((), ())
    holds.read(reading(late + 60.0), pods, 0.0)
    assert holds.are_held_only_by((), ())


def test_who_holds_a_device_is_open_while_a_grant_has_no_record(pods: GrantedPods) -> None:
    holds = _holds()
    pods.names["u1"] = "team/one"
    holds.read(reading(4.0), pods, 0.0)
    holds.granted([grant(ONE)], 5.0, 0.0)
    holds.read(reading(5.1, [(ID, "team/one")], ()), pods, 0.0)
    assert (holds.unattributed, holds.unseen) == (True, 0)
    assert not holds.are_held_only_by({"u1"}, {"team/one"})
    holds.read(reading(5.2, [(ID, "team/one")], [(ID, "u1")]), pods, 0.0)
    assert holds.are_held_only_by({"u1"}, {"team/one"})


def test_a_reading_that_lacks_a_source_misses_nothing(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    holds.read(reading(6.0, listed=None), pods, 0.0)
    holds.read(reading(30.0, recorded=None), pods, 0.0)
    holds.read(reading(60.0), pods, 0.0)
    assert holds.wanted()
    holds.read(reading(70.0, allocatable=None), pods, 0.0)
    assert not holds.wanted()


def test_granting_again_begins_anew(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    holds.read(reading(6.0), pods, 0.0)
    holds.granted([grant(ONE)], 15.0, 1010.0)
    holds.read(reading(16.0), pods, 0.0)
    assert holds.wanted()[ONE.name].since == 1010.0


def test_what_was_listed_ends_with_the_first_reading_that_lacks_it(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 1001.0)
    (hold,) = holds.wanted().values()
    assert (hold.state, hold.holder, hold.since) == (HoldState.LISTED, "team/one", 1000.0)
    assert holds.unseen == 0
    holds.read(reading(7.0), pods, 1002.0)
    assert not holds.wanted()


def test_what_was_shown_outlives_readings_that_lack_a_source(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 1001.0)
    holds.read(reading(7.0, None, ()), pods, 1002.0)
    holds.read(reading(8.0, (), None), pods, 1002.0)
    holds.read(reading(9.0, None, None), pods, 1002.0)
    assert _states(holds) == {ONE.name: HoldState.LISTED}
    holds.read(reading(10.0, None, [(TWO.uuid or "", "u2")]), pods, 1002.0)
    assert set(holds.wanted()) == {ONE.name, TWO.name}


def test_the_checkpoint_alone_holds_for_init_containers_until_the_pod_is_gone(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, (), [(ID, "u1")]), pods, 1001.0)
    (hold,) = holds.wanted().values()
    assert (hold.state, hold.holder, hold.since) == (HoldState.RECORDED, "pod with UID u1", 1001.0)
    pods.names["u1"] = "team/one"
    holds.read(reading(7.0, (), [(ID, "u1")]), pods, 1002.0)
    assert holds.wanted()[ONE.name].holder == "team/one"
    pods.dead.add("u1")
    holds.read(reading(8.0, None, None), pods, 1003.0)
    assert not holds.wanted()


def test_a_pod_that_is_listed_is_there_whatever_the_api_server_says(pods: GrantedPods) -> None:
    holds = _holds()
    pods.dead.add("u1")
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 1001.0)
    assert _states(holds) == {ONE.name: HoldState.LISTED}


def test_without_an_api_server_every_record_holds() -> None:
    holds = _holds()
    for began in (6.0, 60.0, 600.0):
        holds.read(reading(began, (), [(ID, "u1")]), NoPodsKnown(), 1001.0)
    assert _states(holds) == {ONE.name: HoldState.RECORDED}


def test_a_record_of_the_pod_before_does_not_confirm_a_young_grant(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(4.0, [(ID, "team/before")], [(ID, "before")]), pods, 999.0)
    holds.granted([grant(ONE)], 5.0, 1000.0)
    assert _states(holds) == {ONE.name: HoldState.ALLOCATED}
    holds.read(reading(6.0, (), [(ID, "before")]), pods, 1001.0)
    # A device list wrote the file in between: without the pod before, and not yet with the new one.
    holds.read(reading(7.0), pods, 1002.0)
    assert _states(holds) == {ONE.name: HoldState.ALLOCATED}
    holds.read(reading(8.0, (), [(ID, "after")]), pods, 1003.0)
    holds.read(reading(15.0, (), [(ID, "after")]), pods, 1010.0)
    holds.read(reading(15.1), pods, 1010.0)
    assert not holds.wanted()


def test_a_listing_that_began_before_a_grant_does_not_confirm_it(pods: GrantedPods) -> None:
    holds = _holds()
    holds.granted([grant(ONE)], 5.0, 1000.0)
    holds.read(reading(4.9, [(ID, "team/before")], [(ID, "before")]), pods, 1000.1)
    holds.read(reading(6.0), pods, 1001.0)
    assert _states(holds) == {ONE.name: HoldState.ALLOCATED}


def test_readings_count_in_the_order_in_which_they_began(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 1001.0)
    holds.read(reading(5.0), pods, 1002.0)
    assert holds.wanted()


def test_another_plugins_id_of_the_same_hardware_holds_it(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, [(f"{ID}::3", "team/one"), (f"{ID}::1", "team/two")], resource="hami.io/gpu"), pods, 0.0)
    (hold,) = holds.wanted().values()
    assert (hold.device, hold.holder, hold.resource) == (ONE.name, "team/one, team/two", "hami.io/gpu")


def test_many_pods_on_one_device_are_counted_not_named(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, [(f"{ID}::{n}", f"team/{n}") for n in range(5)]), pods, 0.0)
    assert holds.wanted()[ONE.name].holder == "team/0, team/1 and 3 more"


def test_an_id_of_a_device_that_is_not_there_holds_it_once_it_is(pods: GrantedPods) -> None:
    holds = _holds(TWO)
    holds.read(reading(6.0, [(ID, "team/one"), ("7", "team/two")]), pods, 0.0)
    assert not holds.wanted()
    holds.place(snapshot(ONE, TWO))
    assert set(holds.wanted()) == {ONE.name}
    holds.place(snapshot(TWO))
    assert set(holds.wanted()) == {ONE.name}, "it is held although it is gone"
    holds.read(reading(7.0), pods, 0.0)
    assert not holds.wanted()


def test_a_hold_tells_what_the_device_is_part_of(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(6.0, [(PART.uuid or "", "team/one")]), pods, 0.0)
    assert holds.wanted()[PART.name].within == (PART.parent,)


def test_a_device_that_no_scan_shows_is_held_by_its_grant(pods: GrantedPods) -> None:
    holds = _holds(TWO)
    other = Device(
        "nic-0000-86-00-1",
        DeviceKind.NIC,
        "mellanox",
        pci_address="0000:86:00.1",
        attributes=sorted_attributes([("sriovFunction", "vf"), ("pfPciAddress", "0000:86:00.0")]),
    )
    holds.granted([grant(other, "x.io/nic", "0000:86:00.1")], 5.0, 1000.0)
    holds.place(snapshot(TWO))
    assert holds.wanted()[other.name].within == ("nic-0000-86-00-0", "rdma-0000-86-00-0")


def test_nothing_is_known_before_a_whole_reading_after_the_barrier(pods: GrantedPods) -> None:
    holds = KubeletAllocations()
    holds.read(reading(1.0), pods, 0.0)
    assert not holds.known(2.0)
    holds.barrier(3.0)
    holds.read(reading(3.0), pods, 0.0)
    assert not holds.known(4.0)
    holds.read(reading(4.0, listed=None, faults=("the socket is not there",)), pods, 0.0)
    assert not holds.known(5.0)
    expected = "the kubelet has not reported its device allocations yet: the socket is not there"
    assert holds.unknown_because(5.0) == expected
    holds.read(reading(5.0, allocatable=None), pods, 0.0)
    assert holds.known(5.1)
    assert holds.unknown_because(5.1) == ""
    holds.barrier(6.0)
    assert not holds.known(6.1)


def test_what_is_known_is_believed_for_a_minute(pods: GrantedPods) -> None:
    holds = _holds()
    assert not holds.read_since(0.0)
    holds.read(reading(5.0), pods, 0.0)
    holds.read(reading(60.0, None, None, faults=("gone",)), pods, 0.0)
    assert holds.known(65.0)
    assert holds.read_since(5.0)
    assert not holds.read_since(5.1)
    assert not holds.known(65.1)
    assert holds.unknown_because(66.0) == "the kubelet has not reported its device allocations for 61 s: gone"


def test_what_the_kubelet_may_still_give_is_told_by_device(pods: GrantedPods) -> None:
    holds = _holds()
    assert (holds.at_kubelet, holds.at_kubelet_since) == (frozenset(), None)
    holds.read(reading(5.0, allocatable=[ID, "7"]), pods, 0.0)
    assert (set(holds.at_kubelet), holds.at_kubelet_since) == ({ONE.name}, 5.0)
    holds.read(reading(6.0, allocatable=None), pods, 0.0)
    assert (set(holds.at_kubelet), holds.at_kubelet_since) == ({ONE.name}, 5.0)
    holds.read(reading(7.0, allocatable=[f"{TWO.uuid}::1"]), pods, 0.0)
    assert (set(holds.at_kubelet), holds.at_kubelet_since) == ({TWO.name}, 7.0)


def test_equal_readings_make_no_new_holds(pods: GrantedPods) -> None:
    holds = _holds()
    holds.read(reading(5.0, [(ID, "team/one")], [(ID, "u1")]), pods, 0.0)
    before = holds.wanted()
    holds.read(reading(6.0, [(ID, "team/one")], [(ID, "u1")]), pods, 1.0)
    assert holds.wanted() is before


def test_while_the_checkpoint_is_unreadable_the_api_server_names_the_pods_that_are_listed(pods: GrantedPods) -> None:
    holds = _holds()
    pods.names["a"] = "team/one"
    holds.read(reading(1.0, [("GPU-0", "team/one"), ("GPU-1", "team/unknown")], None), pods, 0.0)
    assert [(each.device, each.uid) for each in holds.tenancies()] == [(ONE.name, "a")]
    assert [hold.pods for hold in holds.wanted().values()] == [("a",), ()]
    holds.read(reading(2.0, [("GPU-0", "team/one")], [("GPU-0", "b")]), pods, 0.0)
    assert {each.uid for each in holds.tenancies()} == {"b"}
