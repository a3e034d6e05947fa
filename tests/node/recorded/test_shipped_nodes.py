"""The shipped nodes: well-formed, consistent in themselves, and healthy."""

from __future__ import annotations

import re
from collections import Counter
from itertools import takewhile

import pytest

from node.inventory.devices import devices_of, statuses_of
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind, NodeRole, SourceState
from node.inventory.pci import pci_address
from node.inventory.places import bridges_above
from node.inventory.recordings.source import Recording, dump, read
from sandbox import nodes

GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MIG_UUID = re.compile(r"MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


NAMES = (
    "a100-mig-4",
    "a100-sxm-8",
    "dgx1-v100-8",
    "dgx2-v100-16",
    "gaudi2-8",
    "h100-sxm-8",
    "l4-2",
    "mi300x-8",
    "mi300x-cpx-8",
    "sriov-2",
    "vm-flat-8",
)
NVIDIA = tuple(name for name in NAMES if not name.startswith(("gaudi2", "mi300x", "sriov")))
FLAT = "vm-flat-8"
"""No NUMA node is known there, and GPUs have an emulated graphics card before them and no BMC's."""


@pytest.fixture(params=NAMES)
def recording(request: pytest.FixtureRequest) -> Recording:
    return read(nodes.path(request.param))


@pytest.fixture(params=NVIDIA)
def nvidia(request: pytest.FixtureRequest) -> Recording:
    return read(nodes.path(request.param))


def sections(node: NodeFacts) -> tuple[NvmlFacts, SysfsFacts]:
    assert node.nvml is not None
    assert node.sysfs is not None
    return node.nvml, node.sysfs


def gpus_of(name: str) -> tuple[GpuFacts, ...]:
    return sections(read(nodes.path(name)).facts)[0].gpus


def test_these_nodes_are_shipped() -> None:
    assert nodes.names() == NAMES


def test_an_unknown_node_is_refused_with_the_names_of_those_that_exist() -> None:
    with pytest.raises(nodes.UnknownNodeError) as caught:
        nodes.path("h100")

    assert str(caught.value) == f"no shipped node is called 'h100'; known: {', '.join(NAMES)}"


def test_a_file_carries_its_own_name_and_the_form_of_the_codec(recording: Recording) -> None:
    path = nodes.path(recording.name)

    assert recording.description.endswith("Composed from public facts; serials and UUIDs are made up.")
    assert path.read_text() == dump(
        recording.facts,
        name=recording.name,
        description=recording.description,
        recorded_at=recording.recorded_at,
    )


def test_every_gpu_is_healthy_and_has_its_nodes(nvidia: Recording) -> None:
    kinds = (DeviceKind.GPU, DeviceKind.MIG)
    devices = [device for device in devices_of(nvidia.facts, Identities()) if device.kind in kinds]
    nvml, _ = sections(nvidia.facts)

    assert len(devices) == len(nvml.gpus) + sum(len(gpu.mig_devices) for gpu in nvml.gpus)
    for device in devices:
        assert device.health.state.value == "healthy", device.health.reason
        assert all(node.present for node in device.nodes)
        expected = {NodeRole.DEVICE, NodeRole.CONTROL}
        expected |= {NodeRole.CAPABILITY} if device.kind is DeviceKind.MIG else {NodeRole.RENDER}
        assert expected <= {node.role for node in device.nodes}
        assert (device.numa_node is None) == (nvidia.name == FLAT)
        # Below VMBus, Kubernetes' rule gives no root.
        assert bool(device.text("resource.kubernetes.io/pcieRoot")) == (nvidia.name != FLAT)
    assert {status.state for status in statuses_of(nvidia.facts)} == {SourceState.OK}


def test_nvml_and_sysfs_speak_of_the_same_gpus(nvidia: Recording) -> None:
    nvml, sysfs = sections(nvidia.facts)
    functions = {function.address: function for function in sysfs.pci}

    assert [gpu.index for gpu in nvml.gpus] == list(range(len(nvml.gpus)))
    # NVML numbers GPUs in the order of their addresses.
    assert [gpu.bus_id for gpu in nvml.gpus] == sorted(gpu.bus_id or "" for gpu in nvml.gpus)
    for gpu in nvml.gpus:
        function = functions[pci_address(gpu.bus_id) or ""]
        assert function.driver == "nvidia"
        assert function.path.endswith(function.address)
        # nvidia-drm makes its nodes in the order of the minor numbers; the BMC's card comes first.
        assert function.drm == (f"card{(gpu.minor or 0) + 1}", f"renderD{(gpu.minor or 0) + 128}")
    assert sysfs.nvidia_module_version == nvml.driver_version
    assert nvml.nvml_version == f"12.{nvml.driver_version}"
    assert [function.address for function in sysfs.pci] == sorted(functions)
    assert [file.path for file in sysfs.device_files] == sorted(file.path for file in sysfs.device_files)


def test_identities_are_unique_and_well_formed(nvidia: Recording) -> None:
    nvml, _ = sections(nvidia.facts)
    uuids = [gpu.uuid or "" for gpu in nvml.gpus]
    migs = [mig.uuid or "" for gpu in nvml.gpus for mig in gpu.mig_devices]
    serials = [gpu.serial or "" for gpu in nvml.gpus]

    assert all(GPU_UUID.fullmatch(uuid) for uuid in uuids)
    assert all(MIG_UUID.fullmatch(uuid) for uuid in migs)
    assert all(re.fullmatch("[0-9]{13}", serial) for serial in serials)
    assert len({*uuids, *migs, *serials}) == len(uuids) + len(migs) + len(serials)
    assert len({gpu.minor for gpu in nvml.gpus}) == len(nvml.gpus)


def test_ancestors_fit_the_pcie_tree(nvidia: Recording) -> None:
    nvml, sysfs = sections(nvidia.facts)
    functions = {function.address: function for function in sysfs.pci}
    own = [functions[pci_address(gpu.bus_id) or ""] for gpu in nvml.gpus]

    for gpu in nvml.gpus:
        assert [each.gpu for each in gpu.ancestors] == [other.index for other in nvml.gpus if other != gpu]
        for each in gpu.ancestors:
            one, two = own[gpu.index], own[each.gpu]
            assert each.level == ancestor_level(one, two)


def host_bridge(function: PciFunction) -> str:
    return bridges_above(function.path, function.address)[0]


def ancestor_level(one: PciFunction, two: PciFunction) -> int:
    """NVML's level of two functions: one switch, several, host bridge, NUMA node, system."""
    bridges = [function.path.split("/")[:-1] for function in (one, two)]
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*bridges, strict=False))))
    if host_bridge(one) != host_bridge(two):
        return 40 if one.numa_node == two.numa_node else 50
    if bridges[0][shared - 1] == host_bridge(one):
        return 30
    return 10 if max(map(len, bridges)) - shared <= 1 else 20


