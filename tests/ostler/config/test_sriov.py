"""Configurations of the SR-IOV network device plugin give the same rules here, with an account of every value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.edits.options import EditOptions, ListStrategy
from node.inventory.model import NIC_KINDS
from node.rules import FunctionRange, NicSelector, Rule, Selector
from ostler.config.errors import NoteKind
from ostler.config.load import Loaded, SourceFormat, load
from tests.ostler.config.samples import FOLDER, GOOD_SRIOV

PCI = ("pf", "vf")


def sample(name: str, flags: dict[str, str] | None = None) -> Loaded:
    return load(FOLDER / "good-sriov" / name, flags or {}, {})


def notes(loaded: Loaded, kind: NoteKind) -> list[str]:
    return [f"{note.origin.key}: {note.text}" for note in loaded.notes if note.kind is kind]


@pytest.mark.parametrize("path", GOOD_SRIOV, ids=lambda path: path.stem)
def test_sample_is_recognised_by_its_resource_list(path: Path) -> None:
    assert load(path, {}, {}).source_format is SourceFormat.SRIOV


def test_the_documented_file_gives_its_resources() -> None:
    netdevice, dpdk, rdma, subfunction = sample("documented.json").settings.rules
    virtual = NicSelector(("8086",), ("154c", "10ed", "1889"), PCI)
    assert netdevice == Rule(
        "intel.com/intel_sriov_netdevice",
        Selector(NIC_KINDS, drivers=("i40evf", "iavf", "ixgbevf"), nic=virtual),
        by_name=False,
    )
    ranges = (FunctionRange("enp0s0f0", ((0, 3), (7, 7))), FunctionRange("enp2s2f1"))
    assert dpdk == Rule(
        "intel.com/intel_sriov_dpdk",
        Selector(NIC_KINDS, drivers=("vfio-pci",), nic=replace(virtual, interfaces=ranges)),
        edits=EditOptions(vhost_net=True),
        by_name=False,
    )
    assert rdma.edits == EditOptions(rdma=True)
    assert rdma.selector.nic == NicSelector(("15b3",), ("1018",), PCI, rdma=True)
    assert subfunction.selector.nic == NicSelector(
        ("15b3",), ("a2d6",), ("sf",), interfaces=(FunctionRange("p0", ((1, 5),)),)
    )


def test_every_value_is_taken_or_accounted_for() -> None:
    loaded = sample("everything.yaml")
    first, second = loaded.settings.rules
    assert first.selector == Selector(
        NIC_KINDS,
        pci_addresses=("0000:86:00.1", "0000:86:00.2"),
        drivers=("mlx5_core",),
        nic=NicSelector(
            vendors=("15b3", "1af4"),
            devices=("101e",),
            functions=PCI,
            interfaces=(FunctionRange("ens1np0", ((0, 3), (7, 7), (9, 9))),),
            roots=(FunctionRange("0000:86:00.0", ((0, 9),)),),
            link_types=("infiniband", "ethernet"),
            rdma=True,
            acpi_indexes=(101,),
            pkeys=("0x7fff",),
        ),
    )
    assert second.selector == Selector(NIC_KINDS, nic=NicSelector(("15b3",), functions=PCI, rdma=True))
    assert first.edits == second.edits == EditOptions(rdma=True, vhost_net=True)
    assert not first.hints
    assert notes(loaded, NoteKind.TAKEN) == [
        "resourceList[0].resourceName: taken as name example.com/nics-fast",
        "resourceList[0].resourcePrefix: taken as the domain of name",
        "resourceList[0].deviceType: taken as devices.kind [nic, rdma] and devices.functions [pf, vf]",
        "resourceList[0].excludeTopology: taken as topologyHints false",
        "resourceList[0].selectors[0].vendors: taken as devices.pciVendors",
        "resourceList[0].selectors[0].devices: taken as devices.pciDevices",
        "resourceList[0].selectors[0].drivers: taken as devices.drivers",
        "resourceList[0].selectors[0].pciAddresses: taken as devices.pciAddress",
        "resourceList[0].selectors[0].acpiIndexes: taken as devices.acpiIndexes",
        "resourceList[0].selectors[0].pfNames: taken as devices.interfaces",
        "resourceList[0].selectors[0].rootDevices: taken as devices.rootDevices",
        "resourceList[0].selectors[0].linkTypes: taken as devices.linkTypes [infiniband, ethernet]",
        "resourceList[0].selectors[0].isRdma: taken as devices.rdma true: RDMA devices alone, with their device nodes",
        "resourceList[0].selectors[0].pKeys: taken as devices.pKeys",
        "resourceList[0].selectors[0].needVhostNet: taken as vhostNet true",
        "resourceList[0].selectors[1].vendors: taken as devices.pciVendors",
        "resourceList[0].selectors[1].isRdma: taken as devices.rdma true: RDMA devices alone, with their device nodes",
        "resourceList[0].selectors[1].needVhostNet: taken as vhostNet true",
    ]
    assert notes(loaded, NoteKind.IGNORED) == [
        "resourceList[0].selectors[0].ddpProfiles: is ignored: there are none",
        "resourceList[0].selectors[0].vdpaType: is ignored: there is none",
        "resourceList[0].selectors[1].devices: is ignored: it is empty",
        "resourceList[0].selectors[1].linkTypes: is ignored: it is empty",
        "resourceList[0].selectors[1].auxTypes: is ignored: it is empty",
        "resourceList[0].additionalInfo: is ignored: there are none",
    ]


def test_several_selectors_are_several_rules_of_one_name_in_their_order() -> None:
    loaded = sample("several-selectors.yaml")
    assert [(rule.resource, rule.selector.nic) for rule in loaded.settings.rules] == [
        ("intel.com/nics", NicSelector(("15b3",), (), PCI, interfaces=(FunctionRange("ens1np0", ((0, 3),)),))),
        ("intel.com/nics", NicSelector(("8086",), (), PCI)),
        ("example.com/nics", NicSelector(functions=PCI)),
    ]
    assert not any(rule.edits.rdma or rule.edits.vhost_net for rule in loaded.settings.rules)
    assert notes(loaded, NoteKind.TAKEN)[0] == (
        "resourceList[0].resourceName: taken as name intel.com/nics "
        "(intel.com is the plugin's own; resourcePrefix changes it)"
    )
    assert notes(loaded, NoteKind.IGNORED)[0] == (
        "resourceList[0].selectors[0].isRdma: is ignored: as in the plugin, devices with and without RDMA are taken"
    )


def test_flags_are_over_the_file() -> None:
    rules = sample("documented.json", {"--device-list-strategy": "cdi-cri"}).settings.rules
    assert {rule.edits.strategies for rule in rules} == {(ListStrategy.CDI_CRI,)}


def test_gpus_are_not_offered_beside_the_resource_list() -> None:
    assert all(rule.selector.kinds == NIC_KINDS for rule in sample("documented.json").settings.rules)


def test_a_function_with_the_default_route_is_not_offered_by_its_name() -> None:
    assert not any(rule.by_name for rule in sample("documented.json").settings.rules)
