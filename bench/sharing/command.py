"""The benchmark's command: measure, show a table, write the figures beside those of the other benchmarks."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import grpc.aio

from bench.dra.kubelet import DraKubelet, DriverCallFailed
from bench.kubelet import BareKubelet, NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, has_compiler, parser, run, say
from bench.sharing.figures import SHARING_FIGURES
from bench.sharing.measures import FULL, QUICK, SharingEffort, SharingRun
from bench.sharing.stage import ClaimingServer

FAULTS = (NothingCame, ProcessFailed, DriverCallFailed, ValueError, OSError, grpc.aio.AioRpcError)


def main() -> int:
    """Run it; 1 when something did not work."""
    description = "Measure shares and partitions beside whole GPUs, on a recorded node behind NVML."
    quick = "fewer calls: shows that it works, not how fast it is"
    arguments = parser(Benchmark.SHARING, description, quick).parse_args()
    if not has_compiler(Benchmark.SHARING):
        return 1
    if os.geteuid() != 0:
        print("bench.sharing: run it as root: claims get device files, which only root can make", file=sys.stderr)
        return 1
    effort = QUICK if arguments.quick else FULL
    return run(Benchmark.SHARING, arguments, lambda root: asyncio.run(_measure(root, effort)), FAULTS, SHARING_FIGURES)


async def _measure(root: Path, effort: SharingEffort) -> dict[str, float]:
    plugins = BareKubelet(root / "kubelet/device-plugins")
    with ClaimingServer(root / "kubeconfig") as server:
        async with DraKubelet(root / "kubelet") as kubelet, plugins:
            return await SharingRun(server, (kubelet, plugins), root, effort=effort, say=say).figures()
