from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.model import Device, DeviceKind
from node.inventory.vendors import vendor_id
from node.rules import (
    DeviceIds,
    Rule,
    Selector,
    fills_gpu_instance,
    matches_pattern,
    offered_id,
    product_names,
    rule_for,
)
from node.values import replace
from tests.making.offered_devices import gpu, mig


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("A100", "A100", True),
        ("A100", "a100", False),
        ("A100*", "A100-SXM4", True),
        ("*A100*", "NVIDIA A100-SXM4", True),
        ("A100", "A100-SXM4", False),
        ("1g.5gb", "1gx5gb", False),
        ("[ab]", "a", False),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
    ],
)
def test_star_is_the_only_special_character(pattern: str, text: str, matches: bool) -> None:
    assert matches_pattern(pattern, text) is matches


@given(st.lists(st.text(alphabet="ab.[", max_size=3), min_size=1, max_size=4), st.text(max_size=4))
def test_what_stars_are_replaced_by_matches(parts: list[str], filling: str) -> None:
    assert matches_pattern("*".join(parts), filling.join(parts))


def test_product_goes_by_its_full_dashed_and_short_name() -> None:
    assert product_names(gpu(1)) == ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB")
    assert product_names(Device("gpu-a", DeviceKind.GPU, "nvidia")) == ()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (Selector(), ["gpu-0000-1b-00-0", "gpu-0000-2b-00-0", "mig-0000-2b-00-0-0-1"]),
        (Selector(kinds=(DeviceKind.MIG,)), ["mig-0000-2b-00-0-0-1"]),
        (
            Selector(kinds=(DeviceKind.MIG, DeviceKind.GPU), mig_enabled=True),
            ["gpu-0000-2b-00-0"],
        ),
        (Selector(kinds=(DeviceKind.GPU,), mig_enabled=False), ["gpu-0000-1b-00-0"]),
        (Selector(vendors=("amd",)), []),
        (Selector(vendors=("amd", "nvidia"), uuids=("GPU-1",)), ["gpu-0000-1b-00-0"]),
        (Selector(products=("L4",)), ["gpu-0000-1b-00-0"]),
        (Selector(products=("H100*", "*A100*")), ["gpu-0000-2b-00-0", "mig-0000-2b-00-0-0-1"]),
        (Selector(profiles=("1g.*",)), ["mig-0000-2b-00-0-0-1"]),
        (Selector(profiles=("*",)), ["mig-0000-2b-00-0-0-1"]),
        (Selector(pci_addresses=("0000:2b:*",)), ["gpu-0000-2b-00-0", "mig-0000-2b-00-0-0-1"]),
        (Selector(names=("gpu-*",)), ["gpu-0000-1b-00-0", "gpu-0000-2b-00-0"]),
        (Selector(names=("gpu-*",), uuids=("MIG-*",)), []),
        (Selector(whole_instances=True), ["mig-0000-2b-00-0-0-1"]),
    ],
)
def test_every_field_that_is_set_must_match(selector: Selector, names: list[str]) -> None:
    devices = [gpu(1, "NVIDIA L4"), gpu(2, mig=True), mig(2, 0)]
    assert [device.name for device in devices if selector.matches(device)] == names


def test_device_without_uuid_matches_no_uuid_pattern() -> None:
    assert not Selector(uuids=("*",)).matches(gpu(1, uuid=None))


def test_part_of_a_gpu_instance_does_not_fill_it() -> None:
    assert fills_gpu_instance(mig(1, 0))
    assert not fills_gpu_instance(mig(1, 0, "1c.3g.20gb"))
    assert not fills_gpu_instance(gpu(1))


def test_first_rule_that_matches_decides() -> None:
    special = Rule("example.com/a100", Selector(products=("A100*",)))
    general = Rule("nvidia.com/gpu")
    assert rule_for(gpu(1), (special, general)) is special
    assert rule_for(gpu(1), (general, special)) is general
    assert rule_for(gpu(1, "NVIDIA L4"), (special, general)) is general
    assert rule_for(gpu(1, "NVIDIA L4"), (special,)) is None


def test_resource_name_is_filled_in_with_the_profile() -> None:
    rule = Rule("nvidia.com/mig-{profile}")
    assert rule.resource_of(mig(1, 0, "1g.10gb+me")) == "nvidia.com/mig-1g.10gb.me"


def test_id_is_that_of_the_plugin_that_is_replaced_or_the_name() -> None:
    amd = Device("gpu-a", DeviceKind.GPU, "amd", uuid="x", pci_address="0000:03:00.0")
    assert vendor_id(gpu(1)) == "GPU-1"
    assert vendor_id(gpu(1, uuid=None)) == "gpu-0000-1b-00-0"
    assert vendor_id(amd) == "0000:03:00.0"
    assert vendor_id(Device("gpu-a", DeviceKind.GPU, "amd")) == "gpu-a"
    assert offered_id(Rule("a/b"), gpu(1)) == "GPU-1"
    assert offered_id(Rule("a/b", ids=DeviceIds.NAME), gpu(1)) == "gpu-0000-1b-00-0"


def test_the_rule_of_a_device_is_that_of_these_rules_and_of_the_device_as_it_is_now() -> None:
    device = gpu(1)
    whole, parts = (
        Rule("a.b/gpu", Selector(kinds=(DeviceKind.GPU,))),
        Rule("a.b/mig", Selector(kinds=(DeviceKind.MIG,))),
    )
    for number in range(20):
        other = Rule(f"a.b/{number}", Selector(names=(device.name,)))
        rules = (parts, whole), (other, whole), (parts,)
        assert [rule_for(device, each) for each in (*rules, *rules)] == [whole, other, None] * 2
    both = parts, whole
    assert rule_for(device, both) is whole
    assert rule_for(replace(device, kind=DeviceKind.MIG), both) is parts
    assert rule_for(device, iter(both)) is whole
