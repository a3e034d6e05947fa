"""What our own CDI specs say of a device and of all devices together, and which devices they cannot describe."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from node.cdi.spec import CdiDevice, Spec, encode
from node.edits.model import ContainerEdits, HookEdit, NodeEdit
from node.edits.nvidia import device_edits, node_edits, shared_edits, undescribed
from node.edits.nvidia_driver import driver_edits
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, DeviceNode, Host, NodeRole
from tests.making.devices import CHANNELS, gpu, lacking, mig, without

ENVVAR, MOUNTS, ANNOTATIONS, CRI = ListStrategy
NODES = EditOptions()
FULL = EditOptions(cdi_mode=CdiMode.FULL, hook="/usr/bin/nvidia-cdi-hook")
VOID = (("NVIDIA_VISIBLE_DEVICES", "void"),)
FILES = DriverFiles(
    "570.172.08", libraries=("/usr/lib64/libcuda.so.570.172.08",), configuration=("/etc/OpenCL/vendors/nvidia.icd",)
)


def nodes(*paths: str) -> tuple[NodeEdit, ...]:
    return tuple(NodeEdit(path, path) for path in paths)


def test_mode_nodes_gives_a_gpu_its_node_and_nothing_else() -> None:
    assert device_edits(gpu(0), NODES) == ContainerEdits(nodes=nodes("/dev/nvidia1"))


def by_path(*links: str) -> HookEdit:
    arguments = [word for link in links for word in ("--link", link)]
    return HookEdit("createContainer", "/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "create-symlinks", *arguments))


def test_mode_full_adds_the_graphics_nodes_with_their_links_by_pci_address() -> None:
    assert device_edits(gpu(0), FULL) == ContainerEdits(
        nodes=nodes("/dev/nvidia1", "/dev/dri/card2", "/dev/dri/renderD128"),
        hooks=(
            by_path(
                "../card2::/dev/dri/by-path/pci-0000:0b:00.0-card",
                "../renderD128::/dev/dri/by-path/pci-0000:0b:00.0-render",
            ),
        ),
    )


def test_graphics_nodes_that_are_missing_are_neither_given_nor_linked() -> None:
    one = lacking(gpu(0), "/dev/dri/card2")
    assert device_edits(one, FULL) == ContainerEdits(
        nodes=nodes("/dev/nvidia1", "/dev/dri/renderD128"),
        hooks=(by_path("../renderD128::/dev/dri/by-path/pci-0000:0b:00.0-render"),),
    )


@pytest.mark.parametrize(
    ("device", "options"),
    [
        (without(gpu(0), NodeRole.RENDER), FULL),
        (gpu(0, pci_address=None), FULL),
        (gpu(0), replace(FULL, hook=None)),
        (gpu(0), replace(FULL, cdi_mode=CdiMode.NODES)),
        (mig(0), FULL),
    ],
    ids=["no graphics nodes", "no PCI address", "no hook program", "mode nodes", "MIG"],
)
def test_without_graphics_nodes_address_or_hook_program_there_are_no_links(
    device: Device, options: EditOptions
) -> None:
    assert device_edits(device, options).hooks == ()


@pytest.mark.parametrize("mode", [CdiMode.NODES, CdiMode.FULL])
@pytest.mark.parametrize(
    ("strategies", "env"),
    [
        ((CRI,), VOID),
        ((ANNOTATIONS,), VOID),
        ((ANNOTATIONS, CRI), VOID),
        ((ENVVAR, CRI), ()),
        ((MOUNTS, ANNOTATIONS), ()),
        ((ENVVAR, MOUNTS, ANNOTATIONS, CRI), ()),
    ],
)
def test_device_is_void_for_nvidias_runtime_only_where_every_strategy_is_cdi(
    strategies: tuple[ListStrategy, ...], env: tuple[tuple[str, str], ...], mode: CdiMode
) -> None:
    options = replace(FULL, strategies=strategies, cdi_mode=mode)
    assert device_edits(gpu(0), options).env == env
    assert device_edits(mig(0), options).env == env
    assert "NVIDIA_VISIBLE_DEVICES" not in dict(shared_edits([gpu(0)], options, FILES).env)


def test_mig_device_gets_the_node_of_its_gpu_and_both_capabilities() -> None:
    caps = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert device_edits(mig(0), NODES) == ContainerEdits(nodes=nodes("/dev/nvidia1", *caps))


def test_a_capability_that_the_host_has_no_file_of_is_given_by_its_numbers() -> None:
    cap = DeviceNode("/dev/nvidia-caps/nvidia-cap21", NodeRole.CAPABILITY, "c", 506, 21, by_numbers=True)
    made = mig(0)
    made = replace(made, nodes=tuple(cap if each.path == cap.path else each for each in made.nodes))
    assert undescribed(made, NODES, HOST) == ""
    edits = device_edits(made, NODES)
    assert NodeEdit(cap.path, cap.path, numbers=(506, 21)) in edits.nodes
    written = json.loads(encode(Spec("k8s.device-plugin.nvidia.com/gpu", (CdiDevice("one", edits),))))
    found = written["devices"][0]["containerEdits"]["deviceNodes"]
    assert {"path": cap.path, "type": "c", "major": 506, "minor": 21, "permissions": "rw"} in found
    assert {"path": "/dev/nvidia1", "permissions": "rw"} in found


def test_all_devices_share_the_control_nodes_that_are_there() -> None:
    assert shared_edits([gpu(0), gpu(1)], NODES, FILES) == ContainerEdits(
        nodes=nodes("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    )


def test_mode_full_without_driver_files_is_mode_nodes() -> None:
    assert shared_edits([gpu(0)], FULL, None) == shared_edits([gpu(0)], NODES, None)


def test_mode_full_adds_the_driver_to_the_control_nodes() -> None:
    driver = driver_edits(FILES, "/", FULL.hook)
    control = shared_edits([gpu(0)], NODES, None).nodes
    assert shared_edits([gpu(0)], FULL, FILES) == replace(driver, nodes=control)
    assert shared_edits([gpu(0)], replace(FULL, driver_root="/run/nvidia/driver"), FILES).mounts == (
        driver_edits(FILES, "/run/nvidia/driver", None).mounts
    )


def test_node_on_another_dev_root_has_a_host_path_of_its_own() -> None:
    path = "/dev/nvidia-caps-imex-channels/channel0"
    assert node_edits(CHANNELS[:1], EditOptions(dev_root="/host")).nodes == (NodeEdit(path, f"/host{path}"),)


HOST = Host(driver_files=FILES)


@pytest.mark.parametrize("options", [NODES, FULL])
def test_device_with_all_its_nodes_can_be_described(options: EditOptions) -> None:
    assert undescribed(gpu(0), options, HOST) == ""
    assert undescribed(mig(0), options, HOST) == ""


@pytest.mark.parametrize("options", [NODES, FULL])
def test_device_that_cannot_be_described_says_why(options: EditOptions) -> None:
    def why(device: Device) -> str:
        return undescribed(device, options, HOST)

    caps = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert why(without(gpu(0), NodeRole.DEVICE)) == "it has no device node"
    assert why(without(mig(0), NodeRole.CAPABILITY)) == "the capabilities of its MIG instance are not known"
    assert why(lacking(mig(0), *caps)) == f"its device nodes are missing: {', '.join(caps)}"
    assert why(lacking(gpu(0), "/dev/nvidia1")) == "its device nodes are missing: /dev/nvidia1"


def test_one_capability_of_two_is_not_enough() -> None:
    half = mig(0)
    half = mig(0, nodes=tuple(node for node in half.nodes if not node.path.endswith("cap22")))
    assert undescribed(half, NODES, HOST) == "the capabilities of its MIG instance are not known"


@pytest.mark.parametrize("files", [None, DriverFiles("570.172.08", binaries=("/usr/bin/nvidia-smi",))])
@pytest.mark.parametrize("device", [gpu(0), mig(0)], ids=["GPU", "MIG"])
def test_mode_full_needs_libraries_of_the_driver_and_mode_nodes_does_not(
    device: Device, files: DriverFiles | None
) -> None:
    host = Host(driver_files=files)
    assert undescribed(device, FULL, host) == "no libraries of the driver were found below /"
    assert undescribed(device, replace(FULL, driver_root="/run/nvidia/driver"), host) == (
        "no libraries of the driver were found below /run/nvidia/driver"
    )
    assert undescribed(device, NODES, host) == ""


def test_what_the_device_lacks_is_said_before_what_the_host_lacks() -> None:
    assert undescribed(lacking(gpu(0), "/dev/nvidia1"), FULL, Host()) == "its device nodes are missing: /dev/nvidia1"
