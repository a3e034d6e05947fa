"""What only getters tell: every sign of trouble is found at its GPU alone, and is gone when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.health.signal import Condition, Trouble
from node.inventory.nvidia.signals.conditions import LINK_DOWN, LINK_ERRORS
from node.inventory.nvidia.signals.gpus import GpuId
from node.inventory.nvidia.signals.polls import Memory
from node.inventory.nvidia.signals.vitals import Vitals
from tests.nvml import nodes, stub
from tests.nvml.conftest import well
from tests.nvml.listening import Listening, kinds_of
from tests.nvml.stub.injected import HW_POWER_BRAKE, HW_THERMAL, RECOVERY_FIELD, InjectedNvml
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU = "gpu-0000-3b-00-0"


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
    assert condition == Condition(Trouble.ECC, "2 uncorrectable memory errors more, 6 since the driver was loaded")
    vitals = listening.signals.vitals[GPU]
    assert (vitals.ecc_volatile, vitals.ecc_aggregate) == (6, 92)
    assert (await listening.looked()).found[GPU] == ()
    listening.hardware.ecc(2, 0, 92)
    assert (await listening.looked()).found[GPU] == (), "the counter began anew"


def test_a_counter_that_was_not_answered_once_has_grown_all_the_same() -> None:
    memory = Memory()
    counted = Vitals(ecc_volatile=0, link_errors=(("crc", 1), ("replay", 1)))
    assert memory.concluded(GpuId("GPU-1"), counted) == ()
    assert memory.concluded(GpuId("GPU-1"), Vitals(link_errors=(("crc", 1),))) == ()
    errors, links = memory.concluded(GpuId("GPU-1"), Vitals(ecc_volatile=5, link_errors=(("crc", 1), ("replay", 3))))
    assert errors.detail == "5 uncorrectable memory errors more, 5 since the driver was loaded"
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
        hardware.ecc(2, 1)
        hardware.rows(2, pending=True)
        hardware.recovery(2, 1)
        hardware.throttle(2, HW_THERMAL)
        hardware.link(2, 1, active=False)
        found = set(kinds_of((await listening.looked()).found[GPU]))
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


async def test_looks_follow_each_other_at_the_interval(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc", interval=0.02) as listening:
        await listening.opened()
        await eventually(lambda: len(listening.looks) > 5)
        hardware.throttle(2, HW_THERMAL)
        await eventually(lambda: listening.looks[-1].found[GPU])
        hardware.throttle(2, 0)
        await eventually(lambda: not listening.looks[-1].found[GPU])
