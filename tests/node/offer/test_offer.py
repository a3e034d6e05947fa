from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.eligibility import offer
from node.health.state import HealthState
from node.inventory.model import Device, DeviceKind, Host, Snapshot
from node.ledger.holds import Hold, wholes_of
from node.ledger.offer_context import NOTHING_HELD, OfferContext, by_place
from node.offer import Cause, Offer
from node.rules import Door, Doors, Rule, Selector, rule_for
from tests.making.devices import nic
from tests.making.offered_devices import gpu, ill, mig, snapshot

GPUS = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)))

FILL = "create instances (nvidia-smi mig -i INDEX -cgi PROFILE -C), or turn MIG mode off (nvidia-smi -i INDEX -mig 0)"
STRATEGY_NONE = (GPUS,)
STRATEGY_SINGLE = (
    Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.MIG,)), uniform=True),
    Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,), mig_enabled=False), uniform=True),
)
STRATEGY_MIXED = (
    Rule("nvidia.com/mig-{profile}", Selector(kinds=(DeviceKind.MIG,), whole_instances=True)),
    Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,), mig_enabled=False)),
)


def shown(found: Offer) -> dict[str, list[str]]:
    return {resource.resource: [device.id for device in resource.devices] for resource in found.resources}


def withheld(found: Offer) -> dict[str, str]:
    return {each.device.name: each.reason for each in found.withheld}


def test_healthy_device_is_offered_without_a_word() -> None:
    (device,) = offer(snapshot(gpu(1)), STRATEGY_NONE, NOTHING_HELD, Door.PLUGIN).resources[0].devices
    assert (device.id, device.healthy, device.reason) == ("GPU-1", True, "")


def test_degraded_device_is_offered_with_its_note() -> None:
    one = gpu(1, health=ill("a memory row waits", HealthState.DEGRADED))
    (device,) = offer(snapshot(one), STRATEGY_NONE, NOTHING_HELD, Door.PLUGIN).resources[0].devices
    assert (device.healthy, device.reason) == (True, "a memory row waits")


@pytest.mark.parametrize("state", [HealthState.UNHEALTHY, HealthState.UNKNOWN])
def test_device_that_may_not_be_allocated_is_shown_unhealthy_with_the_reason(state: HealthState) -> None:
    devices = snapshot(gpu(1, health=ill("the GPU is lost", state)), gpu(2, health=ill("", state)))
    found = offer(devices, STRATEGY_NONE, NOTHING_HELD, Door.PLUGIN).resources[0].devices
    assert [(each.healthy, each.reason) for each in found] == [(False, "the GPU is lost"), (False, state.value)]


def test_device_held_through_the_other_door_is_shown_unhealthy() -> None:
    name = gpu(1).name
    holds = [Hold(name, Door.DRA, "team/claim", 1.0)]
    (device,) = offer(snapshot(gpu(1)), STRATEGY_NONE, OfferContext(by_place(holds)), Door.PLUGIN).resources[0].devices
    assert (device.healthy, device.reason) == (False, "held through the dra door by team/claim")


def test_device_held_through_this_door_stays_healthy() -> None:
    name = gpu(1).name
    holds = [Hold(name, Door.PLUGIN, "team/pod", 1.0)]
    assert (
        offer(snapshot(gpu(1)), STRATEGY_NONE, OfferContext(by_place(holds)), Door.PLUGIN)
        .resources[0]
        .devices[0]
        .healthy
    )


def test_lost_device_says_so_even_when_held() -> None:
    name = gpu(1).name
    holds = [Hold(name, Door.DRA, "team/claim", 1.0)]
    found = offer(snapshot(gpu(1, health=ill("lost"))), STRATEGY_NONE, OfferContext(by_place(holds)), Door.PLUGIN)
    assert found.resources[0].devices[0].reason == "lost"


def test_delegated_cdi_needs_a_spec_that_names_the_device() -> None:
    edits = EditOptions(strategies=(ListStrategy.CDI_CRI,), cdi_mode=CdiMode.DELEGATE)
    rules = (replace(GPUS, edits=edits),)
    one = replace(snapshot(gpu(1), gpu(2)), host=Host(cdi_devices=frozenset({"nvidia.com/gpu=GPU-1"})))
    found = offer(one, rules, NOTHING_HELD, Door.PLUGIN).resources[0].devices
    assert [(each.healthy, each.reason) for each in found] == [
        (True, ""),
        (False, "no CDI spec on this node defines nvidia.com/gpu=GPU-2; run 'nvidia-ctk cdi generate'"),
    ]


