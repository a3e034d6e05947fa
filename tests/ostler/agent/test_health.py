"""The health of GPUs end to end: what NVML tells of them reaches both doors, metrics, events and people, and ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.process import AgentCommandFailed
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import HW_THERMAL, InjectedNvml
from tests.ostler.agent.sick_node import BOTH, GPU, SickNode
from tests.waiting import eventually

pytestmark = [*stub.needs_gcc, pytest.mark.needs_root, pytest.mark.timeout(150)]

HEALTH = "ostler.dev/health"
SICK = 2
WITHIN = 30.0
"""Seconds within which what has to be asked for is known: looks are 9.5 s apart."""


@dataclass(frozen=True)
class _Trouble:
    """Something that NVML tells of a GPU, how it is judged, and what ends it; ``told``: by an event of the driver."""

    begin: Callable[[InjectedNvml], None]
    end: Callable[[InjectedNvml], None]
    cause: str
    words: str
    recovery: str = "automatic"


UNHEALTHY = {
    "ecc": _Trouble(lambda nvml: nvml.ecc(SICK, 4), lambda _: None, "ecc", "uncorrectable"),
    "recovery": _Trouble(
        lambda nvml: nvml.recovery(SICK, 1),
        lambda nvml: nvml.recovery(SICK, 0),
        "recovery",
        "the driver asks for a reset of the GPU",
        "reset",
    ),
    "rows": _Trouble(
        lambda nvml: nvml.rows(SICK, failed=True),
        lambda nvml: nvml.rows(SICK),
        "row-remap",
        "row",
        "replace",
    ),
}
DEGRADED = {
    "thermal": _Trouble(
        lambda nvml: nvml.throttle(SICK, HW_THERMAL), lambda nvml: nvml.throttle(SICK, 0), "thermal", "too hot"
    ),
    "rows": _Trouble(
        lambda nvml: nvml.rows(SICK, pending=True), lambda nvml: nvml.rows(SICK), "row-remap", "row", "reset"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root rights to make device files")
    monkeypatch.setenv(stub.VARIABLE, str(tmp_path / "nvml" / "hardware.txt"))
    return tmp_path


@pytest.fixture
async def box(folder: Path) -> AsyncIterator[SickNode]:
    async with SickNode(folder) as node:
        yield node
        assert node.nvml.violations == ()


async def seen_everywhere(box: SickNode, cause: str, words: str, recovery: str) -> None:
    """The unhealthy device is withheld at both doors, and everybody is told the same."""
    device, uuid = box.name(SICK), box.uuid(SICK)
    await box.kubelet.wait_for(GPU, healthy=7)
    assert box.unhealthy() == [uuid]
    await eventually(lambda: box.taints() == {device: [(HEALTH, "NoSchedule")]}, "tainted")
    await eventually(lambda: box.streamed(device)[0] == "Unhealthy", "told for the status of pods")
    assert words in box.streamed(device)[1]
    found = await box.health()
    assert (found[device]["state"], found[device]["cause"], found[device]["recovery"]) == ("unhealthy", cause, recovery)
    assert words in found[device]["reason"]
    assert {each["state"] for name, each in found.items() if name != device} == {"healthy"}
    text = await box.command("health", "--faults")
    assert device in text
    assert words in text
    assert [line for line in await box.told("DeviceUnhealthy") if device in line and words in line]
    assert await box.metric("ostler_device_health", kind="gpu", health="unhealthy") == 1
    assert await box.metric("ostler_health_verdicts_total", kind="gpu", trouble=cause, health="unhealthy") == 1


async def well_again(box: SickNode) -> None:
    """Every device is offered at both doors."""
    await box.kubelet.wait_for(GPU, healthy=8, within=120)
    await eventually(lambda: not box.taints(), "no taint is left")
    await eventually(lambda: {box.streamed(box.name(gpu))[0] for gpu in range(8)} == {"Healthy"}, "told to the kubelet")
    assert await box.metric("ostler_device_health", kind="gpu", health="healthy") == 8
    assert "every device is healthy" in await box.command("health", "--faults")


@pytest.mark.parametrize("name", UNHEALTHY)
async def test_what_nvml_tells_reaches_everybody_and_ends_without_a_restart(box: SickNode, name: str) -> None:
    trouble = UNHEALTHY[name]
    process = box.agent.pid
    trouble.begin(box.nvml)
    box.look(SICK)
    await seen_everywhere(box, trouble.cause, trouble.words, trouble.recovery)
    trouble.end(box.nvml)
    box.look(SICK)
    if trouble.recovery == "replace":
        await eventually(lambda: _cleared(box), "a person says so", within=120)
    await well_again(box)
    assert [line for line in await box.told("DeviceHealthy") if box.name(SICK) in line]
    assert box.agent.pid == process


async def _cleared(box: SickNode) -> bool:
    """Only once a look has found it well can it be cleared, and nothing but that makes it healthy."""
    with contextlib.suppress(AgentCommandFailed):
        await box.command("health", "clear", box.name(SICK))
    return bool((await box.health())[box.name(SICK)]["state"] == "healthy")


@pytest.mark.parametrize("name", DEGRADED)
async def test_what_is_only_worth_a_look_is_told_and_the_device_allocated(box: SickNode, name: str) -> None:
    trouble, device = DEGRADED[name], box.name(SICK)
    trouble.begin(box.nvml)
    box.look(SICK)

    async def degraded() -> bool:
        return bool((await box.health())[device]["state"] == "degraded")

    await eventually(degraded, within=WITHIN)
    found = (await box.health())[device]
    assert (found["cause"], found["recovery"]) == (trouble.cause, trouble.recovery)
    assert trouble.words in found["reason"]
    assert [line for line in await box.told("DeviceDegraded") if device in line]
    assert box.unhealthy() == []
    assert not box.taints()
    given = await box.give(GPU, 8)
    assert box.uuid(SICK) in given.ids
    trouble.end(box.nvml)
    box.look(SICK)

    async def healthy() -> bool:
        return bool((await box.health())[device]["state"] == "healthy")

    await eventually(healthy, within=WITHIN)


async def test_what_a_scan_has_found_as_well_ends_with_the_look_that_finds_it_gone(box: SickNode) -> None:
    trouble, device = DEGRADED["rows"], box.name(SICK)
    trouble.begin(box.nvml)
    await box.agent.rescan()
    # By the scan, whether or not a look has seen it yet.
    assert await _state(box, device, "degraded")
    trouble.end(box.nvml)
    box.look(SICK)
    await eventually(lambda: _state(box, device, "healthy"), "the next scan by itself is a minute away", within=WITHIN)


async def test_xid_79_waits_for_a_reset_and_quiesce_and_resume_are_one(box: SickNode) -> None:
    box.nvml.xid(SICK, 79)
    await seen_everywhere(box, "xid", "XID 79", "reset")
    assert await box.metric("ostler_xids_total", xid="79", action="reset") == 1
    # Time and good looks heal nothing. Who asks for a scan has the driver asked, too, more often than it is by itself.
    looks = await box.metric("ostler_health_looks_total", source="nvml")

    async def looked() -> bool:
        await box.agent.rescan()
        return await box.metric("ostler_health_looks_total", source="nvml") > looks + 2

    await eventually(looked, "looked at again", within=WITHIN)
    assert box.unhealthy() == [box.uuid(SICK)]
    await box.command("quiesce", "--reason", "reset GPU 2")
    await box.kubelet.wait_for(GPU, healthy=0)
    await box.command("resume")
    await well_again(box)


async def test_what_waits_for_a_reset_outlives_the_agent_and_not_the_boot(box: SickNode) -> None:
    uuid = box.uuid(SICK)
    box.nvml.xid(SICK, 79)
    await box.kubelet.wait_for(GPU, healthy=7)
    await eventually(lambda: "79" in _record(box), "remembered")
    seen = len(box.kubelet.devices(GPU))
    await box.restart()
    assert seen == 8
    await box.kubelet.wait_for(GPU, healthy=7)
    assert box.unhealthy() == [uuid]
    assert "XID 79" in (await box.health())[box.name(SICK)]["reason"]
    await eventually(lambda: box.taints() == {box.name(SICK): [(HEALTH, "NoSchedule")]}, "tainted")
    box.boot("2f6f1d5c-0000-4000-8000-000000000002")
    await box.restart()
    await box.kubelet.wait_for(GPU, healthy=8)
    await eventually(lambda: not box.taints(), "no taint is left")


def _record(box: SickNode) -> str:
    file = box.root / "state" / "health.json"
    return file.read_text() if file.exists() else ""


async def test_a_gpu_that_left_the_bus_evicts_after_a_while_and_heals_when_it_is_back(folder: Path) -> None:
    async with SickNode(folder, health={"evictAfter": "5s"}) as box:
        device, uuid = box.name(SICK), box.uuid(SICK)
        box.nvml.lose(SICK)
        await box.kubelet.wait_for(GPU, healthy=7)
        assert box.unhealthy() == [uuid]
        await eventually(lambda: box.taints().get(device, [("", "")])[0][1] == "NoSchedule", "first no new claims")
        await eventually(lambda: box.taints().get(device, [("", "")])[0][1] == "NoExecute", "then no pods")
        found = (await box.health())[device]
        assert (found["state"], found["cause"], found["evicts"]) == ("unhealthy", "lost", True)
        assert "unhealthy, evicts" in await box.command("health", "--faults")
        assert await box.metric("ostler_health_evicting_devices", kind="gpu") == 1
        assert set(box.taints()) == {device}
        box.nvml.find(SICK)
        await well_again(box)


async def test_half_of_the_gpus_lost_at_once_evict_nobody_until_somebody_says_so(folder: Path) -> None:
    async with SickNode(folder, health={"evictAfter": "0s"}) as box:
        # At once, by a single change of the description.
        box.nvml.set({f"gpu{gpu}.error.*": "GPU_IS_LOST" for gpu in range(5)})
        await box.kubelet.wait_for(GPU, healthy=3)
        await eventually(lambda: len(box.taints()) == 5, "tainted")
        (limit,) = await box.eviction_limits()
        assert limit["kind"] == "gpu"
        assert "5 of 8 devices of kind gpu went bad within 60 s" in limit["reason"]
        assert {taint[1] for taints in box.taints().values() for taint in taints} == {"NoSchedule"}
        assert "kept from evicting" in await box.command("health")
        assert await box.told("HealthBrakeOn")
        assert await box.metric("ostler_health_brake", kind="gpu") == 1
        said = await box.command("health", "release-eviction-limit", "gpu", "--dry-run")
        assert "dry run, nothing is changed" in said
        assert "evicts the pods that have it" in said
        assert await box.eviction_limits()
        # A restart is nobody who says so.
        await box.restart()
        assert await box.eviction_limits()
        await eventually(lambda: len(box.taints()) == 5, "tainted")
        await box.command("health", "release-eviction-limit", "gpu")
        await eventually(
            lambda: [taint[1] for taints in box.taints().values() for taint in taints] == ["NoExecute"] * 5,
            "they evict",
        )
        assert not await box.eviction_limits()
        with pytest.raises(AgentCommandFailed, match="no eviction limit holds for kind gpu"):
            await box.command("health", "release-eviction-limit", "gpu")


async def test_a_silent_driver_makes_devices_unknown_and_costs_no_pod(box: SickNode) -> None:
    box.nvml.unload()
    await box.agent.rescan()
    await box.kubelet.wait_for(GPU, healthy=0)
    assert {each["state"] for each in (await box.health()).values() if each["kind"] == "gpu"} == {"unknown"}
    await eventually(lambda: len(box.taints()) == 8, "nothing new is scheduled")
    assert {taint[1] for taints in box.taints().values() for taint in taints} == {"NoSchedule"}
    await eventually(lambda: {box.streamed(box.name(gpu))[0] for gpu in range(8)} == {"Unknown"}, "told to the kubelet")
    assert await box.metric("ostler_health_evicting_devices", kind="gpu") == 0
    box.nvml.load()
    await box.agent.rescan()
    await well_again(box)


async def test_what_people_say_goes_before_everything_for_its_time(box: SickNode) -> None:
    device, uuid = box.name(SICK), box.uuid(SICK)
    said = await box.command("health", "set", device, "unhealthy", "--reason", "case 4711", "--dry-run")
    assert said == f"dry run, nothing is changed:\n{device} healthy -> unhealthy (case 4711)\n"
    assert (await box.health())[device]["state"] == "healthy"
    said = await box.command("health", "set", uuid, "unhealthy", "--reason", "case 4711")
    assert said == f"{device} healthy -> unhealthy (case 4711)\n"
    await seen_everywhere(box, "person", "case 4711", "person")
    await eventually(lambda: "case 4711" in _record(box), "remembered")
    await box.restart()
    await box.kubelet.wait_for(GPU, healthy=7)
    assert box.unhealthy() == [uuid]
    said = await box.command("health", "clear", device, "--dry-run")
    assert "the override (case 4711) would be cleared" in said
    assert box.unhealthy() == [uuid]
    await box.command("health", "clear", device)
    await box.kubelet.wait_for(GPU, healthy=8)
    await box.command("health", "set", device, "unhealthy", "--reason", "a moment", "--for", "10s")
    await box.kubelet.wait_for(GPU, healthy=7)
    assert "by itself" in await box.command("health", "--faults")
    await well_again(box)


async def test_a_word_that_says_healthy_overrules_an_xid(box: SickNode) -> None:
    device = box.name(SICK)
    box.nvml.xid(SICK, 79)
    await box.kubelet.wait_for(GPU, healthy=7)
    await box.command("health", "set", device, "healthy", "--reason", "harmless")
    await box.kubelet.wait_for(GPU, healthy=8)
    await box.command("health", "clear", device)
    # What happened is forgotten with the word.
    assert (await box.health())[device]["state"] == "healthy"
    with pytest.raises(AgentCommandFailed, match="there is nothing to clear"):
        await box.command("health", "clear", device)


async def test_a_dry_run_judges_and_shows_nobody(folder: Path) -> None:
    async with SickNode(folder, health={"dryRun": True}) as box:
        device = box.name(SICK)
        box.nvml.xid(SICK, 79)
        await eventually(lambda: _state(box, device, "unhealthy"), "judged")
        assert (await box.health())[device]["shown_state"] == "healthy"
        assert (await box.command("health")).startswith("dry run: ")
        assert box.unhealthy() == []
        assert not box.taints()
        assert [line for line in await box.told("DeviceUnhealthy") if device in line]
        assert await box.metric("ostler_health_dry_run") == 1
        assert await box.metric("ostler_device_health", kind="gpu", health="unhealthy") == 1


async def _state(box: SickNode, device: str, state: str) -> bool:
    return bool((await box.health())[device]["state"] == state)


async def test_a_policy_that_is_changed_while_running_holds_for_what_happens_next(box: SickNode) -> None:
    file = box.root / "ostler.yaml"
    file.write_text(
        file.read_text().replace('"quiet"', '"xids": {"overrides": [{"ids": [79], "action": "ignore"}]}, "quiet"')
    )
    await box.command("reload")
    box.nvml.xid(SICK, 79)
    box.nvml.xid(SICK + 1, 95)
    await box.kubelet.wait_for(GPU, healthy=7)
    assert box.unhealthy() == [box.uuid(SICK + 1)]
    assert await box.metric("ostler_xids_total", xid="79", action="ignore") == 1


async def test_a_sick_gpu_takes_its_mig_devices_with_it_and_an_instance_only_itself(folder: Path) -> None:
    mig = {"name": "nvidia.com/mig", "door": "plugin", "devices": {"kind": "mig"}}
    async with SickNode(folder, "a100-mig-4", resources=[mig, BOTH]) as box:
        gpu = next(gpu for gpu in box.facts.gpus if len(gpu.mig_devices) > 1)
        others = [str(part.uuid) for other in box.facts.gpus if other is not gpu for part in other.mig_devices]
        parts = {str(part.uuid): part for part in gpu.mig_devices}
        total = len(parts) + len(others)
        await box.kubelet.wait_for("nvidia.com/mig", healthy=total)
        first = next(iter(parts.values()))
        assert first.gpu_instance is not None
        box.nvml.xid(gpu.index, 79, first.gpu_instance, first.compute_instance or 0)
        await box.kubelet.wait_for("nvidia.com/mig", healthy=total - 1)
        assert box.unhealthy("nvidia.com/mig") == [str(first.uuid)]
        assert (await box.health())[box.name(gpu.index)]["state"] == "degraded"
        box.nvml.xid(gpu.index, 79)
        await box.kubelet.wait_for("nvidia.com/mig", healthy=len(others))
        assert box.unhealthy("nvidia.com/mig") == sorted(parts)
        found = await box.health()
        reasons = {each["reason"] for each in found.values() if each["kind"] == "mig" and each["state"] == "unhealthy"}
        assert all(f"its GPU {box.name(gpu.index)}" in reason or "XID 79" in reason for reason in reasons)
        await box.command("health", "clear", box.name(gpu.index))
        await box.kubelet.wait_for("nvidia.com/mig", healthy=total)
