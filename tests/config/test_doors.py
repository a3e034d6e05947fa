"""Two rules of different doors are let pass only when no device can ever change from one to the other."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.model import Attribute, Device, DeviceKind
from node.nic_selector import FunctionRange, NicSelector
from node.rules import Door, Rule, Selector, matches_pattern, rule_for
from ostler.config.doors import patterns_meet, shared_devices
from ostler.config.errors import ConfigErrors
from ostler.config.load import load_bytes

HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\nnodeName: a\nresources:\n"
UNHURRIED = settings(deadline=None, max_examples=500)  # machines that run tests are busy
TEXTS = st.text("ab*", max_size=5)
PATTERNS = st.sampled_from([(), (), ("a*",), ("a",), ("b",), ("a", "b"), ("*b",), ("NVIDIA-a",), ("NVIDIA *",)])
RANGES = st.sampled_from(
    [(), (), (FunctionRange("p0"),), (FunctionRange("p0", ((0, 1),)),), (FunctionRange("p0", ((1, 3),)),)]
)
NICS = st.builds(
    NicSelector,
    vendors=st.sampled_from([(), ("15b3",), ("8086",)]),
    functions=st.sampled_from([(), ("pf",), ("vf",)]),
    interfaces=RANGES,
    link_types=st.sampled_from([(), ("ethernet",), ("infiniband",)]),
    rdma=st.sampled_from([None, True, False]),
)
KINDS = ((), *((kind,) for kind in DeviceKind), (DeviceKind.GPU, DeviceKind.MIG))
SELECTORS = st.builds(
    Selector,
    kinds=st.sampled_from(KINDS),
    vendors=st.sampled_from([(), ("nvidia",), ("amd",)]),
    drivers=st.sampled_from([(), (), ("one",), ("two",)]),
    nic=st.none() | NICS,
    products=PATTERNS,
    profiles=st.sampled_from([(), (), ("1g.*",), ("2g.20gb",)]),
    uuids=st.sampled_from([(), (), ("u",), ("v",), ("*",)]),
    mig_enabled=st.sampled_from([None, None, True, False]),
    whole_instances=st.booleans(),
)


def gpu_lives(name: str, uuid: str) -> list[Device]:
    """One GPU with everything of it that can change."""
    return [
        Device("gpu-0", DeviceKind.GPU, "nvidia", uuid=uuid, attributes=(*facts, Attribute("productName", name)))
        for mig, driver in product((True, False), ("one", "two"))
        for facts in [(Attribute("migEnabled", mig), Attribute("driver", driver))]
    ]


def nic_lives(vendor: str, number: int) -> list[Device]:
    """One NIC (number -1: a physical function) with everything of it that can change."""
    kept = (Attribute("pciVendor", vendor), Attribute("pfName", "p0"))
    function = (Attribute("sriovFunction", "vf"), Attribute("vfIndex", number)) if number >= 0 else ()
    return [
        Device(
            "nic-0",
            DeviceKind.NIC,
            "mellanox",
            attributes=(*kept, *function, Attribute("linkType", link), Attribute("rdma", rdma), Attribute("driver", d)),
        )
        for link, rdma, d in product(("ethernet", "infiniband"), (True, False), ("one", "two"))
    ]


LIVES = st.one_of(
    st.builds(gpu_lives, st.sampled_from(["NVIDIA a", "NVIDIA b", "NVIDIA ab"]), st.sampled_from(["u", "v"])),
    st.builds(nic_lives, st.sampled_from(["15b3", "8086"]), st.integers(-1, 3)),
)


@UNHURRIED
@given(SELECTORS, SELECTORS, LIVES)
def test_a_device_never_changes_doors_under_rules_that_are_let_pass(
    earlier: Selector, later: Selector, lives: list[Device]
) -> None:
    if shared_devices(earlier, later) is None:
        rules = (Rule("a/b", earlier, Door.PLUGIN), Rule("a/c", later, Door.DRA))
        doors = {rule.door for device in lives if (rule := rule_for(device, rules)) is not None}
        assert len(doors) < 2


@UNHURRIED
@given(SELECTORS, SELECTORS)
def test_a_gpu_and_its_mig_device_are_not_behind_two_doors(whole: Selector, part: Selector) -> None:
    enabled = (Attribute("migEnabled", True), Attribute("productName", "NVIDIA a"), Attribute("driver", "one"))
    gpu = Device("gpu-0", DeviceKind.GPU, "nvidia", uuid="u", attributes=enabled)
    facts = (Attribute("productName", "NVIDIA a"), Attribute("profile", "1g.10gb"), Attribute("driver", "one"))
    mig = Device("mig-0", DeviceKind.MIG, "nvidia", uuid="m", attributes=facts)
    if whole.matches(gpu) and part.matches(mig):
        assert shared_devices(whole, part) is not None
        assert shared_devices(part, whole) is not None


@UNHURRIED
@given(SELECTORS, SELECTORS, st.integers(0, 3))
def test_a_nic_and_its_virtual_function_are_not_behind_two_doors(whole: Selector, part: Selector, number: int) -> None:
    if any(map(whole.matches, nic_lives("15b3", -1))) and any(map(part.matches, nic_lives("15b3", number))):
        assert shared_devices(whole, part) is not None
        assert shared_devices(part, whole) is not None


@UNHURRIED
@given(TEXTS, TEXTS, st.text("ab", max_size=6))
def test_patterns_that_one_text_matches_meet(one: str, other: str, text: str) -> None:
    if matches_pattern(one, text) and matches_pattern(other, text):
        assert patterns_meet(one, other)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("", "", True),
        ("", "*", True),
        ("a", "", False),
        ("a*", "*b", True),
        ("a*b", "ab", True),
        ("a*b", "*c", False),
        ("*a*", "b*", True),
        ("ab*", "a", False),
        ("H100*", "H200*", False),
    ],
)
def test_patterns_meet_when_some_text_matches_both(one: str, other: str, meet: bool) -> None:
    assert patterns_meet(one, other) is meet
    assert patterns_meet(other, one) is meet


@pytest.mark.parametrize(
    "pair",
    [
        ("{kind: gpu}", "{kind: nic}"),
        ("{kind: gpu, vendor: nvidia}", "{kind: gpu, vendor: amd}"),
        ("{product: L4}", "{product: 'NVIDIA H100*'}"),
        ("{migEnabled: false}", "{kind: mig}"),
        ("{migEnabled: false}", "{wholeInstances: true}"),
        ("{kind: mig, profile: 1g.10gb}", "{kind: mig, profile: '2g.*'}"),
        ("{uuid: GPU-1f5e2f0b-7c4d-4c6e-9d35-4b1a0f5d1c2e, migEnabled: false}", "{kind: mig}"),
        ("{uuid: GPU-1f5e2f0b-7c4d-4c6e-9d35-4b1a0f5d1c2e}", "{migEnabled: false}"),
        ("{kind: gpu, pciAddress: ['0000:3b:00.0', '0000:5e:00.0']}", "{migEnabled: false}"),
        ("{name: gpu-0000-3b-00-0}", "{migEnabled: false}"),
        ("{interfaces: 'eth0#0-3'}", "{interfaces: 'eth0#4-7'}"),
        ("{interfaces: eth0}", "{interfaces: eth1}"),
        ("{functions: pf, rootDevices: '0000:3b:00.0'}", "{functions: vf, rootDevices: '0000:5e:00.0'}"),
        ("{kind: nic, pciAddress: '0000:3b:00.0'}", "{functions: vf, rootDevices: '0000:5e:00.0'}"),
        ("{pciVendors: 15b3}", "{pciVendors: '8086'}"),
    ],
)
def test_rules_of_two_doors_are_let_pass_when_devices_keep_apart(pair: tuple[str, str]) -> None:
    one, other = pair
    body = f"- {{name: a/b, devices: {one}}}\n- {{name: a/c, door: dra, devices: {other}}}\n"
    try:
        loaded = load_bytes("f", (HEADER + body).encode(), {}, {})
    except ConfigErrors as errors:
        raise AssertionError(str(errors)) from errors
    assert [rule.door for rule in loaded.settings.rules] == [Door.PLUGIN, Door.DRA]


def test_one_resource_may_come_from_several_rules_of_the_second_door() -> None:
    body = "- {name: a/b, door: dra, devices: {uuid: GPU-1*}}\n- {name: a/b, door: dra, devices: {kind: gpu}}\n"
    assert len(load_bytes("f", (HEADER + body).encode(), {}, {}).settings.rules) == 2