def test_other_strategies_need_no_cdi_spec_of_others() -> None:
    rules = (replace(GPUS, edits=EditOptions(cdi_mode=CdiMode.DELEGATE)),)
    assert offer(snapshot(gpu(1)), rules, NOTHING_HELD, Door.PLUGIN).resources[0].devices[0].healthy


def test_device_without_a_rule_is_withheld() -> None:
    assert withheld(offer(snapshot(gpu(1), mig(1, 0)), STRATEGY_NONE, NOTHING_HELD, Door.PLUGIN)) == {
        "mig-0000-1b-00-0-0-1": "no rule selects it"
    }


def test_first_rule_wins_also_when_it_is_the_other_doors() -> None:
    rules = (Rule("nvidia.com/gpu", Selector(uuids=("GPU-1",)), Doors.DRA), GPUS)
    found = offer(snapshot(gpu(1), gpu(2)), rules, NOTHING_HELD, Door.PLUGIN)
    assert shown(found) == {"nvidia.com/gpu": ["GPU-2"]}
    assert withheld(found) == {"gpu-0000-1b-00-0": "its rule offers it through the dra door"}
    assert shown(offer(snapshot(gpu(1), gpu(2)), rules, NOTHING_HELD, Door.DRA)) == {"nvidia.com/gpu": ["GPU-1"]}


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ("gpu", "resource name 'gpu' has no domain; write it as domain/name, for example example.com/gpu"),
        (
            f"nvidia.com/{'x' * 64}",
            f"resource name 'nvidia.com/{'x' * 64}' has 64 characters behind the '/'; 63 are allowed",
        ),
        (
            "nvidia.com/mig-{profile}",
            (
                "resource name 'nvidia.com/mig-' has 'mig-' behind the '/'; use letters, digits, '-', '_' and '.', "
                "starting and ending with a letter or digit"
            ),
        ),
    ],
)
def test_name_that_no_kubelet_takes_is_withheld_with_the_fix(resource: str, reason: str) -> None:
    found = offer(snapshot(gpu(1)), (Rule(resource),), NOTHING_HELD, Door.PLUGIN)
    assert found.resources == ()
    assert withheld(found) == {"gpu-0000-1b-00-0": reason}


def test_rules_with_different_options_cannot_share_a_name() -> None:
    rules = (
        Rule("nvidia.com/gpu", Selector(uuids=("GPU-1",))),
        Rule("nvidia.com/gpu", Selector(uuids=("GPU-2",)), edits=EditOptions(device_specs=False)),
        Rule("nvidia.com/gpu", Selector(uuids=("GPU-3",))),
    )
    found = offer(snapshot(gpu(1), gpu(2), gpu(3)), rules, NOTHING_HELD, Door.PLUGIN)
    assert shown(found) == {"nvidia.com/gpu": ["GPU-1", "GPU-3"]}
    assert withheld(found) == {
        "gpu-0000-2b-00-0": "two rules with different options give the resource 'nvidia.com/gpu'; the first one has it"
    }


def test_mig_strategy_none_offers_whole_gpus_only() -> None:
    found = offer(snapshot(gpu(1, mig=True), mig(1, 0), gpu(2)), STRATEGY_NONE, NOTHING_HELD, Door.PLUGIN)
    assert shown(found) == {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}


def test_mig_strategy_mixed_offers_each_profile_under_its_name() -> None:
    devices = snapshot(
        gpu(1, mig=True), mig(1, 0), mig(1, 1), mig(1, 4, "3g.20gb"), mig(1, 5, "1c.3g.20gb"), gpu(2), gpu(3, mig=True)
    )
    found = offer(devices, STRATEGY_MIXED, NOTHING_HELD, Door.PLUGIN)
    assert shown(found) == {
        "nvidia.com/gpu": ["GPU-2"],
        "nvidia.com/mig-1g.5gb": ["MIG-1-0", "MIG-1-1"],
        "nvidia.com/mig-3g.20gb": ["MIG-1-4"],
    }
    assert sorted(withheld(found)) == ["gpu-0000-1b-00-0", "gpu-0000-3b-00-0", "mig-0000-1b-00-0-5-1"]


