"""``ostler pools explain``: on which nodes a need would get its devices, or what prevents it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_color, add_format, emit, page_form, print_document
from ostler.pools.needs import add_need, check_nodes, claims_in, short_need

if TYPE_CHECKING:
    from ostler.pools.supply import PoolDocuments
    from scheduling.pools.claim_documents import DeviceClaim
    from scheduling.pools.survey import PoolExplanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Say on which nodes the claims of a file would get their devices, and which; or what prevents it, for each\n"
        "node and need, the closest node first, and what would help. Changes nothing. Several claims are asked about\n"
        "together, as those of one pod. DeviceClass documents beside them win over the cluster's classes.\n\n"
        "  ostler pools explain '1..8 gpu, memory>=128Gi total, same pcieRoot'\n"
        "  ostler pools explain -f need.yaml\n"
        "  ostler pools explain -f need.yaml --from snapshot.json --node gpu-7\n\n"
        "exit codes: 0 it fits on a node, 1 on none, 2 an input cannot be used"
    )
    add_need(
        parser,
        documents="DeviceClaims to ask about, with DeviceClasses and DevicePools to treat as published",
        node="check only this node",
    )
    parser.add_argument("--all-nodes", action="store_true", help="name every node, and say why where it does not fit")
    add_color(parser)
    add_format(parser, ("text", "json", "yaml"))


@uncollected()
def run(arguments: argparse.Namespace) -> int:
    """Explain and print."""
    # Here and not above: help needs none of it.
    from ostler.cli.progress import Progress
    from ostler.pools.supply import read_documents, read_supply
    from scheduling.pools.survey import pools_by_node, survey_pools

    progress = Progress(sys.stderr, time.monotonic)
    try:
        written = read_documents(arguments.filename)
        asked = [short_need(arguments.need)] if arguments.need else _asked(written, arguments.filename)
        supply = read_supply(arguments, written)
        check_nodes(arguments.node, list(pools_by_node(supply.pools)))
        answer = survey_pools(asked, supply.pools, supply.classes, arguments.node, progress.nodes)
    finally:
        progress.end()
    _print(answer, arguments)
    return Exit.OK if answer.fitting else Exit.FAILED


def _asked(written: PoolDocuments, files: Sequence[str]) -> list[DeviceClaim]:
    """The claims without devices; raises ``CommandFailed`` if there is none."""
    from scheduling.pools.need import EXAMPLE
    from scheduling.pools.reading import title_of

    if not files:
        raise CommandFailed(
            f"nothing to explain: give a need, such as '{EXAMPLE}', or a DeviceClaim with -f FILE", Exit.USAGE
        )
    claims = claims_in(written, files)
    asked = [each for each in claims if not each.status.allocations]
    if not asked:
        names = ", ".join(map(title_of, claims))
        raise CommandFailed(
            f"{', '.join(files)}: claim {names} has its devices already; remove status.allocations to ask again",
            Exit.USAGE,
        )
    return asked


def _print(answer: PoolExplanation, arguments: argparse.Namespace) -> None:
    if arguments.output != "text":
        from ostler.pools.forms import explanation_document

        print_document(explanation_document(answer), arguments.output)
        return
    from ostler.pools.explaining import draw_pools

    width, colour = page_form(arguments.color)
    emit(draw_pools(answer, width=width, colour=colour, all_nodes=arguments.all_nodes))
