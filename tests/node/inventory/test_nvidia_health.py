"""Every failure of a GPU, a MIG device or the driver: which devices it touches, in which words, and no others."""

from __future__ import annotations

import pytest

from node.health.state import HealthState, Recovery
from node.inventory.facts import CallError, GpuFacts, NodeFacts, NvmlFacts
from node.inventory.identity import Identities
from node.inventory.model import Device
from tests.making.nvidia_facts import CONTROL, a100, devices, files, function, gpu, mig, node, nvml, sysfs, uuid

LOST = "the GPU is lost: it fell off the PCI bus or no longer answers the driver (GPU_IS_LOST)"
NOT_LISTED = "the GPU is lost: the driver is bound to it on the PCI bus, but NVML does not list it"
REMEMBERED = Identities((("0000:1b:00.0", uuid(0)), ("0000:2b:00.0", uuid(1)), ("0000:3b:00.0", uuid(2))))


def verdict(device: Device) -> tuple[str, str, str]:
    return device.health.state.value, device.health.reason, device.health.recovery.value


@pytest.mark.parametrize(
    ("error", "reason", "recovery"),
    [
        ("GPU_IS_LOST", LOST, Recovery.RESET),
        (
            "RESET_REQUIRED",
            "the GPU must be reset before it can be used again (RESET_REQUIRED)",
            Recovery.RESET,
        ),
        (
            "INSUFFICIENT_POWER",
            "the GPU gets too little power; check its power cables (INSUFFICIENT_POWER)",
            Recovery.REPLACE,
        ),
        ("CORRUPTED_INFOROM", "the GPU's infoROM is corrupted (CORRUPTED_INFOROM)", Recovery.REPLACE),
        ("IRQ_ISSUE", "the driver gets no interrupts from the GPU (IRQ_ISSUE)", Recovery.RESET),
        (
            "NO_PERMISSION",
            "the agent may not talk to the GPU; it must run as root (NO_PERMISSION)",
            Recovery.AUTOMATIC,
        ),
        ("TIMEOUT", "the GPU did not answer in time (TIMEOUT)", Recovery.AUTOMATIC),
        ("UNKNOWN", "the driver cannot open the GPU (UNKNOWN)", Recovery.AUTOMATIC),
    ],
)
def test_gpu_without_a_handle_is_unhealthy_and_alone_in_it(error: str, reason: str, recovery: Recovery) -> None:
    found = devices(node(gpu(0), gpu(1, error=error), gpu(2)))
    assert verdict(found["gpu-0000-2b-00-0"]) == ("unhealthy", reason, recovery.value)
    assert [each.health.state for each in found.values()].count(HealthState.HEALTHY) == 2


def test_gpu_lost_during_the_scan_is_unhealthy() -> None:
    facts = node(gpu(0, errors=(CallError("nvmlDeviceGetMemoryInfo", "GPU_IS_LOST"),)), gpu(1))
    found = devices(facts)
    assert verdict(found["gpu-0000-1b-00-0"]) == ("unhealthy", LOST, "reset")
    assert found["gpu-0000-2b-00-0"].health.state is HealthState.HEALTHY


def test_call_about_a_pair_blames_neither() -> None:
    errors = (
        CallError("nvmlDeviceGetTopologyCommonAncestor", "GPU_IS_LOST"),
        CallError("nvmlDeviceGetNvLinkRemotePciInfo_v2", "GPU_IS_LOST"),
    )
    assert devices(node(gpu(0, errors=errors)))["gpu-0000-1b-00-0"].health.state is HealthState.HEALTHY


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "NO_DATA", "NOT_FOUND"])
def test_what_a_healthy_gpu_cannot_tell_is_no_fault(error: str) -> None:
    facts = node(gpu(0, errors=(CallError("nvmlDeviceGetSerial", error),)))
    assert devices(facts)["gpu-0000-1b-00-0"].health.state is HealthState.HEALTHY


def test_failed_call_degrades_only_its_gpu() -> None:
    facts = node(gpu(0, errors=(CallError("nvmlDeviceGetMemoryInfo", "UNKNOWN"),)), gpu(1))
    found = devices(facts)
    assert verdict(found["gpu-0000-1b-00-0"]) == (
        "degraded",
        "the call nvmlDeviceGetMemoryInfo failed (UNKNOWN)",
        "automatic",
    )
    assert found["gpu-0000-2b-00-0"].health.state is HealthState.HEALTHY


def test_pending_row_degrades_and_failed_row_breaks() -> None:
    found = devices(node(gpu(0, remapped_rows_pending=True), gpu(1, remapped_rows_failed=True)))
    assert verdict(found["gpu-0000-1b-00-0"]) == (
        "degraded",
        "a memory row waits to be remapped at the next reset of the GPU",
        "reset",
    )
    assert verdict(found["gpu-0000-2b-00-0"]) == (
        "unhealthy",
        "a memory row could not be remapped: the GPU has no spare rows left for it",
        "replace",
    )


