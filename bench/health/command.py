"""The benchmark's command: measure, show a table, write the figures beside those of the other benchmarks.

A missed target is a fact about a machine and never an error; the exit code is 1 only when something did not work.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio

from bench.figures import checked
from bench.health.figures import HEALTH_FIGURES
from bench.health.hardware import MissingTestBed
from bench.health.measures import FULL, QUICK, HealthEffort, HealthRun
from bench.kubelet import BareKubelet, NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, markdown, parser, render, say, write

FAULTS = (
    MissingTestBed,
    NothingCame,
    ProcessFailed,
    ValueError,
    OSError,
    subprocess.CalledProcessError,
    grpc.aio.AioRpcError,
)


def main() -> int:
    """Run it; 1 when something did not work."""
    quick = "fewer devices: says that it works, not how quick it is"
    arguments = parser(Benchmark.HEALTH, "Measure how quickly a sick device is known.", quick).parse_args()
    if shutil.which("gcc") is None:
        print("bench.health: gcc is not installed: the stub NVML library cannot be compiled", file=sys.stderr)
        return 1
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-bench-", dir="/tmp"))
    began = time.monotonic()
    try:
        measured = asyncio.run(_measure(root, QUICK if arguments.quick else FULL))
        figures = checked(measured, HEALTH_FIGURES)
    except FAULTS as error:
        say("")
        print(f"bench.health: {error}\nbench.health: logs are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    say("")
    print(markdown(figures, HEALTH_FIGURES) if arguments.markdown else render(figures, HEALTH_FIGURES))
    write(arguments.output, figures, Benchmark.HEALTH, quick=arguments.quick)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


async def _measure(root: Path, effort: HealthEffort) -> dict[str, float]:
    async with BareKubelet(root / "device-plugins") as kubelet:
        return await HealthRun(kubelet, root, effort, say).figures()
