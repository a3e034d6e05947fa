from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.inventory.net_facts import RdmaDevice, RdmaFile, RdmaPort
from tests.node.sysfs.tree import INFINIBAND, PORT, SysfsTree, again, read_during

PF = "pci0000:15/0000:15:01.0/0000:1a:00.0"
PATH = f"{PF}/infiniband/mlx5_0"
ROCE = PORT | {"link_layer": "Ethernet", "gid_attrs/ndevs/0": "ens1np0", "pkeys/0": "0xffff"}


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_a_device_has_everything_that_sysfs_shows(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH)
    for name, numbers in (("uverbs12", "231:204"), ("umad3", "231:3"), ("issm3", "231:67")):
        tree.rdma_file(folder, name, numbers)

    facts = tree.read()

    assert facts.errors == ()
    assert facts.rdma == (
        RdmaDevice(
            name="mlx5_0",
            path=PATH,
            node_type="1: CA",
            node_guid="a088:c203:00e4:0ba9",
            system_guid="a088:c203:00e4:0ba8",
            firmware_version="28.39.1002",
            board_id="MT_0000000838",
            hca_type="MT4129",
            ports=(RdmaPort(1, "4: ACTIVE", "5: LinkUp", "InfiniBand", "400 Gb/sec (4X NDR)", None, "0x7fff"),),
            files=(RdmaFile("issm3", 231, 67), RdmaFile("umad3", 231, 3), RdmaFile("uverbs12", 231, 204)),
        ),
    )


def test_a_port_on_ethernet_names_its_interface(tree: SysfsTree) -> None:
    tree.infiniband(PATH, ports={1: ROCE})

    (port,) = tree.read().rdma[0].ports
    assert (port.interface, port.link_layer, port.pkey) == ("ens1np0", "Ethernet", "0xffff")


def test_ports_are_in_the_order_of_their_numbers(tree: SysfsTree) -> None:
    tree.infiniband(PATH, ports={10: PORT, 2: ROCE, 1: PORT})

    assert [port.port for port in tree.read().rdma[0].ports] == [1, 2, 10]


def test_what_a_driver_does_not_have_is_none_and_no_error(tree: SysfsTree) -> None:
    tree.infiniband(
        f"{PF}/infiniband/rdmap0",
        {name: INFINIBAND[name] for name in ("node_type", "node_guid", "sys_image_guid")},
        ports={1: {name: PORT[name] for name in ("state", "phys_state", "link_layer", "rate")}},
    )

    facts = tree.read()

    assert facts.errors == ()
    (device,) = facts.rdma
    assert (device.firmware_version, device.board_id, device.hca_type, device.files) == (None, None, None, ())
    assert (device.ports[0].pkey, device.ports[0].interface) == (None, None)


def test_character_devices_belong_to_the_device_that_they_name(tree: SysfsTree) -> None:
    first, second = tree.infiniband(PATH), tree.infiniband("pci0000:15/0000:1b:00.0/infiniband/mlx5_1")
    tree.rdma_file(first, "uverbs1", "231:193")
    tree.rdma_file(second, "uverbs0", "231:192")
    (tree.sys / "class/infiniband_verbs/abi_version").write_text("6\n")

    assert [[file.name for file in device.files] for device in tree.read().rdma] == [["uverbs1"], ["uverbs0"]]
    assert tree.read().errors == ()


def test_a_device_that_udev_renames_keeps_its_character_devices(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH)
    tree.rdma_file(folder, "uverbs0", "231:192")
    source = tree.source()
    again(source)

    (tree.sys / "class/infiniband/mlx5_0").unlink()
    renamed = folder.rename(folder.with_name("ibp26s0"))
    (tree.sys / "class/infiniband/ibp26s0").symlink_to(f"../../devices/{PF}/infiniband/{renamed.name}")
    (tree.sys / "class/infiniband_verbs/uverbs0/ibdev").write_text("ibp26s0\n")

    (device,) = again(source).rdma
    assert (device.name, [file.name for file in device.files]) == ("ibp26s0", ["uverbs0"])


def test_character_devices_and_ports_that_appear_after_the_device_are_seen(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH, ports={})
    source = tree.source()
    assert again(source).rdma[0].ports == ()

    (folder / "ports/1").mkdir(parents=True)
    for name in ("state", "phys_state", "link_layer", "rate"):
        (folder / "ports/1" / name).write_text(PORT[name])
    tree.rdma_file(folder, "uverbs0", "231:192")

    (device,) = again(source).rdma
    assert [port.state for port in device.ports] == ["4: ACTIVE"]
    assert device.files == (RdmaFile("uverbs0", 231, 192),)


def test_a_port_that_goes_down_and_up_is_seen_and_one_that_does_not_is_the_same_value(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH)
    source = tree.source()
    first = again(source).rdma[0]
    assert again(source).rdma[0] is first

    (folder / "ports/1/state").write_text("1: DOWN\n")
    (folder / "ports/1/phys_state").write_text("2: Polling\n")
    (port,) = again(source).rdma[0].ports
    assert (port.state, port.physical_state) == ("1: DOWN", "2: Polling")

    (folder / "ports/1/phys_state").write_text("3: Disabled\n")
    assert again(source).rdma[0].ports[0].physical_state == "3: Disabled"

    (folder / "ports/1/state").write_text("4: ACTIVE\n")
    (folder / "ports/1/phys_state").write_text("5: LinkUp\n")
    assert again(source).rdma[0] == first


