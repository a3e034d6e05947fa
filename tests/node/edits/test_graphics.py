"""What containers get with AMD's and Intel's GPUs, and with several families at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.edits.allocation import container_edits, lacking
from node.edits.model import ContainerEdits, NodeEdit
from node.edits.nvidia import allocate_edits
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.model import Device, NodeRole
from node.inventory.vendors import vendor_id
from tests.making.devices import FEATURES, amd, gaudi, gpu, intel, mig, node, partition, rdma, vfio, without
from tests.making.devices import lacking as without_files

CRI = EditOptions(strategies=(ListStrategy.CDI_CRI,))


def edits(options: EditOptions, *devices: Device) -> ContainerEdits:
    return container_edits("amd.com/gpu", [(vendor_id(device), device) for device in devices], options, "1-2-3")


def same(*paths: str) -> tuple[NodeEdit, ...]:
    return tuple(NodeEdit(path, path, "rw") for path in paths)


TABLE = {
    "AMD: kfd once and first": (
        (amd(2), amd(1)),
        ("/dev/kfd", "/dev/dri/card2", "/dev/dri/renderD130", "/dev/dri/card1", "/dev/dri/renderD129"),
    ),
    "AMD: partitions": (
        (amd(1), partition(3)),
        ("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD129", "/dev/dri/renderD131"),
    ),
    "Intel: no control nodes": ((intel(0),), ("/dev/dri/card0", "/dev/dri/renderD128")),
}


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("dev_root", ["/", "/run/nvidia/driver"])
def test_gpus_are_their_device_nodes_and_nothing_else(row: str, dev_root: str) -> None:
    devices, paths = TABLE[row]
    assert edits(EditOptions(dev_root=dev_root), *devices) == ContainerEdits(nodes=same(*paths))
    assert [lacking(device, EditOptions()) for device in devices] == [""] * len(devices)


@pytest.mark.parametrize("mode", CdiMode)
def test_cdi_names_have_ostlers_vendor_in_every_mode(mode: CdiMode) -> None:
    other = replace(intel(4), vendor="1234")
    found = edits(replace(CRI, cdi_mode=mode), amd(2), partition(3), intel(0), other)
    assert found == ContainerEdits(
        cdi_devices=(
            "ostler.dev/amd-gpu=gpu-0000-02-00-0",
            "ostler.dev/amd-gpu=partition-0000-01-00-0-3",
            "ostler.dev/intel-gpu=gpu-0000-00-00-0",
            "ostler.dev/gpu=gpu-0000-04-00-0",
        )
    )


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (without(amd(1), NodeRole.DEVICE), "it has no device node"),
        (replace(intel(0), nodes=(node("/dev/dri/controlD64"),)), "it has no device node"),
        (without_files(amd(1), "/dev/kfd"), "its device nodes are missing: /dev/kfd"),
        (
            without_files(amd(1), "/dev/dri/card1", "/dev/dri/renderD129"),
            "its device nodes are missing: /dev/dri/card1, /dev/dri/renderD129",
        ),
    ],
)
def test_what_a_container_would_miss_is_said_by_path(device: Device, text: str) -> None:
    assert lacking(device, EditOptions()) == text


@pytest.mark.parametrize(
    ("device", "id_"),
    [
        (gpu(0), "GPU-0"),
        (mig(1), "MIG-1"),
        (amd(1), "0000:01:00.0"),
        (partition(3), "amdgpu_xcp_3"),
        (intel(2), "card2-0"),
        (gaudi(3), "0000:03:00.0"),
        (without(intel(2), NodeRole.DEVICE), "gpu-0000-02-00-0"),
    ],
)
def test_ids_are_those_of_the_plugins_that_ostler_replaces(device: Device, id_: str) -> None:
    assert vendor_id(device) == id_


@pytest.mark.parametrize("options", [EditOptions(), CRI])
def test_gaudi_cards_are_named_by_number_node_and_module_in_the_order_of_the_request(options: EditOptions) -> None:
    found = edits(options, gaudi(5, 7), gaudi(4, 6))
    assert found.env == (
        ("HABANA_VISIBLE_DEVICES", "5,4"),
        ("HL_VISIBLE_DEVICES", "/dev/accel/accel5,/dev/accel/accel4"),
        ("HABANA_VISIBLE_MODULES", "7,6"),
    )
    nodes = ("/dev/accel/accel5", "/dev/accel/accel_controlD5", "/dev/accel/accel4", "/dev/accel/accel_controlD4")
    assert found.nodes == (() if options is CRI else same(*nodes))
    names = ("ostler.dev/gaudi=gpu-0000-05-00-0", "ostler.dev/gaudi=gpu-0000-04-00-0")
    assert found.cdi_devices == (names if options is CRI else ())


def test_gaudi_modules_are_not_listed_where_one_is_unknown() -> None:
    assert "HABANA_VISIBLE_MODULES" not in dict(edits(EditOptions(), gaudi(5, 7), gaudi(4)).env)


def test_variables_of_a_vendor_name_its_own_devices_alone() -> None:
    assert dict(edits(EditOptions(), amd(1), gaudi(5, 7), intel(0)).env)["HABANA_VISIBLE_DEVICES"] == "5"


def test_container_with_several_families_gets_all_of_each() -> None:
    options = EditOptions(strategies=tuple(ListStrategy), rdma=True, features=("mofed",))
    given = [("0000:05:00.0", rdma(5, "uverbs")), ("GPU-0", gpu(0)), ("0000:01:00.0", amd(1))]
    found = container_edits("a.com/all", given, options, "1")
    nvidia = allocate_edits(given[1:2], options, "1")
    others = container_edits("a.com/all", [given[0], given[2]], options, "1")
    assert found.env == (*nvidia.env, *others.env)
    assert found.nodes == (*nvidia.nodes, *others.nodes)
    assert found.mounts == nvidia.mounts
    assert [key for key, _ in found.annotations] == ["cdi.k8s.io/nvidia-device-plugin_1", "cdi.k8s.io/ostler_1"]
    assert found.cdi_devices == (
        "k8s.device-plugin.nvidia.com/gpu=GPU-0",
        "k8s.device-plugin.nvidia.com/mofed=all",
        "ostler.dev/nic=nic-0000-05-00-0",
        "ostler.dev/amd-gpu=gpu-0000-01-00-0",
    )


def test_nvidias_features_are_looked_for_on_nvidias_devices_alone() -> None:
    options = replace(CRI, features=("mofed",), rdma=True)
    bare = replace(gpu(0), nodes=tuple(each for each in gpu(0).nodes if each not in FEATURES))
    found = container_edits("a.com/all", [("0000:05:00.0", rdma(5)), ("GPU-0", bare)], options, "1")
    assert found.cdi_devices == ("k8s.device-plugin.nvidia.com/gpu=GPU-0", "ostler.dev/nic=nic-0000-05-00-0")


def test_node_of_two_families_is_given_once() -> None:
    shared = replace(gpu(0), nodes=(node("/dev/nvidia1"), node("/dev/infiniband/uverbs5")))
    given = [("GPU-0", shared), ("0000:05:00.0", rdma(5, "uverbs"))]
    found = container_edits("a.com/all", given, EditOptions(rdma=True), "1")
    paths = [each.path for each in found.nodes]
    assert sorted(paths) == sorted(set(paths))


def test_vfio_and_amd_gpus_share_no_node() -> None:
    found = edits(EditOptions(), vfio(7), amd(1))
    assert [each.path for each in found.nodes[:2]] == ["/dev/vfio/vfio", "/dev/kfd"]