def test_an_h100_has_18_links_to_4_switches_on_the_bus() -> None:
    nvml, sysfs = sections(read(nodes.path("h100-sxm-8")).facts)
    switches = {each.address for each in sysfs.pci if each.class_code == "0x068000"}

    assert len(switches) == 4
    for gpu in nvml.gpus:
        assert [link.link for link in gpu.nvlinks] == list(range(18))
        assert {link.remote_type for link in gpu.nvlinks} == {"switch"}
        ends = Counter(pci_address(link.remote_bus_id) for link in gpu.nvlinks)
        assert set(ends) == switches
        assert sorted(ends.values()) == [4, 4, 5, 5]
    assert Counter(each.numa_node for each in sysfs.pci if each.device == "0x2330") == {0: 4, 1: 4}


def test_every_two_a100_share_4_links() -> None:
    gpus = gpus_of("a100-mig-4")
    pairs = Counter((gpu.bus_id, link.remote_bus_id) for gpu in gpus for link in gpu.nvlinks)

    assert pairs == {(one.bus_id, two.bus_id): 4 for one in gpus for two in gpus if one != two}
    assert [gpu.minor for gpu in gpus] == [1, 0, 3, 2]


def test_mig_instances_lie_beside_each_other_and_fit_their_profiles() -> None:
    gpus = gpus_of("a100-mig-4")

    assert [gpu.mig_mode for gpu in gpus] == [0, 0, 1, 1]
    for gpu in gpus:
        taken = [
            place
            for mig in gpu.mig_devices
            for place in range(mig.placement_start or 0, (mig.placement_start or 0) + (mig.placement_size or 0))
        ]
        assert len(set(taken)) == len(taken)
        assert all(0 <= place < 8 for place in taken)
        for mig in gpu.mig_devices:
            assert mig.multiprocessors == 14 * (mig.gpu_slices or 0)
            assert mig.compute_slices == mig.gpu_slices
    assert [len(gpu.mig_devices) for gpu in gpus] == [0, 0, 4, 7]


