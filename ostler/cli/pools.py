"""``ostler pools``: the devices of a cluster as pools, and needs in their words; each subcommand has its own module."""

from __future__ import annotations

import argparse

from ostler.cli.commands import add_subcommands, run_subcommand

SUBCOMMANDS: dict[str, str] = {
    "convert": "print documents of pools as objects of resource.k8s.io/v1, and what is lost",
    "view": "show what is free, who has the rest, and what is left of amounts",
    "claim": "print the claim template to apply for a need, and what it would get now",
    "explain": "say where a need would get its devices, or what prevents it",
}
"""Subcommand -> what it does; `view` is in ``ostler.cli.pools_view``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommands."""
    parser.description = "Devices as pools: what is free, what a need would get, and which claim to write for it."
    add_subcommands(parser, "pools", SUBCOMMANDS)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    return run_subcommand("pools", arguments)
