"""A rule is called unreachable only when no device can reach it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.model import Attribute, Device, DeviceKind
from node.rules import Rule, Selector, rule_for
from ostler.config.conflicts import check_together, sorts
from ostler.config.errors import ConfigError, Origin
from ostler.config.resources import PlacedRule

# Mostly without patterns, or nothing would match.
PATTERNS = (
    st.just(()) | st.just(()) | st.lists(st.sampled_from(["*", "a*", "*a", "ab", "*b*", "a*b"]), max_size=2).map(tuple)
)
SELECTORS = st.builds(
    Selector,
    kinds=st.sampled_from([(), (DeviceKind.GPU,), (DeviceKind.MIG,), (DeviceKind.MIG, DeviceKind.GPU)]),
    vendors=st.sampled_from([(), ("nvidia",)]),
    products=PATTERNS,
    profiles=st.sampled_from([(), (), (), ("1g.*",), ("*",), ("1g.10gb", "2g.20gb")]),
    uuids=PATTERNS,
    mig_enabled=st.sampled_from([None, None, True, False]),
    whole_instances=st.booleans(),
)
UNHURRIED = settings(deadline=None, max_examples=300)  # machines that run tests are busy
TEXTS = st.sampled_from(["a", "b", "ab", "ba", "aab", ""])


def gpu(product: str, uuid: str, mig: bool) -> Device:
    attributes = (Attribute("migEnabled", mig), Attribute("productName", product))
    return Device("gpu-0", DeviceKind.GPU, "nvidia", uuid=uuid, attributes=attributes)


def mig(product: str, uuid: str, profile: str) -> Device:
    attributes = (Attribute("productName", product), Attribute("profile", profile))
    return Device("mig-0", DeviceKind.MIG, "nvidia", uuid=uuid, attributes=attributes)


DEVICES = st.builds(gpu, TEXTS, TEXTS, st.booleans()) | st.builds(
    mig, TEXTS, TEXTS, st.sampled_from(["1g.10gb", "1c.2g.20gb", "2g.20gb", "1g.10gb+me"])
)


def placed(selectors: list[Selector]) -> list[PlacedRule]:
    origins = [Origin("f", number + 1, 1, f"resources[{number}]") for number in range(len(selectors))]
    return [
        PlacedRule(Rule(f"a/r{number}", selector), origins[number], origins[number])
        for number, selector in enumerate(selectors)
    ]


@UNHURRIED
@given(st.lists(SELECTORS, max_size=4), st.lists(DEVICES, max_size=8))
def test_an_unreachable_rule_gets_no_device(selectors: list[Selector], devices: list[Device]) -> None:
    rules = placed(selectors)
    problems: list[ConfigError] = []
    check_together(rules, problems)
    for problem in problems:
        dead = next(one.rule for one in rules if one.origin.line == problem.line)
        assert all(rule_for(device, [one.rule for one in rules]) is not dead for device in devices)


@UNHURRIED
@given(SELECTORS, DEVICES)
def test_a_matched_device_is_of_a_sort_that_the_selector_can_match(selector: Selector, device: Device) -> None:
    if selector.matches(device):
        flag = bool(device.attribute("migEnabled"))
        if device.kind is DeviceKind.MIG:
            flag = not device.text("profile").startswith("1c.")
        assert (device.kind, flag) in sorts(selector)


@UNHURRIED
@given(SELECTORS.filter(sorts))
def test_the_same_rule_again_is_unreachable(selector: Selector) -> None:
    problems: list[ConfigError] = []
    check_together(placed([selector, selector]), problems)
    assert [problem.problem for problem in problems] == [
        "never gets a device: resources[0] (line 1) has them all before"
    ]
