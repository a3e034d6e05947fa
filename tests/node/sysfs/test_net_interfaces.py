from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.inventory.net_facts import NetInterface
from tests.node.sysfs.tree import MELLANOX, NET, SysfsTree, again, read_during

PF = "pci0000:15/0000:15:01.0/0000:1a:00.0"
PATH = f"{PF}/net/ens1np0"


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_an_interface_has_everything_that_sysfs_shows(tree: SysfsTree) -> None:
    tree.net(PATH)

    facts = tree.read()

    assert facts.errors == ()
    assert facts.interfaces == (
        NetInterface(
            name="ens1np0",
            path=PATH,
            ifindex=4,
            link_type=1,
            address="02:fc:00:00:00:01",
            mtu=9000,
            operstate="up",
            carrier=True,
            speed_mbps=400_000,
            dev_port=0,
            port_name="p0",
            switch_id="c2a8880003e4a0",
        ),
    )


def test_virtual_interfaces_are_left_out_unread_and_those_of_any_bus_are_kept(tree: SysfsTree) -> None:
    tree.net("virtual/net/lo", {})
    tree.net("virtual/net/cali1234", {})
    tree.net("pci0000:00/0000:00:03.0/virtio2/net/eth0")
    tree.net("platform/soc/fec.0/net/eth1")
    (tree.sys / "class/net/bonding_masters").write_text("bond0\n")

    facts = tree.read()

    assert [each.name for each in facts.interfaces] == ["eth0", "eth1"]
    assert facts.errors == ()


def test_what_drivers_do_not_tell_is_none_and_no_error(tree: SysfsTree) -> None:
    texts = {name: NET[name] for name in ("ifindex", "type", "address", "mtu", "operstate")}
    tree.net(PATH, texts)

    facts = tree.read()

    assert facts.errors == ()
    (interface,) = facts.interfaces
    assert (interface.carrier, interface.speed_mbps, interface.dev_port) == (None, None, None)
    assert (interface.port_name, interface.switch_id) == (None, None)


def test_a_speed_of_minus_one_is_unknown(tree: SysfsTree) -> None:
    tree.net(PATH, NET | {"speed": "-1"})

    assert tree.read().interfaces[0].speed_mbps is None


def test_a_link_that_is_down_has_no_speed(tree: SysfsTree) -> None:
    tree.net(PATH, NET | {"carrier": "0", "operstate": "down"})

    (interface,) = tree.read().interfaces
    assert (interface.carrier, interface.speed_mbps, interface.operstate) == (False, None, "down")


def test_a_link_that_goes_down_and_comes_up_at_another_speed_is_seen(tree: SysfsTree) -> None:
    folder = tree.net(PATH)
    source = tree.source()
    assert again(source).interfaces[0].speed_mbps == 400_000

    (folder / "carrier").write_text("0\n")
    (folder / "carrier_changes").write_text("3\n")
    assert again(source).interfaces[0].speed_mbps is None

    (folder / "carrier").write_text("1\n")
    (folder / "carrier_changes").write_text("4\n")
    (folder / "speed").write_text("200000\n")
    assert again(source).interfaces[0].speed_mbps == 200_000

    # Down and up again between two reads.
    (folder / "carrier_changes").write_text("6\n")
    (folder / "speed").write_text("100000\n")
    assert again(source).interfaces[0].speed_mbps == 100_000


def test_the_driver_is_not_asked_for_the_speed_of_a_link_that_did_not_change(tree: SysfsTree) -> None:
    folder = tree.net(PATH)
    source = tree.source()
    again(source)

    (folder / "speed").unlink()

    assert again(source).interfaces[0].speed_mbps == 400_000


def test_what_changes_is_seen_and_what_does_not_is_the_same_value(tree: SysfsTree) -> None:
    folder = tree.net(PATH)
    source = tree.source()
    first = again(source).interfaces[0]
    assert again(source).interfaces[0] is first

    for name, text in (("mtu", "1500"), ("address", "02:fc:00:00:00:02"), ("operstate", "dormant")):
        (folder / name).write_text(f"{text}\n")
    (folder / "phys_switch_id").unlink()

    now = again(source).interfaces[0]
    assert (now.mtu, now.address, now.operstate) == (1500, "02:fc:00:00:00:02", "dormant")
    assert now.switch_id is None


def test_an_interface_that_leaves_the_namespace_and_returns_under_another_name_is_seen(tree: SysfsTree) -> None:
    folder = tree.net(PATH)
    source = tree.source()
    again(source)

    (tree.sys / "class/net/ens1np0").unlink()
    shutil.rmtree(folder)
    assert again(source).interfaces == ()

    tree.net(f"{PF}/net/net1", NET | {"ifindex": "12"})
    assert [(each.name, each.ifindex) for each in again(source).interfaces] == [("net1", 12)]


