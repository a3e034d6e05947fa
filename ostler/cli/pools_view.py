"""``ostler pools view``: which devices are free, who has the others, and what is left of their amounts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ostler.cli.exits import Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_format, emit, print_document, print_table
from ostler.drawing.text import plain
from ostler.pools.needs import check_nodes
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from scheduling.pools.overview import PoolNode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show the pools of devices: how many of each kind are free, who has the others, what is left of their memory\n"
        "and of other amounts, and how cards are cut into partitions. Reads the cluster that kubectl would use, or\n"
        "snapshots, recorded nodes and DevicePool documents (--from). Of more than 8 nodes those alike are one row.\n\n"
        "  ostler pools view\n"
        "  ostler pools view --from snapshot.json --node gpu-7\n"
        "  ostler pools view --from pools.yaml -o json"
    )
    add_format(parser)
    parser.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="show only this node, and all of it (repeatable)"
    )
    add_source(parser)


@uncollected()
def run(arguments: argparse.Namespace) -> int:
    """Read and print."""
    # Here and not above: help needs none of it.
    from ostler.pools.supply import read_supply
    from scheduling.pools.overview import nodes_of

    supply = read_supply(arguments)
    nodes = nodes_of(supply.pools)
    if arguments.node:
        known = {each.name: each for each in nodes if each.name}
        check_nodes(arguments.node, list(known))
        nodes = tuple(known[name] for name in dict.fromkeys(arguments.node))
    if arguments.output != "table":
        from ostler.pools.forms import view_document

        print_document(view_document(nodes), arguments.output)
    else:
        _print(nodes, folded=not arguments.node)
    return Exit.OK


def _print(nodes: tuple[PoolNode, ...], *, folded: bool) -> None:
    from ostler.pools.pictures import (
        FOLDED_HEADER,
        HEADER,
        folded_pictures,
        folded_rows,
        is_folded,
        pictures,
        rows,
        totals,
    )
    from scheduling.pools.overview import alike

    emit(f"{plain(totals(nodes))}\n")
    if not nodes:
        return
    emit("\n")
    if folded and is_folded(nodes):
        groups = alike(nodes)
        print_table(FOLDED_HEADER, folded_rows(groups))
        blocks = [folded_pictures(group) for group in groups]
    else:
        print_table(HEADER, rows(nodes))
        blocks = [pictures(node) for node in nodes]
    for block in blocks:
        lines = "".join(f"{plain(each)}\n" for each in block)
        if lines:
            emit(f"\n{lines}")
