"""``ostler rescan``: have the running agent look at the hardware now."""

from __future__ import annotations

import argparse

from ostler.cli.client import TIMEOUT, call
from ostler.cli.options import add_socket
from ostler.cli.output import print_changes
from protos.agent.v1alpha1 import agent_pb2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = "Have the running agent scan the hardware now, and print what changed."
    add_socket(parser)


def run(arguments: argparse.Namespace) -> int:
    """Scan and print the changes."""
    answer = call(arguments.socket, lambda stub: stub.Rescan(agent_pb2.RescanRequest(), timeout=TIMEOUT))
    print_changes(answer.changes)
    return 0
