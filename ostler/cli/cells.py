"""``ostler cells``: virtual clusters of whole cells; each subcommand has its own module."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostler.cli.main import Command

SUBCOMMANDS: dict[str, str] = {
    "discover": "write the configuration of the cells that the cluster's GPUs form",
    "check": "say whether a configuration is valid and safe, and where the cluster differs",
    "view": "draw the cells: free, used by whom, bad, broken",
}
"""Subcommand -> what it does; `view` is in ``ostler.cli.cells_view``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommands; each module is loaded, since argparse parses all of the line at once."""
    parser.description = "Cells of GPUs: what the cluster has, whether a configuration is safe, who has which cell."
    commands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True)
    for name, summary in SUBCOMMANDS.items():
        inner = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _module(name).add_arguments(inner)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    return _module(arguments.subcommand).run(arguments)


def _module(name: str) -> Command:
    module: Command = importlib.import_module(f"ostler.cli.cells_{name}")
    return module
