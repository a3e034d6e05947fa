"""What NVIDIA devices are made of: names, attributes, capacity, device nodes."""

from __future__ import annotations

import pytest

from node.inventory.devices import devices_of, host_of, statuses_of
from node.inventory.facts import (
    CdiFacts,
    DriverFiles,
    Fabric,
    NodeFacts,
    NvLink,
    NvmlFacts,
)
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind, Host, NodeRole, SourceState, Version
from node.inventory.nvidia.attributes import mig_profile
from tests.making.nvidia_facts import GIB, a100, devices, files, function, gpu, mig, node, nvml, sysfs, uuid


def attributes(facts: NodeFacts, name: str) -> dict[str, object]:
    return {each.name: each.value for each in devices(facts)[name].attributes}


def test_gpu_has_every_attribute_under_its_known_name() -> None:
    fabric = Fabric("c2c1e1a5-0000-4000-8000-000000000001", 4, state=3, status=0)
    facts = node(
        gpu(
            0,
            fabric=fabric,
            addressing_mode="HMM",
            vbios_version="96.00.74.00.01",
            board_part_number="692-2G520-0200-000",
            nvlinks=(NvLink(0, active=True), NvLink(1, active=False)),
        )
    )
    assert attributes(facts, "gpu-0000-1b-00-0") == {
        "type": "gpu",
        "uuid": uuid(0),
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version("9.0.0"),
        "driverVersion": Version("550.107.2"),
        "cudaDriverVersion": Version("12.4.0"),
        "addressingMode": "HMM",
        "gpuModuleID": 1,
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
        "resource.kubernetes.io/numaNode": 0,
        "serial": "1654321000000",
        "minor": 0,
        "iommuGroup": 40,
        "migCapable": True,
        "migEnabled": False,
        "eccEnabled": True,
        "mode": "compute",
        "nvlinks": 1,
        "virtualizationMode": "none",
        "clique": "c2c1e1a5-0000-4000-8000-000000000001.4",
        "vbiosVersion": "96.00.74.00.01",
        "boardPartNumber": "692-2G520-0200-000",
    }


def test_gpu_has_its_place_memory_and_numa_node() -> None:
    device = devices(node(gpu(0), gpu(1), gpu(2)))["gpu-0000-3b-00-0"]
    assert (device.kind, device.vendor, device.index, device.pci_address) == (
        DeviceKind.GPU,
        "nvidia",
        "2",
        "0000:3b:00.0",
    )
    assert device.numa_node == 1
    assert [(each.name, each.value) for each in device.capacity] == [("memory", 85520809984)]
    assert device.health.usable


def test_unknown_memory_is_left_out() -> None:
    assert devices(node(gpu(0, memory_bytes=None)))["gpu-0000-1b-00-0"].capacity == ()


def test_attributes_are_sorted_and_equal_ones_are_one_object() -> None:
    first, second = devices_of(node(gpu(0), gpu(1)), Identities())
    names = [each.name for each in first.attributes]
    assert names == sorted(names)
    shared = {id(each) for each in first.attributes} & {id(each) for each in second.attributes}
    assert len(shared) > 10


@pytest.mark.parametrize(
    "fabric",
    [
        None,
        Fabric("c2c1e1a5-0000-4000-8000-000000000001", 4, state=2, status=0),
        Fabric("c2c1e1a5-0000-4000-8000-000000000001", 4, state=3, status=999),
        Fabric("00000000-0000-0000-0000-000000000000", 0, state=3, status=0),
    ],
)
def test_clique_needs_a_complete_fabric(fabric: Fabric | None) -> None:
    assert "clique" not in attributes(node(gpu(0, fabric=fabric)), "gpu-0000-1b-00-0")


def test_gpu_without_mig_says_so() -> None:
    found = attributes(node(gpu(0, mig_mode=None, mig_pending=None)), "gpu-0000-1b-00-0")
    assert (found["migCapable"], found["migEnabled"]) == (False, False)


