"""Reasons why a device is shown unhealthy because a container that got it would not start: CDI names, IMEX channels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.eligibility import offer
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, Host, NodeRole, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import DeviceIds, Door, Rule
from tests.making.devices import gpu, lacking, mig, without

FILES = DriverFiles("570.172.08", libraries=("/usr/lib64/libcuda.so.570.172.08",))
CRI = EditOptions(strategies=(ListStrategy.CDI_CRI,))
ANNOTATIONS = EditOptions(strategies=(ListStrategy.ENVVAR, ListStrategy.CDI_ANNOTATIONS))
DELEGATE = replace(CRI, cdi_mode=CdiMode.DELEGATE)
GENERATE = "run 'nvidia-ctk cdi generate"


def reason(
    device: Device,
    edits: EditOptions,
    *known: str,
    ids: DeviceIds = DeviceIds.VENDOR,
    files: DriverFiles | None = FILES,
) -> str:
    one = Snapshot(1, (device,), host=Host(cdi_devices=frozenset(known), driver_files=files))
    (shown,) = (
        offer(one, (Rule("nvidia.com/gpu", ids=ids, edits=edits),), NOTHING_HELD, Door.PLUGIN).resources[0].devices
    )
    assert shown.healthy is not bool(shown.reason)
    return shown.reason


@pytest.mark.parametrize("edits", [CRI, ANNOTATIONS, replace(CRI, cdi_mode=CdiMode.FULL)])
def test_device_with_all_its_nodes_is_healthy(edits: EditOptions) -> None:
    assert reason(gpu(0), edits) == ""
    assert reason(mig(0), edits) == ""


@pytest.mark.parametrize("edits", [CRI, ANNOTATIONS, replace(CRI, cdi_mode=CdiMode.FULL)])
@pytest.mark.parametrize(
    ("device", "text"),
    [
        (lacking(gpu(0), "/dev/nvidia1"), "its device nodes are missing: /dev/nvidia1"),
        (
            lacking(mig(0), "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"),
            "its device nodes are missing: /dev/nvidia-caps/nvidia-cap21, /dev/nvidia-caps/nvidia-cap22",
        ),
        (without(mig(0), NodeRole.CAPABILITY), "the capabilities of its MIG instance are not known"),
        (without(gpu(0), NodeRole.DEVICE), "it has no device node"),
    ],
)
def test_device_that_our_spec_cannot_describe_says_what_is_missing(
    edits: EditOptions, device: Device, text: str
) -> None:
    assert reason(device, edits) == f"no CDI spec can describe it, {text}"
    assert reason(device, EditOptions()) == ""


@pytest.mark.parametrize("files", [None, DriverFiles("570.172.08", binaries=("/usr/bin/nvidia-smi",))])
@pytest.mark.parametrize("device", [gpu(0), mig(0)], ids=["GPU", "MIG"])
def test_mode_full_without_libraries_of_the_driver_is_unhealthy_and_names_the_root(
    device: Device, files: DriverFiles | None
) -> None:
    full = replace(CRI, cdi_mode=CdiMode.FULL, driver_root="/run/nvidia/driver")
    assert reason(device, full, files=files) == (
        "no CDI spec can describe it, no libraries of the driver were found below /run/nvidia/driver"
    )


@pytest.mark.parametrize("edits", [EditOptions(cdi_mode=CdiMode.FULL), CRI, ANNOTATIONS])
def test_only_mode_full_of_cdi_needs_libraries_of_the_driver(edits: EditOptions) -> None:
    assert reason(gpu(0), edits, files=None) == ""


def test_delegated_device_needs_no_libraries_that_we_see() -> None:
    assert reason(gpu(0), DELEGATE, "nvidia.com/gpu=GPU-0", files=None) == ""


def test_control_and_graphics_nodes_may_be_missing() -> None:
    assert reason(lacking(gpu(0), "/dev/nvidiactl", "/dev/dri/card2"), CRI) == ""


@pytest.mark.parametrize(
    ("ids", "named", "device", "name"),
    [
        (IdStrategy.UUID, DeviceIds.VENDOR, gpu(0), "nvidia.com/gpu=GPU-0"),
        (IdStrategy.INDEX, DeviceIds.VENDOR, gpu(0), "nvidia.com/gpu=0"),
        (IdStrategy.INDEX, DeviceIds.NAME, gpu(0), "nvidia.com/gpu=0"),
        (IdStrategy.UUID, DeviceIds.NAME, gpu(0), "nvidia.com/gpu=GPU-0"),
        (IdStrategy.UUID, DeviceIds.VENDOR, mig(1), "nvidia.com/gpu=MIG-1"),
        (IdStrategy.INDEX, DeviceIds.VENDOR, mig(1), "nvidia.com/gpu=0:1"),
    ],
)
def test_delegated_name_must_be_defined_on_the_node(
    ids: IdStrategy, named: DeviceIds, device: Device, name: str
) -> None:
    edits = replace(DELEGATE, ids=ids)
    assert reason(device, edits, name, ids=named) == ""
    assert reason(device, edits, ids=named) == f"no CDI spec on this node defines {name}; {GENERATE}'"
    # A spec by UUID is of no use where names are indices, and the other way round.
    others = {"nvidia.com/gpu=GPU-0", "nvidia.com/gpu=0", "nvidia.com/gpu=0:1", "nvidia.com/gpu=MIG-1"} - {name}
    assert reason(device, edits, *others, ids=named) == f"no CDI spec on this node defines {name}; {GENERATE}'"


def test_delegated_device_needs_no_nodes_that_we_see() -> None:
    assert reason(without(gpu(0), NodeRole.DEVICE), DELEGATE, "nvidia.com/gpu=GPU-0") == ""


@pytest.mark.parametrize("feature", ["gdrcopy", "gds", "mofed"])
def test_delegated_feature_must_be_defined_too(feature: str) -> None:
    edits = replace(DELEGATE, features=(feature,))
    name = f"nvidia.com/{feature}=all"
    assert reason(gpu(0), edits, "nvidia.com/gpu=GPU-0", name) == ""
    assert reason(gpu(0), edits, "nvidia.com/gpu=GPU-0") == (
        f"no CDI spec on this node defines {name}; {GENERATE} --mode={feature} --class={feature}'"
    )


def test_delegated_channel_must_be_defined_where_the_host_has_it() -> None:
    edits = replace(DELEGATE, imex_channels=(0, 1))
    assert reason(gpu(0), edits, "nvidia.com/gpu=GPU-0", "nvidia.com/imex-channel=0") == ""
    assert reason(gpu(0), edits, "nvidia.com/gpu=GPU-0") == (
        f"no CDI spec on this node defines nvidia.com/imex-channel=0; {GENERATE} --mode=imex --class=imex-channel'"
    )


@pytest.mark.parametrize("edits", [EditOptions(), CRI])
def test_required_channels_must_be_there(edits: EditOptions) -> None:
    wanted = replace(edits, imex_channels=(0, 1, 2, 3), imex_required=True)
    assert reason(gpu(0), wanted) == (
        "required IMEX channels are missing: "
        "/dev/nvidia-caps-imex-channels/channel1, /dev/nvidia-caps-imex-channels/channel3"
    )
    assert reason(gpu(0), replace(wanted, imex_channels=(0, 2))) == ""


@pytest.mark.parametrize("edits", [EditOptions(), CRI])
def test_channels_that_are_not_required_may_be_missing(edits: EditOptions) -> None:
    assert reason(gpu(0), replace(edits, imex_channels=(1, 3))) == ""
