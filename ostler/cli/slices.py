"""``ostler slices``: what this node publishes through DRA, and what it would."""

from __future__ import annotations

import argparse
import sys

from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.options import add_socket
from ostler.cli.output import add_format, document_of, print_document, print_table
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2

DIFFERENT = ("missing", "surplus")
"""States in which the API server has another thing than what should be there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show what this node publishes for the scheduler through DRA: each device with its slice and its taints, and\n"
        "the difference and its reason if the API server does not have what the agent wants to publish."
    )
    add_format(parser)
    add_socket(parser)
    parser.add_argument(
        "--different", action="store_true", help="list only devices that are not published as they should be"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 while there is a difference or a problem")


def run(arguments: argparse.Namespace) -> int:
    """Print the pools."""
    with running_agent(arguments.socket) as agent:
        answer = agent.ListSlices(agent_pb2.ListSlicesRequest(), timeout=TIMEOUT)
    if arguments.output == "table":
        _print_text(answer, different=arguments.different)
    else:
        document = document_of(answer)
        if arguments.different:
            for pool in document["pools"]:
                pool["devices"] = [device for device in pool["devices"] if device["state"] != "published"]
        print_document(document, arguments.output)
    return 1 if arguments.check and _unsettled(answer) else 0


def _unsettled(answer: agent_pb2.ListSlicesResponse) -> bool:
    return not answer.generation or any(
        pool.problem or pool.dropped or not pool.in_order or _differences(pool) for pool in answer.pools
    )


def _differences(pool: agent_pb2.Pool) -> int:
    return sum(device.state in DIFFERENT for device in pool.devices)


def _print_text(answer: agent_pb2.ListSlicesResponse, *, different: bool) -> None:
    writes = f"{answer.created} created, {answer.updated} updated, {answer.deleted} deleted since the start"
    sys.stdout.write(f"driver {plain(answer.driver)}: slices {writes}\n")
    if not answer.generation:
        sys.stdout.write("  nothing has been published yet\n")
    for pool in answer.pools:
        sys.stdout.write(f"\npool {plain(pool.name)}, {_summary(pool)}\n")
        if pool.dropped:
            sys.stdout.write(
                f"  not stored, because the API server lacks the feature gates {plain(', '.join(pool.dropped))}\n"
            )
        if pool.problem:
            sys.stdout.write(f"  {plain(pool.problem)}\n")
        rows = [
            (device.name, device.state, _slice(device), ", ".join(device.taints) or "-", device.why)
            for device in pool.devices
            if not different or device.state != "published"
        ]
        if rows:
            print_table(("DEVICE", "STATE", "SLICE", "TAINTS", "WHY"), rows)


def _slice(device: agent_pb2.PoolDevice) -> str:
    return str(device.slice) if device.HasField("slice") else "-"


def _summary(pool: agent_pb2.Pool) -> str:
    words = ["1 slice" if pool.slices == 1 else f"{pool.slices} slices"]
    for state in ("published", *DIFFERENT, "withheld"):
        number = sum(device.state == state for device in pool.devices)
        if number or state == "published":
            words.append(f"{number} {state}")
    words.append("in order" if pool.in_order else "not in order")
    return ", ".join(words)
