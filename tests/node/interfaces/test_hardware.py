"""Virtual functions and RDMA devices, by messages written by hand from the kernel's headers, not recorded.

No machine of the tests has the hardware.
"""

from __future__ import annotations

import errno
import socket

import pytest

from node.interfaces import features, functions, rdma
from node.interfaces.kernel import KernelMover
from node.interfaces.model import InterfaceError, VfSettings
from node.netlink import NetlinkError
from node.values import replace
from tests.node.interfaces.conftest import DEVICE, PodsNode
from tests.node.interfaces.nic_hardware import NicHardware, PlayedNetlink

IFINFO = "00000000" + "07000000" + "00000000" + "00000000"
"""ifinfomsg of link 7."""
ASKED = IFINFO + "08001d00" + "01000000"
"""IFLA_EXT_MASK: RTEXT_FILTER_VF."""


def function(number: int, mac: str, *, vlan: int, qos: int, spoof: str, trust: str) -> str:
    """An IFLA_VF_INFO by linux/if_link.h: address, VLAN, spoof check, trust."""
    index = number.to_bytes(4, "little").hex()
    content = (
        f"28000100{index}{mac}{'00' * 26}"
        f"10000200{index}{vlan.to_bytes(4, 'little').hex()}{qos.to_bytes(4, 'little').hex()}"
        f"0c000400{index}{spoof}"
        f"0c000900{index}{trust}"
    )
    return (4 + len(content) // 2).to_bytes(2, "little").hex() + "0180" + content


def listed(*infos: str) -> str:
    """The response: the link with its IFLA_VFINFO_LIST."""
    body = "".join(infos)
    return IFINFO + (4 + len(body) // 2).to_bytes(2, "little").hex() + "1680" + body


TWO = listed(
    function(0, "020000000001", vlan=0, qos=0, spoof="01000000", trust="00000000"),
    function(1, "0200000000aa", vlan=100, qos=3, spoof="01000000", trust="ffffffff"),
)


def test_the_settings_of_a_function_are_read_at_the_physical_one() -> None:
    netlink = PlayedNetlink({(18, ASKED): [TWO]})
    assert functions.function_state(netlink, 7, 1) == VfSettings(
        "02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=None, spoof_check=True
    )
    assert functions.function_state(netlink, 7, 2) is None


def test_what_restores_a_function_is_what_the_claim_changes() -> None:
    state = VfSettings("02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=False, spoof_check=True)
    assert functions.changed_by(VfSettings(), state) == VfSettings()
    assert functions.changed_by(VfSettings("02:00:00:00:00:bb", vlan=5, trust=True), state) == VfSettings(
        "02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=False
    )


@pytest.mark.parametrize(
    ("wanted", "content"),
    [
        (VfSettings("02:00:00:00:00:bb"), "28000100" + "01000000" + "0200000000bb" + "00" * 26),
        (VfSettings(vlan=5), "10000200" + "01000000" + "05000000" + "03000000"),
        (VfSettings(vlan=0, vlan_qos=0), "10000200" + "01000000" + "00000000" + "00000000"),
        (VfSettings(spoof_check=False), "0c000400" + "01000000" + "00000000"),
        (VfSettings(trust=True), "0c000900" + "01000000" + "01000000"),
    ],
)
def test_a_setting_is_one_message_to_the_physical_function(wanted: VfSettings, content: str) -> None:
    state = VfSettings("02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=False, spoof_check=True)
    netlink = PlayedNetlink()
    assert functions.set_function(netlink, 7, 1, wanted, state)
    info = (4 + len(content) // 2).to_bytes(2, "little").hex() + "0100" + content
    outer = (4 + len(info) // 2).to_bytes(2, "little").hex() + "1600" + info
    assert netlink.asked == [(16, IFINFO + outer)]


def test_nothing_is_sent_for_settings_that_are_so_already() -> None:
    state = VfSettings("02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=False, spoof_check=True)
    wanted = VfSettings("02:00:00:00:00:aa", vlan=100, vlan_qos=3, trust=False, spoof_check=True)
    netlink = PlayedNetlink()
    assert not functions.set_function(netlink, 7, 1, wanted, state)
    assert netlink.asked == []


TWO_DEVICES = ["0800010000000000" + "0b0002006d6c78355f300000", "0800010003000000" + "0b0002006d6c78355f310000"]
"""Index 0 is mlx5_0, index 3 is mlx5_1."""


@pytest.mark.parametrize(("mode", "exclusive"), [("05004200" + "00000000", True), ("05004200" + "01000000", False)])
def test_the_systems_mode_is_read(mode: str, exclusive: bool) -> None:
    assert rdma.is_exclusive(PlayedNetlink({(0x1406, ""): [mode]})) is exclusive


def test_a_kernel_without_rdma_shares() -> None:
    absent = NetlinkError("the RDMA namespace mode", "Invalid argument", errno.EINVAL)
    assert not rdma.is_exclusive(PlayedNetlink({(0x1406, ""): absent}))
    refused = NetlinkError("the RDMA namespace mode", "Operation not permitted", errno.EPERM)
    with pytest.raises(NetlinkError):
        rdma.is_exclusive(PlayedNetlink({(0x1406, ""): refused}))


def test_the_device_of_an_interface_is_the_one_with_a_port_there() -> None:
    port = "0800010003000000" + "0800030001000000" + "0800320009000000"
    netlink = PlayedNetlink({(0x1401, ""): TWO_DEVICES, (0x1405, "0800010003000000"): [port]})
    assert rdma.devices(netlink) == (rdma.IndexedRdmaDevice(0, "mlx5_0"), rdma.IndexedRdmaDevice(3, "mlx5_1"))
    assert rdma.device_of(netlink, 9) == rdma.IndexedRdmaDevice(3, "mlx5_1")
    assert rdma.device_of(netlink, 8) is None


def test_a_device_moves_by_its_index_and_a_descriptor() -> None:
    netlink = PlayedNetlink()
    rdma.move_device(netlink, rdma.IndexedRdmaDevice(3, "mlx5_1"), 17)
    assert netlink.asked == [(0x1402, "0800010003000000" + "0800440011000000")]


@pytest.fixture
def hardware(node: PodsNode) -> NicHardware:
    """Hardware below the interfaces: ``v1`` is the physical function of ``v0``, whose RDMA device is mlx5_1."""
    made = NicHardware()
    made.rdma_devices[inode(node)] = {0: "mlx5_0", 3: "mlx5_1"}
    node.mover = KernelMover(sockets=made, before=node.steps.append)
    return made


def inode(node: PodsNode, *, pod: bool = False) -> int:
    return (node.pod if pod else node.host).path.stat().st_ino


@pytest.mark.needs_root
def test_a_functions_settings_are_set_before_it_moves_and_restored(node: PodsNode, hardware: NicHardware) -> None:
    before = dict(hardware.function)
    vf = VfSettings("02:00:00:00:00:bb", vlan=100, vlan_qos=2, trust=True, spoof_check=False)
    interface = replace(node.interface(vf=vf, addresses=()), pf_interface="v1", vf_index=0)
    setup = node.look(interface)
    assert setup.vf == VfSettings("00:00:00:00:00:00", vlan=0, vlan_qos=0, trust=False, spoof_check=True)
    # The function takes the address that the physical one gives it.
    assert node.attach(interface, setup).hardware_address == "02:00:00:00:00:bb"
    assert node.steps.index("function") < node.steps.index("move")
    assert VfSettings("02:00:00:00:00:bb", 100, 2, True, False) == functions._state(hardware.function)
    assert node.detach(interface, setup)
    assert hardware.function == before
    assert node.look(interface) == setup


@pytest.mark.needs_root
def test_settings_of_a_function_need_one(node: PodsNode, hardware: NicHardware) -> None:
    with pytest.raises(InterfaceError) as refused:
        node.look(node.interface(vf=VfSettings(vlan=5)))
    assert str(refused.value) == (
        f"interface v0 of device {DEVICE}: vf settings need a virtual function, and it is none; "
        "remove vf from the claim"
    )
    with pytest.raises(InterfaceError, match="v1 has no virtual function 4"):
        node.look(replace(node.interface(vf=VfSettings(vlan=5)), pf_interface="v1", vf_index=4))


@pytest.mark.needs_root
def test_the_rdma_device_follows_its_interface_and_comes_back_before_it(node: PodsNode, hardware: NicHardware) -> None:
    interface = replace(node.interface(), rdma_device="mlx5_1")
    setup = node.look(interface)
    assert node.attach(interface, setup).rdma_device == "mlx5_1"
    assert hardware.rdma_devices == {inode(node): {0: "mlx5_0"}, inode(node, pod=True): {3: "mlx5_1"}}
    assert node.attach(interface, setup).rdma_device == "mlx5_1"
    assert node.steps.index("move") < node.steps.index("rdma")
    node.steps.clear()
    assert node.detach(interface, setup)
    assert node.steps.index("rdma") < node.steps.index("move")
    assert hardware.rdma_devices[inode(node)] == {0: "mlx5_0", 3: "mlx5_1"}
    assert hardware.moves == ["mlx5_1", "mlx5_1"]


@pytest.mark.needs_root
def test_where_rdma_devices_are_shared_none_moves(node: PodsNode, hardware: NicHardware) -> None:
    hardware.exclusive = False
    interface = replace(node.interface(), rdma_device="mlx5_1")
    setup = node.look(interface)
    assert node.attach(interface, setup).rdma_device == ""
    assert node.detach(interface, setup)
    assert hardware.moves == []


@pytest.mark.needs_root
def test_a_kernel_without_rdma_moves_interfaces(node: PodsNode, hardware: NicHardware) -> None:
    hardware.rdma_refusal = errno.EPROTONOSUPPORT
    interface = replace(node.interface(), rdma_device="mlx5_1")
    setup = node.look(interface)
    assert node.attach(interface, setup).rdma_device == ""
    assert node.detach(interface, setup)


@pytest.mark.needs_root
def test_a_kernel_that_refuses_rdma_netlink_moves_nothing(node: PodsNode, hardware: NicHardware) -> None:
    hardware.rdma_refusal = errno.EPERM
    interface = replace(node.interface(), rdma_device="mlx5_1")
    setup = node.look(interface)
    with pytest.raises(
        InterfaceError, match="cannot move its RDMA device mlx5_1 into the pod: Operation not permitted"
    ):
        node.attach(interface, setup)
    hardware.rdma_refusal = 0
    assert node.detach(interface, setup)


@pytest.mark.needs_root
def test_a_kernel_without_rdma_moves_the_interface_of_a_recorded_node(
    node: PodsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = socket.socket

    def without_rdma(family: int, kind: int, protocol: int = 0) -> socket.socket:
        if (family, protocol) == (socket.AF_NETLINK, 20):
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        return opened(family, kind, protocol)

    interface = replace(node.interface(), rdma_device="mlx5_1")
    setup = node.look(interface)
    monkeypatch.setattr("node.netlink.socket.socket", without_rdma)
    assert node.attach(interface, setup).rdma_device == ""
    assert node.detach(interface, setup)


@pytest.mark.needs_root
def test_an_interface_without_its_rdma_device_goes_back(node: PodsNode, hardware: NicHardware) -> None:
    interface = replace(node.interface(), rdma_device="mlx5_9")
    setup = node.look(interface)
    with pytest.raises(InterfaceError) as refused:
        node.attach(interface, setup)
    assert str(refused.value) == (
        f"interface v0 of device {DEVICE}: its RDMA device mlx5_9 is not on the node; 'rdma dev' lists those that are"
    )
    assert node.look(interface) == setup


@pytest.mark.parametrize(
    ("on", "kept"),
    [(True, "off; a feature that it depends on is off"), (False, "on; a feature that depends on it is on")],
)
def test_a_feature_that_the_driver_keeps_as_it_is_is_an_error(
    monkeypatch: pytest.MonkeyPatch, on: bool, kept: str
) -> None:
    state = features._Feature(3, changeable=True, on=not on, requested=not on)
    monkeypatch.setattr(features, "_features", lambda _: {"rx-gro-hw": state})
    monkeypatch.setattr(features, "_request", lambda *_: None)
    with pytest.raises(InterfaceError) as refused:
        features.set_features("eth1", [("rx-gro-hw", on)])
    assert str(refused.value) == (
        f"interface eth1: the driver keeps feature rx-gro-hw {kept}, or the hardware cannot do otherwise; leave it out "
        "of the claim's features"
    )
