"""NICs and AMD GPUs of the shipped nodes: every fact fits the others, as it would on a real machine."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from node.inventory.devices import devices_of
from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind
from node.inventory.net_facts import NetworkFacts
from node.inventory.recordings.source import Recording, read
from sandbox import nodes

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
GUID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}")
ETHERNET, INFINIBAND = 1, 32
NIC_CLASSES = {"0x020000": ETHERNET, "0x020700": INFINIBAND}


@pytest.fixture(params=nodes.names())
def recording(request: pytest.FixtureRequest) -> Recording:
    return read(nodes.path(request.param))


def parts(recording: Recording) -> tuple[SysfsFacts, NetworkFacts]:
    assert recording.facts.sysfs is not None
    assert recording.facts.network is not None
    return recording.facts.sysfs, recording.facts.network


def of(name: str) -> tuple[SysfsFacts, NetworkFacts]:
    return parts(read(nodes.path(name)))


def owner(sysfs: SysfsFacts, path: str) -> PciFunction:
    """The function that a path begins with; there is exactly one, for functions are no bridges."""
    (found,) = [function for function in sysfs.pci if path.startswith(f"{function.path}/")]
    return found


def test_interfaces_belong_to_functions_and_have_one_address_each(recording: Recording) -> None:
    sysfs, network = parts(recording)
    links = {link.name: link for link in network.links}

    for interface in sysfs.interfaces:
        function = owner(sysfs, interface.path)
        assert interface.path.endswith(f"/net/{interface.name}")
        assert len(interface.name) <= 15
        assert interface.link_type == NIC_CLASSES[function.class_code]
        assert function.driver is not None
        assert interface.address is not None
        assert MAC.fullmatch(interface.address[-17:])
        assert len(interface.address) == (17 if interface.link_type == ETHERNET else 59)
        assert (interface.speed_mbps is None) == (interface.carrier is not True)
        assert links[interface.name].driver is not None
    for field in ("name", "ifindex", "path"):
        assert len({getattr(each, field) for each in sysfs.interfaces}) == len(sysfs.interfaces)
    bonded = {link.name for link in network.links if link.master and links[link.master].kind == "bond"}
    addresses = [each.address for each in sysfs.interfaces if each.name not in bonded]
    assert len(set(addresses)) == len(addresses)


def test_the_node_itself_is_reached_through_an_interface_of_its_own(recording: Recording) -> None:
    sysfs, network = parts(recording)
    links = {link.name: link for link in network.links}
    carrier = network.default_routes[0].interface
    below = {link.name for link in network.links if carrier in (link.name, link.master)}

    assert below & {interface.name for interface in sysfs.interfaces}
    assert links[carrier].up
    assert {route.interface for route in network.default_routes} == {carrier}
    assert carrier in {address.interface for address in network.addresses}
    assert all(address.interface in links for address in network.addresses)
    assert all(name in links for link in network.links for name in (link.master, link.lower) if name is not None)


def test_rdma_devices_have_their_files_and_identities(recording: Recording) -> None:
    sysfs, _ = parts(recording)
    files = {file.path: (file.major, file.minor) for file in sysfs.device_files}
    interfaces = {interface.name: interface for interface in sysfs.interfaces}

    assert len({device.node_guid for device in sysfs.rdma}) == len(sysfs.rdma)
    for device in sysfs.rdma:
        function = owner(sysfs, device.path)
        assert device.path.endswith(f"/infiniband/{device.name}")
        assert GUID.fullmatch(device.node_guid or "")
        assert GUID.fullmatch(device.system_guid or "")
        assert Counter(re.sub("[0-9]", "", file.name) for file in device.files)["uverbs"] == 1
        for file in device.files:
            assert files[f"/dev/infiniband/{file.name}"] == (file.major, file.minor)
        (port,) = device.ports
        assert (port.state, port.physical_state) == ("4: ACTIVE", "5: LinkUp")
        assert port.link_layer == ("InfiniBand" if function.class_code == "0x020700" else "Ethernet")
        if port.interface is not None:
            assert owner(sysfs, interfaces[port.interface].path) == function
    assert ("/dev/infiniband/rdma_cm" in files) == bool(sysfs.rdma)
    listed = {path for path in files if re.search(r"/(uverbs|umad|issm)[0-9]+$", path)}
    assert listed == {f"/dev/infiniband/{file.name}" for device in sysfs.rdma for file in device.files}


def test_virtual_functions_belong_to_physical_ones(recording: Recording) -> None:
    sysfs, _ = parts(recording)
    functions = {function.address: function for function in sysfs.pci}
    indices: dict[str, list[int]] = {}

    for function in sysfs.pci:
        if function.physfn is not None:
            assert functions[function.physfn].path.rpartition("/")[0] == function.path.rpartition("/")[0]
            assert functions[function.physfn].numa_node == function.numa_node
            assert function.vf_index is not None
            indices.setdefault(function.physfn, []).append(function.vf_index)
    for address, found in indices.items():
        assert sorted(found) == list(range(functions[address].sriov_numvfs or 0))
        assert len(found) <= (functions[address].sriov_totalvfs or 0)
    groups = [function.iommu_group for function in sysfs.pci if function.iommu_group is not None]
    assert len(set(groups)) == len(groups)


def test_each_h100_has_its_adapter_below_its_switch() -> None:
    sysfs, network = of("h100-sxm-8")
    gpus = [function for function in sysfs.pci if function.device == "0x2330"]
    adapters = [function for function in sysfs.pci if function.class_code == "0x020700"]
    storage = [function for function in sysfs.pci if (function.device, function.class_code) == ("0x1021", "0x020000")]

    assert len(adapters) == len(gpus) == 8
    assert {switch(adapter): adapter.numa_node for adapter in adapters} == {switch(gpu): gpu.numa_node for gpu in gpus}
    assert len(storage) == 4
    assert Counter(function.numa_node for function in storage) == {0: 2, 1: 2}
    assert {device.ports[0].rate for device in sysfs.rdma if owner(sysfs, device.path) in adapters} == {
        "400 Gb/sec (4X NDR)"
    }
    assert {each.interface for each in network.addresses} == {"cni0", "eno1", "enp41s0f0np0", "enp170s0f0np0"}


def switch(function: PciFunction) -> str:
    """Host bridge, root port and the upstream port of the first switch."""
    return "/".join(function.path.split("/")[:3])


def test_a_node_with_virtual_functions_shows_every_way_they_can_be_bound() -> None:
    sysfs, _ = of("sriov-2")
    virtual = [function for function in sysfs.pci if function.physfn is not None]
    files = {file.path for file in sysfs.device_files}

    assert Counter(str(function.driver) for function in virtual) == {
        "mlx5_core": 10, "vfio-pci": 4, "iavf": 6, "igb_uio": 1, "None": 3,
    }  # fmt: skip
    for function in virtual:
        if function.driver == "vfio-pci":
            assert {f"/dev/vfio/{function.iommu_group}", f"/dev/vfio/devices/{function.vfio}"} <= files
        if function.uio is not None:
            assert f"/dev/{function.uio}" in files
    hidden = [
        function.address
        for function in virtual
        if function.driver == "mlx5_core"
        and not [i for i in sysfs.interfaces if i.path.startswith(f"{function.path}/")]
    ]
    assert hidden == ["0000:17:01.4", "0000:17:01.5"]
    assert "/dev/vfio/vfio" in files


def test_a_port_in_switchdev_mode_has_a_representor_for_each_function() -> None:
    sysfs, _ = of("sriov-2")
    switched = [interface for interface in sysfs.interfaces if interface.switch_id is not None]

    assert len({interface.switch_id for interface in switched}) == 1
    assert {interface.port_name for interface in switched} == {"p1", "pf1sf88", *(f"pf1vf{n}" for n in range(8))}
    (subfunction,) = sysfs.subfunctions
    assert (subfunction.name, subfunction.sfnum) == ("mlx5_core.sf.2", 88)
    paths = [*(each.path for each in sysfs.interfaces), *(each.path for each in sysfs.rdma)]
    assert len([path for path in paths if path.startswith(f"{subfunction.path}/")]) == 2


@pytest.mark.parametrize("name", ["mi300x-8", "mi300x-cpx-8"])
def test_amd_gpus_are_all_linked_by_xgmi(name: str) -> None:
    sysfs, _ = of(name)
    functions = {function.address: function for function in sysfs.pci}
    by_node = {node.node: node for node in sysfs.kfd}

    assert len(sysfs.amd_gpus) == 8
    assert len({gpu.unique_id for gpu in sysfs.amd_gpus}) == len({gpu.serial for gpu in sysfs.amd_gpus}) == 8
    for gpu in sysfs.amd_gpus:
        bus = int(gpu.address[5:7], 16)
        own = [node for node in sysfs.kfd if node.location_id >> 8 & 0xFF == bus]
        assert len(own) == (8 if gpu.compute_partition == "CPX" else 1)
        assert f"renderD{own[0].render_minor}" in functions[gpu.address].drm
        assert {node.unique_id for node in own} == {int(gpu.unique_id or "", 16)}
    for node in sysfs.kfd:
        assert {link.to for link in node.links if link.type == 11} == by_node.keys() - {node.node}
        assert len([link for link in node.links if link.type == 2]) == 1


def test_partitions_have_graphics_nodes_of_their_own() -> None:
    sysfs, _ = of("mi300x-cpx-8")
    minors = {f"renderD{node.render_minor}" for node in sysfs.kfd}
    files = {file.path for file in sysfs.device_files}

    assert [partition.name for partition in sysfs.amd_partitions] == [f"amdgpu_xcp_{n}" for n in range(7)]
    for partition in sysfs.amd_partitions:
        assert len(minors & set(partition.drm)) == 1
        assert {f"/dev/dri/{name}" for name in partition.drm} <= files
    assert of("mi300x-8")[0].amd_partitions == ()
    devices = devices_of(read(nodes.path("mi300x-cpx-8")).facts, Identities())
    found = [device for device in devices if device.kind is DeviceKind.PARTITION]
    assert [device.name for device in found] == [f"partition-0000-08-00-0-{number}" for number in range(1, 8)]
    assert {device.health.state.value for device in found} == {"healthy"}


def test_the_override_of_the_flat_machine_names_its_gpus_and_adapters() -> None:
    sysfs, _ = of("vm-flat-8")
    tree = ET.parse(nodes.path("vm-flat-8").with_suffix(".topology.xml"))
    classes = ("0x030200", "0x020700")
    named = {each.get("busid"): each.get("class") for each in tree.iter("pci") if each.get("class") in classes}

    assert named == {function.address: function.class_code for function in sysfs.pci if function.class_code in classes}
    assert {function.numa_node for function in sysfs.pci} == {-1}
    assert [len(list(bridge)) for bridge in tree.iterfind("cpu/pci")] == [4, 4, 4, 4]
