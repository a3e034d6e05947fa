"""Two agents with different state folders at one kubelet: one serves it, and the other one waits for its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.lock import FolderLock
from ostler.agent.handover import Handover, KubeletTaken
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.waiting import eventually

GPU = "nvidia.com/gpu"


@asynccontextmanager
async def strangers(tmp_path: Path) -> AsyncIterator[tuple[SandboxNode, AgentProcess]]:
    """A node with its agent, and another agent that knows nothing of the first one but the kubelet's folders."""
    async with SandboxNode(path("l4-2")) as box:
        await box.registered()
        flags = {
            **box.agent.flags,
            "--state-dir": str(tmp_path / "other-state"),
            "--socket": str(box.root / "other.sock"),
        }
        other = AgentProcess(flags, log=tmp_path / "other.log")
        await other.spawn()
        try:
            yield box, other
        finally:
            await other.stop()


def said(tmp_path: Path) -> str:
    log = tmp_path / "other.log"
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_second_agent_waits_and_says_for_whom_and_serves_when_the_first_has_ended(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with strangers(tmp_path) as (box, other):
        holder = f"process {box.agent.pid} with state folder {box.root / 'state'}"
        await eventually(lambda: holder in said(tmp_path), "the other one is named")
        assert "standby: another instance is active" in said(tmp_path)
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("ostler*"))) == 1
        await box.agent.stop(number)
        await other.answered()
        assert (await other.status()).role == "active"
        await eventually(
            lambda: sum(device.healthy for device in box.kubelet.devices(GPU)) == 2, "the kubelet has its devices"
        )


_made: list[Handover] = []


def handover(state: Path, kubelet: Path) -> Handover:
    _made.append(Handover(state, list, relieves=True, kubelet=FolderLock(kubelet)))
    return _made[-1]


@pytest.fixture(autouse=True)
async def nothing_stays_locked() -> AsyncIterator[None]:
    """Whoever asks which locks this process holds must not find those of another test."""
    yield
    while _made:
        await _made.pop().leave()


async def test_a_kubelets_folder_that_comes_later_belongs_to_who_locks_it_first_and_the_other_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostler.agent.handover.GUARDED", 0.02)
    folder = tmp_path / "device-plugins"
    first, second = handover(tmp_path / "one", folder), handover(tmp_path / "two", folder)
    assert first.try_acquire()
    assert second.try_acquire(), "there is no kubelet yet"
    folder.mkdir()
    guarding = asyncio.create_task(first.guard())
    await eventually(lambda: not handover(tmp_path / "three", folder).try_acquire(), "the folder is locked")
    with pytest.raises(KubeletTaken, match=r"another agent serves this kubelet: process .* end one of the two"):
        await asyncio.wait_for(second.guard(), 120)
    guarding.cancel()


async def test_a_folder_that_is_made_anew_is_locked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostler.agent.handover.GUARDED", 0.02)
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    first = handover(tmp_path / "one", folder)
    assert first.try_acquire()
    folder.rename(tmp_path / "before")
    folder.mkdir()
    guarding = asyncio.create_task(first.guard())
    await eventually(lambda: not handover(tmp_path / "two", folder).try_acquire(), "the new folder is locked")
    guarding.cancel()


async def test_who_leaves_lets_both_locks_fall_free(tmp_path: Path) -> None:
    first, second = handover(tmp_path / "one", tmp_path), handover(tmp_path / "two", tmp_path)
    assert first.try_acquire()
    assert not second.try_acquire()
    waiting = asyncio.create_task(second.wait())
    await asyncio.sleep(0)
    await first.leave()
    await asyncio.wait_for(waiting, 120)
    assert not first.try_acquire()
