"""NICs as the door shows them: what stays with the node, links that are down, what a container would miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.edits.options import EditOptions, ListStrategy
from node.eligibility import offer
from node.inventory.model import Device, DeviceKind, Host, Snapshot
from node.ledger.holds import Hold
from node.ledger.offer_context import NOTHING_HELD, OfferContext, by_place
from node.offer import Offer
from node.rules import Door, FunctionRange, NicSelector, Rule, Selector
from tests.making.devices import further_port, gpu, intel, lacking, nic, rdma, subfunction, vfio

ALL = Rule("ostler.dev/nic")
USE = "carries the default route"
USED = "the node itself uses it: carries the default route"
FIX = "; name it in a rule to offer it anyway"


def shown(rule: Rule, *devices: Device, holds: Sequence[Hold] = (), host: Host | None = None) -> Offer:
    ordered = tuple(sorted(devices, key=lambda device: device.name))
    return offer(Snapshot(1, ordered, host=host or Host()), (rule,), OfferContext(by_place(holds)), Door.PLUGIN)


def reason(found: Offer) -> tuple[bool, str]:
    """Of the one device: whether it is listed at all, and the reason that stands beside it."""
    if found.withheld:
        return False, found.withheld[0].reason
    (device,) = found.resources[0].devices
    assert device.healthy is not bool(device.reason)
    return True, device.reason


def pf(vfs: int, host_use: str = "") -> Device:
    made = nic(3, sriovFunction="pf", sriovVfs=vfs, pfName="ens3", pfPciAddress="0000:03:00.0")
    return replace(made, host_use=host_use)


def interface(name: str, *functions: str) -> Selector:
    return Selector(nic=NicSelector(interfaces=(FunctionRange(name),), functions=functions))


OWN_NAME = Selector(names=("nic-0000-03-00-0",))
OWN_ADDRESS = Selector(pci_addresses=("0000:03:00.0",))
WIDE = [
    Selector(),
    Selector(kinds=(DeviceKind.NIC,)),
    Selector(names=("nic-*",)),
    Selector(pci_addresses=("0000:03:00.*",)),
    Selector(nic=NicSelector()),
]


@pytest.mark.parametrize("selector", WIDE)
def test_nic_that_the_node_uses_is_withheld_with_the_use_and_the_fix(selector: Selector) -> None:
    used = replace(nic(3, pfName="ens3"), host_use=USE)
    assert reason(shown(replace(ALL, selector=selector), used)) == (False, USED + FIX)


@pytest.mark.parametrize("selector", [OWN_NAME, OWN_ADDRESS, interface("ens3")])
def test_nic_that_the_node_uses_is_offered_where_its_rule_names_it(selector: Selector) -> None:
    used = replace(nic(3, pfName="ens3", pfPciAddress="0000:03:00.0"), host_use=USE)
    assert reason(shown(replace(ALL, selector=selector), used)) == (True, "")


@pytest.mark.parametrize("selector", [OWN_NAME, OWN_ADDRESS, interface("ens3")])
def test_rules_of_a_sriov_plugins_file_never_offer_what_the_node_uses(selector: Selector) -> None:
    used = replace(nic(3, pfName="ens3", pfPciAddress="0000:03:00.0"), host_use=USE)
    assert reason(shown(replace(ALL, selector=selector, by_name=False), used)) == (False, USED)


def test_nic_that_the_node_does_not_use_is_offered_by_any_rule() -> None:
    assert reason(shown(ALL, nic(3))) == (True, "")
    assert reason(shown(replace(ALL, by_name=False), nic(3))) == (True, "")


@pytest.mark.parametrize(
    ("vfs", "text"),
    [
        (1, "its 1 virtual function is offered in its place"),
        (8, "its 8 virtual functions are offered in its place"),
    ],
)
@pytest.mark.parametrize("selector", [*WIDE, interface("ens3"), interface("ens3", "pf", "vf")])
def test_physical_function_with_virtual_ones_is_withheld(vfs: int, text: str, selector: Selector) -> None:
    assert reason(shown(replace(ALL, selector=selector), pf(vfs))) == (False, text)


@pytest.mark.parametrize("selector", [OWN_NAME, OWN_ADDRESS, interface("ens3", "pf")])
def test_physical_function_with_virtual_ones_is_offered_where_its_rule_names_it(selector: Selector) -> None:
    assert reason(shown(replace(ALL, selector=selector), pf(8))) == (True, "")


def test_physical_function_without_virtual_ones_is_offered() -> None:
    assert reason(shown(ALL, pf(0))) == (True, "")


def test_name_of_a_physical_function_stands_for_its_virtual_ones_and_gives_nobody_the_nodes_route() -> None:
    virtual = nic(4, sriovFunction="vf", vfIndex=0, pfName="ens3", pfPciAddress="0000:03:00.0")
    found = shown(replace(ALL, selector=interface("ens3")), pf(1, USE), virtual)
    assert [item.device.name for item in found.resources[0].devices] == [virtual.name]
    assert [item.reason for item in found.withheld] == [USED + FIX]


def test_physical_function_of_an_intel_gpu_gives_way_to_its_virtual_ones() -> None:
    parent = replace(intel(3), attributes=pf(2).attributes)
    assert reason(shown(ALL, parent)) == (False, "its 2 virtual functions are offered in its place")


@pytest.mark.parametrize("device", [pf(8), pf(0, USE)])
def test_nic_that_a_pod_holds_is_shown_unhealthy_and_not_withdrawn(device: Device) -> None:
    holds = [Hold(device.name, Door.PLUGIN, "team/pod", 1.0)]
    listed, text = reason(shown(ALL, device, holds=holds))
    assert listed
    assert text == (USED + FIX if device.host_use else "its 8 virtual functions are offered in its place")


@pytest.mark.parametrize(
    ("up", "asked", "in_pod", "text"),
    [
        (False, True, None, "its link is down"),
        (False, False, None, ""),
        (True, True, None, ""),
        (None, True, None, ""),
        (False, True, True, ""),
    ],
)
def test_link_that_is_down_is_a_fault_where_the_rule_asks_and_the_host_can_tell(
    up: bool | None, asked: bool, in_pod: bool | None, text: str
) -> None:
    facts = {name: fact for name, fact in (("linkUp", up), ("inPod", in_pod)) if fact is not None}
    assert reason(shown(replace(ALL, link_health=asked), nic(3, **facts))) == (True, text)


def test_device_that_a_container_could_not_use_is_unhealthy_and_says_what_is_missing() -> None:
    rule = replace(ALL, edits=EditOptions(rdma=True))
    text = "its rule gives RDMA, and these RDMA device nodes are missing: uverbs"
    assert reason(shown(rule, lacking(rdma(5), "/dev/infiniband/uverbs5"))) == (True, text)
    assert reason(shown(rule, rdma(5))) == (True, "")
    assert reason(shown(ALL, vfio(7, present=False))) == (True, "its device nodes are missing: /dev/vfio/7")


def test_nic_in_a_pod_stays_healthy_whatever_is_hidden_with_it() -> None:
    rule = replace(ALL, edits=EditOptions(rdma=True), link_health=True)
    assert reason(shown(rule, nic(3, inPod=True, linkUp=False))) == (True, "")


@pytest.mark.parametrize(("device", "text"), [(vfio(7), "no CDI spec can describe it, the disk is full"), (nic(3), "")])
def test_specs_that_are_not_on_disk_concern_only_devices_that_need_one(device: Device, text: str) -> None:
    host = Host(cdi_fault="the disk is full")
    assert reason(shown(replace(ALL, edits=EditOptions(strategies=(ListStrategy.CDI_CRI,))), device, host=host)) == (
        True,
        text,
    )
    assert reason(shown(ALL, device, host=host)) == (True, "")


def test_ids_in_a_resource_differ_also_for_ports_and_subfunctions_of_one_function() -> None:
    devices = (nic(0x86), subfunction(1), subfunction(2), nic(9, port=0), further_port(9, 1))
    ids = [item.id for item in shown(ALL, *devices).resources[0].devices]
    assert ids == [
        "0000:09:00.0",
        "nic-0000-09-00-0-p1",
        "0000:86:00.0",
        "mlx5_core.sf.1",
        "mlx5_core.sf.2",
    ]


@pytest.mark.parametrize("other", [{"link_health": True}, {"hints": False}, {"edits": EditOptions(device_specs=False)}])
def test_rules_with_different_terms_cannot_share_a_name(other: dict[str, object]) -> None:
    first = replace(ALL, selector=Selector(names=("nic-0000-03-00-0",)))
    second = replace(ALL, **other)  # type: ignore[arg-type]
    found = offer(Snapshot(1, (nic(3), rdma(5))), (first, second), NOTHING_HELD, Door.PLUGIN)
    assert [(item.device.name, item.reason) for item in found.withheld] == [
        (
            "nic-0000-05-00-0",
            "two rules with different options give the resource 'ostler.dev/nic'; the first one has it",
        )
    ]


def test_devices_of_one_resource_may_have_rdma_and_vhost_net_of_their_own() -> None:
    first = replace(ALL, selector=Selector(names=("nic-0000-03-00-0",)))
    second = replace(ALL, edits=EditOptions(rdma=True))
    found = offer(Snapshot(1, (nic(3), rdma(5))), (first, second), NOTHING_HELD, Door.PLUGIN)
    (resource,) = found.resources
    assert [(item.device.name, item.healthy, item.edits) for item in resource.devices] == [
        ("nic-0000-03-00-0", True, None),
        ("nic-0000-05-00-0", True, EditOptions(rdma=True)),
    ]


def test_a_device_is_judged_by_its_own_rule() -> None:
    first = replace(ALL, selector=Selector(names=("nic-0000-03-00-0",)))
    second = replace(ALL, edits=EditOptions(rdma=True))
    found = offer(Snapshot(1, (nic(3), nic(4))), (first, second), NOTHING_HELD, Door.PLUGIN)
    (resource,) = found.resources
    assert [(item.healthy, item.reason) for item in resource.devices] == [
        (True, ""),
        (False, "its rule gives RDMA, and it has no RDMA device"),
    ]


devices = st.builds(
    lambda number, use, vfs, up, pod: replace(
        nic(number, pfName=f"ens{number}", sriovVfs=vfs, linkUp=up, inPod=pod), host_use=use
    ),
    st.integers(1, 4),
    st.sampled_from(["", USE]),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
rules = st.builds(
    Rule,
    resource=st.sampled_from(["ostler.dev/nic", "a.com/b"]),
    selector=st.sampled_from([*WIDE, OWN_NAME, OWN_ADDRESS, interface("ens3")]),
    edits=st.sampled_from([EditOptions(), EditOptions(rdma=True)]),
    link_health=st.booleans(),
    by_name=st.booleans(),
)


@given(st.lists(devices, unique_by=lambda device: device.name), st.lists(rules, max_size=3))
def test_what_the_node_uses_is_offered_only_by_a_rule_that_names_it(every: list[Device], given: list[Rule]) -> None:
    ordered = tuple(sorted(every, key=lambda device: device.name))
    found = offer(Snapshot(1, ordered), given, NOTHING_HELD, Door.PLUGIN)
    offered = [(resource.rule, item) for resource in found.resources for item in resource.devices]
    assert sorted([item.device.name for _, item in offered] + [item.device.name for item in found.withheld]) == [
        device.name for device in ordered
    ]
    for _, item in offered:
        if item.device.host_use or item.device.attribute("sriovVfs"):
            first = next(rule for rule in given if rule.selector.matches(item.device))
            assert first.names(item.device)


def test_gpu_of_nvidia_is_offered_as_before() -> None:
    assert reason(shown(ALL, gpu(0))) == (True, "")
