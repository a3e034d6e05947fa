"""Who listens never stands in a driver's way: sessions end without them in it, and a driver that hangs stops nobody."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from node.health.signal import Trouble
from node.inventory.model import SourceState, SourceStatus
from node.inventory.nvidia.nvml import DriverHeldError
from node.inventory.nvidia.nvml_library import Gate
from tests.node.nvml import stub
from tests.node.nvml.conftest import well
from tests.node.nvml.listening import Listening, threads
from tests.node.nvml.stub.injected import InjectedNvml
from tests.waiting import eventually

pytestmark = stub.needs_gcc

GPU = "gpu-0000-3b-00-0"


def mapped(hardware: InjectedNvml) -> bool:
    return str(hardware.library) in Path("/proc/self/maps").read_text()


async def test_letting_go_of_the_driver_ends_the_listening_first(listening: Listening) -> None:
    await listening.opened()
    assert mapped(listening.hardware)
    await listening.close()
    assert not mapped(listening.hardware)
    assert listening.hardware.violations == ()
    await eventually(lambda: "nvml-events" not in threads())


async def test_after_a_quiesce_events_and_looks_go_on_with_the_next_session(listening: Listening) -> None:
    await listening.opened()
    await listening.close()
    listening.hardware.xid(2, 79)
    listening.hardware.recovery(2, 2)
    known = listening.hardware.listeners
    await listening.scan()
    await listening.registered(known)
    assert [condition.kind for condition in await listening.finds(GPU, Trouble.RECOVERY)] == [Trouble.RECOVERY]
    assert listening.events == [], "nobody listened when it happened"
    listening.hardware.xid(2, 48)
    assert (await listening.event()).code == 48


async def test_a_reloaded_driver_is_listened_to_anew(listening: Listening, tmp_path: Path) -> None:
    await listening.opened()
    for number in range(3):
        listening.hardware.unload()
        await listening.scan()
        assert listening.facts.nvml is not None
        assert listening.facts.nvml.status != "ok"
        listening.hardware.load()
        listening.hardware.serve(replace(well(), driver_version=f"560.{number}"))
        known = listening.hardware.listeners
        await listening.scan()
        await listening.registered(known)
        listening.hardware.xid(2, 60 + number)
        assert (await listening.event(number + 1)).code == 60 + number
    await eventually(lambda: sorted(threads()) == ["nvml-events", "nvml-polls"], "one of each is left")


async def test_a_link_stays_down_and_a_counter_does_not_grow_by_a_new_session(listening: Listening) -> None:
    listening.hardware.ecc(2, 5)
    await listening.opened()
    listening.hardware.link(2, 4, active=False)
    await listening.finds(GPU, Trouble.NVLINK)
    await listening.close()
    await listening.scan()
    await listening.finds(GPU, Trouble.NVLINK)
    listening.hardware.link(2, 4, active=True)
    await listening.finds(GPU)


async def test_a_silent_driver_wakes_the_inventory_and_nothing_is_said_of_any_gpu(listening: Listening) -> None:
    await listening.opened()
    listening.hardware.unload()
    await eventually(lambda: listening.wakes)
    looks = len(listening.looks)
    listening.signals.look()
    await listening.scan()
    assert len(listening.looks) == looks


async def test_another_source_of_the_process_takes_over_without_harm(listening: Listening, tmp_path: Path) -> None:
    await listening.opened()
    other = Listening(InjectedNvml(tmp_path / "other", well()), tmp_path / "proc")
    assert other.source.read().nvml is not None
    assert listening.hardware.violations == ()
    known = listening.hardware.listeners
    await listening.scan()
    await listening.registered(known)
    other.source.close()


async def test_a_wait_that_never_returns_keeps_neither_scans_nor_the_end(
    hardware: InjectedNvml, tmp_path: Path
) -> None:
    async with Listening(hardware, tmp_path / "proc") as listening:
        listening.source.sessions.patience = 0.2
        await listening.opened()
        hardware.hang("nvmlEventSetWait")
        await listening.looked()
        await listening.scan()
        with pytest.raises(DriverHeldError) as held:
            await listening.close()
        assert str(held.value) == (
            f"a call into {hardware.library} does not return, so this process goes on using the driver; end the agent "
            "if the driver has to be unloaded"
        )
        assert mapped(hardware)
        hardware.release()
        await eventually(lambda: "nvml-events" not in threads())
        await listening.close()
        assert not mapped(hardware)


async def test_a_new_session_is_listened_to_while_an_old_wait_hangs(hardware: InjectedNvml, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    version = proc / "driver/nvidia/version"
    (version.parent / "gpus").mkdir(parents=True)
    version.write_text("1")
    async with Listening(hardware, proc) as listening:
        listening.source.sessions.patience = 0.2
        await listening.opened()
        hardware.hang("nvmlEventSetWait")
        await eventually(lambda: hardware.hanging)
        version.write_text("2")
        known = hardware.listeners
        await listening.scan()
        assert listening.facts.nvml is not None
        assert listening.facts.nvml.status == "ok"
        await listening.registered(known)
        hardware.release()
        hardware.xid(2, 79)
        assert (await listening.event()).code == 79
        await listening.scan()


async def test_threads_that_hang_do_not_add_up_for_ever(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc") as listening:
        listening.source.sessions.patience = 0.01
        await listening.opened()
        hardware.hang("nvmlEventSetWait")
        hardware.hang("nvmlDeviceGetTotalEccErrors")
        for _ in range(8):
            await listening.scan()
            await asyncio.sleep(0)
            with suppress(DriverHeldError):
                await listening.close()
        assert len(threads()) <= 9
        assert listening.signals.notes()[0].endswith("threads hang in the driver: from now on only scans report health")
        hardware.release()
        await eventually(lambda: not threads())
        await listening.opened()
        assert listening.signals.notes() == ()


async def test_a_question_that_never_returns_stops_no_event(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        hardware.hang("nvmlDeviceGetTotalEccErrors")
        listening.signals.look()
        await eventually(lambda: hardware.hanging)
        hardware.xid(2, 79)
        assert (await listening.event()).code == 79
        hardware.release()
        await listening.looked()


async def test_calls_that_do_not_return_are_told(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        assert listening.signals.notes() == ()
        hardware.hang("nvmlDeviceGetTotalEccErrors")
        hardware.hang("nvmlEventSetWait")
        listening.signals.look()
        await eventually(lambda: len(listening.signals.notes()) == 2)
        assert listening.signals.notes() == (
            "the driver does not answer questions about health: a call does not return",
            "the driver reports no events: a wait for them does not return",
        )
        assert listening.signals.status().state is SourceState.FAILED
        hardware.release()
        await eventually(lambda: listening.signals.notes() == ())
        assert listening.signals.status() == SourceStatus("nvml-signals", SourceState.OK)
        await listening.close()
        assert listening.signals.status() == SourceStatus("nvml-signals", SourceState.WAITING, "NVML is not open")


async def test_the_end_of_the_agent_waits_for_nobody(hardware: InjectedNvml, tmp_path: Path) -> None:
    async with Listening(hardware, tmp_path / "proc") as listening:
        await listening.opened()
        hardware.hang("nvmlEventSetWait")
        await eventually(lambda: hardware.hanging)
        await listening.stop()
        # The driver hangs for as long as this test does.
        async with asyncio.timeout(60):
            await listening.close()


def test_a_process_ends_while_its_driver_hangs(hardware: InjectedNvml, tmp_path: Path) -> None:
    hardware.hang("nvmlEventSetWait")
    hardware.hang("nvmlDeviceGetTotalEccErrors")
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from node.inventory.nvidia.nvml import NvmlSource\n"
        "from node.events import EventBus\n"
        "from node.inventory.nvidia.signals.source import NvmlSignals\n"
        "source = NvmlSource(Path('/'), Path(sys.argv[1]), proc=Path('/nonexistent'))\n"
        "async def main():\n"
        "    signals = NvmlSignals(source.sessions, EventBus())\n"
        "    running = asyncio.create_task(signals.run())\n"
        "    await asyncio.to_thread(source.read)\n"
        "    await asyncio.sleep(0.2)\n"
        "    running.cancel()\n"
        "    await asyncio.to_thread(source.close)\n"
        "    print('over')\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(hardware.library)]
    run = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True, timeout=240)
    assert run.stdout == "over\n"


async def test_without_a_driver_there_is_no_thread_and_no_binding(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, threading\n"
        "from pathlib import Path\n"
        "from node.inventory.nvidia.nvml import NvmlSource\n"
        "from node.events import EventBus\n"
        "from node.inventory.nvidia.signals.source import NvmlSignals\n"
        "from node.inventory.nvidia.nvml_processes import NvmlProcesses\n"
        "source = NvmlSource(Path('/nonexistent'))\n"
        "async def main():\n"
        "    running = asyncio.create_task(NvmlSignals(source.sessions, EventBus()).run())\n"
        "    await asyncio.sleep(0)\n"
        "    source.read()\n"
        "    assert threading.active_count() == 1\n"
        "    assert 'pynvml' not in sys.modules\n"
        "    running.cancel()\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=240)


def test_a_closed_gate_lets_nobody_in_and_waits_for_those_inside() -> None:
    gate = Gate()
    assert gate.enter()
    assert not gate.close(0.01)
    assert gate.closed
    assert not gate.enter()
    leaver = threading.Timer(0.01, gate.leave)
    leaver.start()
    assert gate.close(5.0)
    assert gate.empty


def test_a_pause_inside_ends_when_the_gate_is_closed() -> None:
    gate = Gate()
    assert gate.enter()
    assert not gate.pause(0.01)
    closer = threading.Timer(0.01, gate.close, (0.0,))
    closer.start()
    assert gate.pause(5.0)
