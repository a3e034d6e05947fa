"""``ostler cells discover``: the configuration of the cells that the cluster's GPUs form."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import add_format, emit, print_document
from ostler.drawing.text import plain
from ostler.pools.source import add_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Write the configuration of cells: the physical cells from the ResourceSlices that nodes publish, so that\n"
        "only virtual clusters are written by hand. Reads the cluster that kubectl would use, or snapshots and\n"
        "recorded nodes (--from). Without --keep one virtual cluster, default, owns everything.\n\n"
        "  ostler cells discover > cells.yaml\n"
        "  ostler cells discover --above topology.kubernetes.io/rack --keep cells.yaml > new.yaml\n"
        "  ostler cells discover --from h100-sxm-8 -o json"
    )
    add_format(parser, ("yaml", "json"))
    parser.add_argument(
        "--above",
        action="append",
        default=[],
        metavar="LABEL",
        help="group nodes with the same value of this label into a cell above them (repeatable, innermost first)",
    )
    parser.add_argument(
        "--keep",
        metavar="FILE",
        help="keep virtual clusters, pinned nodes and the extender's own keys of this configuration",
    )
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read and print."""
    # Here and not above: help needs none of it.
    from ostler.cells.source import read_cells, read_discovered
    from ostler.cells.writing import write_configuration
    from scheduling.cells.configuration import CellsConfigurationError, read_configuration

    kept = None if arguments.keep is None else read_cells(arguments.keep)
    found, origin = read_discovered(arguments)
    if not found.nodes:
        for note in found.notes:
            sys.stderr.write(f"ostler: {plain(note)}\n")
        raise CommandFailed(
            f"{origin} publishes no whole GPU; offer GPUs through claims (door: dra or both), or name another source by"
            " --from",
            Exit.FAILED,
        )
    written = write_configuration(found, origin=origin, labels=arguments.above, kept=kept)
    for note in written.notes:
        sys.stderr.write(f"ostler: {plain(note)}\n")
    try:
        read_configuration(written.text, "the new configuration")
    except CellsConfigurationError as error:
        if kept is None:
            raise CommandFailed(str(error), Exit.FAILED) from error
        raise CommandFailed(
            f"the virtual clusters of {Path(arguments.keep)} do not fit the cells of {origin}: {error.problem}; change"
            " them, then run this again",
            Exit.CONFIG,
        ) from error
    if arguments.output == "json":
        import yaml

        print_document(yaml.safe_load(written.text), "json")
    else:
        emit(written.text)
    return Exit.OK
