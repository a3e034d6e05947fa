"""``ostler cells view``: the cells of a cluster, who uses them, and which islands are broken."""

from __future__ import annotations

import argparse

from ostler.cli.exits import Exit
from ostler.cli.output import add_format, emit, print_document
from ostler.drawing.text import plain
from ostler.pools.source import add_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Draw the cells of a configuration: which GPUs are free, who uses the others, which are bad, and which pods\n"
        "have a broken island: GPUs in a larger cell than they need. Pods are those of --pods (what kubectl prints\n"
        "with -o json) or of the cluster; with --cluster or --from bad GPUs are marked.\n\n"
        "  ostler cells view cells.yaml --cluster\n"
        "  kubectl get pods -A -o json | ostler cells view cells.yaml --pods -\n"
        "  ostler cells view cells.yaml --pods pods.json -o svg > cells.svg"
    )
    parser.add_argument("file", metavar="FILE", help="the configuration; - for standard input")
    parser.add_argument("--pods", metavar="FILE", help="a list of pods; - for standard input")
    parser.add_argument(
        "--cluster", action="store_true", help="read pods and GPUs of the cluster that kubectl would use"
    )
    add_format(parser, ("text", "svg", "json", "yaml"))
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read and draw."""
    # Here and not above: help needs none of it.
    from ostler.cells.pictures import document, svg_picture, text_picture
    from ostler.cells.placed import placed_cells
    from ostler.cells.source import read_cells, read_discovered, running_pods

    configuration = read_cells(arguments.file)
    pods = running_pods(arguments)
    nodes = read_discovered(arguments)[0].nodes if arguments.cluster or arguments.origin else ()
    placed = placed_cells(configuration, pods, nodes)
    if arguments.output == "svg":
        emit(svg_picture(placed, f"Cells of {arguments.file}"))
    elif arguments.output == "text":
        emit("".join(f"{plain(line)}\n" for line in text_picture(placed)))
    else:
        print_document(document(placed), arguments.output)
    return Exit.OK