@pytest.mark.parametrize(("mode", "pending", "word"), [(0, 1, "enabled"), (1, 0, "disabled")])
def test_pending_mig_mode_is_told(mode: int, pending: int, word: str) -> None:
    found = devices(node(gpu(0, mig_mode=mode, mig_pending=pending)))["gpu-0000-1b-00-0"]
    assert verdict(found) == ("degraded", f"MIG mode will be {word} at the next reset of the GPU", "reset")


def test_missing_device_node_is_told() -> None:
    found = devices(node(gpu(0), device_files=files(*CONTROL)))["gpu-0000-1b-00-0"]
    assert verdict(found) == (
        "degraded",
        "its device node /dev/nvidia0 does not exist; nvidia-modprobe or nvidia-persistenced makes it",
        "automatic",
    )


def test_missing_device_node_means_nothing_where_none_could_be_listed() -> None:
    assert devices(node(gpu(0), device_files=()))["gpu-0000-1b-00-0"].health.state is HealthState.HEALTHY


def test_gpu_without_uuid_and_memory_of_it_is_listed_unhealthy() -> None:
    facts = NodeFacts(nvml=nvml(gpu(0, uuid=None, errors=(CallError("nvmlDeviceGetUUID", "UNKNOWN"),))))
    device = devices(facts)["gpu-0000-1b-00-0"]
    assert device.uuid is None
    assert verdict(device) == (
        "unhealthy",
        "its UUID cannot be read and is not remembered, so no container can get it",
        "automatic",
    )


def test_gpu_whose_uuid_is_remembered_is_still_allocated() -> None:
    device = devices(node(gpu(0, uuid=None)), REMEMBERED)["gpu-0000-1b-00-0"]
    assert device.uuid == uuid(0)
    assert verdict(device) == (
        "degraded",
        "the driver does not report its UUID; ostler uses the remembered one",
        "automatic",
    )


def test_fault_of_a_gpu_reaches_its_mig_devices_only() -> None:
    found = devices(
        node(a100(0, mig(0, 0), mig(1, 1), remapped_rows_failed=True), a100(1, mig(2, 0)), gpu(2, mig_mode=0))
    )
    reason = "its GPU gpu-0000-1b-00-0: a memory row could not be remapped: the GPU has no spare rows left for it"
    assert verdict(found["mig-0000-1b-00-0-0-1"]) == ("unhealthy", reason, "replace")
    assert verdict(found["mig-0000-1b-00-0-1-1"]) == ("unhealthy", reason, "replace")
    assert found["mig-0000-2b-00-0-0-1"].health.state is HealthState.HEALTHY


def test_note_on_a_gpu_reaches_its_mig_devices() -> None:
    facts = node(a100(0, mig(0, 0), remapped_rows_pending=True))
    assert verdict(devices(facts)["mig-0000-1b-00-0-0-1"]) == (
        "degraded",
        "its GPU gpu-0000-1b-00-0: a memory row waits to be remapped at the next reset of the GPU",
        "reset",
    )


def test_loss_seen_through_a_mig_device_is_the_gpus() -> None:
    lost = mig(0, 0, errors=(CallError("nvmlDeviceGetAttributes_v2", "GPU_IS_LOST"),))
    found = devices(node(a100(0, lost, mig(1, 1))))
    assert {each.health.state for each in found.values()} == {HealthState.UNHEALTHY}


def test_mig_device_without_uuid_is_unhealthy_and_alone_in_it() -> None:
    found = devices(node(a100(0, mig(0, 0, uuid=None), mig(1, 1))))
    assert verdict(found["mig-0000-1b-00-0-0-1"]) == (
        "unhealthy",
        "its UUID cannot be read, so no container can get it",
        "automatic",
    )
    assert found["mig-0000-1b-00-0-1-1"].health.state is HealthState.HEALTHY
    assert found["gpu-0000-1b-00-0"].health.state is HealthState.HEALTHY


def test_failed_call_about_a_mig_device_degrades_it_alone() -> None:
    failed = mig(0, 0, errors=(CallError("nvmlDeviceGetAttributes_v2", "UNKNOWN"),))
    found = devices(node(a100(0, failed, mig(1, 1))))
    assert verdict(found["mig-0000-1b-00-0-0-1"])[1] == "the call nvmlDeviceGetAttributes_v2 failed (UNKNOWN)"
    assert found["mig-0000-1b-00-0-1-1"].health.state is HealthState.HEALTHY


def test_silent_driver_makes_every_device_unknown() -> None:
    kept = node(a100(0, mig(0, 0)), gpu(1))
    silent = NodeFacts(nvml=NvmlFacts(status="LIB_RM_VERSION_MISMATCH", gpus=kept.nvml.gpus), sysfs=kept.sysfs)  # type: ignore[union-attr]
    found = devices(silent)
    assert len(found) == 3
    reason = (
        "its state is unknown: the driver's library and its kernel module differ in version, as during an upgrade; "
        "reload the module or reboot the node (LIB_RM_VERSION_MISMATCH)"
    )
    assert verdict(found["gpu-0000-2b-00-0"]) == ("unknown", reason, "automatic")
    assert verdict(found["mig-0000-1b-00-0-0-1"]) == ("unknown", f"its GPU gpu-0000-1b-00-0: {reason}", "automatic")


