"""Two rules of different doors are let pass only when no device can ever change from one to the other."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.registration import DoorOptions
from driver.sockets import claim_socket, registration_socket, unique
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
        ("{uuid: 'GPU-1*'}", "{uuid: 'GPU-2*'}"),
        ("{kind: gpu, pciAddress: '0000:3b:*'}", "{kind: gpu, pciAddress: '0000:5e:*'}"),
        ("{name: 'gpu-0000-3b-*'}", "{name: 'gpu-0000-5e-*'}"),
        ("{functions: vf, pciDevices: '1018'}", "{functions: vf, pciDevices: 101e}"),
        ("{functions: pf, acpiIndexes: 1}", "{functions: pf, acpiIndexes: 2}"),
        ("{functions: [vf, sf]}", "{kind: gpu}"),
        ("{rootDevices: '0000:3b:00.0#0-3'}", "{rootDevices: '0000:3b:00.0#4-7'}"),
        ("{functions: pf, pciVendors: 15b3}", "{functions: vf, pciVendors: '8086'}"),
        ("{functions: pf, interfaces: eth0}", "{functions: vf, interfaces: eth1}"),
        ("{kind: gpu, vendor: amd}", "{kind: mig}"),
        ("{uuid: MIG-1f5e2f0b-7c4d-4c6e-9d35-4b1a0f5d1c2e, profile: 1g.10gb}", "{kind: mig}"),
        ("{kind: gpu, vendor: nvidia}", "{kind: partition}"),
        ("{kind: gpu, product: L4}", "{kind: mig, product: 'H100*'}"),
        ("{kind: gpu, pciAddress: '0000:3b:00.0'}", "{kind: mig, pciAddress: '0000:5e:00.0'}"),
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


@pytest.mark.parametrize(
    ("earlier", "later", "why"),
    [
        # Not every pattern begins as the names of one kind do.
        (Selector(uuids=("GPU-1*", "*2")), Selector(kinds=(DeviceKind.MIG,)), "both can have the same device"),
        (Selector(names=("gpu-1*", "*2")), Selector(kinds=(DeviceKind.NIC,)), "both can have the same device"),
        # The mode of an AMD GPU is changed by its administrator, and with it the profile of its partitions.
        (
            Selector(kinds=(DeviceKind.PARTITION,), profiles=("cpx*",)),
            Selector(kinds=(DeviceKind.PARTITION,), profiles=("dpx*",)),
            "only profile keeps them apart",
        ),
        (
            Selector(nic=NicSelector(functions=("vf",), pkeys=("1",))),
            Selector(nic=NicSelector(functions=("vf",), pkeys=("2",))),
            "only pKeys keeps them apart",
        ),
        # In MIG mode a GPU has instances, or may get some.
        (Selector(mig_enabled=True), Selector(kinds=(DeviceKind.MIG,)), "one has whole GPUs, the other parts of them"),
        # A subfunction is as much a part of its card as a virtual function is.
        (
            Selector(nic=NicSelector(functions=("pf",))),
            Selector(nic=NicSelector(functions=("sf",))),
            "one has physical functions, the other virtual functions",
        ),
        # One port with all that it has, and functions of another one by number: the first is there itself, too.
        (
            Selector(nic=NicSelector(roots=(FunctionRange("0000:3b:00.0"), FunctionRange("0000:5e:00.0", ((0, 1),))))),
            Selector(nic=NicSelector(functions=("vf",), interfaces=(FunctionRange("eth0"),))),
            "both can have the same device",
        ),
        (
            Selector(nic=NicSelector(roots=(FunctionRange("p0"), FunctionRange("p1", ((0, 1),))), acpi_indexes=(1,))),
            Selector(nic=NicSelector(functions=("vf",), acpi_indexes=(2,))),
            "one has physical functions, the other virtual functions",
        ),
        # Ranges that have one number in common.
        *(
            (
                Selector(nic=NicSelector(functions=("vf",), interfaces=(FunctionRange("eth0", one),))),
                Selector(nic=NicSelector(functions=("vf",), interfaces=(FunctionRange("eth0", other),))),
                "both can have the same device",
            )
            for one, other in ((((0, 3),), ((3, 7),)), (((3, 7),), ((0, 3),)))
        ),
        # The name says which devices, but not that they are offered always.
        (
            Selector(names=("gpu-0",), products=("A*",)),
            Selector(kinds=(DeviceKind.GPU,)),
            "both can have the same device",
        ),
        # In the other order the wider one would have the devices first.
        (Selector(kinds=(DeviceKind.GPU,)), Selector(names=("gpu-0",)), "both can have the same device"),
        (Selector(names=("gpu-0", "gpu-1*")), Selector(kinds=(DeviceKind.GPU,)), "both can have the same device"),
        # A product answers to its name with blanks or dashes, with its vendor or without.
        (Selector(products=("NVIDIA A 1",)), Selector(products=("A-1",)), "both can have the same device"),
        (Selector(products=("A-1",)), Selector(products=("NVIDIA A 1",)), "both can have the same device"),
    ],
)
def test_rules_of_two_doors_are_refused_where_a_device_could_change(
    earlier: Selector, later: Selector, why: str
) -> None:
    shared = shared_devices(earlier, later)
    assert shared is not None
    assert shared[0].startswith(why)


def test_the_fix_says_what_keeps_devices_apart_for_good() -> None:
    def fix(earlier: Selector, later: Selector) -> str:
        shared = shared_devices(earlier, later)
        assert shared is not None
        return shared[1]

    gpus, migs, parts = (Selector(kinds=(kind,)) for kind in (DeviceKind.GPU, DeviceKind.MIG, DeviceKind.PARTITION))
    assert fix(gpus, migs).startswith("add migEnabled: false")
    assert fix(migs, gpus).startswith("add migEnabled: false")
    assert fix(gpus, parts).startswith("select devices apart by")
    assert fix(gpus, gpus).startswith("select devices apart by")


@pytest.mark.parametrize(
    ("section", "key", "longest"),
    [("dra", "pluginsDirectory", 107 - len("/ostler.dev/dra-01234567.sock")), ("kubelet", "pluginsRegistryDir", 72)],
)
def test_folders_are_refused_where_the_drivers_sockets_do_not_fit_by_a_byte(
    section: str, key: str, longest: int
) -> None:
    def load(size: int) -> None:
        folder = "/" + "f" * (size - 1)
        more = "dra: {pluginsDirectory: /p}\n" if section == "kubelet" else ""
        body = f"{more}{section}: {{{key}: {folder}}}\nresources:\n- {{name: a/b, door: dra}}\n"
        load_bytes("f", (HEADER.replace("resources:\n", "") + body).encode(), {}, {})

    load(longest)
    with pytest.raises(ConfigErrors, match=f"{section}.{key}: .* too long for the path of"):
        load(longest + 1)


def test_the_drivers_sockets_are_as_long_as_is_reckoned_with() -> None:
    options = DoorOptions("d" * 40, "a", Path("/p"), Path("/" + "r" * 71))
    name = registration_socket(options, unique())
    assert len(str(options.registry_dir / name)) == 107
    assert len(claim_socket(unique())) == len("dra-01234567.sock")


def test_one_resource_may_come_from_several_rules_of_the_second_door() -> None:
    body = "- {name: a/b, door: dra, devices: {uuid: GPU-1*}}\n- {name: a/b, door: dra, devices: {kind: gpu}}\n"
    assert len(load_bytes("f", (HEADER + body).encode(), {}, {}).settings.rules) == 2