def test_mig_strategy_single_offers_instances_as_gpus() -> None:
    devices = snapshot(gpu(1, mig=True), mig(1, 0), mig(1, 1), gpu(2, mig=True), mig(2, 0))
    found = offer(devices, STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)
    assert shown(found) == {"nvidia.com/gpu": ["MIG-1-0", "MIG-1-1", "MIG-2-0"]}


def test_mig_strategy_single_without_mig_offers_gpus() -> None:
    assert shown(offer(snapshot(gpu(1), gpu(2)), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)) == {
        "nvidia.com/gpu": ["GPU-1", "GPU-2"]
    }


def test_mig_strategy_single_refuses_different_profiles() -> None:
    found = offer(
        snapshot(gpu(1, mig=True), mig(1, 0), mig(1, 4, "3g.20gb")), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN
    )
    assert found.resources == ()
    text = (
        "resource nvidia.com/gpu: the MIG strategy single needs devices of one kind, found 1g.5gb (gpu-0000-1b-00-0), "
        "3g.20gb (gpu-0000-1b-00-0); make all GPUs alike, or use the strategy mixed"
    )
    assert withheld(found)["mig-0000-1b-00-0-0-1"] == text
    assert withheld(found)["gpu-0000-1b-00-0"] == "no rule selects it"


def test_mig_strategy_single_refuses_plain_gpus_beside_instances() -> None:
    found = offer(snapshot(gpu(1, mig=True), mig(1, 0), gpu(2)), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)
    text = (
        "resource nvidia.com/gpu: the MIG strategy single needs devices of one kind, found 1g.5gb (gpu-0000-1b-00-0), "
        "gpu (gpu-0000-2b-00-0); make all GPUs alike, or use the strategy mixed"
    )
    assert withheld(found)["gpu-0000-2b-00-0"] == text


def test_mig_strategy_single_refuses_a_gpu_without_instances() -> None:
    found = offer(snapshot(gpu(1, mig=True), mig(1, 0), gpu(2, mig=True)), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)
    assert withheld(found)["mig-0000-1b-00-0-0-1"] == (
        "resource nvidia.com/gpu: the MIG strategy single needs at least one instance on every GPU in MIG mode, "
        f"gpu-0000-2b-00-0 has none; {FILL}"
    )


@pytest.mark.parametrize("others", [(), (gpu(3),), (gpu(3, mig=True), mig(3, 0))])
def test_a_gpu_in_mig_mode_without_instances_says_what_single_waits_for(others: tuple[Device, ...]) -> None:
    found = offer(snapshot(gpu(1, mig=True), *others), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)
    (empty,) = [each for each in found.withheld if each.device.name == "gpu-0000-1b-00-0"]
    assert empty.reason == (
        f"the MIG strategy single needs MIG instances on every GPU in MIG mode, and it has none; {FILL}"
    )
    assert empty.cause is Cause.NOT_UNIFORM
    assert found.resources == (), "one empty GPU withholds the resource, as NVIDIA's plugin does by failing"


def test_many_empty_gpus_are_counted() -> None:
    devices = (gpu(1, mig=True), mig(1, 0), *(gpu(number, mig=True) for number in range(2, 8)))
    found = offer(snapshot(*devices), STRATEGY_SINGLE, NOTHING_HELD, Door.PLUGIN)
    named = "gpu-0000-2b-00-0, gpu-0000-3b-00-0, gpu-0000-4b-00-0, gpu-0000-5b-00-0 and 2 more have none"
    assert named in withheld(found)["mig-0000-1b-00-0-0-1"]


def test_under_mixed_an_empty_gpu_says_that_it_is_empty() -> None:
    found = offer(snapshot(gpu(1, mig=True), gpu(2)), STRATEGY_MIXED, NOTHING_HELD, Door.PLUGIN)
    assert withheld(found)["gpu-0000-1b-00-0"] == (
        f"it is in MIG mode and has no MIG instances, and no rule offers it whole; {FILL}"
    )


