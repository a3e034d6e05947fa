"""What people are told of holds follows from ledger, rules and offers."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from driver.devices.partitions import Partitioned
from driver.devices.view import door_offer
from node.eligibility import offer
from node.health.state import Health, HealthState
from node.inventory.model import Capacity, Device, Host, Snapshot
from node.ledger.holds import Hold, HoldState, pending_owner, plugin_owner
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Cause
from node.rules import Door, Doors, Rule, Selector
from node.sharing import Sharing
from node.values import replace
from ostler.admin.holds import holds_report
from ostler.cli.holds import print_holds
from protos.agent.v1alpha1 import agent_pb2
from protos.agent.v1alpha1.agent_pb2 import HoldsStatus
from tests.making.devices import gpu, mig

BOTH = Rule("nvidia.com/gpu", Selector(), Doors.BOTH)
PLUGIN, CLAIM = replace(BOTH, door=Doors.PLUGIN), replace(BOTH, door=Doors.DRA)


def pod(device: Device, state: HoldState = HoldState.LISTED) -> Hold:
    return Hold(device.name, Door.PLUGIN, "team/pod", 1.0, plugin_owner(device.name), state=state)


def claim(device: Device, state: HoldState = HoldState.PREPARED) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 1.0, "uid", state=state)


def report(
    *holds: Hold,
    devices: tuple[Device, ...] = (gpu(0),),
    rule: Rule = BOTH,
    losers: dict[str, tuple[str, ...]] | None = None,
    leaving: dict[str, str] | None = None,
    **context: object,
) -> agent_pb2.ListHoldsResponse:
    """What is told of these holds; ``context``: further fields of it."""
    snapshot = Snapshot(1, devices, (), Host())
    known = replace(OfferContext(by_place(holds)), **context)
    offers = {
        Door.PLUGIN: offer(snapshot, (rule,), known, Door.PLUGIN),
        Door.DRA: door_offer(Partitioned(snapshot), (rule,), known),
    }
    return holds_report(snapshot, (rule,), known, offers, losers=losers or {}, leaving=leaving or {})


def told(found: agent_pb2.ListHoldsResponse) -> list[tuple[str, Door, Cause, str, str]]:
    return [
        (device.device, Door(each.door), Cause(each.cause.replace("-", "_")), each.why, each.waits_for)
        for device in found.devices
        for each in device.withheld
    ]


def test_of_a_free_device_there_is_nothing_to_say() -> None:
    assert report() == agent_pb2.ListHoldsResponse(status=HoldsStatus())


def test_a_device_of_a_pod_is_withheld_from_claims_until_the_pod_ends() -> None:
    found = report(pod(gpu(0)))
    ((name, door, cause, why, until),) = told(found)
    assert (name, door, cause) == (gpu(0).name, Door.DRA, Cause.OTHER_DOOR)
    assert "team/pod" in why
    assert until == "team/pod ends"
    assert found.status == HoldsStatus(by_plugin=1)


def test_a_device_of_a_claim_is_withheld_from_pods_until_the_claim_lets_go() -> None:
    prepared, reserved = report(claim(gpu(0))), report(claim(gpu(0), HoldState.RESERVED))
    assert [(door, until) for _, door, _, _, until in told(prepared)] == [
        (Door.PLUGIN, "the pods of claim team/claim end")
    ]
    assert [until for *_, until in told(reserved)] == ["claim team/claim is deallocated"]
    assert prepared.status == HoldsStatus(by_dra=1)


def test_a_draining_device_is_withheld_from_both_doors_and_says_how_it_is_released() -> None:
    name = gpu(0).name
    left = Hold(name, None, "process 41 (python3)", 1.0, pending_owner(name), state=HoldState.PENDING_RELEASE)
    found = report(left)
    assert [(door, cause) for _, door, cause, _, _ in told(found)] == [
        (Door.PLUGIN, Cause.PENDING_RELEASE),
        (Door.DRA, Cause.PENDING_RELEASE),
    ]
    assert {until for *_, until in told(found)} == {f"no process is left on it, or 'ostler holds release {name}'"}
    assert found.status == HoldsStatus(draining=1)


def test_a_whole_is_withheld_because_of_its_part() -> None:
    part = mig(0, parent=gpu(0).name)
    held = replace(pod(part), within=(gpu(0).name,))
    found = report(held, devices=(gpu(0), part))
    whole = [each for each in told(found) if each[0] == gpu(0).name]
    assert {door for _, door, *_ in whole} == {Door.PLUGIN, Door.DRA}
    assert all(part.name in why and until == "team/pod ends" for *_, why, until in whole)


def test_a_device_that_a_pod_has_under_another_resource_waits_for_that_pod() -> None:
    held = replace(pod(gpu(0)), ids=(("nvidia.com/other", gpu(0).name),))
    ((_, door, cause, why, until),) = [each for each in told(report(held)) if each[1] is Door.PLUGIN]
    assert (door, cause) == (Door.PLUGIN, Cause.OVERLAP)
    assert why.endswith(f"as {gpu(0).name} of nvidia.com/other")
    assert until == "team/pod ends"


def test_what_is_not_known_withholds_from_claims_alone() -> None:
    ((_, door, cause, _, until),) = told(report(known=False))
    assert (door, cause) == (Door.DRA, Cause.HOLDS_UNKNOWN)
    assert until == "what the kubelet has given to containers can be read"


def test_a_device_on_its_way_says_what_it_waits_for_at_the_door_that_it_goes_to() -> None:
    name = frozenset((gpu(0).name,))
    to_claims = report(rule=CLAIM, at_kubelet=name, listed=name)
    assert [(door, cause, until) for _, door, cause, _, until in told(to_claims)] == [
        (Door.DRA, Cause.MOVING, "the kubelet no longer counts it as allocatable")
    ]
    to_pods = report(rule=PLUGIN, at_scheduler=name)
    assert [(door, until) for _, door, _, _, until in told(to_pods)] == [
        (Door.PLUGIN, "the API server has it tainted or in no slice, and no claim is allocated it")
    ]
    assert to_claims.status == to_pods.status == HoldsStatus(moving=1)


def test_a_device_that_leaves_the_claims_says_what_keeps_it_there_now() -> None:
    name = gpu(0).name
    moving, why = frozenset((name,)), {name: "claim team/has names it"}
    ((*_, until),) = told(report(rule=PLUGIN, at_scheduler=moving, leaving=why))
    assert until.endswith("no claim is allocated it; now: claim team/has names it")
    ((*_, until),) = told(report(rule=CLAIM, at_kubelet=moving, listed=moving, leaving=why))
    assert until == "the kubelet no longer counts it as allocatable"


def test_losers_are_counted_as_claims() -> None:
    losers = {gpu(0).name: ("a/one", "a/two"), gpu(1).name: ("a/one",)}
    found = report(pod(gpu(0)), pod(gpu(1)), devices=(gpu(0), gpu(1)), losers=losers)
    assert [list(device.losers) for device in found.devices] == [["a/one", "a/two"], ["a/one"]]
    assert found.status.losers == 2


def test_looking_on_comes_last_and_counts_as_no_holder() -> None:
    looking = replace(claim(gpu(0)), admin=True)
    (device,) = report(looking, pod(gpu(0))).devices
    assert [hold.admin for hold in device.holds] == [False, True]
    assert report(looking).status == HoldsStatus()


def test_a_held_device_that_the_inventory_has_forgotten_is_told_of_all_the_same() -> None:
    (found,) = report(claim(gpu(1)), devices=()).devices
    assert (found.device, found.doors) == (gpu(1).name, "")
    assert [(hold.door, hold.holder, hold.state) for hold in found.holds] == [("dra", "team/claim", "prepared")]


def test_a_shared_device_says_who_has_which_share_and_what_is_left() -> None:
    gib = 1 << 30
    device = replace(gpu(0), capacity=(Capacity("memory", 40 * gib),))
    rule = replace(BOTH, sharing=Sharing(replicas=4))
    whole = (("compute", 1_000_000), ("memory", 40 * gib))
    part = (("compute", 250_000), ("memory", 10 * gib))
    half = (("compute", 500_000), ("memory", 5 * gib))
    owner = plugin_owner(device.name, "2")
    replica = Hold(device.name, Door.PLUGIN, "team/pod", 1.0, owner, "2", amounts=part, whole=whole)
    claimed = Hold(device.name, Door.DRA, "team/claim", 1.0, "uid", "s", amounts=half, whole=whole)
    (free,) = report(devices=(device,), rule=rule).shared
    assert (free.device, free.resource) == (device.name, "nvidia.com/gpu")
    assert (free.shares, free.held, free.free) == (4, 0, 4)
    found = report(replica, claimed, devices=(device,), rule=rule)
    (shared,) = found.shared
    assert (shared.shares, shared.held, shared.free) == (4, 2, 1)
    assert {each.name: each.value for each in shared.left} == {"compute": 250_000, "memory": 25 * gib}
    assert {hold.share: [each.value for each in hold.amounts] for hold in found.devices[0].holds} == {
        "2": [250_000, 10 * gib],
        "s": [500_000, 5 * gib],
    }
    ill = replace(device, health=Health(HealthState.UNHEALTHY, "XID 79"))
    assert report(devices=(ill,), rule=rule).shared[0].free == 0
    (taken,) = report(claim(device), devices=(device,), rule=rule).shared
    assert (taken.held, taken.free, [each.value for each in taken.left]) == (0, 0, [0, 0])
    text = io.StringIO()
    with redirect_stdout(text):
        print_holds(list(found.devices), list(found.shared), found.status)
    lines = text.getvalue().splitlines()
    assert any("team/pod (share 2: 25% of compute and 10 GiB of memory)" in line for line in lines)
    assert lines[-1].split()[:5] == [device.name, "nvidia.com/gpu", "4", "2", "1"]
    assert lines[-1].endswith("25% of compute and 25 GiB of memory (100% of compute and 40 GiB of memory)")


def test_the_place_of_an_interface_is_beside_the_hold_of_its_claim() -> None:
    held = OfferContext(by_place([Hold(gpu(1).name, Door.DRA, "team/claim", 1.0)]))
    place = agent_pb2.PodInterface(pod="team/a", interface="net1")
    places = {gpu(1).name: place, "another": place}
    found = holds_report(Snapshot(1, (gpu(1), gpu(2))), (), held, {}, losers={}, places=places)
    assert [(each.device, each.interface) for each in found.devices] == [(gpu(1).name, place)]
