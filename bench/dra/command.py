"""The benchmark's command: measure, show a table, write the figures beside those of the other benchmarks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio

from bench.dra.figures import DRA_FIGURES
from bench.dra.kubelet import DraKubelet, DriverCallFailed
from bench.dra.measures import FULL, QUICK, DraEffort, DraRun
from bench.dra.server import Server, api_server
from bench.kubelet import BareKubelet, NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, parser, run, say
from kube.errors import KubeError
from tests.cluster.__main__ import FAULTS


def main() -> int:
    """Run it; 1 when something did not work."""
    quick = "fewer claims: shows that it works, not how fast it is"
    arguments = parser(Benchmark.DRA, "Measure the DRA door against a real API server.", quick).parse_args()
    effort = QUICK if arguments.quick else FULL

    def measure(root: Path) -> dict[str, float]:
        with api_server() as server:
            return asyncio.run(_measure(server, root, effort))

    faults = (NothingCame, ProcessFailed, DriverCallFailed, KubeError, ValueError, grpc.aio.AioRpcError, *FAULTS)
    return run(Benchmark.DRA, arguments, measure, faults, DRA_FIGURES)


async def _measure(server: Server, root: Path, effort: DraEffort) -> dict[str, float]:
    async with DraKubelet(root / "kubelet") as kubelet, BareKubelet(root / "kubelet/device-plugins") as plugins:
        return await DraRun(server, (kubelet, plugins), root, effort=effort, say=say).figures()
