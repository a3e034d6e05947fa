"""Intel GPUs out of facts."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.facts import DeviceFile, NodeFacts, PciFunction, SysfsFacts
from node.inventory.intel.vendor import intel_devices
from node.inventory.model import Device, NodeRole

FLEX = PciFunction(
    "0000:4d:00.0",
    "pci0000:4a/0000:4a:02.0/0000:4d:00.0",
    "0x038000",
    "0x8086",
    "0x56c0",
    numa_node=0,
    driver="i915",
    drm=("card1", "renderD128"),
    sriov_totalvfs=31,
    sriov_numvfs=2,
)
FILES = tuple(DeviceFile(f"/dev/dri/{name}", "c", 226, 1) for name in ("card1", "renderD128"))


def devices(*functions: PciFunction, files: tuple[DeviceFile, ...] = FILES) -> list[Device]:
    return intel_devices(NodeFacts(sysfs=SysfsFacts(pci=functions, device_files=files)))


def test_a_gpu_carries_its_driver_card_and_nodes() -> None:
    (gpu,) = devices(FLEX)
    assert (gpu.name, gpu.vendor, gpu.index, gpu.text("driver")) == ("gpu-0000-4d-00-0", "intel", "1", "i915")
    assert [node.path for node in gpu.nodes_of(NodeRole.DEVICE)] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert gpu.health.usable


def test_physical_and_virtual_functions_are_told_apart() -> None:
    virtual = replace(
        FLEX, address="0000:4d:00.1", physfn=FLEX.address, vf_index=0, sriov_totalvfs=None, sriov_numvfs=None
    )
    one, two = devices(FLEX, virtual)
    assert (one.text("sriovFunction"), one.attribute("sriovVfs")) == ("pf", 2)
    assert (two.text("sriovFunction"), two.attribute("vfIndex"), two.text("pfPciAddress")) == ("vf", 0, FLEX.address)


def test_a_gpu_without_its_driver_or_nodes_says_why() -> None:
    (bare,) = devices(replace(FLEX, driver=None, drm=()))
    assert bare.health.reason == "no driver is bound to it, it needs i915 or xe"
    assert bare.index is None
    (taken,) = devices(replace(FLEX, driver="vfio-pci", drm=()))
    assert taken.health.reason == "the driver vfio-pci is bound to it, it needs i915 or xe"
    (lacking,) = devices(FLEX, files=FILES[:1])
    assert lacking.health.reason == "its device nodes are missing: /dev/dri/renderD128"


def test_other_functions_of_the_vendor_are_no_gpus() -> None:
    assert devices(replace(FLEX, class_code="0x020000"), replace(FLEX, vendor="0x10de")) == []
    assert intel_devices(NodeFacts()) == []
