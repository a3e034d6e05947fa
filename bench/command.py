"""``python -m bench [--quick]``: measure, show a table, write the figures.

A missed target is a fact about a machine and never an error; the exit code is 1 only when something did not work.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio

from bench.figures import checked
from bench.hardware import Hardware
from bench.kubelet import Kubelet, NothingCame
from bench.measures import FULL, QUICK, Effort, Run
from bench.process import ProcessFailed
from bench.progress import say
from bench.results import RESULTS, Benchmark, write
from bench.table import markdown, render

NODE = "h100-sxm-8"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure the agent beside a bare grpc.aio plugin, on a recorded node behind NVML."
    )
    parser.add_argument("--quick", action="store_true", help="fewer calls and a shorter idle time; under a minute")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="default: bench/results.json")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/performance.md has it")
    arguments = parser.parse_args()
    if shutil.which("gcc") is None:
        print("bench: gcc is not installed: the stub NVML library cannot be compiled", file=sys.stderr)
        return 1
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-bench-", dir="/tmp"))
    began = time.monotonic()
    try:
        figures = checked(asyncio.run(_measure(root, QUICK if arguments.quick else FULL)))
    except (NothingCame, ProcessFailed, ValueError, OSError, grpc.aio.AioRpcError) as error:
        say("")
        print(f"bench: {error}\nbench: logs are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    say("")
    print(markdown(figures) if arguments.markdown else render(figures))
    write(arguments.output, figures, Benchmark.AGENT)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


async def _measure(root: Path, effort: Effort) -> dict[str, float]:
    hardware = Hardware(NODE, root)
    async with Kubelet(root / "device-plugins") as kubelet:
        return await Run(kubelet, hardware, root, effort, say).figures()
