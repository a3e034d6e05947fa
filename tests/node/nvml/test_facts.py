"""What NVML says arrives as facts, through the real binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest

from node.inventory.facts import CallError, Fabric, GpuFacts, NvLink, NvmlFacts, SramErrors
from tests.node.nvml import nodes, stub
from tests.node.nvml.conftest import ServedNode, read

OLD_FABRIC = Fabric("c0ffee00-0011-4233-8455-66778899aabb", 7, 3, 0)

pytestmark = stub.needs_gcc


@pytest.mark.parametrize("make", [nodes.hgx, nodes.bridged, nodes.partitioned, nodes.small])
def test_every_fact_of_a_node_comes_through_the_binding(node: ServedNode, make: Callable[[], NvmlFacts]) -> None:
    node.install()
    node.serve(make())
    source = node.source()
    assert read(source) == make()
    assert read(source) == make(), "the second read mixes kept facts with new ones and must not differ"


def test_a_node_without_gpus_is_a_good_read(node: ServedNode) -> None:
    node.install()
    node.serve(NvmlFacts(driver_version="550.1", nvml_version="12.550.1", cuda_driver_version=12040))
    assert read(node.source()).gpus == ()
    assert read(node.source()).status == "ok"


def test_one_call_that_fails_costs_one_fact_of_one_gpu(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "gpu2.error.nvmlDeviceGetSerial NOT_SUPPORTED\n")
    wanted = list(nodes.hgx().gpus)
    wanted[2] = replace(wanted[2], serial=None, errors=(CallError("nvmlDeviceGetSerial", "NOT_SUPPORTED"),))
    assert read(node.source()).gpus == tuple(wanted)


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        ("nvmlDeviceGetPciInfo", "bus_id"),
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetMinorNumber", "minor"),
        ("nvmlDeviceGetSerial", "serial"),
        ("nvmlDeviceGetBrand", "brand"),
        ("nvmlDeviceGetArchitecture", "architecture"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
        ("nvmlDeviceGetModuleId", "module_id"),
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlDeviceGetVirtualizationMode", "virtualization_mode"),
        ("nvmlDeviceGetEccMode", "ecc_mode"),
        ("nvmlDeviceGetVbiosVersion", "vbios_version"),
        ("nvmlDeviceGetBoardPartNumber", "board_part_number"),
        ("nvmlDeviceGetRemappedRows", "remapped_rows_failed"),
        ("nvmlDeviceGetMigMode", "mig_mode"),
        ("nvmlDeviceGetMaxMigDeviceCount", "mig_max_devices"),
        ("nvmlDeviceGetGpuFabricInfoV", "fabric"),
    ],
)
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "UNKNOWN"])
def test_each_call_may_fail_alone_and_is_named(node: ServedNode, call: str, fact: str, error: str) -> None:
    node.install()
    node.serve(nodes.hgx(), f"gpu0.error.{call} {error}\n")
    facts = read(node.source())
    gpu = facts.gpus[0]
    assert getattr(gpu, fact) is None
    assert gpu.errors == (CallError(call, error),)
    assert gpu.error is None
    assert facts.gpus[1:] == nodes.hgx().gpus[1:]


def test_version_calls_may_fail_alone(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.small(), "error.nvmlSystemGetDriverVersion UNKNOWN\n")
    facts = read(node.source())
    assert facts.status == "ok"
    assert facts.driver_version is None
    assert CallError("nvmlSystemGetDriverVersion", "UNKNOWN") in facts.errors


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetModuleId", "nvmlDeviceGetAddressingMode", "nvmlDeviceGetMigMode"])
def test_a_function_that_the_library_lacks_is_named_function_not_found(node: ServedNode, symbol: str) -> None:
    node.install(without=[symbol])
    node.serve(nodes.hgx())
    facts = read(node.source())
    assert facts.status == "ok"
    assert [gpu.errors for gpu in facts.gpus] == [(CallError(symbol, "FUNCTION_NOT_FOUND"),)] * 8


def test_a_library_without_any_optional_function_still_lists_gpus(node: ServedNode) -> None:
    node.install(
        without=[
            "nvmlDeviceGetNvLinkState",
            "nvmlDeviceGetTopologyCommonAncestor",
            "nvmlDeviceGetGpuFabricInfo",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetSerial",
            "nvmlSystemGetNVMLVersion",
        ]
    )
    node.serve(nodes.hgx())
    facts = read(node.source())
    assert [gpu.uuid for gpu in facts.gpus] == [gpu.uuid for gpu in nodes.hgx().gpus]
    assert CallError("nvmlDeviceGetNvLinkState", "FUNCTION_NOT_FOUND") in facts.gpus[0].errors
    assert facts.errors == (CallError("nvmlSystemGetNVMLVersion", "FUNCTION_NOT_FOUND"),)


def test_a_driver_without_the_versioned_fabric_call_is_asked_by_the_old_one(node: ServedNode) -> None:
    node.install(without=["nvmlDeviceGetGpuFabricInfoV"])
    node.serve(nodes.hgx())
    source = node.source()
    for _ in range(2):
        assert [gpu.fabric for gpu in read(source).gpus] == [OLD_FABRIC] * 8


def test_a_driver_without_any_fabric_call_says_so_in_every_reading(node: ServedNode) -> None:
    node.install(without=["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"])
    node.serve(nodes.hgx())
    source = node.source()
    for _ in range(2):
        gpu = read(source).gpus[0]
        assert gpu.fabric is None
        assert CallError("nvmlDeviceGetGpuFabricInfoV", "FUNCTION_NOT_FOUND") in gpu.errors


def test_a_driver_with_an_older_layout_of_the_fabric_tells_health_without_its_summary(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "fabric_versions 2\n")
    source = node.source()
    for _ in range(2):
        facts = read(source)
        known = replace(OLD_FABRIC, health_mask=nodes.WELL_FABRIC)
        assert [(gpu.fabric, gpu.errors) for gpu in facts.gpus] == [(known, ())] * 8


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_a_gpu_or_driver_that_tells_no_errors_of_sram_is_no_failure(node: ServedNode, error: str) -> None:
    node.install()
    node.serve(nodes.hgx(), f"error.nvmlDeviceGetSramEccErrorStatus {error}\n")
    assert read(node.source()).gpus == tuple(replace(gpu, sram=None) for gpu in nodes.hgx().gpus)


def test_the_layouts_that_the_binding_hands_over_have_the_sizes_that_their_versions_name() -> None:
    import pynvml

    for layout in ("c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_v3_t", "c_nvmlEccSramErrorStatus_v1_t"):
        made = getattr(pynvml, layout)()
        assert ctypes.sizeof(made) == made.version & 0xFFFFFF, layout


def test_mig_devices_that_come_and_go_are_seen_at_the_next_read(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.partitioned())
    source = node.source()
    read(source)
    whole, plain = nodes.partitioned().gpus
    # The same numbers and so the same UUID, but a larger instance.
    grown = replace(whole.mig_devices[0], placement_start=0, placement_size=8, multiprocessors=98)
    changed = replace(nodes.partitioned(), gpus=(replace(whole, mig_devices=(grown,)), plain))
    node.serve(changed)
    assert read(source) == changed


def test_a_mig_device_that_tells_little_keeps_its_place_and_its_own_errors(node: ServedNode) -> None:
    node.install()
    more = "gpu0.mig1.error.nvmlDeviceGetAttributes UNKNOWN\ngpu0.mig4.error.nvmlDeviceGetUUID UNKNOWN\n"
    node.serve(nodes.partitioned(), more)
    first, second, third = read(node.source()).gpus[0].mig_devices
    assert first == nodes.partitioned().gpus[0].mig_devices[0]
    assert (second.memory_mib, second.placement_size) == (None, 2)
    assert second.errors == (CallError("nvmlDeviceGetAttributes", "UNKNOWN"),)
    assert third.uuid is None
    assert third.errors == (CallError("nvmlDeviceGetUUID", "UNKNOWN"),)


def test_without_rights_on_gpu_instances_mig_devices_lack_only_their_placement(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.partitioned(), "gpu0.error.nvmlDeviceGetGpuInstanceById NO_PERMISSION\n")
    migs = read(node.source()).gpus[0].mig_devices
    errors = (CallError("nvmlDeviceGetGpuInstanceById", "NO_PERMISSION"),)
    bare = {"gpu_instance_profile": None, "placement_start": None, "placement_size": None, "errors": errors}
    assert migs == tuple(replace(mig, **bare) for mig in nodes.partitioned().gpus[0].mig_devices)  # type: ignore[arg-type]


def test_what_may_change_is_read_anew(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    read(source)
    gpus = list(nodes.hgx().gpus)
    gpus[3] = replace(
        gpus[3],
        memory_bytes=79 * nodes.GIB,
        ecc_mode=0,
        remapped_rows_pending=True,
        mig_pending=1,
        fabric=Fabric("c0ffee00-0011-4233-8455-66778899aabb", 8, 2, 0, 0, 0),
        nvlinks=(NvLink(0, active=False), *gpus[3].nvlinks[1:]),
    )
    changed = replace(nodes.hgx(), gpus=tuple(gpus))
    node.serve(changed)
    assert read(source) == changed


def test_links_whose_states_are_as_before_are_the_very_links_of_the_scan_before(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    read(source)
    first = read(source)
    assert all(new.nvlinks is old.nvlinks for new, old in zip(read(source).gpus, first.gpus, strict=True))
    gpus = list(nodes.hgx().gpus)
    gpus[3] = replace(gpus[3], nvlinks=(replace(gpus[3].nvlinks[0], active=False), *gpus[3].nvlinks[1:]))
    node.serve(replace(nodes.hgx(), gpus=tuple(gpus)))
    read(source)
    node.serve(nodes.hgx())
    assert read(source).gpus[3].nvlinks == first.gpus[3].nvlinks


def test_a_far_end_that_could_not_be_read_is_asked_for_again(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "gpu3.error.nvmlDeviceGetNvLinkRemotePciInfo UNKNOWN\n")
    source = node.source()
    assert read(source).gpus[3].nvlinks[0].remote_bus_id is None
    node.serve(nodes.hgx())
    assert read(source).gpus[3].nvlinks == nodes.hgx().gpus[3].nvlinks


def test_a_number_that_is_no_nvlink_is_not_asked_again_while_the_mig_mode_is_the_same(node: ServedNode) -> None:
    node.install()
    whole, plain = nodes.partitioned().gpus
    # Some drivers answer for no link but the first while a GPU is in MIG mode.
    bare = replace(whole, nvlinks=(NvLink(0, active=False),))
    node.serve(replace(nodes.partitioned(), gpus=(bare, plain)))
    source = node.source()
    assert [len(gpu.nvlinks) for gpu in read(source).gpus] == [1, 18]
    node.serve(nodes.partitioned())
    assert [len(gpu.nvlinks) for gpu in read(source).gpus] == [1, 18]
    back = replace(whole, mig_mode=0, mig_devices=())
    node.serve(replace(nodes.partitioned(), gpus=(back, plain)))
    assert [len(gpu.nvlinks) for gpu in read(source).gpus] == [18, 18]
    source.close()
    node.serve(nodes.partitioned())
    assert [len(gpu.nvlinks) for gpu in read(source).gpus] == [18, 18]


def test_an_nvlink_that_failed_by_accident_is_asked_again(node: ServedNode) -> None:
    node.install()
    node.serve(
        nodes.hgx(), "gpu1.error.nvmlDeviceGetNvLinkState UNKNOWN\ngpu2.error.nvmlDeviceGetNvLinkState GPU_IS_LOST\n"
    )
    source = node.source()
    assert [len(gpu.nvlinks) for gpu in read(source).gpus] == [18, 0, 0, 18, 18, 18, 18, 18]
    node.serve(nodes.hgx())
    assert read(source) == nodes.hgx()


def test_a_static_call_that_failed_by_accident_is_asked_again(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "error.nvmlDeviceGetName UNKNOWN\n")
    source = node.source()
    assert read(source).gpus[0].name is None
    node.serve(nodes.hgx())
    assert read(source) == nodes.hgx()


def test_another_gpu_at_the_same_index_is_not_taken_for_the_old_one(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    source = node.source()
    read(source)
    gpus = list(nodes.hgx().gpus)
    gpus[0] = replace(gpus[0], uuid="GPU-ffffffff-0000-4000-8000-000000000001", name="NVIDIA H200", serial="1")
    changed = replace(nodes.hgx(), gpus=tuple(gpus))
    node.serve(changed)
    assert read(source) == changed


def test_a_pair_that_fails_makes_neither_gpu_lost(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "gpu7.error.nvmlDeviceGetTopologyCommonAncestor GPU_IS_LOST\n")
    gpus = read(node.source()).gpus
    assert [gpu.error for gpu in gpus] == [None] * 8
    assert [ancestor.gpu for ancestor in gpus[0].ancestors] == [1, 2, 3, 4, 5, 6]
    assert gpus[7].ancestors == ()


def test_text_that_is_not_utf8_is_a_failed_call(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    raw = node.description.read_bytes() + b"gpu0.serial \xff\xfe\n"
    node.description.write_bytes(raw)
    gpu = read(node.source()).gpus[0]
    assert gpu.serial is None
    assert gpu.errors == (CallError("nvmlDeviceGetSerial", "UNREADABLE_TEXT"),)


def test_an_error_number_that_is_new_has_a_name_too(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx(), "gpu0.error.nvmlDeviceGetSerial ERROR_4711\n")
    assert read(node.source()).gpus[0].errors == (CallError("nvmlDeviceGetSerial", "ERROR_4711"),)


def test_facts_hold_nothing_but_plain_values(node: ServedNode) -> None:
    node.install()
    node.serve(nodes.hgx())
    gpu = read(node.source()).gpus[0]
    kinds = {type(getattr(gpu, name)) for name in GpuFacts.__dataclass_fields__}
    assert kinds <= {int, str, bool, tuple, Fabric, SramErrors, type(None)}
