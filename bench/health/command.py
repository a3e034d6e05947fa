"""The benchmark's command: measure, show a table, write the figures beside those of the other benchmarks."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import grpc.aio

from bench.health.figures import HEALTH_FIGURES
from bench.health.hardware import MissingTestBed
from bench.health.measures import FULL, QUICK, HealthEffort, HealthRun
from bench.kubelet import BareKubelet, NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, has_compiler, parser, run, say

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
    quick = "fewer devices: shows that it works, not how fast it is"
    arguments = parser(Benchmark.HEALTH, "Measure how quickly a sick device is known.", quick).parse_args()
    if not has_compiler(Benchmark.HEALTH):
        return 1
    effort = QUICK if arguments.quick else FULL
    return run(Benchmark.HEALTH, arguments, lambda root: asyncio.run(_measure(root, effort)), FAULTS, HEALTH_FIGURES)


async def _measure(root: Path, effort: HealthEffort) -> dict[str, float]:
    async with BareKubelet(root / "device-plugins") as kubelet:
        return await HealthRun(kubelet, root, effort, say).figures()
