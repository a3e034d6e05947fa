"""``ostler reload``: have the running agent read its configuration again."""

from __future__ import annotations

import argparse

from ostler.cli.client import TIMEOUT, call
from ostler.cli.options import add_socket
from ostler.cli.output import print_changes
from protos.agent.v1alpha1 import agent_pb2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Have the running agent read its configuration again, as SIGHUP does, and print what changed.\n"
        "A configuration with problems is refused whole (exit code 3) and the old one stays in force."
    )
    add_socket(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reload and print the changes."""
    answer = call(arguments.socket, lambda stub: stub.Reload(agent_pb2.ReloadRequest(), timeout=TIMEOUT))
    print_changes(answer.changes)
    return 0
