"""Which devices a uevent is about, and what it says of them."""

from __future__ import annotations

import pytest

from node.health.kernel.functions import concerns_devices, is_made, names_of, trouble_of
from node.health.signal import Trouble
from node.health.state import Health, HealthState
from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole
from node.values import replace
from tests.making.kernel_devices import gpu, nic, vf


@pytest.mark.parametrize(
    ("action", "subsystem", "kind"),
    [
        ("remove", "pci", Trouble.LOST),
        ("unbind", "pci", Trouble.UNBOUND),
        ("remove", "auxiliary", Trouble.LOST),
        ("remove", "drm", Trouble.NODE),
        ("bind", "pci", None),
        ("add", "pci", None),
        ("change", "pci", None),
        ("add", "drm", None),
        ("", "pci", None),
    ],
)
def test_an_event_says_what_is_wrong(action: str, subsystem: str, kind: Trouble | None) -> None:
    found = trouble_of(action, subsystem, "x")
    assert (found.kind if found else None) is kind


def test_what_is_made_and_taken_down_by_software_is_not_said_to_have_left_the_bus() -> None:
    assert is_made(vf())
    assert is_made(nic("nic-0000-84-00-0-sf88", auxDevice="mlx5_core.sf.2"))
    assert not is_made(nic(sriovFunction="pf"))
    for subsystem in ("pci", "auxiliary"):
        found = trouble_of("remove", subsystem, "x", made=True)
        assert found is not None
        assert (found.kind, found.detail) == (Trouble.UNBOUND, "its function was removed")
    assert trouble_of("remove", "vfio", "7", made=True) == trouble_of("remove", "vfio", "7")


def test_nodes_of_rdma_devices_come_and_go_with_pods_and_are_not_listened_to() -> None:
    assert not concerns_devices("infiniband_verbs")
    assert not concerns_devices("net")
    assert concerns_devices("pci")


def test_devices_are_known_by_function_auxiliary_device_and_their_own_nodes() -> None:
    render = replace(gpu(), nodes=(*gpu().nodes, DeviceNode("/dev/dri/renderD128", NodeRole.RENDER)))
    mig = Device("mig-0000-83-00-0-0-1", DeviceKind.MIG, "nvidia", pci_address="0000:83:00.0", parent=render.name)
    ports = (nic(), nic("nic-0000-84-00-0-p1"))
    part = nic("nic-0000-84-00-0-sf88", auxDevice="mlx5_core.sf.2")
    gone = replace(nic("nic-0000-85-00-0"), health=Health(HealthState.UNHEALTHY, "gone from the PCI bus"))
    assert names_of((render, mig, *ports, part, gone)) == {
        "0000:83:00.0": ["gpu-0000-83-00-0"],
        "nvidia0": ["gpu-0000-83-00-0"],
        "renderD128": ["gpu-0000-83-00-0"],
        "0000:84:00.0": ["nic-0000-84-00-0", "nic-0000-84-00-0-p1"],
        "mlx5_core.sf.2": ["nic-0000-84-00-0-sf88"],
    }


def test_a_node_without_iommu_is_known_by_its_name_on_the_host() -> None:
    bound = replace(nic(), nodes=(DeviceNode("/dev/vfio/7", NodeRole.DEVICE, on_host="/dev/vfio/noiommu-7"),))
    assert "noiommu-7" in names_of((bound,))
