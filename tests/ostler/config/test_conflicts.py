"""What is called unreachable: only rules that no device can reach, and every rule that stands there twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.model import Attribute, Device, DeviceKind
from node.rules import FunctionRange, NicSelector, Rule, Selector, rule_for
from ostler.config.conflicts import check_together, sorts
from ostler.config.errors import ConfigError, Origin
from ostler.config.resources import PlacedRule

# Mostly without patterns, or nothing would match.
PATTERNS = (
    st.just(()) | st.just(()) | st.lists(st.sampled_from(["*", "a*", "*a", "ab", "*b*", "a*b"]), max_size=2).map(tuple)
)
RANGES = st.lists(
    st.sampled_from([FunctionRange("p0"), FunctionRange("p0", ((0, 1), (3, 3))), FunctionRange("p1", ((1, 4),))]),
    max_size=2,
).map(tuple)
NIC_SELECTORS = st.builds(
    NicSelector,
    vendors=st.sampled_from([(), ("15b3",), ("15b3", "8086")]),
    functions=st.sampled_from([(), ("pf",), ("vf", "pf"), ("sf",)]),
    interfaces=RANGES,
    link_types=st.sampled_from([(), ("ethernet",)]),
    rdma=st.sampled_from([None, True, False]),
    acpi_indexes=st.sampled_from([(), (0,), (0, 1)]),
)
KINDS = ((), tuple(DeviceKind), *((kind,) for kind in DeviceKind), (DeviceKind.MIG, DeviceKind.GPU))
SELECTORS = st.builds(
    Selector,
    kinds=st.sampled_from(KINDS),
    vendors=st.sampled_from([(), ("nvidia",), ("amd", "mellanox")]),
    drivers=st.sampled_from([(), (), ("a",), ("a", "b")]),
    nic=st.none() | NIC_SELECTORS,
    products=PATTERNS,
    profiles=st.sampled_from([(), (), (), ("1g.*",), ("*",), ("1g.10gb", "2g.20gb")]),
    uuids=PATTERNS,
    mig_enabled=st.sampled_from([None, None, True, False]),
    whole_instances=st.booleans(),
)
TEXTS = st.sampled_from(["a", "b", "ab", "ba", "aab", ""])


def gpu(product: str, uuid: str, mig: bool) -> Device:
    attributes = (Attribute("migEnabled", mig), Attribute("productName", product))
    return Device("gpu-0", DeviceKind.GPU, "nvidia", uuid=uuid, attributes=attributes)


def mig(product: str, uuid: str, profile: str) -> Device:
    attributes = (Attribute("productName", product), Attribute("profile", profile))
    return Device("mig-0", DeviceKind.MIG, "nvidia", uuid=uuid, attributes=attributes)


def other(kind: DeviceKind, vendor: str, driver: str, profile: str) -> Device:
    # Profiles are of GPUs and their parts: no RDMA device has one.
    given = "" if kind is DeviceKind.RDMA else profile
    attributes = (Attribute("driver", driver), Attribute("profile", given), Attribute("productName", "ab"))
    return Device("other-0", kind, vendor, attributes=attributes)


def nic(vendor: str, pf: str, number: int, rdma: bool) -> Device:
    function = (Attribute("sriovFunction", "vf"), Attribute("vfIndex", number)) if number >= 0 else ()
    facts = (
        Attribute("pciVendor", vendor),
        Attribute("driver", "a"),
        Attribute("pfName", pf),
        Attribute("rdma", rdma),
        Attribute("linkType", "ethernet"),
        Attribute("acpiIndex", 0),
    )
    return Device("nic-0", DeviceKind.NIC, "mellanox", attributes=facts + function)


DEVICES = st.one_of(
    st.builds(gpu, TEXTS, TEXTS, st.booleans()),
    st.builds(mig, TEXTS, TEXTS, st.sampled_from(["1g.10gb", "1c.2g.20gb", "2g.20gb", "1g.10gb+me"])),
    st.builds(
        other,
        st.sampled_from([DeviceKind.GPU, DeviceKind.PARTITION, DeviceKind.RDMA]),
        st.sampled_from(["amd", "intel", "mellanox"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["", "cpx_nps4", "1g.a"]),
    ),
    st.builds(nic, st.sampled_from(["15b3", "8086"]), st.sampled_from(["p0", "p1"]), st.integers(-1, 5), st.booleans()),
)


def placed(selectors: list[Selector]) -> list[PlacedRule]:
    origins = [Origin("f", number + 1, 1, f"resources[{number}]") for number in range(len(selectors))]
    return [
        PlacedRule(Rule(f"a/r{number}", selector), origins[number], origins[number])
        for number, selector in enumerate(selectors)
    ]


def an_unreachable_rule_gets_no_device(selectors: list[Selector], devices: list[Device]) -> None:
    rules = placed(selectors)
    problems: list[ConfigError] = []
    check_together(rules, problems)
    for problem in problems:
        dead = next(one.rule for one in rules if one.origin.line == problem.origin.line)
        assert all(rule_for(device, [one.rule for one in rules]) is not dead for device in devices)


def a_matched_device_is_of_a_sort_that_its_selector_can_match(selectors: list[Selector], devices: list[Device]) -> None:
    for selector in selectors:
        for device in filter(selector.matches, devices):
            flag = bool(device.attribute("migEnabled"))
            if device.kind is DeviceKind.MIG:
                flag = not device.text("profile").startswith("1c.")
            assert (device.kind, flag) in sorts(selector)


def the_same_rule_again_is_unreachable(selectors: list[Selector], devices: list[Device]) -> None:
    for selector in filter(sorts, selectors):
        problems: list[ConfigError] = []
        check_together(placed([selector, selector]), problems)
        assert [problem.problem for problem in problems] == [
            "never gets a device: resources[0] (line 1) takes them all first"
        ]


PROPERTIES = (
    an_unreachable_rule_gets_no_device,
    a_matched_device_is_of_a_sort_that_its_selector_can_match,
    the_same_rule_again_is_unreachable,
)
"""What holds for all selectors and devices: to make them takes longer than to judge them by every property."""


@settings(deadline=None, max_examples=150)  # machines that run tests are busy
@given(st.lists(SELECTORS, max_size=4), st.lists(DEVICES, max_size=8))
def test_every_property_holds_for_all_selectors(selectors: list[Selector], devices: list[Device]) -> None:
    for holds in PROPERTIES:
        holds(selectors, devices)