def test_capability_minors_are_numbered_as_the_driver_does() -> None:
    """1 and 2 are config and monitor; then each GPU has 15 instances of one access file and 8 compute instances."""
    nvml, sysfs = sections(read(nodes.path("a100-mig-4")).facts)
    minors = {file.path: file.minor for file in sysfs.nvidia_capabilities}
    nodes_of_caps = {file.path for file in sysfs.device_files}
    expected = {}
    for gpu in nvml.gpus:
        for mig in gpu.mig_devices:
            instance = f"gpu{gpu.minor}/mig/gi{mig.gpu_instance}"
            first = 3 + 135 * (gpu.minor or 0) + 9 * (mig.gpu_instance or 0)
            expected[f"{instance}/access"] = first
            expected[f"{instance}/ci{mig.compute_instance}/access"] = first + 1 + (mig.compute_instance or 0)

    assert minors == expected
    assert {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors.values()} <= nodes_of_caps


def test_a_dgx1_is_a_hybrid_cube_mesh() -> None:
    gpus = gpus_of("dgx1-v100-8")
    index = {gpu.bus_id: gpu.index for gpu in gpus}
    links = Counter((gpu.index, index[link.remote_bus_id]) for gpu in gpus for link in gpu.nvlinks)

    assert all(count == links[two, one] for (one, two), count in links.items())
    assert all(len(gpu.nvlinks) == 6 for gpu in gpus)
    # Within a board, and from each GPU to its counterpart on the other one.
    assert {pair for pair in links if pair[0] < 4 <= pair[1]} == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert {pair for pair, count in links.items() if count == 2 and pair[0] < pair[1]} == {
        (0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7),
    }  # fmt: skip


@pytest.mark.parametrize(("name", "links", "switches"), [("a100-sxm-8", 12, 6), ("dgx2-v100-16", 6, 12)])
def test_every_gpu_has_its_links_to_switches_on_the_bus(name: str, links: int, switches: int) -> None:
    nvml, sysfs = sections(read(nodes.path(name)).facts)
    on_bus = {each.address for each in sysfs.pci if each.class_code == "0x068000"}
    ends = [[pci_address(link.remote_bus_id) for link in gpu.nvlinks] for gpu in nvml.gpus]

    assert len(on_bus) == switches
    assert {len(each) for each in ends} == {links}
    assert {end for each in ends for end in each} == on_bus
    # 6 switches to a board, as many links to each of them.
    assert all(set(Counter(each).values()) == {links // 6} for each in ends)


def test_a_virtual_machine_sees_no_switches() -> None:
    nvml, sysfs = sections(read(nodes.path(FLAT)).facts)

    assert not [each for each in sysfs.pci if each.class_code == "0x068000"]
    assert {(link.remote_type, link.remote_bus_id) for gpu in nvml.gpus for link in gpu.nvlinks} == {("switch", None)}
    assert len({host_bridge(function) for function in sysfs.pci}) == len(sysfs.pci)


def test_an_l4_has_neither_mig_nor_links() -> None:
    for gpu in gpus_of("l4-2"):
        assert gpu.mig_mode is None
        assert gpu.nvlinks == ()
        assert ("nvmlDeviceGetMigMode", "NOT_SUPPORTED") in {(each.call, each.error) for each in gpu.errors}


def test_gaudi_cards_are_healthy_and_sit_in_pairs_beside_a_nic() -> None:
    facts = read(nodes.path("gaudi2-8")).facts
    devices = devices_of(facts, Identities())
    cards = [device for device in devices if device.kind is DeviceKind.GPU]
    assert [card.text("productName") for card in cards] == ["Gaudi2"] * 8
    assert {card.health.state.value for card in cards} == {"healthy"}
    assert all(node.present for card in cards for node in card.nodes)
    assert sorted(str(card.attribute("moduleID")) for card in cards) == [str(module) for module in range(8)]
    assert Counter(card.numa_node for card in cards) == {0: 4, 1: 4}
    switches = Counter(device.location.rpartition("/")[0].rpartition("/")[0] for device in devices)
    assert sorted(switches.values()) == [1, 3, 3, 3, 3]
    assert not [device for device in devices if device.kind is DeviceKind.RDMA]
    assert {status.state for status in statuses_of(facts)} == {SourceState.OK}
