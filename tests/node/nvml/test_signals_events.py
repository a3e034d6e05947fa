"""Events of the driver reach the loop as they happen, under the device's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.health.signal import HealthEvent, Trouble
from tests.node.nvml import nodes, stub
from tests.node.nvml.listening import Listening
from tests.node.nvml.stub.injected import ALL, DOUBLE_BIT, RECOVERY_ACTION, UNAVAILABLE, InjectedNvml
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU2 = "gpu-0000-3b-00-0"


async def test_an_xid_is_told_with_its_device_and_code(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.xid(2, 79)
    assert await listening.event() == HealthEvent(GPU2, Trouble.XID, 1000.0, "XID 79", 79)


async def test_an_xid_of_an_instance_is_told_with_it(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.xid(2, 31, 5, 1)
    assert (await listening.event()).instance == (5, 1)


async def test_an_xid_of_a_gpu_instance_as_a_whole_keeps_nvmls_number_for_all(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.xid(2, 31, 5)
    assert (await listening.event()).instance == (5, ALL)


async def test_events_of_several_gpus_come_in_their_order(listening: Listening) -> None:
    await listening.opened()
    for gpu in range(8):
        listening.hardware.xid(gpu, 40 + gpu)
    await listening.event(8)
    assert [event.code for event in listening.events] == list(range(40, 48))
    assert len({event.device for event in listening.events}) == 8


async def test_a_storm_of_one_xid_does_not_pile_up(listening: Listening) -> None:
    await listening.opened()
    for _ in range(3000):
        listening.hardware.xid(1, 13)
    listening.hardware.xid(1, 79)
    await eventually(lambda: listening.events and listening.events[-1].code == 79)
    assert len(listening.events) <= 3001
    assert len(listening.looks) < 20


async def test_a_double_bit_error_is_an_event_of_memory(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.event(2, DOUBLE_BIT)
    assert await listening.event() == HealthEvent(
        GPU2, Trouble.ECC, 1000.0, "the driver reports a double-bit memory error"
    )


async def test_an_unavailable_gpu_is_told_and_looked_at_before_it_is_called_lost(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.event(2, UNAVAILABLE)
    told = await listening.event()
    assert (told.kind, told.code) == (Trouble.RECOVERY, None)
    assert told.detail == "the driver reports that the GPU is unavailable"
    await eventually(lambda: listening.looks[-1].found == {GPU2: ()})


async def test_a_changed_recovery_action_is_looked_at_at_once_and_at_that_gpu_alone(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.recovery(2, 1)
    listening.hardware.event(2, RECOVERY_ACTION)
    await eventually(lambda: list(listening.looks[-1].found) == [GPU2])
    (condition,) = listening.looks[-1].found[GPU2]
    assert (condition.kind, condition.code) == (Trouble.RECOVERY, 1)
    assert condition.detail == "the driver asks for a reset of the GPU"
    assert listening.events == []


async def test_an_event_before_the_first_snapshot_waits_for_it(listening: Listening) -> None:
    snapshot = await listening.scan(shown=False)
    await listening.registered()
    listening.hardware.xid(2, 79)
    await eventually(lambda: listening.signals.look_seconds > 0)
    assert (listening.events, listening.looks) == ([], [])
    listening.signals.observe(snapshot)
    assert (await listening.event()).device == GPU2
    assert {name for look in listening.looks for name in look.found} == {device.name for device in snapshot.devices}


async def test_a_lost_gpu_is_found_at_once_and_the_others_go_on_to_tell_events(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.lose(2)
    await eventually(lambda: any(look.found.get(GPU2) for look in listening.looks))
    (condition,) = listening.looks[-1].found[GPU2]
    assert condition.kind is Trouble.LOST
    assert [name for name, found in listening.looks[-1].found.items() if found] == [GPU2]
    await eventually(lambda: listening.wakes, "the inventory is woken")
    await eventually(listening.signals.notes, "the lost one is told as not monitored")
    listening.hardware.xid(5, 48)
    assert (await listening.event()).code == 48
    listening.hardware.find(2)
    await listening.finds(GPU2)


async def test_a_gpu_without_events_is_told_and_no_trouble(listening: Listening) -> None:
    listening.hardware.fail("nvmlDeviceRegisterEvents", "NOT_SUPPORTED", gpu=2)
    await listening.opened()
    await eventually(listening.signals.notes)
    assert listening.signals.notes() == (f"{GPU2}: NVML reports no events (NOT_SUPPORTED); health is polled only",)
    assert (await listening.looked()).found[GPU2] == ()
    listening.hardware.xid(2, 79)
    listening.hardware.xid(3, 79)
    assert (await listening.event()).device != GPU2


async def test_types_that_a_driver_lacks_are_not_asked_for(listening: Listening) -> None:
    listening.hardware.set({"gpu2.event_types": 8, "gpu3.event_types": 1})
    await listening.opened()
    await eventually(listening.signals.notes)
    assert [note.split(":")[0] for note in listening.signals.notes()] == ["gpu-0000-4b-00-0"]
    listening.hardware.event(2, DOUBLE_BIT)
    listening.hardware.xid(2, 48)
    assert (await listening.event()).kind is Trouble.XID


@pytest.mark.parametrize(
    "symbol",
    ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlDeviceGetSupportedEventTypes"],
)
async def test_a_library_without_events_is_polled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symbol: str
) -> None:
    hardware = InjectedNvml(tmp_path / "driver", nodes.hgx(), without=[symbol])
    monkeypatch.setenv(*next(iter(hardware.environment.items())))
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.scan()
        await eventually(lambda: listening.looks)
        hardware.recovery(2, 2)
        await listening.finds(GPU2, Trouble.RECOVERY)
    assert hardware.violations == ()


async def test_the_look_that_finds_a_lost_gpu_back_has_the_inventory_scan(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.lose(2)
    await listening.finds(GPU2, Trouble.LOST)
    await eventually(listening.signals.notes, "its events are not waited for any more")
    before = listening.wakes
    await listening.looked()
    assert listening.wakes == before, "nothing is new"
    listening.hardware.find(2)
    await listening.finds(GPU2)
    assert listening.wakes == before + 1
