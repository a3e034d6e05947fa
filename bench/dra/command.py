"""The benchmark's command: measure, show a table, write the figures beside those of the other benchmarks.

A missed target is a fact about a machine and never an error; the exit code is 1 only when something did not work.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio

from bench.dra.figures import DRA_FIGURES
from bench.dra.kubelet import DraKubelet, DriverCallFailed
from bench.dra.measures import FULL, QUICK, DraEffort, DraRun
from bench.dra.server import Server, api_server
from bench.figures import checked
from bench.kubelet import BareKubelet, NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, markdown, parser, render, say, write
from kube.errors import KubeError
from tests.cluster.__main__ import FAULTS


def main() -> int:
    """Run it; 1 when something did not work."""
    quick = "fewer claims: says that it works, not how quick it is"
    arguments = parser(Benchmark.DRA, "Measure the DRA door against a real API server.", quick).parse_args()
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-bench-", dir="/tmp"))
    began = time.monotonic()
    try:
        with api_server() as server:
            measured = asyncio.run(_measure(server, root, QUICK if arguments.quick else FULL))
        figures = checked(measured, DRA_FIGURES)
    except (
        NothingCame,
        ProcessFailed,
        DriverCallFailed,
        KubeError,
        ValueError,
        grpc.aio.AioRpcError,
        *FAULTS,
    ) as error:
        say("")
        print(f"bench.dra: {error}\nbench.dra: logs are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    say("")
    print(markdown(figures, DRA_FIGURES) if arguments.markdown else render(figures, DRA_FIGURES))
    write(arguments.output, figures, Benchmark.DRA, quick=arguments.quick)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


async def _measure(server: Server, root: Path, effort: DraEffort) -> dict[str, float]:
    async with DraKubelet(root / "kubelet") as kubelet, BareKubelet(root / "kubelet/device-plugins") as plugins:
        return await DraRun(server, (kubelet, plugins), root, effort=effort, say=say).figures()
