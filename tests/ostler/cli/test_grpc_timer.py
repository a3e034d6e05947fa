"""gRPC's timer thread may wake late, and no other thread may."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ostler.cli.run import TIMER_SLACK

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TIMER = "grpc_global_tim"
"""The name of the thread, of which the kernel keeps 15 bytes."""

SCRIPT = """
import asyncio, json, os
from pathlib import Path
from ostler.cli.run import start_grpc
import grpc.aio

def slacks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
        found.setdefault(name, []).append(int(Path(f"/proc/{task}/timerslack_ns").read_text()))
    return found

async def main():
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{os.environ['SOCKET']}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{os.environ['SOCKET']}") as channel:
        await channel.channel_ready()
        after = slacks()
    await server.stop(None)
    return after

before = slacks()
kept = start_grpc()
started = slacks()
print(json.dumps([before, started, asyncio.run(main())]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the timer slack of other threads")
def test_grpcs_timer_thread_alone_may_wake_late(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "SOCKET": str(tmp_path / "a.sock"), "GRPC_VERBOSITY": "ERROR"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    before, started, serving = json.loads(run.stdout)
    ((usual,),) = before.values()
    assert usual < TIMER_SLACK * 1e9
    assert started.pop(TIMER) == [TIMER_SLACK * 1e9]
    assert started == before
    assert serving.pop(TIMER) == [TIMER_SLACK * 1e9]
    assert len(serving) > 1
    assert {slack for slacks in serving.values() for slack in slacks} == {usual}
