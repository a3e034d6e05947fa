"""What only getters tell: every sign of trouble is found at its GPU alone, and is gone when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from node.health.policy import APART, NARROW, UNREACHABLE
from node.health.signal import Condition, Trouble
from node.health.state import HealthState
from node.inventory.facts import SramErrors
from node.inventory.nvidia.signals.conditions import LINK_DOWN, LINK_ERRORS
from node.inventory.nvidia.signals.gpus import GpuId
from node.inventory.nvidia.signals.polls import LookMemory
from node.inventory.nvidia.signals.vitals import Vitals
from tests.node.nvml import nodes, stub
from tests.node.nvml.conftest import well
from tests.node.nvml.listening import Listening, kinds_of
from tests.node.nvml.stub.injected import HW_POWER_BRAKE, HW_THERMAL, RECOVERY_FIELD, InjectedNvml
from tests.waiting import CountedWakeups, eventually

pytestmark = stub.needs_gcc

GPU, ONE = "gpu-0000-3b-00-0", "gpu-0000-2b-00-0"


async def test_gpus_that_are_well_are_looked_at_and_nothing_is_found(listening: Listening) -> None:
    await listening.opened()
    look = listening.looks[0]
    assert (look.source, look.at, len(look.found)) == ("nvml", 1000.0, 8)
    assert set(look.found.values()) == {()}


async def test_memory_errors_count_while_they_grow(listening: Listening) -> None:
    listening.hardware.ecc(2, 4, 90)
    await listening.opened()
    assert listening.looks[0].found[GPU] == (), "errors of before are over"
    listening.hardware.ecc(2, 6, 92)
    (condition,) = (await listening.looked()).found[GPU]
    assert condition == Condition(Trouble.ECC, "2 new uncorrectable memory errors, 6 since the driver was loaded")
    vitals = listening.signals.vitals[GPU]
    assert (vitals.ecc_volatile, vitals.ecc_aggregate) == (6, 92)
    assert (await listening.looked()).found[GPU] == ()
    listening.hardware.ecc(2, 0, 92)
    assert (await listening.looked()).found[GPU] == (), "the counter began anew"


def test_a_counter_that_was_not_answered_once_has_grown_all_the_same() -> None:
    memory = LookMemory()
    counted = Vitals(ecc_volatile=0, link_errors=(("crc", 1), ("replay", 1)))
    assert memory.concluded(GpuId("GPU-1"), counted) == ()
    assert memory.concluded(GpuId("GPU-1"), Vitals(link_errors=(("crc", 1),))) == ()
    errors, links = memory.concluded(GpuId("GPU-1"), Vitals(ecc_volatile=5, link_errors=(("crc", 1), ("replay", 3))))
    assert errors.detail == "5 new uncorrectable memory errors, 5 since the driver was loaded"
    assert links.detail == "NVLink errors since the last look: replay +2"


async def test_rows_that_wait_and_rows_that_failed_differ_by_code(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.rows(2, pending=True)
    (pending,) = await listening.finds(GPU, Trouble.ROW_REMAP)
    assert (pending.code, pending.detail) == (0, "a memory row waits to be remapped at the next reset of the GPU")
    listening.hardware.rows(2, pending=True, failed=True)
    (failed,) = (await listening.looked()).found[GPU]
    assert (failed.code, failed.detail) == (1, "a memory row could not be remapped: no spare rows are left for it")
    listening.hardware.rows(2)
    await listening.finds(GPU)


async def test_boards_without_row_remapping_tell_pages_that_wait(listening: Listening) -> None:
    listening.hardware.fail("nvmlDeviceGetRemappedRows", "NOT_SUPPORTED", gpu=2)
    await listening.opened()
    listening.hardware.pages(2, pending=True)
    (condition,) = await listening.finds(GPU, Trouble.ROW_REMAP)
    assert condition.detail == "memory pages wait to be retired at the next reset of the GPU"
    listening.hardware.pages(2, pending=False)
    await listening.finds(GPU)


@pytest.mark.parametrize(
    ("action", "words"), [(1, "a reset of the GPU"), (2, "a reboot of the node"), (99, "recovery action 99")]
)
async def test_the_recovery_action_is_told_with_its_number(listening: Listening, action: int, words: str) -> None:
    await listening.opened()
    listening.hardware.recovery(2, action)
    assert await listening.finds(GPU, Trouble.RECOVERY) == (
        Condition(Trouble.RECOVERY, f"the driver asks for {words}", action),
    )
    listening.hardware.recovery(2, 0)
    await listening.finds(GPU)


async def test_a_field_that_fails_is_no_trouble_and_is_asked_again_only_if_it_can_be_had(listening: Listening) -> None:
    listening.hardware.field(2, RECOVERY_FIELD, "NOT_SUPPORTED")
    listening.hardware.field(3, RECOVERY_FIELD, "UNKNOWN")
    await listening.opened()
    assert set(listening.looks[0].found.values()) == {()}
    listening.hardware.recovery(2, 1)
    listening.hardware.recovery(3, 1)
    look = await listening.looked()
    assert [name for name, found in look.found.items() if found] == ["gpu-0000-4b-00-0"]


async def test_slow_clocks_are_told_by_the_hardwares_reason(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.throttle(2, HW_THERMAL | 0x4)
    await listening.finds(GPU, Trouble.THERMAL)
    listening.hardware.throttle(2, HW_POWER_BRAKE | HW_THERMAL)
    await listening.finds(GPU, Trouble.THERMAL, Trouble.POWER)
    listening.hardware.throttle(2, 0x1 | 0x4 | 0x20)
    await listening.finds(GPU)


async def test_an_older_library_tells_slow_clocks_by_the_older_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware = InjectedNvml(tmp_path / "driver", well(), without=["nvmlDeviceGetCurrentClocksEventReasons"])
    monkeypatch.setenv(*next(iter(hardware.environment.items())))
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        hardware.throttle(2, HW_THERMAL)
        await listening.finds(GPU, Trouble.THERMAL)


async def test_nvlink_errors_count_while_they_grow(listening: Listening) -> None:
    listening.hardware.nvlink_errors(2, replay=7)
    await listening.opened()
    listening.hardware.nvlink_errors(2, replay=9, recovery=1)
    (condition,) = (await listening.looked()).found[GPU]
    words = "NVLink errors since the last look: replay +2, recovery +1"
    assert condition == Condition(Trouble.NVLINK, words, LINK_ERRORS)
    assert (await listening.looked()).found[GPU] == ()


async def test_boards_without_totals_count_errors_by_link(listening: Listening) -> None:
    for field in (38, 45, 52, 59, 160):
        listening.hardware.field(2, field, "NOT_SUPPORTED")
    for link in range(18):
        listening.hardware.field(2, 162, 0, link)
    await listening.opened()
    listening.hardware.field(2, 162, 3, 11)
    (condition,) = await listening.finds(GPU, Trouble.NVLINK)
    assert condition.detail == "NVLink errors since the last look: recovery of link 11 +3"


async def test_a_link_that_goes_down_is_told_until_it_is_up(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.link(2, 4, active=False)
    listening.hardware.link(2, 7, active=False)
    listening.hardware.nvlink_errors(2, replay=1)
    (condition,) = await listening.finds(GPU, Trouble.NVLINK)
    assert condition == Condition(Trouble.NVLINK, "NVLinks 4, 7 went down", LINK_DOWN), (
        "which says more than its errors"
    )
    assert (await listening.looked()).found["gpu-0000-1b-00-0"] == (), "its link 17 was never up"
    listening.hardware.link(2, 4, active=True)
    (condition,) = (await listening.looked()).found[GPU]
    assert condition.detail == "NVLink 7 went down"
    listening.hardware.link(2, 7, active=True)
    await listening.finds(GPU)


async def test_links_that_another_mig_mode_turns_off_are_no_trouble(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.set({"gpu2.mig_mode": 1})
    assert (await listening.looked()).found[GPU] == (), "its links are still up"
    for link in range(18):
        listening.hardware.link(2, link, active=False)
    assert (await listening.looked()).found[GPU] == ()
    listening.hardware.fail("nvmlDeviceGetMigMode", "UNKNOWN", gpu=2)
    await listening.looked()
    listening.hardware.set({"gpu2.mig_mode": 0, "gpu2.error.nvmlDeviceGetMigMode": None})
    for link in range(18):
        listening.hardware.link(2, link, active=True)
    for _ in range(2):
        assert (await listening.looked()).found[GPU] == ()
    listening.hardware.link(2, 4, active=False)
    await listening.finds(GPU, Trouble.NVLINK)


async def test_a_driver_without_the_field_tells_links_one_by_one(listening: Listening) -> None:
    listening.hardware.field(2, 165, "NOT_SUPPORTED")
    await listening.opened()
    listening.hardware.link(2, 4, active=False)
    (condition,) = await listening.finds(GPU, Trouble.NVLINK)
    assert condition.detail == "NVLink 4 went down"


async def test_a_gpu_that_must_be_reset_asks_for_it(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.fail("nvmlDeviceGetTotalEccErrors", "RESET_REQUIRED", gpu=2)
    (condition,) = await listening.finds(GPU, Trouble.RECOVERY)
    assert condition.code == 1
    listening.hardware.fail("nvmlDeviceGetTotalEccErrors", "OK", gpu=2)
    await listening.finds(GPU)


@pytest.mark.parametrize(
    "symbols",
    [
        ["nvmlDeviceGetTotalEccErrors"],
        ["nvmlDeviceGetRemappedRows"],
        ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus"],
        ["nvmlDeviceGetFieldValues"],
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"],
        ["nvmlDeviceGetNvLinkState"],
    ],
)
async def test_what_a_library_lacks_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symbols: list[str]
) -> None:
    hardware = InjectedNvml(tmp_path / "driver", well(), without=symbols)
    monkeypatch.setenv(*next(iter(hardware.environment.items())))
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        before = len(listening.looks)
        hardware.ecc(2, 1)
        hardware.rows(2, pending=True)
        hardware.recovery(2, 1)
        hardware.throttle(2, HW_THERMAL)
        hardware.link(2, 1, active=False)
        await listening.looked()
        # A look of the beginning may come in between, and only the first one after an error finds a counter changed.
        found = {kind for look in listening.looks[before:] for kind in kinds_of(look.found[GPU])}
        lost = {
            "nvmlDeviceGetTotalEccErrors": Trouble.ECC,
            "nvmlDeviceGetRemappedRows": Trouble.ROW_REMAP,
            "nvmlDeviceGetFieldValues": Trouble.RECOVERY,
            "nvmlDeviceGetCurrentClocksEventReasons": Trouble.THERMAL,
        }
        all_kinds = {*lost.values(), Trouble.NVLINK}
        assert found == all_kinds - {lost[symbol] for symbol in symbols if symbol in lost}


async def test_a_board_that_supports_nothing_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = InjectedNvml(tmp_path / "driver", nodes.small())
    for key in ("ecc.volatile", "ecc.aggregate", "retired_pages_pending", "clocks_event_reasons", "field.230"):
        hardware.set({f"gpu0.{key}": None})
    monkeypatch.setenv(*next(iter(hardware.environment.items())))
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        assert listening.looks[0].found == {"gpu-0000-01-00-0": ()}


async def test_looks_that_find_nothing_new_do_not_wake_the_loop(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc", interval=0.02) as listening:
        await listening.opened()
        await eventually(lambda: len(listening.looks) > 2)
        wakeups, seen = CountedWakeups(asyncio.get_running_loop()), len(listening.looks)
        await eventually(lambda: len(listening.looks) > seen + 3)
        assert wakeups.count == 0
        hardware.throttle(2, HW_THERMAL)
        await eventually(lambda: listening.looks[-1].found[GPU])
        assert wakeups.count == 1


async def test_looks_follow_each_other_at_the_interval(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc", interval=0.02) as listening:
        await listening.opened()
        await eventually(lambda: len(listening.looks) > 5)
        hardware.throttle(2, HW_THERMAL)
        await eventually(lambda: listening.looks[-1].found[GPU])
        hardware.throttle(2, 0)
        await eventually(lambda: not listening.looks[-1].found[GPU])


async def test_a_gpu_that_stops_answering_is_found_by_the_next_pulse_without_any_event(
    hardware: InjectedNvml, tmp_path: Path
) -> None:
    hardware.set({f"gpu{gpu}.event_types": 0 for gpu in range(8)})
    async with Listening(hardware, tmp_path / "proc", pulse=0.02) as listening:
        await listening.scan()
        await eventually(lambda: bool(listening.looks), "the first look")
        hardware.lose(2)
        await eventually(lambda: kinds_of(listening.looks[-1].found.get(GPU, ())) == (Trouble.LOST,), "the loss")
        assert [*listening.looks[-1].found] == [GPU], "only the one that does not answer is looked at"
        lost = len(listening.looks)
        hardware.find(2)
        await eventually(lambda: len(listening.looks) >= lost + 3, "looks that follow its return")
        assert {kinds_of(look.found[GPU]) for look in listening.looks[lost:]} == {()}
        assert listening.wakes


TROUBLES_OF_SCANS: dict[str, tuple[Trouble, Callable[[InjectedNvml], None], Callable[[InjectedNvml], None]]] = {
    "pending rows": (Trouble.ROW_REMAP, lambda nvml: nvml.rows(2, pending=True), lambda nvml: nvml.rows(2)),
    "failed rows": (Trouble.ROW_REMAP, lambda nvml: nvml.rows(2, failed=True), lambda nvml: nvml.rows(2)),
    "sram": (Trouble.SRAM, lambda nvml: nvml.sram(2, exceeded=True), lambda nvml: nvml.sram(2, exceeded=False)),
    "reset": (
        Trouble.RECOVERY,
        lambda nvml: nvml.fail("*", "RESET_REQUIRED", gpu=2),
        lambda nvml: nvml.fail("*", "OK", gpu=2),
    ),
}


@pytest.mark.parametrize("name", TROUBLES_OF_SCANS)
async def test_a_look_that_finds_less_than_the_look_before_asks_for_a_scan(listening: Listening, name: str) -> None:
    trouble, begin, end = TROUBLES_OF_SCANS[name]
    await listening.opened()
    begin(listening.hardware)
    await listening.finds(GPU, trouble)
    wakes = listening.wakes
    end(listening.hardware)
    await listening.finds(GPU)
    assert listening.wakes == wakes + 1
    await listening.looked()
    assert listening.wakes == wakes + 1, "nothing is new"


@pytest.mark.parametrize("name", TROUBLES_OF_SCANS)
async def test_a_look_that_finds_less_than_the_last_scan_asks_for_one_scan(listening: Listening, name: str) -> None:
    trouble, begin, end = TROUBLES_OF_SCANS[name]
    await listening.opened()
    begin(listening.hardware)
    device = (await listening.scan()).device(GPU)
    assert device is not None
    assert device.health.cause == trouble
    end(listening.hardware)
    wakes = listening.wakes
    await listening.finds(GPU)
    assert listening.wakes == wakes + 1
    await listening.looked()
    assert listening.wakes == wakes + 1, "what the scan finds is its own matter"


async def test_a_look_that_finds_what_the_last_scan_found_asks_for_none(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.rows(2, pending=True)
    await listening.scan()
    wakes = listening.wakes
    await listening.finds(GPU, Trouble.ROW_REMAP)
    listening.hardware.throttle(2, HW_THERMAL)
    await listening.finds(GPU, Trouble.ROW_REMAP, Trouble.THERMAL)
    listening.hardware.throttle(2, 0)
    await listening.finds(GPU, Trouble.ROW_REMAP)
    assert listening.wakes == wakes


async def test_pulses_find_nothing_to_look_at_while_every_gpu_answers(hardware: InjectedNvml, tmp_path: Path) -> None:
    hardware.fail("nvmlDeviceGetMemoryInfo", "NOT_SUPPORTED", gpu=1)
    hardware.set({f"gpu{gpu}.event_types": 0 for gpu in range(8)})
    async with Listening(hardware, tmp_path / "proc", pulse=0.005) as listening:
        await listening.scan()
        await eventually(lambda: bool(listening.looks), "the first look")
        looks = len(listening.looks)
        hardware.lose(1)
        await eventually(lambda: len(listening.looks) > looks, "the loss of the one whose memory has no figures")
        assert [*listening.looks[looks].found] == [ONE]


async def test_too_many_errors_of_sram_ask_for_another_gpu(listening: Listening) -> None:
    listening.hardware.sram(2, exceeded=False, parity=1, secded=2)
    await listening.opened()
    assert (await listening.looked()).found[GPU] == ()
    assert listening.signals.vitals[GPU].sram == SramErrors(3, 3, threshold_exceeded=False)
    listening.hardware.sram(2, exceeded=True, parity=5)
    (found,) = await listening.finds(GPU, Trouble.SRAM)
    assert found.detail.startswith("its SRAM has more uncorrectable errors than NVIDIA allows; run NVIDIA's field")


@pytest.mark.parametrize(
    ("mask", "summary", "code", "words"),
    [
        (0x119A, 2, UNREACHABLE, "its routes to other GPUs are unhealthy"),
        (0x14AA, 2, APART, "it has no partition"),
        (0x21AA, 2, APART, "it has no partition"),
        (0x12AA, 2, APART, "its system GUID is wrong"),
        (0x1FAA, 2, APART, "it is configured wrongly (fault 15)"),
        (0x11A6, 2, APART, "its routes to other GPUs are being recovered"),
        (0x116A, 2, APART, "it recovers from accesses that timed out"),
        (0x11AA, 2, APART, "it is unhealthy for an unknown reason"),
        (0x11A9, 3, NARROW, "its bandwidth is degraded"),
        (0, 3, NARROW, "its bandwidth is degraded"),
    ],
)
async def test_what_the_fabric_says_of_a_gpu_is_told_and_has_it_scanned(
    listening: Listening, mask: int, summary: int, code: int, words: str
) -> None:
    await listening.opened()
    wakes = listening.wakes
    listening.hardware.fabric(2, health_mask=mask, health_summary=summary)
    assert await listening.finds(GPU, Trouble.FABRIC) == (Condition(Trouble.FABRIC, f"NVLink fabric: {words}", code),)
    await eventually(lambda: listening.wakes > wakes, "a scan is asked for, which tells the clique")
    snapshot = await listening.scan()
    device = snapshot.device(GPU)
    assert device is not None
    assert (device.attribute("clique") is None) is (code != NARROW)
    assert (device.health.state, device.health.cause) == (HealthState.DEGRADED, "fabric")
    listening.hardware.fabric(2, health_mask=nodes.WELL_FABRIC, health_summary=1)
    await listening.finds(GPU)
    back = (await listening.scan()).device(GPU)
    assert back is not None
    assert back.attribute("clique") == "c0ffee00-0011-4233-8455-66778899aabb.7"


async def test_a_gpu_that_could_not_join_its_fabric_says_so_with_nvmls_error(listening: Listening) -> None:
    listening.hardware.fabric(2, status=23)
    await listening.opened()
    (found,) = listening.looks[0].found[GPU]
    assert found == Condition(Trouble.FABRIC, "NVLink fabric: it could not join (NVML's error 23)", APART)