def test_lost_gpu_says_nothing_about_mig() -> None:
    found = attributes(node(gpu(0, error="GPU_IS_LOST", mig_mode=None)), "gpu-0000-1b-00-0")
    assert "migCapable" not in found
    assert "migEnabled" not in found


def test_nvml_alone_will_do() -> None:
    device = devices(NodeFacts(nvml=nvml(gpu(0))))["gpu-0000-1b-00-0"]
    assert device.numa_node is None
    assert device.health.usable
    assert device.text("resource.kubernetes.io/pciBusID") == "0000:1b:00.0"
    assert [(each.path, each.present) for each in device.nodes] == [("/dev/nvidia0", False)]


def test_sysfs_alone_gives_no_nvidia_device() -> None:
    assert devices(NodeFacts(sysfs=sysfs(2))) == {}


def test_device_nodes_have_their_roles_and_numbers() -> None:
    extra = ("/dev/gdrdrv", "/dev/nvidia-fs10", "/dev/nvidia-fs2", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")
    channels = ("/dev/nvidia-caps-imex-channels/channel10", "/dev/nvidia-caps-imex-channels/channel2")
    facts = NodeFacts(nvml=nvml(gpu(0)), sysfs=sysfs(1, *extra, *channels, "/dev/sda", "/dev/nvidia-caps/nvidia-cap1"))
    device = devices(facts)["gpu-0000-1b-00-0"]
    assert [each.path for each in device.nodes_of(NodeRole.DEVICE)] == ["/dev/nvidia0"]
    assert [(each.path, each.present) for each in device.nodes_of(NodeRole.RENDER)] == [
        ("/dev/dri/card0", False),
        ("/dev/dri/renderD128", True),
    ]
    assert [each.path for each in device.nodes_of(NodeRole.CONTROL)] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
    ]
    assert [each.path for each in device.nodes_of(NodeRole.AUXILIARY)] == [
        "/dev/gdrdrv",
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/nvidia-caps-imex-channels/channel2",
        "/dev/nvidia-caps-imex-channels/channel10",
        "/dev/nvidia-fs2",
        "/dev/nvidia-fs10",
    ]
    assert device.nodes_of(NodeRole.CAPABILITY) == ()
    assert device.nodes[0].major == 195


def test_control_nodes_that_do_not_exist_are_left_out() -> None:
    facts = NodeFacts(nvml=nvml(gpu(0)), sysfs=sysfs(1, device_files=files("/dev/nvidia0", "/dev/nvidiactl")))
    control = devices(facts)["gpu-0000-1b-00-0"].nodes_of(NodeRole.CONTROL)
    assert [each.path for each in control] == ["/dev/nvidiactl"]


def test_gpu_without_a_minor_number_has_no_device_node() -> None:
    assert devices(node(gpu(0, minor=None)))["gpu-0000-1b-00-0"].nodes_of(NodeRole.DEVICE) == ()


def test_connectors_of_a_graphics_card_are_no_device_nodes() -> None:
    facts = node(gpu(0), pci=(function(0, drm=("card0", "card0-DP-1")),))
    assert [each.path for each in devices(facts)["gpu-0000-1b-00-0"].nodes_of(NodeRole.RENDER)] == ["/dev/dri/card0"]


def test_mig_device_has_parent_profile_nodes_and_capacity() -> None:
    device = devices(node(a100(0, mig(0, 4))))["mig-0000-1b-00-0-4-1"]
    assert (device.kind, device.parent, device.index, device.numa_node) == (
        DeviceKind.MIG,
        "gpu-0000-1b-00-0",
        "0:0",
        0,
    )
    assert {each.name: each.value for each in device.capacity} == {
        "memory": 4864 << 20,
        "multiprocessors": 14,
        "copyEngines": 1,
        "decoders": 0,
        "encoders": 0,
        "jpegEngines": 0,
        "ofaEngines": 0,
    }
    found = {each.name: each.value for each in device.attributes}
    assert found["type"] == "mig"
    assert found["parentUUID"] == uuid(0)
    assert found["profile"] == "1g.5gb"
    assert found["productName"] == "NVIDIA A100-SXM4-40GB"
    assert (found["gpuInstanceID"], found["computeInstanceID"], found["placementStart"]) == (7, 0, 4)
    own = device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY, NodeRole.RENDER)
    assert [(each.path, each.present) for each in own] == [
        ("/dev/nvidia0", True),
        ("/dev/nvidia-caps/nvidia-cap66", False),
        ("/dev/nvidia-caps/nvidia-cap67", False),
    ]
    assert device.nodes_of(NodeRole.CONTROL) != ()


