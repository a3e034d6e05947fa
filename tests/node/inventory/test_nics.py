"""NICs as devices: kinds, names and attributes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.inventory.model import DeviceKind
from node.inventory.net_facts import HostLink, NetworkFacts
from tests.making.nic_facts import (
    BUS,
    PF,
    attributes,
    interface,
    nic,
    nics,
    only,
    port,
    rdma,
    seen,
    subfunction,
    vf,
)
from tests.making.nvidia_facts import function


def test_physical_function_tells_all_that_is_known_of_it() -> None:
    one = nic(sriov_totalvfs=16, sriov_numvfs=2, acpi_index=3)
    links = NetworkFacts(links=(HostLink("ens1np0", up=True, firmware_version="28.39.1002 (MT_0000000838)"),))
    facts = nics(one, network=links, interfaces=(interface(one, "ens1np0"),), rdma=(rdma(one, "mlx5_0"),))
    device = only(facts)
    assert (device.name, device.kind, device.vendor) == ("nic-0000-86-00-0", DeviceKind.NIC, "mellanox")
    assert (device.pci_address, device.numa_node, device.uuid, device.parent) == (PF, 1, None, None)
    assert device.location == f"{BUS}/{PF}"
    assert attributes(device) == {
        "acpiIndex": 3,
        "driver": "mlx5_core",
        "eswitchMode": "legacy",
        "firmwareVersion": "28.39.1002 (MT_0000000838)",
        "ifName": "ens1np0",
        "iommuGroup": 57,
        "linkSpeedMbps": 400000,
        "linkType": "ethernet",
        "linkUp": True,
        "mac": "94:6d:ae:00:00:01",
        "mtu": 9000,
        "nodeGuid": "946d:ae03:0000:0001",
        "operState": "up",
        "pKey": "0xffff",
        "pciDevice": "1021",
        "pciVendor": "15b3",
        "pfName": "ens1np0",
        "pfPciAddress": PF,
        "rdma": True,
        "rdmaDevice": "mlx5_0",
        "rdmaPortState": "active",
        "rdmaRateGbps": 400,
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pciBusID": PF,
        "resource.kubernetes.io/pcieRoot": "pci0000:80",
        "sriovFunction": "pf",
        "sriovTotalVfs": 16,
        "sriovVfs": 2,
    }


def test_virtual_function_names_its_physical_one() -> None:
    one = nic(sriov_totalvfs=16)
    device = seen(nics(one, vf(3), interfaces=(interface(one, "ens1np0"),)))["nic-0000-86-00-5"]
    found = attributes(device)
    assert (found["sriovFunction"], found["vfIndex"], found["pfName"], found["pfPciAddress"]) == (
        "vf",
        3,
        "ens1np0",
        PF,
    )
    assert found["eswitchMode"] == "legacy"
    assert found["linkType"] == "ethernet"
    assert found["rdma"] is False
    assert "ifName" not in found


def test_virtual_function_in_a_virtual_machine_names_nobody() -> None:
    lonely = vf(0)
    found = attributes(only(nics(lonely, interfaces=(interface(lonely, "eth1"),))))
    assert "pfName" not in found
    assert found["pfPciAddress"] == PF


def test_function_without_sriov_is_its_own_physical_function() -> None:
    one = nic()
    found = attributes(only(nics(one, interfaces=(interface(one, "eth0"),))))
    assert (found["pfName"], found["pfPciAddress"]) == ("eth0", PF)
    assert not found.keys() & {"sriovFunction", "eswitchMode", "sriovVfs", "sriovTotalVfs", "inPod", "port"}


def test_infiniband_controller_is_an_rdma_device() -> None:
    hca = nic(class_code="0x020700")
    layer = port(link_layer="InfiniBand", pkey="0x7fff")
    device = only(nics(hca, rdma=(rdma(hca, "mlx5_0", layer),)))
    assert (device.name, device.kind) == ("rdma-0000-86-00-0", DeviceKind.RDMA)
    found = attributes(device)
    assert (found["linkType"], found["linkUp"], found["pKey"]) == ("infiniband", True, "0x7fff")
    assert found["firmwareVersion"] == "28.39.1002"


def test_function_of_another_class_with_an_rdma_device_is_an_rdma_device() -> None:
    other = nic(class_code="0x120000", vendor="0x1ded")
    assert only(nics(other, rdma=(rdma(other, "erdma_0"),))).name == "rdma-0000-86-00-0"
    assert seen(nics(other)) == {}


def test_gpus_are_no_nics() -> None:
    gpu = function(0)
    assert seen(nics(gpu, rdma=(rdma(gpu, "mlx5_0"),))) == {}


def test_function_with_two_interfaces_is_two_devices() -> None:
    one = nic()
    first = interface(one, "eth0", dev_port=0, address="94:6d:ae:00:00:01")
    second = interface(one, "eth1", dev_port=1, address="94:6d:ae:00:00:02")
    both = rdma(one, "mlx4_0", port(1, interface="eth0"), port(2, interface="eth1", state="1: DOWN"))
    devices = seen(nics(one, interfaces=(second, first), rdma=(both,)))
    assert list(devices) == ["nic-0000-86-00-0", "nic-0000-86-00-0-p1"]
    one_found, two_found = map(attributes, devices.values())
    assert (one_found["port"], one_found["ifName"], one_found["pfName"]) == (0, "eth0", "eth0")
    assert (two_found["port"], two_found["ifName"], two_found["pfName"]) == (1, "eth1", "eth1")
    assert (one_found["rdmaPortState"], two_found["rdmaPortState"]) == ("active", "down")
    assert one_found["rdmaDevice"] == two_found["rdmaDevice"] == "mlx4_0"


def test_only_port_of_a_function_has_the_plain_name_whatever_its_number() -> None:
    one = nic()
    assert only(nics(one, interfaces=(interface(one, "eth3", dev_port=3),))).name == "nic-0000-86-00-0"


def test_rdma_device_goes_with_the_interface_that_it_names() -> None:
    one = nic()
    interfaces = (interface(one, "eth0"), interface(one, "eth1", dev_port=1))
    devices = (rdma(one, "bnxt_0", port(interface="eth1")), rdma(one, "bnxt_1", port(interface="eth0")))
    found = seen(nics(one, interfaces=interfaces, rdma=devices))
    assert [device.text("rdmaDevice") for device in found.values()] == ["bnxt_1", "bnxt_0"]


def test_subfunction_is_a_device_at_its_parents_address() -> None:
    one = nic(sriov_totalvfs=16)
    sub = subfunction(one)
    interfaces = (interface(one, "ens1np0"), interface(sub, "ens1s88"))
    device = seen(nics(one, subfunctions=(sub,), interfaces=interfaces, rdma=(rdma(sub, "mlx5_4"),)))[
        "nic-0000-86-00-0-sf88"
    ]
    found = attributes(device)
    assert device.pci_address == PF
    assert device.location == one.path
    assert (found["sriovFunction"], found["sfNumber"], found["auxDevice"]) == ("sf", 88, "mlx5_core.sf.2")
    assert (found["ifName"], found["pfName"], found["driver"]) == ("ens1s88", "ens1np0", "mlx5_core.sf")
    assert found["rdmaDevice"] == "mlx5_4"
    assert not found.keys() & {"sriovVfs", "sriovTotalVfs", "vfIndex"}


def test_subfunction_without_a_number_is_named_by_its_auxiliary_device() -> None:
    one = nic()
    assert "nic-0000-86-00-0-mlx5-core-sf-2" in seen(nics(one, subfunctions=(subfunction(one, sfnum=None),)))


REPRESENTORS = ("pf0vf0", "pf0sf88", "c1pf0vf0", "c1pf0", "pf0")


def test_representors_are_neither_devices_nor_ports() -> None:
    one = nic(sriov_totalvfs=16, sriov_numvfs=1)
    stands_for = [
        interface(one, f"eth{number}", port_name=name, switch_id="a1b2", dev_port=number % 2, ifindex=1)
        for number, name in enumerate(REPRESENTORS)
    ]
    uplink = interface(one, "ens1np0", port_name="p0", switch_id="a1b2", ifindex=9)
    devices = seen(nics(one, vf(0), interfaces=(*stands_for, uplink)))
    assert list(devices) == ["nic-0000-86-00-0", "nic-0000-86-00-2"]
    for device in devices.values():
        assert device.text("pfName") == "ens1np0"
        assert device.text("eswitchMode") == "switchdev"
    assert "port" not in attributes(devices["nic-0000-86-00-0"])


def test_port_named_like_a_function_is_its_own_where_there_is_no_uplink() -> None:
    one = nic(sriov_totalvfs=16)
    found = attributes(only(nics(one, interfaces=(interface(one, "eth0", port_name="pf0", switch_id="a1b2"),))))
    assert found["ifName"] == "eth0"


@pytest.mark.parametrize("named", ["pf0vf3", "pf0sf88", "c1pf0vf0", "c1pf0", "p0pf1vf2", "pf0"])
def test_a_representor_is_recognised_by_its_ports_name(named: str) -> None:
    one = nic()
    uplink = interface(one, "ens1np0", ifindex=9, port_name="p0", switch_id="c2a8")
    older = interface(one, "eth7", ifindex=3, port_name=named, switch_id="c2a8", dev_port=4)
    assert attributes(only(nics(one, interfaces=(older, uplink))))["ifName"] == "ens1np0"


def test_a_function_whose_place_is_unknown_has_no_interfaces() -> None:
    lost = nic(path="")
    platform = replace(interface(lost, "eth0"), path="platform/eth/net/eth0")
    assert "ifName" not in attributes(only(nics(lost, interfaces=(platform,))))


def test_port_name_without_a_switch_is_no_representor() -> None:
    one = nic(sriov_totalvfs=16)
    found = attributes(only(nics(one, interfaces=(interface(one, "eth0", port_name="p0"),))))
    assert (found["ifName"], found["eswitchMode"]) == ("eth0", "legacy")


def test_interface_below_a_virtio_device_belongs_to_its_pci_function() -> None:
    one = nic(vendor="0x1af4", device="0x1041", driver="virtio-pci")
    below = replace(interface(one, "eth0"), path=f"{one.path}/virtio0/net/eth0")
    device = only(nics(one, interfaces=(below,)))
    assert (device.vendor, device.text("ifName")) == ("redhat", "eth0")


def test_interface_of_a_function_that_is_not_listed_is_nobodys() -> None:
    bridge = nic(path="pci0000:80/0000:80:01.0", address="0000:80:01.0")
    stranger = replace(interface(nic(), "eth0"), path="pci0000:80/0000:80:01.0/0000:86:00.1/net/eth0")
    assert "ifName" not in attributes(only(nics(bridge, interfaces=(stranger,))))


@pytest.mark.parametrize(
    ("written", "vendor"), [("0x8086", "intel"), ("0x14E4", "broadcom"), ("0x1d0f", "amazon"), ("0xabcd", "abcd")]
)
def test_vendor_is_named_or_its_number_given(written: str, vendor: str) -> None:
    assert only(nics(nic(vendor=written))).vendor == vendor


def test_address_of_zeros_and_unknown_speed_are_left_out() -> None:
    one = vf(0)
    idle = interface(one, "eth0", address="00:00:00:00:00:00", speed_mbps=-1)
    assert not attributes(only(nics(one, interfaces=(idle,)))).keys() & {"mac", "linkSpeedMbps"}


def test_equal_attributes_are_the_same_objects() -> None:
    devices = seen(nics(nic(), *(vf(index) for index in range(4))))
    shared = {id(each) for device in devices.values() for each in device.attributes if each.name == "pfPciAddress"}
    assert len(shared) == 1


def test_numa_node_that_is_not_known_is_left_out() -> None:
    device = only(nics(nic(numa_node=-1)))
    assert device.numa_node is None
    assert "resource.kubernetes.io/numaNode" not in attributes(device)
