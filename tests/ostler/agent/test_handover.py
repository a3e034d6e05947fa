"""An agent that is relieved by a standby: the kubelet keeps its devices, and whoever is killed leaves nothing stuck."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ostler.agent.handover import Handover
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_watcher import PluginWatcher
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.making import forked_ostler
from tests.waiting import background, eventually

GPU = "nvidia.com/gpu"
TICK = 1.0
"""Seconds between two looks of a real kubelet into its registry."""


class _Streams:
    """What the kubelet has open; it changes over when ``ended`` is set."""

    def __init__(self) -> None:
        self.kept = False
        self.left: list[float] = []
        self.lock_was_free: list[bool] = []
        self.ended = asyncio.Event()
        self.handover: Handover | None = None

    def hand_over(self) -> None:
        self.kept = True

    async def leave(self, seconds: float) -> bool:
        assert self.handover is not None
        self.left.append(seconds)
        self.lock_was_free.append(not self.handover.lock.held)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        return self.ended.is_set()


def handover(folder: Path, *, relieves: bool = True, linger: float = 5.0) -> tuple[Handover, _Streams]:
    streams = _Streams()
    streams.handover = Handover(folder, lambda: [streams], relieves=relieves, linger=linger)
    return streams.handover, streams


@asynccontextmanager
async def waiting(standby: Handover) -> AsyncIterator[asyncio.Task[None]]:
    async with background(standby.wait()) as task:
        await asyncio.sleep(0)
        yield task


async def test_what_ends_is_handed_over_when_a_standby_waits_and_the_lock_is_free_before_the_kubelet_is_waited_for(
    tmp_path: Path,
) -> None:
    old, streams = handover(tmp_path)
    new, _ = handover(tmp_path)
    assert old.lock.try_acquire()
    async with waiting(new) as relief:
        await eventually(old.begin, "the standby says that it waits")
        assert streams.kept
        leaving = asyncio.create_task(old.leave())
        await asyncio.wait_for(relief, 120)
        assert old.lingering
        assert not leaving.done(), "the kubelet has not changed over"
        streams.ended.set()
        await asyncio.wait_for(leaving, 120)
    assert (streams.left, streams.lock_was_free) == ([5.0], [True])
    assert new.lock.held
    assert not old.begin(), "who is not active has nothing to hand over"
    assert not new.begin(), "nobody waits any more"
    new.lock.release()


async def test_without_a_standby_nothing_is_waited_for(tmp_path: Path) -> None:
    old, streams = handover(tmp_path)
    assert old.lock.try_acquire()
    assert not old.begin()
    await old.leave()
    assert (streams.kept, streams.left, old.lingering) == (False, [0.0], False)


async def test_nothing_is_handed_over_to_a_standby_that_registers_in_another_way(tmp_path: Path) -> None:
    old, _ = handover(tmp_path)
    new, _ = handover(tmp_path, relieves=False)
    assert old.lock.try_acquire()
    async with waiting(new) as relief:
        assert not old.begin()
        await old.leave()
        await asyncio.wait_for(relief, 120)
    new.lock.release()


async def test_asked_again_it_is_not_handed_over(tmp_path: Path) -> None:
    old, streams = handover(tmp_path)
    new, _ = handover(tmp_path)
    assert old.lock.try_acquire()
    async with waiting(new):
        assert old.begin()
        assert not old.begin()
        await old.leave()
    assert streams.left == [0.0]
    new.lock.release()


async def test_a_kubelet_that_does_not_change_over_is_waited_for_no_longer_than_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = handover(tmp_path, linger=0.05)
    new, _ = handover(tmp_path)
    assert old.lock.try_acquire()
    async with waiting(new):
        assert old.begin()
        await asyncio.wait_for(old.leave(), 120)
    assert "the kubelet has not changed over in time" in caplog.text
    new.lock.release()


async def test_of_two_standbys_each_becomes_active_in_its_turn_and_the_other_is_handed_over_to(tmp_path: Path) -> None:
    made = [handover(tmp_path, linger=0.0)[0] for _ in range(3)]
    active, *standbys = made
    assert active.lock.try_acquire()
    async with waiting(standbys[0]) as first, waiting(standbys[1]) as second:
        tasks = {first: standbys[0], second: standbys[1]}
        while tasks:
            await eventually(active.begin, "one of them says that it waits")
            await active.leave()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            assert len(done) == 1
            active = tasks.pop(done.pop())
    assert not active.begin()
    active.lock.release()


async def test_a_standby_that_was_killed_is_not_handed_over_to(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from ostler.agent.handover import Handover\n"
        "asyncio.run(Handover(Path(sys.argv[1]), list, relieves=True).wait())"
    )
    old, _ = handover(tmp_path)
    assert old.lock.try_acquire()
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as standby:
        await eventually(old.begin, "it waits")
        standby.kill()
        standby.wait()
    assert not old.begin()
    assert not old.begin()
    old.lock.release()


async def test_a_standby_that_cannot_say_that_it_waits_becomes_active_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "standby").mkdir()
    old, _ = handover(tmp_path)
    new, _ = handover(tmp_path)
    assert old.lock.try_acquire()
    async with waiting(new) as relief:
        assert not old.begin()
        assert caplog.text.count("the active instance cannot hand over to this one") == 1
        assert (
            "the lock file cannot be used (it is a folder, not a regular file); check the state folder's permissions"
            in str([record.__dict__ for record in caplog.records])
        )
        await old.leave()
        await asyncio.wait_for(relief, 120)
    new.lock.release()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that hand over wait until the kubelet has changed over, however long this machine needs for it."""
    monkeypatch.setenv(forked_ostler.LINGER, "120")


