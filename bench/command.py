"""``python -m bench [--quick]``: measure, show a table, write the figures to ``build/bench.json``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from bench.hardware import Hardware
from bench.kubelet import BareKubelet, NothingCame
from bench.measures import FULL, QUICK, BenchEffort, BenchRun
from bench.process import ProcessFailed
from bench.results import Benchmark, has_compiler, parser, run, say

NODE = "h100-sxm-8"
FAULTS = (NothingCame, ProcessFailed, ValueError, OSError, grpc.aio.AioRpcError)


class Measure(Protocol):
    """What is measured, with files in ``root``."""

    def __call__(self, root: Path, effort: BenchEffort, /) -> Coroutine[Any, Any, dict[str, float]]: ...


async def measured(root: Path, effort: BenchEffort, /) -> dict[str, float]:
    """The benchmark's figures, not checked yet."""
    hardware = Hardware(NODE, root)
    async with BareKubelet(root / "device-plugins") as kubelet:
        return await BenchRun(kubelet, hardware, root, effort, say).figures()


def main(words: Sequence[str] | None = None, measure: Measure = measured) -> int:
    """Run it; 1 when something did not work."""
    description = "Measure the agent beside a bare grpc.aio plugin, on a recorded node behind NVML."
    quick = "fewer calls and a shorter idle time, under a minute"
    arguments = parser(Benchmark.AGENT, description, quick).parse_args(words)
    if not has_compiler(Benchmark.AGENT):
        return 1
    effort = QUICK if arguments.quick else FULL
    return run(Benchmark.AGENT, arguments, lambda root: asyncio.run(measure(root, effort)), FAULTS)
