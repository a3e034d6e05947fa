"""GPUs behind the stub NVML library, to which errors happen."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.hardware import Hardware as Rendered
from bench.health.agents import Hardware
from bench.kubelet import WITHIN, NothingCame
from tests.node.nvml import stub

RECORDED = "h100-sxm-8"
COUNT = 8
FELL_OFF = 79
"""The XID of a GPU that has fallen off the bus."""
_XID_EVENT, _WHOLE = 0x8, 0xFFFFFFFF


class Gpus:
    """Eight GPUs below ``root``; one agent at a time may use them."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        rendered = Rendered(RECORDED, root)
        self.hardware = Hardware(rendered.flags, rendered.environment)
        description = rendered.environment[stub.VARIABLE]
        self._description = Path(description)
        self._well = self._description.read_text(encoding="utf-8")
        self._events = Path(f"{description}.events")
        self._registered = Path(f"{description}.registered")

    async def listened_to(self) -> None:
        """Wait until the agent waits for events of all GPUs; raises ``NothingCame``."""
        try:
            async with asyncio.timeout(WITHIN):
                while not self._registered.exists() or self._registered.stat().st_size < COUNT:
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise NothingCame("the agent does not wait for NVML's events") from error

    def lose(self, index: int) -> float:
        """A GPU falls off the bus and no event tells of it; when that was."""
        began = time.perf_counter()
        # No wait for events fails either: what is left is to ask the GPU.
        stub.write(self._description, self._well + stub.lost(index, answering=["nvmlEventSetWait"]))
        return began

    def find(self) -> float:
        """Every GPU answers again; when that was."""
        began = time.perf_counter()
        stub.write(self._description, self._well)
        return began

    def fail(self, index: int) -> float:
        """A GPU reports an XID; when that was."""
        began = time.perf_counter()
        with self._events.open("a") as events:
            events.write(f"{index} {_XID_EVENT} {FELL_OFF} {_WHOLE} {_WHOLE}\n")
        return began
