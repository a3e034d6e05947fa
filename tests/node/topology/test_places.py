"""From devices to places, and overrides."""

from __future__ import annotations

from node.inventory.model import Device, DeviceKind, PeerLink, sorted_attributes
from node.inventory.places import bridges_above, place_of, places_of
from node.topology.cells import absent, topology_of
from node.topology.model import PlaceOverride, Proximity, proximity


def gpu(address: str, index: str | None = None, **facts: object) -> Device:
    return Device(
        f"gpu-{address}", DeviceKind.GPU, "nvidia", index=index, pci_address=address, location=f"pci0000:00/{address}"
    )


def nic(address: str, rdma: str = "", **attributes: str | int) -> Device:
    return Device(
        f"nic-{address}",
        DeviceKind.NIC,
        "mellanox",
        pci_address=address,
        location=f"pci0000:00/0000:00:01.0/{address}",
        attributes=sorted_attributes([("rdmaDevice", rdma), *attributes.items()]),
    )


def labels(*devices: Device) -> list[tuple[str, str]]:
    return [(place.label, place.name) for place in places_of(devices)]


def test_gpus_are_numbered_as_their_driver_does() -> None:
    assert labels(gpu("0000:02:00.0", "0"), gpu("0000:01:00.0", "1")) == [
        ("GPU0", "gpu-0000:02:00.0"),
        ("GPU1", "gpu-0000:01:00.0"),
    ]


def test_a_gpu_without_a_number_gets_a_free_one_by_address() -> None:
    assert labels(gpu("0000:03:00.0"), gpu("0000:02:00.0", "1"), gpu("0000:01:00.0")) == [
        ("GPU0", "gpu-0000:01:00.0"),
        ("GPU1", "gpu-0000:02:00.0"),
        ("GPU2", "gpu-0000:03:00.0"),
    ]


def test_nics_follow_their_rdma_devices_and_then_their_addresses() -> None:
    devices = nic("0000:09:00.0"), nic("0000:08:00.0", "mlx5_10"), nic("0000:07:00.0"), nic("0000:06:00.0", "mlx5_9")
    assert [name for _, name in labels(*devices)] == [
        "nic-0000:06:00.0",
        "nic-0000:08:00.0",
        "nic-0000:07:00.0",
        "nic-0000:09:00.0",
    ]


def test_parts_of_devices_are_no_places() -> None:
    parts = [
        nic("0000:01:00.2", vfIndex=0),
        nic("0000:01:00.0", sfNumber=88),
        nic("0000:01:00.3", sriovFunction="vf"),
        Device("mig-1", DeviceKind.MIG, "nvidia"),
        Device("partition-1", DeviceKind.PARTITION, "amd"),
    ]
    assert places_of(parts) == ()


def test_a_virtual_function_sits_beside_its_physical_one() -> None:
    (physical,) = places_of([nic("0000:01:00.0", sriovFunction="pf")])
    assert proximity(place_of(nic("0000:01:00.2", vfIndex=0)), physical) is Proximity.PIX


def test_links_name_places_and_drop_peers_that_are_none() -> None:
    one = Device(
        "gpu-a",
        DeviceKind.GPU,
        "nvidia",
        index="0",
        pci_address="0000:01:00.0",
        links=(
            PeerLink("0000:02:00.0", 2),
            PeerLink("0000:99:00.0", 1),
            PeerLink(None, 6),
            PeerLink("0000:01:00.0", 1),
        ),
    )
    place, _ = places_of([one, gpu("0000:02:00.0", "1")])
    assert place.links == (("gpu-0000:02:00.0", 2),)
    assert place.switch_links == 6


def test_the_path_begins_at_the_host_bridge_and_ends_above_the_function() -> None:
    assert bridges_above("pci0000:15/0000:15:01.0/0000:16:00.0", "0000:16:00.0") == ("pci0000:15", "0000:15:01.0")
    assert bridges_above("LNXSYSTM:00/VMBUS:00/guid/pci0001:00/0001:00:00.0", "0001:00:00.0") == ("pci0001:00",)
    behind = "pci0000:15/0000:15:01.0/0000:16:00.0/mlx5_core.sf.2"
    assert bridges_above(behind, "0000:16:00.0") == ("pci0000:15", "0000:15:01.0")
    assert bridges_above("platform/amdgpu_xcp_1", None) == ()
    assert bridges_above("", None) == ()


OVERRIDE = PlaceOverride("0000:01:00.0", ("host-bridge-0", "switch-0.0"), 3)


def test_an_override_moves_a_device() -> None:
    topology = topology_of(places_of([gpu("0000:01:00.0")]), [OVERRIDE])
    (place,) = topology.places
    assert (place.path, place.numa_node) == (OVERRIDE.path, 3)
    assert topology.overridden == ("0000:01:00.0",)


def test_an_override_without_numa_node_keeps_the_kernel_s() -> None:
    device = Device("gpu-a", DeviceKind.GPU, "nvidia", pci_address="0000:01:00.0", numa_node=1)
    (place,) = topology_of(places_of([device]), [PlaceOverride("0000:01:00.0", ("x",))]).places
    assert place.numa_node == 1


def test_an_override_for_a_device_that_is_not_here_changes_nothing_and_is_named() -> None:
    places = places_of([gpu("0000:02:00.0")])
    assert topology_of(places, [OVERRIDE]) == topology_of(places)
    assert absent(places, [OVERRIDE]) == ("0000:01:00.0",)


def test_nothing_is_built_again_where_nothing_has_moved() -> None:
    first = topology_of(places_of([gpu("0000:01:00.0")]))
    assert topology_of(places_of([gpu("0000:01:00.0")]), (), first) is first
    assert topology_of(places_of([gpu("0000:02:00.0")]), (), first) is not first
    assert topology_of(places_of([gpu("0000:01:00.0")]), [OVERRIDE], first) is not first
