"""``python -m tests.cluster.interfaces.recorder [PID]``: an NRI plugin that writes down what the runtime reports.

A line of JSON per event. Pods are refused or delayed by their names: those that begin with ``refused`` fail, and the
first start of ``slow-N`` takes N seconds. With ``PID`` it is called before ostler, and stops that process at the first
sandbox: whoever is called next does not answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driver.nri import plugin
from driver.nri.plugin import SOCKET, NriPlugin
from driver.nri.sandboxes import Sandbox, SandboxRefused
from driver.nri.status import NriChanged
from node.clocks import SYSTEM
from node.events import EventBus


class _Recorder:
    """Writes a line for each call; ``netns`` says whether the namespace's file is there.

    ``victim``: the process that is stopped at the first sandbox, 0 for none.
    """

    def __init__(self, victim: int) -> None:
        self._victim = victim
        self._delayed: set[str] = set()

    def concerns(self, sandbox: Sandbox) -> bool:
        return True

    async def run(self, sandbox: Sandbox) -> None:
        if self._victim:
            os.kill(self._victim, signal.SIGSTOP)
            self._victim = 0
        self._write("run", sandbox)
        if sandbox.name.startswith("refused"):
            raise SandboxRefused("there is no interface for it")
        if sandbox.name.startswith("slow-") and sandbox.uid not in self._delayed:
            self._delayed.add(sandbox.uid)
            await asyncio.sleep(float(sandbox.name.removeprefix("slow-")))
            self._write("ran", sandbox)

    async def stop(self, sandbox: Sandbox) -> None:
        self._write("stop", sandbox)

    async def removed(self, sandbox: Sandbox) -> None:
        self._write("removed", sandbox)

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        write({"event": "synchronize", "sandboxes": [described(each) for each in sandboxes]})

    def _write(self, event: str, sandbox: Sandbox) -> None:
        write({"event": event, **described(sandbox)})


def described(sandbox: Sandbox) -> dict[str, object]:
    return {
        "id": sandbox.id,
        "uid": sandbox.uid,
        "pod": sandbox.pod,
        "netns": sandbox.netns,
        "exists": bool(sandbox.netns) and Path(sandbox.netns).exists(),
        "host_network": sandbox.host_network,
        "pid": sandbox.pid,
        "containers": {each.name: each.running for each in sandbox.containers},
    }


def write(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"time": time.time(), **line}) + "\n")
    sys.stdout.flush()


async def main(victim: int) -> None:
    if victim:
        plugin.NAME, plugin.INDEX = "gate", "05"
    bus = EventBus()
    bus.subscribe(
        NriChanged,
        lambda event: write(
            {"event": event.status.state.value, "reason": event.status.reason, "runtime": event.status.runtime}
        ),
    )
    recorder = _Recorder(victim)
    task = asyncio.create_task(NriPlugin(SOCKET, recorder, bus=bus, clocks=SYSTEM).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait((task,))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
