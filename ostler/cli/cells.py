"""``ostler cells``: virtual clusters of whole cells; each subcommand has its own module."""

from __future__ import annotations

import argparse

from ostler.cli.commands import add_subcommands, run_subcommand

SUBCOMMANDS: dict[str, str] = {
    "discover": "write the configuration of the cells that the cluster's GPUs form",
    "check": "say whether a configuration is valid and safe, and where the cluster differs",
    "plan": "say whether a gang would fit now, and whom it would preempt",
    "simulate": "run a trace of jobs through the virtual clusters, against plain quotas",
    "view": "draw the cells: free, used by whom, bad, broken",
}
"""Subcommand -> what it does; `view` is in ``ostler.cli.cells_view``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommands."""
    parser.description = "Cells of GPUs: what the cluster has, whether a configuration is safe, who has which cell."
    add_subcommands(parser, "cells", SUBCOMMANDS)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    return run_subcommand("cells", arguments)
