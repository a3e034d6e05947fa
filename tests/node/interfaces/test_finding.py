"""An interface is found again wherever it is and whatever it is called, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node.interfaces import features
from node.interfaces.links import InterfaceLink, change_link, find_link, is_certain, pci_function
from node.interfaces.model import HostSetup, InterfaceSettings, MovableInterface, Route
from node.interfaces.namespace import NetworkNamespace
from node.values import replace
from tests.node.interfaces.conftest import DEVICE, PodsNode

PCI = "0000:86:00.0"
NIC = MovableInterface(DEVICE, "ens1f0", InterfaceSettings(), pci_address=PCI)
OURS = f"ostler:{DEVICE}"


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sysfs with the function of the NIC, and a virtio device on another one."""
    (tmp_path / "devices/pci0000:80/0000:86:00.0").mkdir(parents=True)
    (tmp_path / "devices/pci0000:00/0000:00:05.0/virtio3").mkdir(parents=True)
    for bus, name, target in (
        ("pci", "0000:86:00.0", "pci0000:80/0000:86:00.0"),
        ("pci", "0000:00:05.0", "pci0000:00/0000:00:05.0"),
        ("virtio", "virtio3", "pci0000:00/0000:00:05.0/virtio3"),
    ):
        folder = tmp_path / "bus" / bus / "devices"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(tmp_path / "devices" / target)
    return tmp_path


def link(index: int, name: str, **facts: str) -> InterfaceLink:
    return InterfaceLink(index, name, **facts)  # type: ignore[arg-type]


def before(index: int, address: str = "", **facts: Any) -> HostSetup:
    return HostSetup("ens1f0", index, address, 1500, **facts)


def test_a_function_is_found_whatever_its_name_and_alias(sys: Path) -> None:
    there = link(9, "dev9", parent=PCI, parent_bus="pci")
    assert find_link([link(1, "lo"), there], NIC, sys) is there
    assert find_link([link(1, "lo"), link(2, "ens1f0")], NIC, sys) is None


def test_a_pods_own_link_with_our_alias_is_not_taken_for_it(sys: Path) -> None:
    impostor = link(4, "ens1f0", alias=OURS, address="02:00:00:00:86:00")
    assert find_link([impostor], NIC, sys, before(4, "02:00:00:00:86:00")) is None
    there = link(9, "x", parent=PCI, parent_bus="pci")
    assert find_link([impostor, there], NIC, sys) is there


def test_of_two_ports_of_a_function_the_alias_decides_then_the_hardware_address(sys: Path) -> None:
    one = link(3, "a", parent=PCI, parent_bus="pci", permanent_address="02:00:00:00:00:01")
    two = link(4, "b", parent=PCI, parent_bus="pci", permanent_address="02:00:00:00:00:02", alias=OURS)
    assert find_link([one, two], NIC, sys, before(3, "02:00:00:00:00:01")) is two
    two = replace(two, alias="")
    assert find_link([one, two], NIC, sys, before(4, "02:00:00:00:00:02")) is two
    assert find_link([one, two], NIC, sys) is None


def test_the_function_below_virtio_and_auxiliary_devices_is_read_from_sysfs(sys: Path) -> None:
    assert pci_function(link(2, "eth0", parent="virtio3", parent_bus="virtio"), sys) == "0000:00:05.0"
    assert pci_function(link(2, "eth0"), sys) == ""
    virtio = replace(NIC, pci_address="0000:00:05.0")
    there = link(2, "eth0", parent="virtio3", parent_bus="virtio")
    assert find_link([there], virtio, sys) is there


