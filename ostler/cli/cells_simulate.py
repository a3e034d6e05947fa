"""``ostler cells simulate``: a trace of jobs through the virtual clusters, against plain quotas."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import add_format, emit, print_document, print_table
from ostler.drawing.text import plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Run a trace of jobs through the virtual clusters of a configuration, and through quotas that count GPUs, and\n"
        "compare how long jobs wait, how often they are preempted and how many islands are broken. A trace is a list\n"
        "of jobs (YAML, JSON, or CSV with a header): name, at and duration in seconds, virtualCluster, priority\n"
        "(-1 is opportunistic), pods, and gpus of each pod.\n\n"
        "  ostler cells simulate cells.yaml trace.csv\n"
        "  ostler cells simulate cells.yaml trace.yaml -o json\n"
        "  ostler cells simulate cells.yaml trace.yaml -o svg > trace.svg"
    )
    parser.add_argument("file", metavar="FILE", help="the configuration")
    parser.add_argument("trace", metavar="TRACE", help="the trace; - for standard input")
    add_format(parser, ("table", "json", "yaml", "svg"))


def run(arguments: argparse.Namespace) -> int:
    """Read, simulate and print."""
    # Here and not above: help needs none of it.
    from ostler.cells.drift import configured_nodes
    from ostler.cells.simulation import ROWS, figures, simulate
    from ostler.cells.source import read_cells
    from ostler.cells.trace import TraceError, read_trace
    from ostler.pools.source import read_input

    configuration = read_cells(arguments.file)
    try:
        jobs = read_trace(read_input(arguments.trace), arguments.trace)
    except TraceError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    known = configuration.virtual_clusters
    stray = next((job for job in jobs if job.virtual_cluster not in known), None)
    if stray is not None:
        raise CommandFailed(
            f"{arguments.trace}: job {stray.name} belongs to the virtual cluster {stray.virtual_cluster}, which"
            f" {arguments.file} does not have; it has {', '.join(sorted(known)) or 'none'}",
            Exit.USAGE,
        )
    runs = simulate(configuration, jobs)
    found = [figures(each) for each in runs]
    for each in runs:
        for name, why in each.refused.items():
            sys.stderr.write(f"ostler: {each.policy}: job {plain(name)} is refused: {plain(why)}\n")
    if arguments.output == "svg":
        from ostler.cells.simulation_picture import svg_of_simulation

        gpus = sum(len(node.indices) for node in configured_nodes(configuration))
        emit(svg_of_simulation(runs, gpus, f"{arguments.trace}: cells against quotas"))
    elif arguments.output == "table":
        columns = [each.rows() for each in found]
        rows = [(name, *(column[number] for column in columns)) for number, name in enumerate(ROWS)]
        print_table(("", *(each.policy.upper() for each in found)), rows)
    else:
        document = [
            {
                **dataclasses.asdict(each),
                "refused": run_.refused,
                "jobs": {
                    name: {"began": one.began, "ended": one.ended, "preempted": one.preempted, "broken": one.broken}
                    for name, one in run_.runs.items()
                },
            }
            for each, run_ in zip(found, runs, strict=True)
        ]
        print_document(document, arguments.output)
    return Exit.OK
