"""What containers get with the devices of a claim: three modes, several requests and claims, variables of NICs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from driver.claims.edits import ClaimEdits, GivenDevice, claim_edits, unfit_for_claim
from driver.claims.model import AllocatedDevice, Allocation, ClaimError, ClaimReference
from driver.claims.plan import planned
from driver.devices.view import DoorView, DraDevice
from node.cdi.spec import CdiDevice, Spec, validate
from node.edits.model import ContainerEdits
from node.edits.options import CdiMode, EditOptions, ListStrategy, by_cdi
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, Host
from node.rules import Rule
from tests.making.devices import amd, gaudi, gpu, intel, lacking, mig, nic, partition, rdma, vfio

PLAIN = EditOptions()
FULL = EditOptions(cdi_mode=CdiMode.FULL, hook="/usr/bin/nvidia-cdi-hook")
DELEGATE = EditOptions(cdi_mode=CdiMode.DELEGATE)
FILES = DriverFiles("570.172.08", libraries=("/usr/lib64/libcuda.so.570.172.08",))
HOST = Host(driver_files=FILES, cdi_devices=frozenset(f"nvidia.com/gpu={uuid}" for uuid in ("GPU-0", "GPU-1", "MIG-1")))
CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def device_edits(device: Device, options: EditOptions, host: Host) -> ClaimEdits:
    """The edits of a device that is all of a claim."""
    return claim_edits([GivenDevice("", device, options)], host, "")[0]


def paths(edits: ClaimEdits) -> list[str]:
    return [node.path for node in edits.edits.nodes]


def given(*devices: Device, request: str = "gpus", options: EditOptions = PLAIN) -> list[GivenDevice]:
    return [GivenDevice(request, device, options) for device in devices]


def variables(*edits: ClaimEdits) -> dict[str, str]:
    """What a container sees that gets all of them: of two variables with one name, the last one."""
    return {name: text for each in edits for name, text in each.edits.env}


def spec_of(claim: list[GivenDevice], edits: tuple[ClaimEdits, ...]) -> Spec:
    named = zip(claim, edits, strict=True)
    return Spec(
        "ostler.dev/claim",
        tuple(CdiDevice(f"uid-{item.device.name}", each.edits) for item, each in named if not each.edits.empty),
    )


@pytest.mark.parametrize(
    ("device", "options", "nodes"),
    [
        (gpu(0), PLAIN, [*CONTROL, "/dev/nvidia1"]),
        (gpu(0), FULL, [*CONTROL, "/dev/nvidia1", "/dev/dri/card2", "/dev/dri/renderD128"]),
        (
            mig(0),
            PLAIN,
            [*CONTROL, "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"],
        ),
        (gpu(0), DELEGATE, []),
        (amd(2), PLAIN, ["/dev/kfd", "/dev/dri/card2", "/dev/dri/renderD130"]),
        (partition(3), PLAIN, ["/dev/kfd", "/dev/dri/renderD131"]),
        (intel(1), PLAIN, ["/dev/dri/card1", "/dev/dri/renderD129"]),
        (gaudi(1), PLAIN, ["/dev/accel/accel1", "/dev/accel/accel_controlD1"]),
        (vfio(7), PLAIN, ["/dev/vfio/vfio", "/dev/vfio/7"]),
        (nic(3), PLAIN, []),
        (rdma(3), PLAIN, []),
        (
            rdma(3),
            EditOptions(rdma=True),
            ["/dev/infiniband/uverbs3", "/dev/infiniband/umad3", "/dev/infiniband/issm3", "/dev/infiniband/rdma_cm"],
        ),
    ],
)
def test_a_device_alone_comes_with_these_device_nodes(device: Device, options: EditOptions, nodes: list[str]) -> None:
    assert paths(device_edits(device, options, HOST)) == nodes


@pytest.mark.parametrize("options", [PLAIN, FULL])
def test_a_gpu_in_a_spec_of_ours_is_void_to_the_runtime_of_nvidia_and_named_by_no_other_spec(
    options: EditOptions,
) -> None:
    edits = device_edits(gpu(0), options, HOST)
    assert edits.cdi_devices == ()
    assert variables(edits)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_delegated_devices_are_names_of_the_spec_of_nvidias_tool_and_no_edits_of_ours() -> None:
    assert device_edits(gpu(0), DELEGATE, HOST) == ClaimEdits(("nvidia.com/gpu=GPU-0",))
    assert device_edits(mig(1), DELEGATE, HOST) == ClaimEdits(("nvidia.com/gpu=MIG-1",))


def test_features_and_channels_are_names_too_where_devices_are_delegated() -> None:
    names = ("nvidia.com/gpu=GPU-0", "nvidia.com/imex-channel=2", "nvidia.com/gdrcopy=all")
    options = replace(DELEGATE, imex_channels=(2, 7), features=("gdrcopy",))
    host = replace(HOST, cdi_devices=HOST.cdi_devices | set(names))
    assert device_edits(gpu(0), options, host).cdi_devices == names


def test_mode_full_brings_the_driver_and_its_hooks() -> None:
    edits = device_edits(gpu(0), FULL, HOST).edits
    assert [mount.container_path for mount in edits.mounts] == ["/usr/lib64/libcuda.so.570.172.08"]
    assert [hook.arguments[1] for hook in edits.hooks] == [
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "create-symlinks",
    ]


def test_features_and_channels_come_as_device_nodes_where_the_spec_is_ours() -> None:
    options = EditOptions(features=("gdrcopy",), imex_channels=(2, 7))
    edits = device_edits(gpu(0), options, HOST)
    assert paths(edits) == [*CONTROL, "/dev/nvidia1", "/dev/gdrdrv", "/dev/nvidia-caps-imex-channels/channel2"]
    assert variables(edits)["NVIDIA_GDRCOPY"] == "enabled"


def test_a_channel_whose_node_is_gone_is_left_out_where_it_is_not_required() -> None:
    device = gpu(0)
    nodes = tuple(replace(node, major=None) if "channel2" in node.path else node for node in device.nodes)
    edits = device_edits(replace(device, nodes=nodes), EditOptions(imex_channels=(2,)), HOST)
    assert not any("channel" in path for path in paths(edits))


def test_device_nodes_are_found_below_the_folder_that_has_the_hosts_dev() -> None:
    edits = device_edits(gpu(0), EditOptions(dev_root="/run/nvidia/driver"), HOST).edits
    assert {node.host_path for node in edits.nodes} == {f"/run/nvidia/driver{node.path}" for node in edits.nodes}


def test_what_gpus_share_stands_with_the_first_of_each_request() -> None:
    claim = [*given(gpu(0), gpu(1), request="train", options=FULL), *given(gpu(2), request="serve", options=FULL)]
    first, second, other = claim_edits(claim, HOST, "gpus")
    assert [bool(each.edits.mounts) for each in (first, second, other)] == [True, False, True]
    assert paths(first)[:3] == paths(other)[:3] == CONTROL
    assert paths(second) == ["/dev/nvidia2", "/dev/dri/card3", "/dev/dri/renderD129"]


def test_a_container_of_nics_gets_nothing_of_the_gpus_in_its_claim() -> None:
    claim = [*given(gpu(0)), *given(rdma(3), request="nics", options=EditOptions(rdma=True))]
    _, edits = claim_edits(claim, HOST, "both")
    assert {path.rpartition("/")[0] for path in paths(edits)} == {"/dev/infiniband"}
    assert not edits.edits.mounts
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(edits)


def test_the_claims_own_spec_is_one_that_runtimes_take() -> None:
    claim = [
        *given(gpu(0), mig(1), options=FULL),
        *given(amd(2), partition(3), request="amd"),
        *given(nic(4), vfio(7), request="nics"),
    ]
    validate(spec_of(claim, claim_edits(claim, HOST, "all")))


def test_list_strategies_of_the_plugin_door_change_nothing() -> None:
    for device in (gpu(0), amd(2), vfio(7)):
        found = {device_edits(device, EditOptions(strategies=(strategy,)), HOST) for strategy in ListStrategy}
        assert found == {device_edits(device, by_cdi(PLAIN), HOST)}


def test_a_nic_is_named_by_a_variable_of_its_own_with_its_details() -> None:
    found = variables(device_edits(vfio(7), PLAIN, HOST))
    assert found["PCIDEVICE_NIC_0000_07_00_0"] == "0000:07:00.0"
    assert json.loads(found["PCIDEVICE_NIC_0000_07_00_0_INFO"]) == {
        "0000:07:00.0": {
            "generic": {"deviceID": "0000:07:00.0"},
            "vfio": {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/7"},
        }
    }


def test_all_nics_of_a_request_are_listed_by_the_name_of_claim_and_request() -> None:
    claim = [*given(nic(3), nic(4), request="fast-path"), *given(nic(5), request="slow")]
    found = variables(*claim_edits(claim, HOST, "nics"))
    assert found["PCIDEVICE_NICS__FAST_PATH"] == "0000:03:00.0,0000:04:00.0"
    assert found["PCIDEVICE_NICS__SLOW"] == "0000:05:00.0"
    assert set(json.loads(found["PCIDEVICE_NICS__FAST_PATH_INFO"])) == {"0000:03:00.0", "0000:04:00.0"}


def test_any_container_that_has_a_nic_of_a_request_has_the_requests_list() -> None:
    first, second = claim_edits(given(nic(3), nic(4), request="fast"), HOST, "nics")
    assert variables(first)["PCIDEVICE_NICS__FAST"] == variables(second)["PCIDEVICE_NICS__FAST"]


def test_no_claim_takes_a_variable_from_another_in_one_container() -> None:
    claims = {"a": given(nic(3), request="b-c"), "a-b": given(nic(4), request="c"), "x": given(nic(5), request="b-c")}
    edits = [claim_edits(claim, HOST, name) for name, claim in claims.items()]
    each = [variables(*one) for one in edits]
    together = variables(*(item for one in edits for item in one))
    assert len(together) == sum(len(one) for one in each)


@pytest.mark.parametrize(
    ("device", "options", "text"),
    [
        (
            lacking(gpu(0), "/dev/nvidia1"),
            PLAIN,
            "gpu-0000-0b-00-0 cannot be prepared: no CDI spec can describe it, its device nodes are missing: /dev/nvidia1",  # noqa: E501
        ),
        (
            gpu(5),
            DELEGATE,
            (
                "gpu-0000-5b-00-0 cannot be prepared: no CDI spec on this node defines nvidia.com/gpu=GPU-5; "
                "run 'nvidia-ctk cdi generate'"
            ),
        ),
        (
            nic(3),
            EditOptions(rdma=True),
            "nic-0000-03-00-0 cannot be prepared: its rule gives RDMA, and it has no RDMA device",
        ),
        (
            gpu(0),
            EditOptions(imex_channels=(0, 5), imex_required=True),
            (
                "gpu-0000-0b-00-0 cannot be prepared: required IMEX channels are missing: "
                "/dev/nvidia-caps-imex-channels/channel5"
            ),
        ),
    ],
)
def test_a_device_that_lacks_something_fails_its_claim_with_request_device_and_reason(
    device: Device, options: EditOptions, text: str
) -> None:
    with pytest.raises(ClaimError) as caught:
        claim_edits(given(device, options=options), HOST, "claim")
    assert str(caught.value) == f"request 'gpus': device {text}"


def test_mode_full_without_files_of_the_driver_is_unfit_whatever_strategies_its_rule_has() -> None:
    assert unfit_for_claim(gpu(0), FULL, Host()) == (
        "no CDI spec can describe it, no libraries of the driver were found below /"
    )


def test_no_edit_is_left_for_the_answer_to_the_plugin_door() -> None:
    for device in (gpu(0), mig(1), amd(2), intel(1), nic(3), vfio(7)):
        edits = device_edits(device, PLAIN, HOST).edits
        assert edits == ContainerEdits(edits.env, edits.nodes, edits.mounts, edits.hooks)


def test_variables_with_a_vendors_fixed_names_tell_the_cards_of_a_request() -> None:
    claim = [*given(gaudi(1, 5), gaudi(2, 4), request="both"), *given(gaudi(3, 6), request="one"), *given(intel(1))]
    one, two, other, gpu_ = (dict(each.edits.env) for each in claim_edits(claim, HOST, "name"))
    assert one == two
    assert (one["HABANA_VISIBLE_DEVICES"], one["HABANA_VISIBLE_MODULES"]) == ("1,2", "5,4")
    assert other["HL_VISIBLE_DEVICES"] == "/dev/accel/accel3"
    assert gpu_ == {}


@pytest.mark.parametrize(("share", "is_client"), [("7f0b4a36", True), (None, False)])
def test_a_claim_with_a_share_under_mps_is_a_client_of_its_daemon(share: str | None, is_client: bool) -> None:
    device = gpu(0)
    options = EditOptions(mps=("/run/mps", "nvidia.com/gpu"))
    view = DoorView((DraDevice(device, Rule("nvidia.com/gpu", edits=options), True),))
    allocated = AllocatedDevice("gpu", "node-a", device.name, share_id=share)
    allocation = Allocation(ClaimReference("team", "claim", "uid"), (allocated,))
    plan = planned(allocation, "claim", view, driver="ostler.dev", pool="node-a")
    assert ("CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe" in plan.spec) is is_client
    assert ("/run/mps/nvidia.com/gpu/pipe" in plan.spec) is is_client
