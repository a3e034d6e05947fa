"""Selections of NICs and their options, and GPUs of other vendors."""

from __future__ import annotations

import pytest

from node.edits.options import EditOptions, ListStrategy
from node.inventory.model import NIC_KINDS, Attribute, AttributeValue, Device, DeviceKind
from node.rules import FunctionRange, NicSelector, Rule, Selector
from ostler.config.load import load, load_bytes
from ostler.config.selection import ACCELERATORS
from tests.ostler.config.samples import FOLDER

GPU, MIG, PARTITION = DeviceKind.GPU, DeviceKind.MIG, DeviceKind.PARTITION
HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"


def rule(devices: str, options: str = "", defaults: str = "{}") -> Rule:
    body = (
        f"{HEADER}defaults: {defaults}\nresources:\n  - {{name: example.com/some, devices: {{{devices}}}{options}}}\n"
    )
    return load_bytes("config.yaml", body.encode(), {}, {}).settings.rules[0]


def sample() -> dict[str, Rule]:
    return {one.resource: one for one in load(FOLDER / "good" / "nics.yaml", {}, {}).settings.rules}


def test_every_fact_of_nics_arrives() -> None:
    assert sample()["example.com/everything"].selector == Selector(
        kinds=NIC_KINDS,
        vendors=("mellanox", "amd"),
        pci_addresses=("0000:86:*",),
        names=("nic-0000-*", "rdma-*"),
        drivers=("mlx5_core", "ionic"),
        nic=NicSelector(
            vendors=("15b3", "1022"),
            devices=("1572",),
            functions=("pf", "vf"),
            interfaces=(FunctionRange("ens1np0", ((0, 3), (7, 7), (9, 9))), FunctionRange("odd-näme%")),
            roots=(FunctionRange("0000:86:00.0", ((0, 3), (9, 9))), FunctionRange("10000:01:00.0")),
            link_types=("ethernet", "infiniband"),
            rdma=True,
            acpi_indexes=(101, 0),
            pkeys=("0x7fff", "0x0001"),
        ),
    )


@pytest.mark.parametrize(
    ("devices", "kinds"),
    [
        ("", ACCELERATORS),
        ("vendor: intel", ACCELERATORS),
        ("vendor: [amd, nvidia]", ACCELERATORS),
        ("product: '*'", ACCELERATORS),
        ("name: '*'", ACCELERATORS),
        ("drivers: [amdgpu, xe]", ACCELERATORS),
        ("pciAddress: '0000:86:*'", ACCELERATORS),
        ("pciAddress: '0000:86:00.0'", ()),
        ("profile: [1g.10gb, 1c.*]", (MIG,)),
        ("profile: '*'", ACCELERATORS),
        ("profile: cpx_nps4", ACCELERATORS),
        ("wholeInstances: true", (MIG,)),
        ("migEnabled: true", (GPU,)),
        ("rdma: false", NIC_KINDS),
        ("functions: sf", NIC_KINDS),
        ("pciVendors: 1572", NIC_KINDS),
        ("vendor: [mellanox, huawei]", NIC_KINDS),
        ("drivers: [mlx5_core, vfio-pci]", NIC_KINDS),
        ("name: [nic-0000-02-00-0, rdma-*]", NIC_KINDS),
        ("kind: nic", (DeviceKind.NIC,)),
    ],
)
def test_nics_are_selected_only_by_those_who_ask_for_them(devices: str, kinds: tuple[DeviceKind, ...]) -> None:
    assert rule(devices).selector.kinds == kinds


@pytest.mark.parametrize("written", ["15b3", '"15b3"', '"0x15b3"', "0x15B3", "[15B3]"])
def test_pci_ids_are_read_however_they_are_written(written: str) -> None:
    assert rule(f"pciVendors: {written}").selector.nic == NicSelector(vendors=("15b3",))


@pytest.mark.parametrize("written", ["1572", "0086", "1e14", "0x1572", '"00e7"'])
def test_pci_ids_that_yaml_takes_for_numbers_stay_as_written(written: str) -> None:
    digits = written.strip('"').removeprefix("0x")
    assert rule(f"pciDevices: {written}").selector.nic == NicSelector(devices=(digits,))


@pytest.mark.parametrize(
    ("devices", "options", "given"),
    [
        ("rdma: true", "", True),
        ("kind: rdma", "", True),
        ("kind: [nic, rdma]", "", False),
        ("functions: vf", "", False),
        ("functions: vf", ", rdmaDevices: true", True),
        ("rdma: true", ", rdmaDevices: false", False),
        ("rdma: false", "", False),
    ],
)
def test_rdma_nodes_are_given_where_rdma_is_selected_or_asked_for(devices: str, options: str, given: bool) -> None:
    assert rule(devices, options).edits.rdma is given


def test_rdma_devices_of_the_defaults_are_not_for_those_without() -> None:
    assert rule("kind: nic", defaults="{rdmaDevices: true}").edits.rdma
    assert not rule("rdma: false", defaults="{rdmaDevices: true}").edits.rdma
    assert not rule("kind: gpu", defaults="{rdmaDevices: true}").edits.rdma