def test_a_capability_without_a_file_has_the_numbers_that_the_driver_tells() -> None:
    facts = NodeFacts(nvml=nvml(a100(0, mig(0, 4))), sysfs=sysfs(1, "/dev/nvidia-caps/nvidia-cap1"))
    device = devices(facts)["mig-0000-1b-00-0-4-1"]
    own = device.nodes_of(NodeRole.CAPABILITY)
    assert [(each.major, each.minor, each.present, each.by_numbers) for each in own] == [
        (195, 66, False, True),
        (195, 67, False, True),
    ]


def test_only_graphics_instances_get_graphics_nodes() -> None:
    instance = mig(0, 0, name="NVIDIA RTX PRO 6000 Blackwell MIG 1g.24gb+gfx")
    device = devices(node(a100(0, instance)))["mig-0000-1b-00-0-0-1"]
    assert [each.path for each in device.nodes_of(NodeRole.RENDER)] == ["/dev/dri/card0", "/dev/dri/renderD128"]


def test_parts_of_a_gpu_instance_are_told_apart() -> None:
    parts = [
        mig(
            index,
            0,
            4,
            name="NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb",
            gpu_instance=2,
            compute_instance=index,
            gpu_slices=3,
            compute_slices=1,
        )
        for index in range(3)
    ]
    assert [name for name in devices(node(a100(0, *parts))) if name.startswith("mig")] == [
        "mig-0000-1b-00-0-0-4-c0",
        "mig-0000-1b-00-0-0-4-c1",
        "mig-0000-1b-00-0-0-4-c2",
    ]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"placement_start": None}, "mig-0000-1b-00-0-gi7"),
        ({"placement_start": None, "compute_slices": 1, "gpu_slices": 3}, "mig-0000-1b-00-0-gi7-c0"),
        ({"placement_start": None, "gpu_instance": None}, "mig-0000-1b-00-0-i0"),
        (
            {"gpu_slices": None, "name": "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "placement_size": 4},
            "mig-0000-1b-00-0-0-4-c0",
        ),
    ],
)
def test_mig_device_has_a_name_whatever_could_be_read(changes: dict[str, object], name: str) -> None:
    assert name in devices(node(a100(0, mig(0, 0, 1, **changes))))


def test_names_stay_unique_when_facts_repeat_a_placement() -> None:
    found = devices(node(a100(0, mig(0, 0), mig(1, 0))))
    assert sorted(found) == ["gpu-0000-1b-00-0", "mig-0000-1b-00-0-0-1", "mig-0000-1b-00-0-0-1-n2"]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        ("NVIDIA A100-SXM4-40GB MIG 2c.3g.20gb", "2c.3g.20gb"),
        ("NVIDIA B200 MIG 1g.23gb-me", "1g.23gb-me"),
    ],
)
def test_profile_is_in_the_name(name: str, profile: str) -> None:
    assert mig_profile(mig(0, 0, name=name), 40 * GIB) == profile


