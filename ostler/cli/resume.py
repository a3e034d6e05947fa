"""``ostler resume``: have the running agent use the driver again after ``ostler quiesce``."""

from __future__ import annotations

import argparse

from ostler.cli.client import call
from ostler.cli.options import add_socket
from ostler.cli.output import print_changes
from protos.agent.v1alpha1 import agent_pb2

TIMEOUT = 60.0
"""Seconds: opening a freshly loaded driver initialises every GPU."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Have the running agent use the driver again, with the library that lies there now, and print what changed.\n"
        "Does no harm where nothing was quiesced."
    )
    add_socket(parser)


def run(arguments: argparse.Namespace) -> int:
    """Resume and print the changes."""
    answer = call(arguments.socket, lambda stub: stub.Resume(agent_pb2.ResumeRequest(), timeout=TIMEOUT))
    print_changes(answer.changes)
    return 0
