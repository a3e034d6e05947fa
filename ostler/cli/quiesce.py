"""``ostler quiesce``: have the running agent let go of the driver, so that it can be replaced."""

from __future__ import annotations

import argparse
import sys

from ostler.cli.client import call
from ostler.cli.options import add_socket, sendable
from ostler.cli.output import print_changes
from protos.agent.v1alpha1 import agent_pb2

TIMEOUT = 60.0
"""Seconds: a driver that does not answer has to be waited for before its library can be closed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Have the running agent close NVML and every device file, so that the driver's modules can be unloaded, and\n"
        "print what changed. Its devices are shown unhealthy: running pods keep them, no new pod gets one. It lasts\n"
        "until 'ostler resume' or a reboot, also when the agent is restarted meanwhile. A standby follows within\n"
        "seconds. Pods that use GPUs keep the driver busy: end them first. Where a call into the driver does not\n"
        "return, the agent cannot let go of it: that is said, and the command fails."
    )
    parser.add_argument(
        "--reason", type=sendable, default="", help="why, for the log and for people who look at the devices"
    )
    add_socket(parser)


def run(arguments: argparse.Namespace) -> int:
    """Quiesce and print the changes."""
    request = agent_pb2.QuiesceRequest(reason=arguments.reason)
    answer = call(arguments.socket, lambda stub: stub.Quiesce(request, timeout=TIMEOUT))
    print_changes(answer.changes)
    sys.stdout.write("the driver is free of this agent; end with 'ostler resume'\n")
    return 0
