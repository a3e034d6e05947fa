"""What a running agent's metrics tell of what happens to it."""

from __future__ import annotations

import asyncio
import signal
import time
import urllib.request
from pathlib import Path

import grpc
import grpc.aio

from ostler.cli.main import main
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.ostler.metrics.scraping import HTTP, Scrape, address, scraped
from tests.waiting import eventually

GPU = "nvidia.com/gpu"


def node(name: str = "l4-2", **flags: str) -> SandboxNode:
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    return SandboxNode(path(name), flags={**HTTP, **given}, reconcile_interval=0.05)


async def until(box: SandboxNode, name: str, least: float, **labels: str) -> Scrape:
    """The first scrape in which the series with these labels add up to that much."""

    async def reached() -> Scrape | None:
        found = await scraped(box)
        return found if found.sum(name, **labels) >= least else None

    found = await eventually(reached, f"{name} {labels} >= {least}", within=120)
    assert found is not None
    return found


async def socket_of(box: SandboxNode, resource: str) -> str:
    status = await box.agent.status()
    return next(item.socket for item in status.resources if item.name == resource)


async def allocate(box: SandboxNode, resource: str, *ids: str) -> grpc.StatusCode:
    local = (("grpc.use_local_subchannel_pool", 1),)
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
    async with grpc.aio.insecure_channel(f"unix:{await socket_of(box, resource)}", options=local) as channel:
        try:
            await api_pb2_grpc.DevicePluginStub(channel).Allocate(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_devices_lists_and_registration_of_a_node_that_is_well() -> None:
    before = time.time()
    async with node() as box:
        await box.registered()
        found = await scraped(box)
        assert found("ostler_devices", kind="gpu", vendor="nvidia", resource=GPU, health="healthy") == 2
        assert found("ostler_resource_devices", resource=GPU, health="healthy") == 2
        assert found("ostler_resource_devices", resource=GPU, health="unhealthy") == 0
        assert found("ostler_registration_state", resource=GPU, state="registered") == 1
        assert found.sum("ostler_registration_state", resource=GPU) == 1
        assert found("ostler_registration_path", resource=GPU, path="registry") == 1
        assert found("ostler_registration_streams", resource=GPU) == 1
        assert found("ostler_registration_attempts_total", resource=GPU, path="registry") >= 1
        assert found("ostler_registrations_total", resource=GPU, path="registry") == 1
        assert found("ostler_registration_failures_total", resource=GPU, path="registry") == 0
        assert found("ostler_registration_conflicts_total", resource=GPU) == 0
        assert before <= found("ostler_registration_timestamp_seconds", resource=GPU) <= time.time()
        assert found("ostler_list_updates_total", resource=GPU) == 1
        assert found("ostler_active") == found("ostler_ready") == 1
        assert found("ostler_quiesced") == found("ostler_kubelet_restarts_total") == 0
        assert not [name for name in found.names() if name.startswith("ostler_uevent")], "a recorded node has none"


async def test_signs_of_life_and_scans_are_stamped_with_unix_time() -> None:
    before = time.time()
    async with node() as box:
        await box.registered()
        await box.agent.rescan()
        found = await until(box, "ostler_loop_delay_seconds_count", 1)
        for name in (
            "ostler_heartbeat_timestamp_seconds",
            "ostler_last_scan_timestamp_seconds",
            "ostler_config_last_reload_success_timestamp_seconds",
        ):
            assert before <= found(name) <= time.time(), name
        assert found("ostler_scan_duration_seconds_count") >= 2
        assert found("ostler_scan_duration_seconds_bucket", le="+Inf") == found("ostler_scan_duration_seconds_count")
        assert found("ostler_scan_interval_seconds") == 60
        assert found("ostler_snapshot_generation") == 1
        assert found("ostler_source_state", source="nvml", state="ok") == 1
        assert found("ostler_source_failures_total", source="nvml") == 0


async def test_allocations_are_counted_by_result_and_known_before_the_first() -> None:
    async with node() as box:
        await box.registered()
        found = await scraped(box)
        for result in ("granted", "refused", "failed"):
            assert found("ostler_allocations_total", resource=GPU, result=result) == 0
        assert found("ostler_allocated_devices_total", resource=GPU) == 0
        assert (await box.give(GPU, 2)).admission.admitted
        assert await allocate(box, GPU, "GPU-nobody") is grpc.StatusCode.INVALID_ARGUMENT
        found = await scraped(box)
        assert found("ostler_allocations_total", resource=GPU, result="granted") == 1
        assert found("ostler_allocations_total", resource=GPU, result="refused") == 1
        assert found("ostler_allocations_total", resource=GPU, result="failed") == 0
        assert found("ostler_allocated_devices_total", resource=GPU) == 2
        assert found("ostler_kubelet_calls_total", resource=GPU, method="Allocate", code="INVALID_ARGUMENT") == 1
        assert found("ostler_kubelet_call_duration_seconds_count", resource=GPU, method="Allocate") == 2


def labelled(found: Scrape) -> set[object]:
    """Every series with a label; those without may come with time, as that of the kubelet's first reading does."""
    return {series for series in found.series if series[1]}


async def test_no_label_takes_a_value_from_a_request() -> None:
    async with node() as box:
        await box.registered()
        await allocate(box, GPU, "GPU-nobody")
        before = labelled(await scraped(box))
        for number in range(20):
            assert await allocate(box, GPU, f"GPU-{number}") is grpc.StatusCode.INVALID_ARGUMENT
        assert labelled(await scraped(box)) == before


async def test_a_lost_gpu_is_told_by_name_since_when_and_what_became_of_it() -> None:
    async with node() as box:
        await box.registered()
        assert box.hardware is not None
        assert (await scraped(box)).labels_of("ostler_device_fault_timestamp_seconds") == []
        before = time.time()
        box.hardware.fail(0)
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=1)
        found = await scraped(box)
        (fault,) = found.labels_of("ostler_device_fault_timestamp_seconds")
        assert fault == {"device": fault["device"], "kind": "gpu", "resource": GPU, "health": "unhealthy"}
        assert fault["device"].startswith("gpu-0000-")
        assert before <= found("ostler_device_fault_timestamp_seconds", **fault) <= time.time()
        assert found("ostler_resource_unhealthy_devices", resource=GPU, cause="health") == 1
        assert found("ostler_health_transitions_total", kind="gpu", from_="healthy", to="unhealthy") == 1
        assert found("ostler_health_transitions_total", kind="gpu", from_="unhealthy", to="healthy") == 0
        assert found("ostler_list_updates_total", resource=GPU) == 2
        box.hardware.heal(0)
        await box.agent.rescan()
        found = await scraped(box)
        assert found.labels_of("ostler_device_fault_timestamp_seconds") == []
        assert found("ostler_health_transitions_total", kind="gpu", from_="unhealthy", to="healthy") == 1