@asynccontextmanager
async def pair(
    tmp_path: Path, generation: Generation = "1.36", **flags: str
) -> AsyncIterator[tuple[SandboxNode, AgentProcess]]:
    """A node whose kubelet looks as often as real ones do, its agent, and a standby."""
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    async with SandboxNode(path("h100-sxm-8"), flags=given, reconcile_interval=TICK, generation=generation) as box:
        await box.registered()
        standby = AgentProcess(box.agent.flags, log=tmp_path / "standby.log")
        await standby.spawn()
        try:
            await eventually(lambda: "standby: another instance is active" in _text(tmp_path), "a standby waits")
            yield box, standby
        finally:
            await standby.stop()


def _text(tmp_path: Path) -> str:
    log = tmp_path / "standby.log"
    return log.read_text() if log.exists() else ""


async def _longest_gap(box: SandboxNode, done: asyncio.Event) -> float:
    """Seconds for which the kubelet had other than eight healthy devices at a stretch, seen every millisecond."""
    longest, began = 0.0, None
    while not done.is_set():
        now = time.monotonic()
        if sum(device.healthy for device in box.kubelet.devices(GPU)) == 8:
            began = None
        else:
            began = now if began is None else began
            longest = max(longest, now - began)
        await asyncio.sleep(0.001)
    return longest


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("generation", ["1.35", "1.36", "1.37"])
async def test_the_kubelet_never_misses_a_device_while_it_changes_over(generation: Generation, tmp_path: Path) -> None:
    async with pair(tmp_path, generation=generation) as (box, standby):
        held = await box.give(GPU, 2)
        done = asyncio.Event()
        gap = asyncio.create_task(_longest_gap(box, done))
        ended = asyncio.create_task(box.agent.stop())
        await eventually(lambda: "handed over" in box.log.read_text())
        # Whoever is asked now, it is answered.
        during = await box.give(GPU, 2)
        assert during.admission.admitted
        assert during.response["envs"] == {"NVIDIA_VISIBLE_DEVICES": ",".join(during.ids)}
        await standby.answered()
        assert await ended == 0
        assert (await standby.status()).role == "active"
        done.set()
        assert await gap == 0.0
        assert "the kubelet has changed over" in box.log.read_text()
        await eventually(lambda: box.kubelet.open_streams(GPU) == 1, "the kubelet has the new one")
        more = await box.give(GPU, 4)
        assert more.admission.admitted
        assert not set(more.ids) & {*held.ids, *during.ids}
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("*ostler*"))) == 1