def test_a_uniform_rule_of_other_kinds_is_not_told_of_mig() -> None:
    devices = replace(nic(1), kind=DeviceKind.RDMA), nic(2)
    rule = Rule("example.com/nic", Selector(kinds=(DeviceKind.NIC, DeviceKind.RDMA)), uniform=True)
    found = offer(snapshot(*devices), (rule,), NOTHING_HELD, Door.PLUGIN)
    text = "resource example.com/nic: uniform: true needs devices of one kind, found nic, rdma"
    assert set(withheld(found).values()) == {text}
    assert offer(snapshot(*devices), (replace(rule, uniform=False),), NOTHING_HELD, Door.PLUGIN).withheld == ()


def test_resources_and_devices_are_sorted_and_found_by_name() -> None:
    rules = (Rule("z.com/a", Selector(uuids=("GPU-1",))), Rule("a.com/z"))
    found = offer(snapshot(gpu(3), gpu(1), gpu(2)), rules, NOTHING_HELD, Door.PLUGIN)
    assert [resource.resource for resource in found.resources] == ["a.com/z", "z.com/a"]
    resource = found.resource("a.com/z")
    assert resource is not None
    assert [each.device.name for each in resource.devices] == ["gpu-0000-2b-00-0", "gpu-0000-3b-00-0"]
    assert found.resource("none.com/x") is None


def test_node_without_devices_offers_nothing() -> None:
    assert offer(Snapshot(), STRATEGY_MIXED, NOTHING_HELD, Door.PLUGIN) == Offer()


numbers = st.integers(1, 4)
devices = st.lists(
    st.one_of(
        st.builds(lambda number, on: gpu(number, mig=on), numbers, st.booleans()),
        st.builds(mig, numbers, st.integers(0, 3), st.sampled_from(["1g.5gb", "1c.2g.10gb", ""])),
    ),
    unique_by=lambda device: device.name,
).map(lambda found: snapshot(*found))
selectors = st.builds(
    Selector,
    kinds=st.sampled_from([(), (DeviceKind.GPU,), (DeviceKind.MIG,)]),
    uuids=st.sampled_from([(), ("GPU-1",), ("*-2*",)]),
    mig_enabled=st.sampled_from([None, True, False]),
)
rule_lists = st.lists(
    st.builds(
        Rule,
        resource=st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-{profile}", "bad"]),
        selector=selectors,
        door=st.sampled_from(Doors),
        edits=st.sampled_from([EditOptions(), EditOptions(device_specs=False)]),
        uniform=st.booleans(),
    ),
    max_size=4,
)
hold_lists = st.lists(
    st.builds(
        lambda number, door: Hold(gpu(number).name, door, "team/pod", 0.0, resource="nvidia.com/gpu"),
        numbers,
        st.sampled_from(Door),
    ),
    unique_by=lambda hold: hold.device,
)


@given(devices, rule_lists, hold_lists, st.sampled_from(Door))
def test_every_device_appears_exactly_once_and_never_unhealthy_or_withheld_without_a_reason(
    one: Snapshot, rules: list[Rule], holds: list[Hold], door: Door
) -> None:
    found = offer(one, rules, OfferContext(by_place(holds)), door)
    offered = [each for resource in found.resources for each in resource.devices]
    names = [each.device.name for each in offered] + [each.device.name for each in found.withheld]
    assert sorted(names) == [device.name for device in one.devices]
    assert all(each.healthy or each.reason for each in offered)
    assert all(each.reason for each in found.withheld)


@given(devices, rule_lists, hold_lists, st.booleans())
def test_only_a_free_device_of_a_rule_for_both_doors_is_healthy_at_both(
    one: Snapshot, rules: list[Rule], holds: list[Hold], known: bool
) -> None:
    context = OfferContext(by_place(holds), known=known)
    healthy = [
        {
            each.device.name
            for resource in offer(one, rules, context, door).resources
            for each in resource.devices
            if each.healthy
        }
        for door in Door
    ]
    for name in healthy[0] & healthy[1]:
        device = one.device(name)
        assert device is not None
        rule = rule_for(device, rules)
        assert rule is not None
        assert known
        assert rule.door is Doors.BOTH
        assert not any(context.holds.get(place) for place in (name, *wholes_of(device)))