def test_an_active_port_that_loses_lanes_or_gets_another_partition_key_is_seen(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH)
    source = tree.source()
    again(source)

    (folder / "ports/1/rate").write_text("100 Gb/sec (1X NDR)\n")
    (folder / "ports/1/pkeys/0").write_text("0x8001\n")

    (port,) = again(source).rdma[0].ports
    assert (port.rate, port.pkey) == ("100 Gb/sec (1X NDR)", "0x8001")


def test_a_device_that_is_removed_and_made_again_is_read_again(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH)
    source = tree.source()
    again(source)
    (tree.sys / "class/infiniband/mlx5_0").unlink()
    shutil.rmtree(folder)
    assert again(source).rdma == ()

    tree.infiniband(PATH, INFINIBAND | {"fw_ver": "28.43.2026"})

    assert again(source).rdma[0].firmware_version == "28.43.2026"


@pytest.mark.parametrize(
    "name", ["node_type", "node_guid", "sys_image_guid", "ports/1/state", "ports/1/rate", "ports/1/link_layer"]
)
def test_a_missing_attribute_costs_itself_only_and_is_named(tree: SysfsTree, name: str) -> None:
    folder = tree.infiniband(PATH)
    tree.infiniband("pci0000:15/0000:1b:00.0/infiniband/mlx5_1")
    (folder / name).unlink()

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/infiniband/mlx5_0/{name}: No such file or directory",)
    assert [device.hca_type for device in facts.rdma] == ["MT4129", "MT4129"]


def test_ports_that_are_a_file_are_named(tree: SysfsTree) -> None:
    folder = tree.infiniband(PATH, ports={})
    (folder / "ports").write_text("")

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/infiniband/mlx5_0/ports: Not a directory",)
    assert facts.rdma[0].ports == ()


@pytest.mark.parametrize("text", ["231", "a:b", "-1:2", ""])
def test_numbers_of_a_character_device_that_are_none_are_quoted(tree: SysfsTree, text: str) -> None:
    folder = tree.infiniband(PATH)
    tree.rdma_file(folder, "uverbs0", text)
    tree.rdma_file(folder, "umad0", "231:0")

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/class/infiniband_verbs/uverbs0/dev: {text!r} is not a major:minor number",)
    assert [file.name for file in facts.rdma[0].files] == ["umad0"]


def test_links_to_themselves_are_named_and_links_to_nothing_have_vanished(tree: SysfsTree) -> None:
    tree.infiniband(PATH)
    (tree.sys / "class/infiniband/mlx5_8").symlink_to("mlx5_8")
    (tree.sys / "class/infiniband/mlx5_9").symlink_to("../../devices/pci0000:15/infiniband/mlx5_9")
    (tree.sys / "class/infiniband_verbs").mkdir()
    (tree.sys / "class/infiniband_verbs/uverbs9").symlink_to("../../devices/pci0000:15/infiniband_verbs/uverbs9")

    facts = tree.read()

    assert facts.errors == (
        f"{tree.sys}/class/infiniband/mlx5_8: link to 'mlx5_8', not to the device's folder below devices",
    )
    assert [device.name for device in facts.rdma] == ["mlx5_0"]


def test_a_device_without_hardware_is_listed_and_belongs_to_no_function(tree: SysfsTree) -> None:
    tree.infiniband("virtual/infiniband/rxe0")

    facts = tree.read()

    assert facts.rdma[0].path == "virtual/infiniband/rxe0"
    assert (facts.pci, facts.errors) == ((), ())


def test_a_device_that_vanishes_while_it_is_read_is_no_error(tree: SysfsTree) -> None:
    tree.infiniband("pci0000:15/0000:1b:00.0/infiniband/mlx5_1")
    source = tree.source()
    for _ in range(100):
        folder = tree.infiniband(PATH)
        character = tree.rdma_file(folder, "uverbs0", "231:192")

        def remove(folder: Path = folder, character: Path = character) -> None:
            (tree.sys / "class/infiniband_verbs/uverbs0").unlink()
            shutil.rmtree(character)
            (tree.sys / "class/infiniband/mlx5_0").unlink()
            shutil.rmtree(folder)

        facts = read_during(remove, source)

        assert facts.errors == ()
        assert "mlx5_1" in {device.name for device in facts.rdma}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.fixed_dictionaries({f"ports/1/{name}": st.binary(max_size=30) for name in ROCE}))
def test_no_bytes_in_attributes_make_reading_raise_or_break_text(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    tree = SysfsTree(tmp_path_factory.mktemp("sysfs"))
    folder = tree.infiniband(PATH, ports={1: ROCE})
    for name, raw in contents.items():
        (folder / name).write_bytes(raw)

    facts = tree.read()

    assert len(facts.rdma[0].ports) == 1
    assert repr(facts).encode()
    assert facts.errors == ()