def test_defaults_that_mean_nothing_for_a_device_are_left_out() -> None:
    rules = sample()
    gpu = rules["nvidia.com/gpu"]
    assert gpu.edits == EditOptions(
        (ListStrategy.VOLUME_MOUNTS,), device_specs=False, features=("gdrcopy",), imex_channels=(0,)
    )
    assert not gpu.link_health
    virtio = rules["example.com/virtio"]
    assert virtio.edits == EditOptions(vhost_net=True)
    assert virtio.link_health
    for name in ("amd.com/gpu", "amd.com/{profile}", "gpu.intel.com/xe"):
        assert not rules[name].edits.vhost_net
        assert rules[name].edits.features == ()
        assert rules[name].edits.device_specs
        assert not rules[name].link_health


def test_a_resource_overrides_link_health_hints_and_vhost_net() -> None:
    everything = sample()["example.com/everything"]
    assert (everything.link_health, everything.hints) == (False, False)
    assert everything.edits == EditOptions()


def test_cdi_is_for_nics_as_well() -> None:
    assert sample()["example.com/vfs"].edits == EditOptions((ListStrategy.CDI_CRI,), rdma=True, vhost_net=True)


def test_an_own_choice_of_device_specs_is_kept() -> None:
    assert not rule("kind: nic", ", passDeviceSpecs: false").edits.device_specs


def test_partitions_of_amd_are_selected_by_their_modes() -> None:
    assert sample()["amd.com/{profile}"].selector == Selector((GPU, PARTITION), ("amd",), profiles=("*_nps4",))


def test_defaults_for_nvidia_do_not_break_the_default_rules_of_others() -> None:
    flags = {"--device-list-strategy": "volume-mounts,cdi-cri", "--cdi-mode": "full", "--cdi-hook": "/usr/bin/hook"}
    nvidia, *others = load(None, {**flags, "--nvidia-driver-root": "/run/nvidia"}, {}).settings.rules
    assert nvidia.edits.hook == "/usr/bin/hook"
    assert [other.edits for other in others] == [EditOptions((ListStrategy.CDI_CRI,))] * 4


def test_nics_are_no_default() -> None:
    for strategy in ("none", "mixed", "single"):
        for one in load(None, {"--mig-strategy": strategy}, {}).settings.rules:
            assert one.selector.kinds
            assert not set(one.selector.kinds) & set(NIC_KINDS)


@pytest.mark.parametrize(
    "second",
    [
        "{interfaces: 'ens1np0#2-9'}",
        "{interfaces: ens1np0}",
        "{interfaces: ['ens1np0#0-3', ens2np0]}",
        "{rdma: true}",
        "{pciVendors: 15b3}",
        "{rootDevices: '0000:86:00.0#0-3'}",
    ],
)
def test_a_rule_that_is_not_seen_to_be_taken_is_let_pass(second: str) -> None:
    first = "{interfaces: 'ens1np0#0-5'}"
    body = f"{HEADER}resources:\n  - {{name: a/b, devices: {first}}}\n  - {{name: a/c, devices: {second}}}\n"
    assert len(load_bytes("config.yaml", body.encode(), {}, {}).settings.rules) == 2


def function(name: str, **facts: AttributeValue) -> Device:
    attributes = tuple(Attribute(key, fact) for key, fact in facts.items())
    return Device(f"nic-{name}", DeviceKind.NIC, "mellanox", attributes=attributes)


FUNCTIONS = (
    function("plain", pfName="eth0", pfPciAddress="0000:01:00.0"),
    function("pf", pfName="ens1", pfPciAddress="0000:86:00.0", sriovFunction="pf", driver="mlx5_core"),
    function("vf0", pfName="ens1", pfPciAddress="0000:86:00.0", sriovFunction="vf", vfIndex=0, driver="vfio-pci"),
    function("vf5", pfName="ens1", pfPciAddress="0000:86:00.0", sriovFunction="vf", vfIndex=5, driver="mlx5_core"),
    function("sf5", pfName="ens1", pfPciAddress="0000:86:00.0", sriovFunction="sf", sfNumber=5),
)


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        ("kind: nic", ["plain", "pf", "vf0", "vf5", "sf5"]),
        ("functions: pf", ["plain", "pf"]),
        ("functions: [vf, sf]", ["vf0", "vf5", "sf5"]),
        ("interfaces: ens1", ["pf", "vf0", "vf5", "sf5"]),
        ("interfaces: 'ens1#4-6'", ["vf5", "sf5"]),
        ("interfaces: 'ens1#5', functions: sf", ["sf5"]),
        ("interfaces: [eth0, 'ens1#0']", ["plain", "vf0"]),
        ("rootDevices: '0000:86:00.0#0-4'", ["vf0"]),
        ("drivers: vfio-pci", ["vf0"]),
        ("vendor: broadcom", []),
        ("kind: gpu", []),
        ("", []),
    ],
)
def test_selections_pick_functions_as_the_sriov_plugin_does(devices: str, names: list[str]) -> None:
    selector = rule(devices).selector
    assert [one.name.removeprefix("nic-") for one in FUNCTIONS if selector.matches(one)] == names