@pytest.mark.parametrize(
    ("compute", "slices", "mebibytes", "gpu_memory", "profile"),
    [
        (1, 1, 4864, 40 * GIB, "1g.5gb"),
        (2, 2, 9856, 40 * GIB, "2g.10gb"),
        (3, 3, 19968, 40 * GIB, "3g.20gb"),
        (1, 3, 19968, 40 * GIB, "1c.3g.20gb"),
        (7, 7, 40192, 40 * GIB, "7g.40gb"),
        (1, 1, 9856, 85520809984, "1g.10gb"),
        (1, 1, 5952, 24 * GIB, "1g.6gb"),
    ],
)
def test_profile_is_computed_as_nvidia_does_when_the_name_has_none(
    compute: int, slices: int, mebibytes: int, gpu_memory: int, profile: str
) -> None:
    instance = mig(0, 0, name=None, compute_slices=compute, gpu_slices=slices, memory_mib=mebibytes)
    assert mig_profile(instance, gpu_memory) == profile


def test_profile_is_unknown_without_memory() -> None:
    assert mig_profile(mig(0, 0, name=None), None) is None
    assert mig_profile(mig(0, 0, name=None, memory_mib=None), 40 * GIB) is None


def test_host_has_cdi_names_and_driver_files() -> None:
    facts = NodeFacts(
        cdi=CdiFacts(devices=("nvidia.com/gpu=0",)),
        driver_files=DriverFiles("550.107.02", libraries=("/usr/lib64/libcuda.so.550.107.02",)),
    )
    host = host_of(facts)
    assert host.cdi_devices == {"nvidia.com/gpu=0"}
    assert host.driver_files is not None
    assert host.driver_files.libraries == ("/usr/lib64/libcuda.so.550.107.02",)
    assert host_of(NodeFacts()) == Host()


def status(facts: NodeFacts) -> tuple[SourceState, str]:
    (found,) = [each for each in statuses_of(facts) if each.name == "nvml"]
    return found.state, found.detail


def test_absent_driver_is_waited_for() -> None:
    absent = NvmlFacts(status="LIBRARY_NOT_FOUND")
    text = "waiting for driver: the driver's library libnvidia-ml.so.1 was not found (LIBRARY_NOT_FOUND)"
    assert status(NodeFacts(nvml=absent)) == (SourceState.WAITING, text)
    assert status(NodeFacts(nvml=absent, sysfs=sysfs(0))) == (
        SourceState.WAITING,
        f"{text}; no NVIDIA GPU on the PCI bus",
    )


def test_unloaded_driver_is_waited_for_with_what_is_on_the_bus() -> None:
    bus = sysfs(0, pci=(function(0, driver=None), function(1, driver="vfio-pci")))
    state, text = status(NodeFacts(nvml=NvmlFacts(status="DRIVER_NOT_LOADED"), sysfs=bus))
    assert state is SourceState.WAITING
    assert text == (
        "waiting for driver: the kernel module nvidia is not loaded (DRIVER_NOT_LOADED); "
        "2 NVIDIA GPUs on the PCI bus (kernel driver: none, vfio-pci)"
    )


def test_mismatch_of_versions_is_a_failure() -> None:
    state, text = status(NodeFacts(nvml=NvmlFacts(status="LIB_RM_VERSION_MISMATCH", detail="library 550, module 535")))
    assert state is SourceState.FAILED
    assert text == (
        "the driver's library and its kernel module differ in version, as during an upgrade; "
        "reload the module or reboot the node (LIB_RM_VERSION_MISMATCH): library 550, module 535"
    )


def test_unknown_status_is_a_failure_with_its_name() -> None:
    assert status(NodeFacts(nvml=NvmlFacts(status="UNKNOWN"))) == (
        SourceState.FAILED,
        "the driver does not answer (UNKNOWN)",
    )


def test_statuses_name_every_section_and_no_other() -> None:
    facts = NodeFacts(nvml=nvml(), sysfs=sysfs(0, errors=("/sys/bus/pci: denied", "b")), cdi=CdiFacts())
    assert [(each.name, each.state.value, each.detail) for each in statuses_of(facts)] == [
        ("cdi", "ok", ""),
        ("nvml", "ok", ""),
        ("sysfs", "failed", "/sys/bus/pci: denied (and 1 more)"),
    ]
    assert statuses_of(NodeFacts()) == ()
