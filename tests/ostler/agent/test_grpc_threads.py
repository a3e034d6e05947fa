"""gRPC's threads interrupt nobody, and no other thread is any different."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
WORKER = "event_engine"

SCRIPT = """
import asyncio, json, os, sys, threading
from pathlib import Path
from ostler.agent.grpc_threads import GrpcThreads
import grpc.aio

NAMELESS = "nameless"
first = Path("/proc/self/comm").read_text().strip()

def threads():
    found = []
    own = {thread.native_id for thread in threading.enumerate()}
    for task in map(int, os.listdir("/proc/self/task")):
        name = "python" if task in own else Path(f"/proc/self/task/{task}/comm").read_text().strip()
        name = NAMELESS if task not in own and name == first else name
        slack = int(Path(f"/proc/{task}/timerslack_ns").read_text()) if os.geteuid() == 0 else None
        found.append((name, os.sched_getscheduler(task), slack))
    return found

async def main():
    if "idle" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    before = threads()
    kept = GrpcThreads()
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{os.environ['SOCKET']}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{os.environ['SOCKET']}") as channel:
        await channel.channel_ready()
        serving = threads()
        # A thread has the name of the one that started it until it gives itself its own.
        while any(name.startswith(NAMELESS) for name, *_ in serving):
            await asyncio.sleep(0.01)
            serving = threads()
    await server.stop(None)
    kept.release()
    print(json.dumps([before, serving]))

asyncio.run(main())
"""


def started(folder: Path, *words: str) -> tuple[list[Any], dict[str, list[list[Any]]]]:
    """Policy and timer slack of the first thread at the start, and of all threads of a server, by their names."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        env={**os.environ, "SOCKET": str(folder / "a.sock"), "GRPC_VERBOSITY": "ERROR"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ((_, *usual),), serving = json.loads(run.stdout)
    threads: dict[str, list[list[Any]]] = {}
    for name, *what in serving:
        threads.setdefault(name, []).append(what)
    return usual, threads


def test_threads_of_grpc_interrupt_nobody_and_the_event_loop_is_as_ever(tmp_path: Path) -> None:
    usual, threads = started(tmp_path)
    assert usual[0] == os.SCHED_OTHER
    assert {policy for policy, _ in threads[WORKER]} == {os.SCHED_BATCH}
    assert len(threads[WORKER]) >= 2
    event_loop, reader = sorted(policy for policy, _ in threads["python"])
    assert (event_loop, reader) == (os.SCHED_OTHER, os.SCHED_BATCH)


def test_a_policy_that_somebody_has_chosen_stays_with_all_threads(tmp_path: Path) -> None:
    _, threads = started(tmp_path, "idle")
    assert {policy for each in threads.values() for policy, _ in each} == {os.SCHED_IDLE}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the timer slack of other threads")
def test_no_thread_may_wake_late(tmp_path: Path) -> None:
    """A wait for a lock would end late as well, and the first connection of an agent with it."""
    usual, threads = started(tmp_path)
    assert {slack for each in threads.values() for _, slack in each} == {usual[1]}
