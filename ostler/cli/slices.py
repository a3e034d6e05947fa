"""``ostler slices``: what this node publishes through DRA, and what it wants to publish."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kube.bodies import JsonObject
from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_socket
from ostler.cli.output import FORMATS, document_of, emit, print_document, print_table
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2

DIFFERENT = ("missing", "surplus")
"""States of a device for which the API server's slices differ from what the agent wants to publish."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show what this node publishes for the scheduler through DRA: each device with its slice and its taints, and\n"
        "the difference and its reason if the API server does not have what the agent wants to publish.\n\n"
        "With --from, print the ResourceSlices that a recorded node would publish, for 'kubectl apply -f -';\n"
        "this needs no agent."
    )
    parser.add_argument(
        "-o", "--output", choices=FORMATS, help="output format (default: table; with --from yaml, or json)"
    )
    add_socket(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="NODE",
        help="print the slices of this recorded node: a file of 'ostler record', or the name of a shipped node",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="with --from: the agent's configuration (default: the sandbox's, with every GPU and NIC)",
    )
    parser.add_argument("--node-name", default="", metavar="NAME", help="with --from: name of the node and its pool")
    parser.add_argument(
        "--different", action="store_true", help="list only devices that are not published as they should be"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 while there is a difference or a problem")


def run(arguments: argparse.Namespace) -> int:
    """Print the pools, or the slices of a recorded node."""
    if arguments.origin is not None:
        return _print_recorded(arguments)
    for option, given in (("--config", arguments.config), ("--node-name", arguments.node_name)):
        if given:
            raise CommandFailed(f"{option} is for a recorded node; add --from NODE, or leave {option} out", Exit.USAGE)
    with running_agent(arguments.socket) as agent:
        answer = agent.ListSlices(agent_pb2.ListSlicesRequest(), timeout=TIMEOUT)
    if arguments.output in (None, "table"):
        _print_text(answer, different=arguments.different)
    else:
        document = document_of(answer)
        if arguments.different:
            for pool in document["pools"]:
                pool["devices"] = [device for device in pool["devices"] if device["state"] != "published"]
        print_document(document, arguments.output)
    return Exit.FAILED if arguments.check and _unsettled(answer) else Exit.OK


def _print_recorded(arguments: argparse.Namespace) -> int:
    # Here and not above: the agent's answer needs none of it.
    from ostler.explain.recorded import recorded_node
    from scheduling.explain.state import BadQuestion

    options = ("table", arguments.output == "table"), ("--different", arguments.different), ("--check", arguments.check)
    for option, given in options:
        if given:
            word = f"-o {option}" if option == "table" else option
            raise CommandFailed(
                f"{word} is about a running agent; a recorded node (--from) is printed as yaml or json", Exit.USAGE
            )
    try:
        node = recorded_node(arguments.origin, arguments.config, arguments.node_name)
    except BadQuestion as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    _print_objects(node.slices, arguments.output or "yaml")
    return Exit.OK


def _print_objects(objects: Sequence[JsonObject], form: str) -> None:
    """Print objects in a form that kubectl applies: YAML documents, or a List in JSON."""
    if form == "json":
        print_document({"apiVersion": "v1", "kind": "List", "items": list(objects)}, form)
        return
    for body in objects:
        emit("---\n")
        print_document(body, form)


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
