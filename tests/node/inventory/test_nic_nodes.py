"""Device nodes of NICs, and health, which depends on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.health.state import HealthState, Recovery
from node.inventory.model import Device, DeviceNode, NodeRole
from tests.making.nic_facts import files, interface, nic, nics, only, rdma, seen, subfunction

RDMA = ("/dev/infiniband/rdma_cm", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0")


def nodes(device: Device) -> list[tuple[str, str, bool]]:
    return [(node.path, node.role.value, node.present) for node in device.nodes]


def test_vfio_function_has_its_group_and_the_control_node() -> None:
    facts = nics(nic(driver="vfio-pci"), device_files=files("/dev/vfio/57", "/dev/vfio/vfio"))
    device = only(facts)
    assert nodes(device) == [("/dev/vfio/57", "device", True), ("/dev/vfio/vfio", "control", True)]
    assert device.health.state is HealthState.HEALTHY


def test_without_an_iommu_the_host_calls_the_group_otherwise() -> None:
    facts = nics(
        nic(driver="vfio-pci", iommu_group_name="vfio-noiommu"),
        device_files=files("/dev/vfio/noiommu-57", "/dev/vfio/vfio"),
    )
    assert only(facts).nodes[0] == DeviceNode(
        "/dev/vfio/57", NodeRole.DEVICE, "c", 10, 0, on_host="/dev/vfio/noiommu-57"
    )
    missing = only(nics(nic(driver="vfio-pci", iommu_group_name="vfio-noiommu"), device_files=files("/dev/vfio/57")))
    assert missing.health.reason == "its device node /dev/vfio/noiommu-57 does not exist"


def test_uio_function_has_its_device() -> None:
    device = only(nics(nic(driver="igb_uio", uio="uio3"), device_files=files("/dev/uio3")))
    assert nodes(device) == [("/dev/uio3", "device", True)]
    assert device.health.usable


def test_rdma_function_has_its_devices_and_the_connection_manager() -> None:
    one = nic()
    device = only(nics(one, rdma=(rdma(one, "mlx5_0"),), device_files=files(*RDMA)))
    assert nodes(device) == [
        ("/dev/infiniband/umad0", "rdma", True),
        ("/dev/infiniband/uverbs0", "rdma", True),
        ("/dev/infiniband/rdma_cm", "rdma", True),
    ]


def test_node_that_does_not_exist_is_listed_as_absent() -> None:
    one = nic()
    device = only(nics(one, rdma=(rdma(one, "mlx5_0"),), device_files=files("/dev/infiniband/uverbs0")))
    assert [node.path for node in device.nodes if not node.present] == [
        "/dev/infiniband/umad0",
        "/dev/infiniband/rdma_cm",
    ]
    assert device.health.usable


def test_numbers_are_sysfs_own_where_nobody_looked_into_dev() -> None:
    one = nic()
    found = {node.path: (node.major, node.minor) for node in only(nics(one, rdma=(rdma(one, "mlx5_0"),))).nodes}
    assert found["/dev/infiniband/uverbs0"] == (231, 192)


def test_nodes_for_guests_are_those_that_exist() -> None:
    device = only(nics(nic(), device_files=files("/dev/net/tun", "/dev/vhost-net")))
    assert nodes(device) == [("/dev/vhost-net", "auxiliary", True), ("/dev/net/tun", "auxiliary", True)]
    assert only(nics(nic(), device_files=files("/dev/net/tun"))).nodes[0].path == "/dev/net/tun"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"driver": None}, "no driver is bound"),
        ({"driver": "pci-stub"}, "the driver pci-stub is bound, which only reserves it"),
        ({"driver": "pciback"}, "the driver pciback is bound, which only reserves it"),
        ({"driver": "vfio-pci"}, "its device node /dev/vfio/57 does not exist"),
        ({"driver": "mlx5_vfio_pci"}, "its device node /dev/vfio/57 does not exist"),
        ({"driver": "vfio-pci", "iommu_group": None}, "the driver vfio-pci is bound, and it has no IOMMU group"),
        ({"driver": "uio_pci_generic"}, "the driver uio_pci_generic is bound, and it has no uio device"),
        ({"driver": "igb_uio", "uio": "uio0"}, "its device node /dev/uio0 does not exist"),
    ],
)
def test_function_that_nobody_can_drive_is_unhealthy(changes: dict[str, Any], reason: str) -> None:
    health = only(nics(replace(nic(), **changes), device_files=files("/dev/null"))).health
    assert (health.state, health.reason, health.recovery) == (HealthState.UNHEALTHY, reason, Recovery.AUTOMATIC)


def test_missing_node_means_nothing_where_nobody_looked_into_dev() -> None:
    assert only(nics(nic(driver="vfio-pci"))).health.usable


def test_link_is_no_part_of_health() -> None:
    one = nic()
    facts = nics(one, interfaces=(interface(one, "eth0", carrier=False, operstate="down"),))
    assert only(facts).health.usable
    assert only(nics(nic())).health.usable, "a function whose driver made no interface is just a NIC without one"


def test_subfunction_has_its_own_driver() -> None:
    one = nic(driver="mlx5_core")
    free = replace(subfunction(one), driver=None)
    found = seen(nics(one, subfunctions=(free,)))
    assert found["nic-0000-86-00-0"].health.usable
    assert found["nic-0000-86-00-0-sf88"].health.reason == "no driver is bound"