@pytest.mark.usefixtures("patient")
async def test_a_kubelet_with_a_client_per_socket_has_nobody_when_the_successor_of_a_handover_ends(
    tmp_path: Path,
) -> None:
    """From 1.37 on: nothing of the one that handed over is left in it."""
    async with pair(tmp_path, generation="1.37") as (box, standby):
        assert await box.agent.stop() == 0
        await standby.answered()
        await eventually(lambda: box.kubelet.open_streams(GPU) == 1, "the kubelet has changed over")
        await standby.stop()
        await box.kubelet.wait_for(GPU, healthy=0)
        assert not list((box.root / "kubelet" / "plugins_registry").glob("*ostler*"))


async def test_a_standby_killed_while_it_takes_over_leaves_nothing_that_the_next_one_has_to_wait_for(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (box, standby):
        ended = asyncio.create_task(box.agent.stop())
        await eventually(lambda: "handed over" in box.log.read_text())
        await standby.stop(signal.SIGKILL)
        assert await asyncio.wait_for(ended, 120) == 0
        await box.kubelet.wait_for(GPU, healthy=0)
        await box.agent.start()
        status = await box.registered()
        assert status.role == "active"
        await box.kubelet.wait_for(GPU, healthy=8)
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("ostler*"))) == 1


async def test_an_agent_killed_while_it_hands_over_is_relieved_like_any_other(tmp_path: Path) -> None:
    async with pair(tmp_path) as (box, standby):
        box.agent.send(signal.SIGTERM)
        await eventually(lambda: "handed over" in box.log.read_text())
        await box.agent.stop(signal.SIGKILL)
        await standby.answered()
        await eventually(lambda: box.kubelet.open_streams(GPU) == 1, "the kubelet has the new one")
        await box.kubelet.wait_for(GPU, healthy=8)
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("ostler*"))) == 1


async def test_when_both_are_killed_the_next_one_serves_the_kubelet_as_ever(tmp_path: Path) -> None:
    async with pair(tmp_path) as (box, standby):
        box.agent.send(signal.SIGTERM)
        await eventually(lambda: "handed over" in box.log.read_text())
        await box.agent.stop(signal.SIGKILL)
        await standby.stop(signal.SIGKILL)
        await box.agent.start()
        await box.registered()
        await eventually(lambda: box.kubelet.open_streams(GPU) == 1, "the kubelet has the new one")
        assert (await box.give(GPU, 8)).admission.admitted
        await box.agent.stop()
        await box.kubelet.wait_for(GPU, healthy=0)


@pytest.mark.usefixtures("patient")
async def test_a_second_signal_ends_it_without_waiting_for_the_kubelet(tmp_path: Path) -> None:
    async with pair(tmp_path) as (box, standby):
        with pytest.MonkeyPatch.context() as kubelet:
            # It does not change over before the second signal, however late that comes.
            kubelet.setattr(PluginWatcher, "_start", lambda *_: None)
            box.agent.send(signal.SIGTERM)
            await eventually(lambda: "handed over" in box.log.read_text())
            assert await asyncio.wait_for(box.agent.stop(), 100) == 0
        assert "the kubelet has changed over" not in box.log.read_text()
        await standby.answered()
        await box.kubelet.wait_for(GPU, healthy=8)


@pytest.mark.usefixtures("patient")
async def test_streams_of_resources_registered_by_register_end_at_once(tmp_path: Path) -> None:
    async with pair(tmp_path, kubelet_registration="register") as (box, standby):
        box.agent.send(signal.SIGTERM)
        assert await asyncio.wait_for(box.agent.stop(), 100) == 0
        assert "handed over" not in box.log.read_text()
        await standby.answered()
        await box.kubelet.wait_for(GPU, healthy=8)
        assert box.kubelet.open_streams(GPU) == 1
