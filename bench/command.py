"""``python -m bench [--quick]``: measure, show a table, write the figures to ``build/bench.json``.

A missed target is a fact about a machine and never an error; the exit code is 1 only when something did not work.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from bench.figures import checked
from bench.hardware import Hardware
from bench.kubelet import BareKubelet, NothingCame
from bench.measures import FULL, QUICK, BenchEffort, BenchRun
from bench.process import ProcessFailed
from bench.results import Benchmark, markdown, parser, render, say, write

NODE = "h100-sxm-8"


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
    if shutil.which("gcc") is None:
        print("bench: gcc is not installed: the stub NVML library cannot be compiled", file=sys.stderr)
        return 1
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-bench-", dir="/tmp"))
    began = time.monotonic()
    try:
        figures = checked(asyncio.run(measure(root, QUICK if arguments.quick else FULL)))
    except (NothingCame, ProcessFailed, ValueError, OSError, grpc.aio.AioRpcError) as error:
        say("")
        print(f"bench: {error}\nbench: logs are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    say("")
    print(markdown(figures) if arguments.markdown else render(figures))
    write(arguments.output, figures, Benchmark.AGENT, quick=arguments.quick)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0