def test_failing_count_makes_nothing_lost() -> None:
    silent = NvmlFacts(gpus=(gpu(0),), errors=(CallError("nvmlDeviceGetCount_v2", "UNKNOWN"),))
    found = devices(NodeFacts(nvml=silent, sysfs=sysfs(3)))
    assert [verdict(each) for each in found.values()] == [
        ("unknown", "its state is unknown: the driver does not answer (UNKNOWN)", "automatic")
    ]


def test_gpu_that_nvml_does_not_list_is_lost_with_its_remembered_uuid() -> None:
    found = devices(node(gpu(0), gpu(2), on_bus=3), REMEMBERED)
    lost = found["gpu-0000-2b-00-0"]
    assert (lost.uuid, lost.index, lost.numa_node) == (uuid(1), None, 0)
    assert verdict(lost) == ("unhealthy", NOT_LISTED, "reset")
    assert found["gpu-0000-1b-00-0"].health.state is HealthState.HEALTHY


def test_gpu_that_nvml_does_not_list_and_nobody_remembers_has_no_uuid() -> None:
    assert devices(node(gpu(0), on_bus=2))["gpu-0000-2b-00-0"].uuid is None


@pytest.mark.parametrize("driver", [None, "vfio-pci", "nouveau"])
def test_function_with_another_driver_is_not_ours(driver: str | None) -> None:
    facts = node(gpu(0), pci=(function(0), function(1, driver=driver)))
    assert list(devices(facts, REMEMBERED)) == ["gpu-0000-1b-00-0"]


def test_function_that_is_no_gpu_is_not_ours() -> None:
    audio = function(1, class_code="0x040300")
    nic = function(2, vendor="0x15b3")
    assert list(devices(node(gpu(0), pci=(function(0), audio, nic)))) == ["gpu-0000-1b-00-0"]


def test_virtual_functions_of_a_vgpu_host_are_not_lost_gpus() -> None:
    virtual = function(1, address="0000:1b:00.4")
    facts = node(gpu(0, virtualization_mode=3), pci=(function(0), virtual))
    assert list(devices(facts)) == ["gpu-0000-1b-00-0"]


def test_gpu_lost_by_index_is_the_function_left_over() -> None:
    lost = GpuFacts(index=1, error="GPU_IS_LOST")
    found = devices(node(gpu(0), lost, gpu(2)), REMEMBERED)
    assert sorted(found) == ["gpu-0000-1b-00-0", "gpu-0000-2b-00-0", "gpu-0000-3b-00-0"]
    device = found["gpu-0000-2b-00-0"]
    assert (device.uuid, device.index) == (uuid(1), "1")
    assert verdict(device) == ("unhealthy", LOST, "reset")


def test_several_gpus_lost_by_index_are_matched_in_order() -> None:
    lost = [GpuFacts(index=index, error="GPU_IS_LOST") for index in (2, 1)]
    found = devices(node(gpu(0), *lost), REMEMBERED)
    assert (found["gpu-0000-2b-00-0"].index, found["gpu-0000-3b-00-0"].index) == ("1", "2")


def test_gpu_lost_by_index_without_sysfs_is_the_one_remembered_and_absent() -> None:
    facts = NodeFacts(nvml=nvml(gpu(0), GpuFacts(index=1, error="GPU_IS_LOST"), gpu(2)))
    assert devices(facts, REMEMBERED)["gpu-0000-2b-00-0"].uuid == uuid(1)


def test_gpu_lost_by_index_is_never_guessed() -> None:
    facts = NodeFacts(nvml=nvml(GpuFacts(index=1, error="GPU_IS_LOST"), gpu(2)))
    lost = devices(facts, REMEMBERED)["gpu-index-1"]
    assert (lost.uuid, lost.pci_address) == (None, None)
    assert verdict(lost) == ("unhealthy", LOST, "reset")


def test_gpu_without_bus_id_is_found_by_its_uuid() -> None:
    assert devices(node(gpu(1, bus_id=None), on_bus=3), REMEMBERED)["gpu-0000-2b-00-0"].index == "1"


def test_remembered_gpus_are_kept_while_the_driver_is_silent_from_the_start() -> None:
    facts = NodeFacts(nvml=NvmlFacts(status="LIB_RM_VERSION_MISMATCH"), sysfs=sysfs(4))
    found = devices(facts, REMEMBERED)
    assert [each.uuid for each in found.values()] == [uuid(0), uuid(1), uuid(2)]
    assert {each.health.state for each in found.values()} == {HealthState.UNKNOWN}


def test_absent_driver_gives_no_device() -> None:
    bus = sysfs(0, pci=(function(0, driver=None),))
    assert devices(NodeFacts(nvml=NvmlFacts(status="DRIVER_NOT_LOADED"), sysfs=bus), REMEMBERED) == {}