async def test_what_no_rule_selects_is_withheld_with_its_cause() -> None:
    async with node("a100-mig-4", mig_strategy="mixed") as box:
        await box.registered()
        found = await scraped(box)
        withheld = found("ostler_devices_withheld", kind="gpu", cause="no_rule")
        assert withheld > 0
        assert found.sum("ostler_devices", kind="gpu", resource="") == withheld
        assert found("ostler_driver_info", **found.labels_of("ostler_driver_info")[0]) == 1


async def test_a_kubelet_restart_is_counted_once_however_many_resources_there_are() -> None:
    async with node("a100-mig-4", mig_strategy="mixed") as box:
        resources = len((await box.registered()).resources)
        assert resources > 2
        await box.kubelet.stop()
        await box.kubelet.start()
        found = await until(box, "ostler_registrations_total", 2 * resources)
        assert found("ostler_kubelet_restarts_total") == 1


async def test_reloads_notes_and_what_waits_for_a_restart_are_told(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    text = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
    config.write_text(text)
    box = SandboxNode(path("l4-2"), flags=HTTP, arguments=["--config", str(config)], reconcile_interval=0.05)
    async with box:
        await box.registered()
        found = await scraped(box)
        assert found("ostler_config_last_reload_successful") == 1
        loaded = found("ostler_config_last_reload_success_timestamp_seconds")
        assert {labels["kind"] for labels in found.labels_of("ostler_config_notes")} >= {"fault", "ignored", "remark"}
        config.write_text("nonsense: true\n")
        box.agent.send(signal.SIGHUP)
        # A page is written while the agent works: what stands before the counter may be of a moment before.
        await until(box, "ostler_config_reloads_total", 1, result="failure")
        found = await scraped(box)
        assert found("ostler_config_last_reload_successful") == 0
        assert found("ostler_config_last_reload_success_timestamp_seconds") == loaded
        found = await until(box, "ostler_events_total", 1, type="Warning", reason="ConfigRejected")
        assert found("ostler_events_total", type="Warning", reason="ConfigRejected") == 1
        config.write_text(f"{text}inventory: {{maxInterval: 30s}}\n")
        box.agent.send(signal.SIGHUP)
        await until(box, "ostler_config_reloads_total", 1, result="success")
        found = await scraped(box)
        assert found("ostler_config_last_reload_successful") == 1
        assert found("ostler_config_last_reload_success_timestamp_seconds") > loaded
        assert found("ostler_config_pending_settings") == 1


async def test_events_of_real_hardware_and_quiesce_are_told() -> None:
    async with SandboxNode(None, flags=HTTP, reconcile_interval=0.05) as box:
        await eventually(lambda: _listening(box))
        await asyncio.to_thread(main, ["quiesce", "--socket", str(box.root / "ostler.sock")])
        found = await scraped(box)
        assert found("ostler_quiesced") == 1
        assert found.sum("ostler_uevent_source") == 1
        assert found.names() >= {
            "ostler_uevents_total",
            "ostler_uevent_overflows_total",
            "ostler_link_messages_total",
            "ostler_link_overflows_total",
            "ostler_polled_changes_total",
            "ostler_hardware_wakeups_total",
        }


async def _listening(box: SandboxNode) -> bool:
    return any(source.name == "events" for source in (await box.agent.status()).sources)


async def test_a_scraper_may_ask_for_the_head_alone() -> None:
    async with node() as box:
        request = urllib.request.Request(f"{await address(box)}/metrics", method="HEAD")

        def ask() -> tuple[int, str, int, bytes]:
            with urllib.request.urlopen(request, timeout=60) as answer:
                length = int(answer.headers["Content-Length"])
                return answer.status, answer.headers["Content-Type"], length, answer.read()

        status, kind, length, body = await asyncio.to_thread(ask)
        assert (status, kind, body) == (200, "text/plain; version=0.0.4; charset=utf-8", b"")
        assert length > 1000
