"""``python -m bench.moves [--count N]``: what a pod's sandbox waits for while its interface moves, without a cluster.

A veth in network namespaces of its own, the agent's part and a runtime's side of NRI in one process. Each figure is the
median of one step. The kernel's own share is the single message that moves the interface; it waits for grace periods of
RCU, which nobody can shorten. The figures are for people; nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.figures import median
from driver.interfaces.moving import InterfaceStep, InterfaceSteps
from driver.nri.plugin import NriPlugin
from node.clocks import SYSTEM
from node.events import EventBus
from node.interfaces.kernel import KernelMover
from sandbox.nri import NriRuntime, pod_sandbox, serving
from tests.making.claim_service import reference
from tests.making.moved_interfaces import NIC1, InterfaceNode
from tests.making.network_namespaces import TestNamespace, namespaces
from tests.waiting import background, eventually

_CLONE_NEWNET = 0x40000000
_WARM = 3
"""Moves before those that count."""
_KERNEL = "the kernel moves it"
_REST = "answer"


class Stamps(InterfaceSteps):
    """Milliseconds from one step of a move to the next, by the step that ends them."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = defaultdict(list)
        self._last = 0.0
        self._is_moving = False

    def begin(self) -> None:
        """A sandbox starts."""
        self._last = time.perf_counter()

    def stamp(self, name: str) -> None:
        """This has ended."""
        now = time.perf_counter()
        self.taken[name].append(1000 * (now - self._last))
        self._last = now

    def reached(self, step: InterfaceStep, uid: str) -> None:
        """See ``InterfaceSteps``."""
        self.stamp(step.value)

    def before(self, name: str) -> None:
        """The kernel is about to be asked for this."""
        if self._is_moving:
            self.stamp(_KERNEL)
        self._is_moving = name == "move"
        if self._is_moving:
            self.stamp("look for it, check the pod's side, mark it")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.moves", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="moves (default: %(default)s)")
    count = parser.parse_args().count
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        print(f"bench.moves: needs root for namespaces: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    for line in (
        "link set lo up",
        "link add eth1 type veth peer name far1",
        "link set far1 up",
        "addr add 10.0.1.1/24 dev eth1",
        "link set eth1 up",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    with tempfile.TemporaryDirectory() as folder, namespaces(1) as (pod,):
        taken = asyncio.run(_measure(Path(folder), pod, count))
    for name, each in taken.items():
        print(f"{median(each):8.2f} ms  {name}")
    print(f"{sum(map(median, taken.values())) - median(taken[_KERNEL]):8.2f} ms  all but the kernel's move")
    return 0


async def _measure(root: Path, pod: TestNamespace, count: int) -> dict[str, list[float]]:
    """Milliseconds of each step, in order."""
    stamps = Stamps()
    place = InterfaceNode(root)
    place.mover = KernelMover(before=stamps.before)  # type: ignore[assignment]  # the real one in the fake's place
    place.put(1, NIC1)
    service = await place.agent(steps=stamps)
    socket = root / "nri.sock"
    plugin = NriPlugin(socket, place.interfaces, bus=EventBus(), clocks=SYSTEM)
    async with serving(NriRuntime(socket, request_timeout=60.0)) as runtime:
        async with background(plugin.run()):
            await eventually(lambda: runtime.plugins)
            for number in range(_WARM + count):
                await service.prepare(reference())
                sandbox = pod_sandbox(f"sandbox-{number}", "pod-1", "default/pod-1", str(pod.path))
                if number == _WARM:
                    stamps.taken.clear()
                stamps.begin()
                await runtime.run(sandbox)
                stamps.stamp(_REST)
                kept = {name: list(each) for name, each in stamps.taken.items()}
                await runtime.stop_pod(sandbox)
                await runtime.remove(sandbox)
                await service.unprepare(reference())
                stamps.taken = defaultdict(list, kept)
        await eventually(lambda: not runtime.plugins)
    return stamps.taken


if __name__ == "__main__":
    sys.exit(main())
