"""Virtual functions that are made: the settings, their notes, and what a reload says."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.model import NIC_KINDS
from node.rules import FunctionRange, NicSelector, Selector
from node.virtual_functions import VirtualFunctionRule
from ostler.cli.main import main
from ostler.config.load import Loaded, load_bytes
from ostler.config.settings import changes

HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
VFS = "resources: [{name: example.com/vf, devices: {functions: [vf]}}]\n"


def loaded(items: str, resources: str = VFS) -> Loaded:
    return load_bytes("c.yaml", f"{HEADER}{resources}virtualFunctions: {items}\n".encode(), {}, {})


def test_items_become_rules_of_nics_in_their_order() -> None:
    found = loaded(
        "[{devices: {interfaces: [ens1np0], rdma: true}, count: 8},"
        " {devices: {vendor: mellanox}, count: 0, driversAutoprobe: false}]"
    ).settings.virtual_functions
    assert found == (
        VirtualFunctionRule(Selector(NIC_KINDS, nic=NicSelector(interfaces=(FunctionRange("ens1np0"),), rdma=True)), 8),
        VirtualFunctionRule(Selector(NIC_KINDS, ("mellanox",)), 0, autoprobe=False),
    )


def test_vendors_of_gpus_and_exact_addresses_select_nics_alone() -> None:
    found = loaded('[{devices: {vendor: intel, pciAddress: "0000:86:00.0"}, count: 8}]').settings.virtual_functions
    assert found[0].selector == Selector(NIC_KINDS, ("intel",), pci_addresses=("0000:86:00.0",))
    assert loaded("[{devices: {}, count: 1}]").settings.virtual_functions[0].selector == Selector(NIC_KINDS)


def test_none_are_made_unless_the_key_is_there() -> None:
    assert load_bytes("c.yaml", HEADER.encode(), {}, {}).settings.virtual_functions == ()


def test_functions_that_nothing_offers_are_noted() -> None:
    remark = "makes virtual functions, but no resource offers NICs; add one with 'devices: {functions: [vf]}'"
    assert [note.text for note in loaded("[{devices: {}, count: 8}]", "").notes] == [remark]
    assert loaded("[{devices: {}, count: 0}]", "").notes == ()
    assert loaded("[{devices: {}, count: 8}]").notes == ()


def test_the_check_of_a_file_says_what_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"{HEADER}{VFS}virtualFunctions: [{{devices: {{vendor: intel}}, count: 0}}, {{devices: {{}}, count: 8}}]\n"
    )
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "  makes no virtual functions of physical functions that virtualFunctions[0] selects",
        "  makes 8 virtual functions of each physical function that virtualFunctions[1] selects",
    ]


def test_a_reload_puts_them_in_force() -> None:
    old, new = loaded("[{devices: {}, count: 8}]").settings, loaded("[{devices: {}, count: 4}]").settings
    assert changes(old, new) == ("virtualFunctions: 1 items before, 1 now, in force",)
