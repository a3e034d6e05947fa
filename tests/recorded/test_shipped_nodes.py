"""The shipped nodes: well-formed, consistent in themselves, and healthy."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from node.inventory.devices import devices_of, statuses_of
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind, NodeRole, SourceState
from node.inventory.pci import pci_address, pcie_root
from node.inventory.recorded import Recording, dump, read
from sandbox import nodes

GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MIG_UUID = re.compile(r"MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture(params=nodes.names())
def recording(request: pytest.FixtureRequest) -> Recording:
    return read(nodes.path(request.param))


def sections(node: NodeFacts) -> tuple[NvmlFacts, SysfsFacts]:
    assert node.nvml is not None
    assert node.sysfs is not None
    return node.nvml, node.sysfs


def gpus_of(name: str) -> tuple[GpuFacts, ...]:
    return sections(read(nodes.path(name)).facts)[0].gpus


def test_these_nodes_are_shipped() -> None:
    assert nodes.names() == ("a100-mig-4", "h100-sxm-8", "l4-2")


def test_an_unknown_node_is_refused_with_the_names_of_those_that_exist() -> None:
    with pytest.raises(nodes.UnknownNodeError) as caught:
        nodes.path("h100")

    assert str(caught.value) == "no shipped node is called 'h100'; known: a100-mig-4, h100-sxm-8, l4-2"


def test_a_file_carries_its_own_name_and_the_form_of_the_codec(recording: Recording) -> None:
    path = nodes.path(recording.name)

    assert recording.description.endswith("Composed from public facts; serials and UUIDs are made up.")
    assert path.read_text() == dump(
        recording.facts,
        name=recording.name,
        description=recording.description,
        recorded_at=recording.recorded_at,
    )


def test_every_device_is_healthy_and_has_its_nodes(recording: Recording) -> None:
    devices = devices_of(recording.facts, Identities())
    nvml, _ = sections(recording.facts)

    assert len(devices) == len(nvml.gpus) + sum(len(gpu.mig_devices) for gpu in nvml.gpus)
    for device in devices:
        assert device.health.state.value == "healthy", device.health.reason
        assert all(node.present for node in device.nodes)
        expected = {NodeRole.DEVICE, NodeRole.CONTROL}
        expected |= {NodeRole.CAPABILITY} if device.kind is DeviceKind.MIG else {NodeRole.RENDER}
        assert expected <= {node.role for node in device.nodes}
        assert device.numa_node is not None
        assert device.text("resource.kubernetes.io/pcieRoot")
    assert {status.state for status in statuses_of(recording.facts)} == {SourceState.OK}


def test_nvml_and_sysfs_speak_of_the_same_gpus(recording: Recording) -> None:
    nvml, sysfs = sections(recording.facts)
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


def test_identities_are_unique_and_well_formed(recording: Recording) -> None:
    nvml, _ = sections(recording.facts)
    uuids = [gpu.uuid or "" for gpu in nvml.gpus]
    migs = [mig.uuid or "" for gpu in nvml.gpus for mig in gpu.mig_devices]
    serials = [gpu.serial or "" for gpu in nvml.gpus]

    assert all(GPU_UUID.fullmatch(uuid) for uuid in uuids)
    assert all(MIG_UUID.fullmatch(uuid) for uuid in migs)
    assert all(re.fullmatch("[0-9]{13}", serial) for serial in serials)
    assert len({*uuids, *migs, *serials}) == len(uuids) + len(migs) + len(serials)
    assert len({gpu.minor for gpu in nvml.gpus}) == len(nvml.gpus)


def test_ancestors_fit_the_pcie_tree(recording: Recording) -> None:
    nvml, sysfs = sections(recording.facts)
    functions = {function.address: function for function in sysfs.pci}
    own = [functions[pci_address(gpu.bus_id) or ""] for gpu in nvml.gpus]

    for gpu in nvml.gpus:
        assert [each.gpu for each in gpu.ancestors] == [other.index for other in nvml.gpus if other != gpu]
        for each in gpu.ancestors:
            one, two = own[gpu.index], own[each.gpu]
            assert pcie_root(one) != pcie_root(two)
            assert each.level == (40 if one.numa_node == two.numa_node else 50)


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


def test_an_l4_has_neither_mig_nor_links() -> None:
    for gpu in gpus_of("l4-2"):
        assert gpu.mig_mode is None
        assert gpu.nvlinks == ()
        assert ("nvmlDeviceGetMigMode", "NOT_SUPPORTED") in {(each.call, each.error) for each in gpu.errors}
