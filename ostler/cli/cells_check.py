"""``ostler cells check``: whether a configuration is valid and safe, and where the cluster differs from it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ostler.cli.exits import Exit
from ostler.cli.output import FORMATS, add_format, emit, print_document, print_table
from ostler.drawing.text import plain
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from ostler.cells.ownership import ChainOwnership


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Say whether a configuration of cells is valid, and what each virtual cluster owns of each level. A fault is\n"
        "one sentence with its line and what to write instead. With --cluster or --from the configuration is compared\n"
        "with the GPUs that nodes publish; the exit code is 1 if they differ.\n\n"
        "  ostler cells check cells.yaml\n"
        "  ostler cells check cells.yaml --cluster\n"
        "  ostler cells check cells.yaml --from snapshot.json -o json"
    )
    parser.add_argument("file", metavar="FILE", help="the configuration; - for standard input")
    parser.add_argument("--cluster", action="store_true", help="compare with the cluster that kubectl would use")
    add_format(parser, FORMATS)
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, compare and print."""
    # Here and not above: help needs none of it.
    from ostler.cells.drift import drift
    from ostler.cells.ownership import ownership
    from ostler.cells.source import read_cells, read_discovered

    configuration = read_cells(arguments.file)
    chains = ownership(configuration)
    differences: list[str] = []
    bad: list[str] = []
    compared = arguments.cluster or bool(arguments.origin)
    if compared:
        found, _ = read_discovered(arguments)
        differences = drift(configuration, found)
        bad = [
            f"GPU {each.index} of node {node.name} is bad: taint {each.bad}"
            for node in found.nodes
            for each in node.devices
            if each.bad
        ]
    if arguments.output == "table":
        _print(arguments.file, chains, differences, bad, compared=compared)
    else:
        document = {
            "valid": True,
            "chains": [each.document() for each in chains],
            "drift": differences,
            "bad": bad,
        }
        print_document(document, arguments.output)
    return Exit.FAILED if differences else Exit.OK


def _print(file: str, chains: list[ChainOwnership], differences: list[str], bad: list[str], *, compared: bool) -> None:
    emit(f"{plain(file)} is valid: its virtual clusters fit into the physical cells\n\n")
    rows = [row for chain in chains for row in chain.rows()]
    print_table(("CHAIN", "LEVEL", "GPUS", "CELLS", "OWNED", "LEFT", "VIRTUAL CLUSTERS"), rows)
    for sentence in bad:
        emit(f"\n{plain(sentence)}")
    for sentence in differences:
        emit(f"\n{plain(sentence)}")
    if compared and not differences:
        emit("\nthe cluster has these cells")
    if compared:
        emit("\n")
