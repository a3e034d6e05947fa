"""The benchmark's command: measure, show a table and what was asked, write the figures beside the others'."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc.aio

from bench.dra.kubelet import DriverCallFailed
from bench.kubelet import NothingCame
from bench.process import ProcessFailed
from bench.results import Benchmark, has_compiler, parser, run, say
from bench.scale.crowd import PER_PROCESS, processes_for
from bench.scale.figures import SCALE_FIGURES
from bench.scale.measures import ScaleEffort, ScaleReport, ScaleRun
from bench.scale.pools import pools_of
from bench.scale.server import scale_server
from tests.cluster.__main__ import FAULTS
from tests.cluster.rig.api import ApiRefused

FULL, QUICK = 200, 20
ASKED = Path(__file__).parents[2] / "build" / "scale-requests.json"
"""Where the requests of each step are written, by verb and resource."""


def main() -> int:
    """Run it; 1 when something did not work."""
    quick = f"{QUICK} nodes: shows that it works, not what many agents do"
    options = parser(Benchmark.SCALE, "Measure what many agents ask of a real API server.", quick)
    options.add_argument("--nodes", type=int, help=f"agents (default: {FULL}); fewer are a short run")
    options.add_argument("--processes", type=int, help=f"processes of agents (default: one for {PER_PROCESS} agents)")
    options.add_argument("--idle", type=float, help="seconds that idle agents are watched (default: 60)")
    arguments = options.parse_args()
    nodes = arguments.nodes or (QUICK if arguments.quick else FULL)
    effort = ScaleEffort(
        nodes,
        min(arguments.processes or processes_for(nodes), nodes),
        arguments.idle or (5.0 if arguments.quick else 60.0),
        away=10.0,
    )
    arguments.quick = arguments.quick or nodes < FULL
    if not has_compiler(Benchmark.SCALE):
        return 1

    def measure(root: Path) -> dict[str, float]:
        with scale_server() as server, pools_of(server.api) as pools:
            made = ScaleRun(server, pools, root, effort, say)
            try:
                asyncio.run(made.measure())
            finally:
                _write(made.report)
        return made.report.figures

    faults = (NothingCame, ProcessFailed, DriverCallFailed, ApiRefused, ValueError, grpc.aio.AioRpcError, *FAULTS)
    return run(Benchmark.SCALE, arguments, measure, faults, SCALE_FIGURES)


def _write(report: ScaleReport) -> None:
    ASKED.parent.mkdir(exist_ok=True)
    ASKED.write_text(json.dumps({step: dict(asked) for step, asked in report.asked.items()}, indent=1) + "\n")
