"""``ostler pools``: the devices of a cluster as pools, and needs in their words; each subcommand has its own module."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostler.cli.main import Command

SUBCOMMANDS: dict[str, str] = {
    "convert": "print documents of pools as objects of resource.k8s.io/v1, and what is lost",
    "view": "show what is free, who has the rest, and what is left of amounts",
    "claim": "print the claim template to apply for a need, and what it would get now",
    "explain": "say where a need would get its devices, or what prevents it",
}
"""Subcommand -> what it does; `view` is in ``ostler.cli.pools_view``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommands; each module is loaded, since argparse parses all of the line at once."""
    parser.description = "Devices as pools: what is free, what a need would get, and which claim to write for it."
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
    module: Command = importlib.import_module(f"ostler.cli.pools_{name}")
    return module
