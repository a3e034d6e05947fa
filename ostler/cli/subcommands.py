"""Commands with subcommands, each of which has its own module: ``ostler.cli.pools_view`` for ``ostler pools view``."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostler.cli.command_line import Command


def add_subcommands(parser: argparse.ArgumentParser, command: str, summaries: Mapping[str, str]) -> None:
    """Describe the subcommands; each module is loaded, since argparse parses all of the line at once."""
    commands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True)
    for name, summary in summaries.items():
        inner = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _module(command, name).add_arguments(inner)


def run_subcommand(command: str, arguments: argparse.Namespace) -> int:
    """Run the subcommand of the command line."""
    return _module(command, arguments.subcommand).run(arguments)


def _module(command: str, name: str) -> Command:
    module: Command = importlib.import_module(f"ostler.cli.{command}_{name}")
    return module