def test_another_interface_of_the_same_name_is_read_as_what_it_is(tree: SysfsTree) -> None:
    folder = tree.net(PATH)
    source = tree.source()
    again(source)
    (tree.sys / "class/net/ens1np0").unlink()
    shutil.rmtree(folder)

    tree.net("pci0000:15/0000:1b:00.0/net/ens1np0", NET | {"ifindex": "9", "dev_port": "1"})

    (interface,) = again(source).interfaces
    assert (interface.ifindex, interface.dev_port, interface.path[:24]) == (9, 1, "pci0000:15/0000:1b:00.0/")


@pytest.mark.parametrize("name", ["a name spaced!!", "quote'\"`$(x)", "${HOME};rm -rf ", "\x1b[31mred", "netzgerät"])
def test_any_name_of_an_interface_is_read(tree: SysfsTree, name: str) -> None:
    tree.net(f"{PF}/net/{name}")

    facts = tree.read()

    assert facts.errors == ()
    assert [each.name for each in facts.interfaces] == [name]
    assert facts.interfaces[0].path == f"{PF}/net/{name}"


def test_a_name_that_is_no_utf8_is_shown_in_escapes(tree: SysfsTree) -> None:
    name = os.fsdecode(b"eth\xff\xe4")
    folder = tree.net(f"{PF}/net/{name}")
    (folder / "mtu").write_text("big\n")

    facts = tree.read()

    assert facts.interfaces[0].name == r"eth\xff\xe4"
    assert facts.interfaces[0].path == PF + r"/net/eth\xff\xe4"
    assert facts.errors == (f"{tree.sys}/class/net/" + r"eth\xff\xe4/mtu: 'big' is not a number",)


@pytest.mark.parametrize("name", ["ifindex", "type", "address", "mtu", "operstate"])
def test_a_missing_attribute_costs_itself_only_and_is_named(tree: SysfsTree, name: str) -> None:
    folder = tree.net(PATH)
    tree.net(f"{PF}/net/ens2np0")
    (folder / name).unlink()

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/net/ens1np0/{name}: No such file or directory",)
    assert [each.dev_port for each in facts.interfaces] == [0, 0]


@pytest.mark.parametrize("name", ["ifindex", "type", "mtu", "carrier", "speed", "dev_port"])
def test_garbage_in_a_number_is_quoted(tree: SysfsTree, name: str) -> None:
    tree.net(PATH, NET | {name: "what?"})

    assert tree.read().errors == (f"{tree.sys}/class/net/ens1np0/{name}: 'what?' is not a number",)


def test_an_error_is_named_at_every_read_until_it_is_gone(tree: SysfsTree) -> None:
    folder = tree.net(PATH, NET | {"ifindex": "?"})
    source = tree.source()
    assert len(again(source).errors) == 1
    assert len(again(source).errors) == 1

    (folder / "ifindex").write_text("7\n")

    assert again(source).errors == ()
    assert again(source).interfaces[0].ifindex == 7


def test_a_link_that_leads_to_itself_is_named(tree: SysfsTree) -> None:
    tree.net(PATH)
    loop = tree.sys / "class/net/eth9"
    loop.symlink_to("eth9")

    facts = tree.read()

    assert facts.errors == (f"{loop}: link to 'eth9', not to the device's folder below devices",)
    assert len(facts.interfaces) == 1


def test_a_link_to_nothing_is_a_device_that_just_vanished(tree: SysfsTree) -> None:
    tree.net(PATH)
    (tree.sys / "class/net/eth9").symlink_to("../../devices/pci0000:15/0000:1b:00.0/net/eth9")

    facts = tree.read()

    assert facts.errors == ()
    assert [each.name for each in facts.interfaces] == ["ens1np0"]


def test_an_entry_that_is_a_file_is_named(tree: SysfsTree) -> None:
    tree.net(PATH)
    (tree.sys / "class/net/eth9").write_text("")

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/net/eth9: Invalid argument; its place in the device tree is unknown",)
    assert len(facts.interfaces) == 1


def test_a_class_folder_that_is_a_file_is_named(tree: SysfsTree) -> None:
    (tree.sys / "class").mkdir()
    (tree.sys / "class/net").write_text("")
    tree.pci(PF, MELLANOX)

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/net: Not a directory",)
    assert len(facts.pci) == 1


def test_an_interface_that_vanishes_while_it_is_read_is_no_error(tree: SysfsTree) -> None:
    tree.net("pci0000:00/0000:00:03.0/virtio2/net/eth0")
    source = tree.source()
    for _ in range(100):
        folder = tree.net(PATH)

        def remove(folder: Path = folder) -> None:
            (tree.sys / "class/net/ens1np0").unlink()
            shutil.rmtree(folder)

        facts = read_during(remove, source)

        assert facts.errors == ()
        assert "eth0" in {each.name for each in facts.interfaces}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.fixed_dictionaries({name: st.binary(max_size=30) for name in NET}))
def test_no_bytes_in_attributes_make_reading_raise_or_break_text(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    tree = SysfsTree(tmp_path_factory.mktemp("sysfs"))
    folder = tree.net(PATH)
    for name, raw in contents.items():
        (folder / name).write_bytes(raw)

    facts = tree.read()

    assert len(facts.interfaces) == 1
    assert repr(facts).encode()
    assert all(error.startswith(f"{tree.sys}/class/net/ens1np0/") for error in facts.errors)
