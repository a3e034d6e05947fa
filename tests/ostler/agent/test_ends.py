"""How an agent ends: a part that fails takes it along with its reason, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from node.ledger.reader import Reading
from node.lock import InstanceLock
from sandbox.kubelet.kubelet import Kubelet
from tests.ostler.agent.here import agent
from tests.waiting import eventually

GPU = "nvidia.com/gpu"


class Broken:
    """A reader at fault: what the kubelet does never makes one raise."""

    async def read(self) -> Reading:
        raise RuntimeError("the reader is at fault")


def _reasons(fault: BaseException) -> list[str]:
    if isinstance(fault, BaseExceptionGroup):
        return [reason for each in fault.exceptions for reason in _reasons(each)]
    return [str(fault)]


async def test_books_that_fail_end_the_agent_with_their_reason_and_leave_no_socket(short_dir: Path) -> None:
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
        made = agent(short_dir)
        running = asyncio.create_task(made.run())
        await kubelet.wait_for(GPU, healthy=8)
        await eventually(made.holds_view, "the kubelet is served")
        books = made._doors._opened_books()
        await eventually(lambda: books.plugin.read_since(0.0), "the kubelet was read")
        books._loop._reader = Broken()
        books.kubelet_changed()
        with pytest.raises(ExceptionGroup) as failed:
            await asyncio.wait_for(running, 120)
        assert _reasons(failed.value) == ["the reader is at fault"]
        assert not list((short_dir / "plugins_registry").glob("*"))
        assert not (short_dir / "run" / "ostler.sock").exists()
        lock = InstanceLock(short_dir / "state" / "lock")
        assert lock.try_acquire(), "nothing has to be waited for"
        lock.release()
        await kubelet.wait_for(GPU, healthy=0)


@pytest.mark.parametrize("answered", [True, False])
async def test_a_predecessor_that_still_answers_is_reckoned_with_although_nobody_was_waited_for(
    answered: bool, short_dir: Path
) -> None:
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(short_dir / "plugins_registry" / "ostler-other.example-01234567.sock"))
            if answered:
                old.listen()
            made = agent(short_dir)
            running = asyncio.create_task(made.run())
            await kubelet.wait_for(GPU, healthy=8)
            assert made._doors._relieves is answered
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
