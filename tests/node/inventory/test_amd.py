"""AMD GPUs and partitions out of facts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from node.health.state import HealthState
from node.inventory.amd.devices import amd_devices
from node.inventory.amd.facts import AmdGpu, AmdPartition, KfdLink, KfdNode
from node.inventory.facts import DeviceFile, NodeFacts, PciFunction, SysfsFacts
from node.inventory.model import Device, DeviceKind, NodeRole, PeerLink

FIRST, SECOND = "0000:0c:00.0", "0000:22:00.0"


def function(
    address: str,
    drm: tuple[str, ...],
    driver: str | None = "amdgpu",
    class_code: str = "0x120000",
    vendor: str = "0x1002",
) -> PciFunction:
    path = f"pci0000:00/0000:00:01.1/{address}"

    return PciFunction(address, path, class_code, vendor, "0x74a1", numa_node=0, driver=driver, drm=drm)


def kfd(number: int, address: str, minor: int, partition: int = 0, links: Sequence[tuple[int, int]] = ()) -> KfdNode:
    bus = int(address.split(":")[1], 16)
    ends = tuple(KfdLink(to, type_) for to, type_ in links)
    return KfdNode(number, 1000 + number, 0, partition << 28 | bus << 8, minor, 90402, links=ends)


def files(*names: str) -> tuple[DeviceFile, ...]:
    return tuple(DeviceFile(name, "c", 226, number) for number, name in enumerate(names))


PLAIN = SysfsFacts(
    pci=(function(FIRST, ("card1", "renderD128")), function(SECOND, ("card2", "renderD129"))),
    amd_gpus=(
        AmdGpu(
            FIRST,
            "AMD Instinct MI300X OAM",
            "a1b2c3d4e5f60718",
            "6925",
            206141652992,
            "113-M3000100-103",
            "SPX",
            "NPS1",
        ),
        AmdGpu(SECOND, "AMD Instinct MI300X OAM", "0"),
    ),
    kfd=(kfd(2, FIRST, 128, links=[(0, 2), (3, 11)]), kfd(3, SECOND, 129, links=[(0, 2), (2, 11)])),
    device_files=files("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/card2", "/dev/dri/renderD129"),
)

PARTITIONED = SysfsFacts(
    pci=(function(FIRST, ("card1", "renderD128")),),
    amd_gpus=(AmdGpu(FIRST, "AMD Instinct MI300X OAM", compute_partition="CPX", memory_partition="NPS4"),),
    amd_partitions=(AmdPartition("amdgpu_xcp_1", ("renderD129",)), AmdPartition("amdgpu_xcp_2", ("renderD130",))),
    kfd=(kfd(2, FIRST, 128), kfd(3, FIRST, 129, 1), kfd(4, FIRST, 130, 2)),
    device_files=files(
        "/dev/kfd", *(f"/dev/dri/{name}" for name in ("card1", "renderD128", "renderD129", "renderD130"))
    ),
)


def devices(sysfs: SysfsFacts) -> list[Device]:
    return amd_devices(NodeFacts(sysfs=sysfs))


def test_a_gpu_carries_what_its_driver_tells() -> None:
    first, second = devices(PLAIN)
    assert (first.name, first.kind, first.vendor) == ("gpu-0000-0c-00-0", DeviceKind.GPU, "amd")
    assert (first.uuid, second.uuid) == ("GPU-a1b2c3d4e5f60718", None)
    assert first.text("productName") == "AMD Instinct MI300X OAM"
    assert first.text("gfxVersion") == "gfx942"
    assert (first.text("computePartition"), first.text("profile")) == ("spx", "")
    assert [(item.name, item.value) for item in first.capacity] == [("memory", 206141652992)]
    assert first.health.usable
    assert first.location == f"pci0000:00/0000:00:01.1/{FIRST}"


def test_its_nodes_are_its_own_and_kfd() -> None:
    first = devices(PLAIN)[0]
    assert [node.path for node in first.nodes_of(NodeRole.DEVICE)] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert [node.path for node in first.nodes_of(NodeRole.CONTROL)] == ["/dev/kfd"]
    assert all(node.present for node in first.nodes)


def test_xgmi_links_gpus_and_pcie_does_not() -> None:
    first, second = devices(PLAIN)
    assert first.links == (PeerLink(SECOND, 1),)
    assert second.links == (PeerLink(FIRST, 1),)


def test_further_partitions_are_devices_below_their_gpu() -> None:
    whole, one, two = devices(PARTITIONED)
    assert [part.name for part in (one, two)] == ["partition-0000-0c-00-0-1", "partition-0000-0c-00-0-2"]
    assert {part.kind for part in (one, two)} == {DeviceKind.PARTITION}
    assert {part.parent for part in (one, two)} == {whole.name}
    assert [part.text("platformDevice") for part in (one, two)] == ["amdgpu_xcp_1", "amdgpu_xcp_2"]
    assert {part.text("profile") for part in (whole, one, two)} == {"cpx_nps4"}
    assert [node.path for node in one.nodes] == ["/dev/dri/renderD129", "/dev/kfd"]


def test_older_kernels_have_the_partition_in_place_of_the_function() -> None:
    old = tuple(
        KfdNode(each.node, each.gpu_id, 0, 0x0C00 + number, 128 + number) for number, each in enumerate(PARTITIONED.kfd)
    )
    facts = SysfsFacts(pci=PARTITIONED.pci, amd_partitions=PARTITIONED.amd_partitions, kfd=old)
    assert [part.name for part in devices(facts)[1:]] == ["partition-0000-0c-00-0-1", "partition-0000-0c-00-0-2"]


def test_a_partition_whose_gpu_is_unknown_is_shown_and_not_allocated() -> None:
    facts = SysfsFacts(amd_partitions=(AmdPartition("amdgpu_xcp_7", ("renderD140",)),))
    (stray,) = devices(facts)
    assert (stray.name, stray.health.reason) == (
        "partition-amdgpu-xcp-7",
        "KFD does not say which GPU it belongs to",
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            SysfsFacts(pci=(function(FIRST, (), driver=None),)),
            "no driver is bound to it, it needs amdgpu",
        ),
        (
            SysfsFacts(pci=(function(FIRST, (), driver="vfio-pci"),)),
            "the driver vfio-pci is bound to it, it needs amdgpu",
        ),
        (SysfsFacts(pci=PLAIN.pci[:1]), "KFD does not list it, so it cannot compute"),
        (
            SysfsFacts(pci=PLAIN.pci[:1], kfd=PLAIN.kfd[:1], device_files=PLAIN.device_files[1:]),
            "its device nodes are missing: /dev/kfd",
        ),
        (
            SysfsFacts(pci=(function(FIRST, ("card1",)),), kfd=PLAIN.kfd[:1], device_files=PLAIN.device_files),
            "its device nodes are missing: /dev/dri/renderD*",
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_says_why(facts: SysfsFacts, reason: str) -> None:
    (gpu,) = devices(facts)
    assert (gpu.health.state, gpu.health.reason) == (HealthState.UNHEALTHY, reason)


def test_partitions_share_their_gpus_fault() -> None:
    facts = SysfsFacts(
        pci=PARTITIONED.pci,
        amd_partitions=PARTITIONED.amd_partitions,
        kfd=PARTITIONED.kfd,
        device_files=files("/dev/x"),
    )
    whole, *parts = devices(facts)
    assert {part.health for part in parts} == {whole.health}


@pytest.mark.parametrize(
    ("version", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (110000, "gfx1100"), (90006, "gfx906"), (None, "")]
)
def test_the_isa_is_named_as_people_know_it(version: int | None, name: str) -> None:
    node = KfdNode(2, 7, 0, 0x0C00, 128, version)
    (gpu,) = devices(SysfsFacts(pci=PLAIN.pci[:1], kfd=(node,)))
    assert gpu.text("gfxVersion") == name


def test_other_functions_of_the_vendor_are_no_gpus() -> None:
    bridge = function(FIRST, (), class_code="0x060400")
    other = function(SECOND, (), vendor="0x10de")
    assert devices(SysfsFacts(pci=(bridge, other))) == []
    assert amd_devices(NodeFacts()) == []