def test_a_kernel_that_names_no_functions_leaves_the_alias(sys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = link(9, "rail0", alias=OURS)
    monkeypatch.setattr("node.interfaces.links.os.uname", lambda: type("U", (), {"release": "4.18.0-553.el8"}))
    assert find_link([there], NIC, sys) is there


@pytest.mark.needs_root
@pytest.mark.parametrize("name", ["rail0", "dev4", "rail0_altname"])
@pytest.mark.parametrize("alias", [OURS, ""])
def test_one_that_the_kernel_brought_back_is_restored(node: PodsNode, name: str, alias: str) -> None:
    node.host.ip("address add 10.7.0.2/24 dev v0", "link set v0 up", "route add 10.9.0.0/16 via 10.7.0.1")
    interface = node.interface(name="rail0", mtu=9000, routes=(Route("10.5.0.0/16"),))
    setup = node.look(interface)
    node.attach(interface, setup)
    # What the kernel does with a physical device when its namespace goes; it destroys a veth.
    with NetworkNamespace(node.pod.path) as pod, NetworkNamespace(node.host.path) as host, pod.netlink() as netlink:
        change_link(netlink, setup.index, namespace=host.fileno(), name=name, alias=alias)
    node.pod.close()
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


@pytest.mark.needs_root
def test_one_that_left_with_its_namespace_is_reported_as_lost(node: PodsNode) -> None:
    interface = node.interface()
    setup = node.look(interface)
    node.attach(interface, setup)
    node.host.ip("link delete v1")
    assert not node.detach(interface, setup)
    assert not node.detach(interface, setup, known=False)


@pytest.mark.needs_root
def test_one_whose_name_and_alias_the_pod_changed_is_restored(node: PodsNode) -> None:
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip("link set rail0 down", "link set rail0 alias mine", "link set rail0 name eth9")
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


@pytest.mark.needs_root
def test_what_a_pod_did_to_its_interface_ends_with_it(node: PodsNode) -> None:
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip("link set rail0 promisc on allmulticast on mtu 1300", "link set rail0 address 02:66:00:00:00:66")
    node.pod.run(lambda: features.set_features("rail0", [("tso", False), ("gro", True), ("txvlan", False)]))
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


@pytest.mark.needs_root
def test_a_recorded_nodes_interface_is_found_by_name_then_by_alias(node: PodsNode) -> None:
    interface = replace(node.interface(name="rail0"), pci_address="0000:ff:1f.7")
    setup = node.look(interface)
    assert node.attach(interface, setup).name == "rail0"
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


@pytest.mark.needs_root
def test_a_macvlan_link_moves_while_its_parent_stays(node: PodsNode) -> None:
    node.host.ip("link add m0 link v0 type macvlan mode bridge", "link set v0 up", "link set m0 up")
    interface = replace(node.interface(name="rail0", addresses=("10.1.0.1/24",)), interface="m0")
    setup = node.look(interface)
    assert node.attach(interface, setup).name == "rail0"
    assert node.host.names() == {"v0", "v1"}
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


def subfunction(index: int, number: int, **facts: str) -> InterfaceLink:
    device = f"mlx5_core.sf.{number}"
    return link(index, f"sf{number}", parent=device, parent_bus="auxiliary", **facts)


@pytest.fixture
def subfunctions(sys: Path) -> Path:
    """A sysfs with two subfunctions of the NIC."""
    folder = sys / "bus/auxiliary/devices"
    folder.mkdir(parents=True)
    for number in (2, 3):
        there = sys / f"devices/pci0000:80/0000:86:00.0/mlx5_core.sf.{number}"
        there.mkdir()
        (folder / there.name).symlink_to(there)
    return sys


@pytest.mark.parametrize("hidden", [False, True])
def test_of_two_subfunctions_neither_is_taken_for_the_other_whatever_their_aliases(
    subfunctions: Path, hidden: bool
) -> None:
    ours = before(4, "02:00:00:00:00:02", parent="mlx5_core.sf.2", permanent_address="02:00:00:00:00:02")
    one = subfunction(4, 2, permanent_address="02:00:00:00:00:02", alias="ostler:another")
    two = subfunction(5, 3, permanent_address="02:00:00:00:00:03", alias=OURS, address="02:00:00:00:00:02")
    there = [two] if hidden else [two, one]
    assert find_link(there, NIC, subfunctions, ours) is (None if hidden else one)
    # Without permanent addresses the devices below them tell one from the other.
    there = [replace(each, permanent_address="") for each in there]
    assert find_link(there, NIC, subfunctions, ours) == (None if hidden else replace(one, permanent_address=""))
    assert not is_certain(two, NIC, ours, subfunctions)
    assert is_certain(one, NIC, ours, subfunctions)


def test_a_subfunction_whose_driver_was_loaded_anew_is_found_by_its_permanent_address(subfunctions: Path) -> None:
    ours = before(4, "02:00:00:00:00:02", parent="mlx5_core.sf.9", permanent_address="02:00:00:00:00:02")
    one = subfunction(7, 2, permanent_address="02:00:00:00:00:02")
    assert find_link([one, subfunction(5, 3, permanent_address="02:00:00:00:00:03")], NIC, subfunctions, ours) is one


def test_a_virtual_function_is_found_whatever_address_it_was_given(sys: Path) -> None:
    function = replace(NIC, vf_index=2, pf_interface="ens1f1")
    ours = before(4, "02:00:00:00:00:02", parent=PCI, permanent_address="02:00:00:00:00:02")
    there = link(9, "x", parent=PCI, parent_bus="pci", permanent_address="02:00:00:00:00:99")
    assert find_link([there], function, sys, ours) is there
    assert is_certain(there, function, ours, sys)
    assert find_link([there], NIC, sys, ours) is None


def test_a_pods_own_link_cannot_show_a_permanent_address(sys: Path) -> None:
    veth = replace(NIC, pci_address="")
    ours = before(4, "02:00:00:00:00:02", permanent_address="02:00:00:00:00:02")
    # The kernel gives a link of kind ipvlan that of the link below it.
    impostor = link(8, "rail0", kind="ipvlan", permanent_address="02:00:00:00:00:02")
    there = link(9, "x", permanent_address="02:00:00:00:00:02")
    assert find_link([impostor], veth, sys, ours) is None
    assert find_link([impostor, there], veth, sys, ours) is there


@pytest.mark.parametrize("kind", ["veth", "macvlan", "ipvlan"])
def test_a_link_of_another_kind_is_not_taken_for_it_on_a_kernel_that_names_no_functions(
    sys: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("node.interfaces.links.os.uname", lambda: type("U", (), {"release": "4.18.0-553.el8"}))
    ours = before(4, "02:00:00:00:00:02", permanent_address="02:00:00:00:00:02", kind="")
    impostor = link(
        4, "ens1f0", kind=kind, alias=OURS, address="02:00:00:00:00:02", permanent_address="02:00:00:00:00:02"
    )
    there = link(9, "x", permanent_address="02:00:00:00:00:02")
    assert find_link([impostor], NIC, sys, ours) is None
    assert not is_certain(impostor, NIC, ours, sys)
    assert find_link([there, impostor], NIC, sys, ours) is there
