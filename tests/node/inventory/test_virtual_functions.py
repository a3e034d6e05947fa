"""Which physical functions get virtual ones: the verdict on each, with its reason, and what offers say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.eligibility import offer
from node.inventory.facts import PciFunction
from node.inventory.model import NIC_KINDS, Device, Host, Snapshot
from node.inventory.net_facts import HostLink, HostRoute, NetworkFacts
from node.ledger.offer_context import NOTHING_HELD
from node.offer import Cause
from node.rules import Door, FunctionRange, NicSelector, Rule, Selector
from node.virtual_functions import (
    VfMaking,
    VfState,
    VfVerdict,
    VirtualFunctionRule,
    verdict,
    verdicts,
    with_virtual_functions,
)
from tests.making.nic_facts import PF, interface, nic, nics, seen, vf
from tests.making.sriov_kernel import physical

ALL = Selector(kinds=NIC_KINDS)
NAMED = replace(ALL, nic=NicSelector(interfaces=(FunctionRange("ens1np0"),)))
NAME = "nic-0000-86-00-0"


def device(function: PciFunction, network: NetworkFacts | None = None) -> Device:
    return seen(nics(function, interfaces=(interface(function, "ens1np0"),), network=network))[NAME]


def judged(made: Device, count: int = 4, selector: Selector = ALL) -> VfVerdict:
    found = verdict(made, (VirtualFunctionRule(selector, count),))
    assert found is not None
    return found


def test_a_function_without_virtual_ones_gets_them() -> None:
    found = judged(device(physical()))
    assert (found.state, found.address, found.line) == (
        VfState.TO_MAKE,
        PF,
        "4 virtual functions will be made of it",
    )


def test_a_function_with_the_right_number_is_done() -> None:
    found = judged(device(physical(made=4)))
    assert (found.state, found.line) == (VfState.MADE, "")


def test_another_number_is_never_changed_and_the_way_is_told() -> None:
    found = judged(device(physical(made=2)))
    assert found.state is VfState.DIFFERENT
    assert found.reason == (
        "it has 2 virtual functions, and a change would destroy them, with the pods that have one; drain the node and "
        "write 0 to /sys/bus/pci/devices/0000:86:00.0/sriov_numvfs, or correct the count"
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (physical(total=0), "its firmware allows none (sriov_totalvfs is 0); turn SR-IOV on in the machine's BIOS"),
        (physical(total=2), "its firmware allows 2 (sriov_totalvfs); ask for at most 2, or raise that in its firmware"),
        (replace(physical(), sriov_numvfs=None), "the kernel does not show how many it has (sriov_numvfs)"),
        (physical(driver=None), "no driver is bound to it, and its driver makes them; bind the driver of the NIC"),
        (
            physical(driver="vfio-pci"),
            "its driver vfio-pci gives it to a program as a whole; bind the NIC's network driver instead",
        ),
    ],
)
def test_what_forbids_it_is_said_with_the_fix(function: PciFunction, text: str) -> None:
    found = judged(device(function))
    assert found.state is VfState.REFUSED
    assert text in found.reason


def test_an_interface_in_a_pod_keeps_its_link() -> None:
    made = device(physical())
    attributes = {each.name: each for each in made.attributes}
    away = replace(made, attributes=(*made.attributes, replace(attributes["rdma"], name="inPod", value=True)))
    assert "its interface is in a pod, which would lose its link for a moment" in judged(away).reason


def test_a_function_that_the_node_uses_must_be_named() -> None:
    uplink = NetworkFacts(links=(HostLink("ens1np0"),), default_routes=(HostRoute("ens1np0", 4),))
    used = device(physical(), uplink)
    found = judged(used)
    assert found.state is VfState.REFUSED
    assert found.reason == (
        "the node itself uses it: carries the node's default route (IPv4, by ens1np0); its link may go down while they "
        "are made, so name it in virtualFunctions (interfaces, rootDevices, pciAddress or name) if that does no harm"
    )
    assert judged(used, selector=NAMED).state is VfState.TO_MAKE


def test_only_physical_functions_that_a_rule_wants_are_judged() -> None:
    rules = (VirtualFunctionRule(NAMED, 0), VirtualFunctionRule(ALL, 4))
    plain, child = nic(bus="87"), vf(0)
    assert verdict(device(physical()), rules) is None, "0 keeps it from later rules"
    assert verdict(only(plain), rules) is None, "without SR-IOV"
    assert verdict(only(child), rules) is None
    assert verdict(device(physical()), ()) is None


def only(function: PciFunction) -> Device:
    (found,) = seen(nics(function)).values()
    return found


def test_a_function_with_two_ports_is_judged_once() -> None:
    function = physical()
    ports = (interface(function, "ens1np0"), interface(function, "ens1np1", dev_port=1))
    found = verdicts(seen(nics(function, interfaces=ports)).values(), (VirtualFunctionRule(ALL, 4),))
    assert [each.device.name for each in found] == [NAME]


def reason(made: Device, *rules: Rule, making: VfMaking | None = None) -> tuple[str, Cause | None]:
    snapshot = with_virtual_functions(Snapshot(1, (made,)), (VirtualFunctionRule(ALL, 4),), making)
    shown = offer(snapshot, rules, NOTHING_HELD, Door.PLUGIN)
    for item in shown.withheld:
        return item.reason, item.cause
    ((found,),) = [resource.devices for resource in shown.resources]
    return found.reason, found.cause


NICS = Rule("example.com/nic", ALL)


def test_offers_withhold_a_function_of_which_others_will_be_made() -> None:
    assert reason(device(physical()), NICS) == ("4 virtual functions will be made of it", Cause.NODE_USE)
    assert reason(device(physical())) == (
        "no rule selects it; 4 virtual functions will be made of it",
        Cause.NO_RULE,
    )


def test_offers_say_why_there_are_none() -> None:
    failed = VfMaking(failures={PF: "the kernel found no room for them"})
    text = "4 virtual functions could not be made of it: the kernel found no room for them"
    assert reason(device(physical()), NICS, making=failed) == (text, Cause.NODE_USE)
    refused, _ = reason(device(physical(total=0)), NICS)
    assert refused.startswith("4 virtual functions cannot be made of it: its firmware allows none")


def test_offers_say_who_made_them() -> None:
    made = device(physical(made=4))
    assert reason(made, NICS)[0] == "its 4 virtual functions are offered in its place"
    assert reason(made, NICS, making=VfMaking({PF: 4}))[0] == (
        "its 4 virtual functions are offered in its place; ostler made its virtual functions"
    )
    assert reason(made, NICS, making=VfMaking({PF: 2}))[0] == "its 4 virtual functions are offered in its place"


def test_a_function_that_a_rule_names_is_offered_with_a_note() -> None:
    named = Rule("example.com/nic", replace(ALL, names=(NAME,)))
    assert reason(device(physical()), named) == ("4 virtual functions will be made of it", None)


def test_a_snapshot_without_anything_to_say_is_the_same_one() -> None:
    snapshot = Snapshot(1, (device(physical(made=4)),), host=Host())
    assert with_virtual_functions(snapshot, (VirtualFunctionRule(ALL, 4),)) is snapshot
