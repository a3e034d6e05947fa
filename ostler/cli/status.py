"""``ostler status``: the state of the running agent."""

from __future__ import annotations

import argparse
import sys

from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import Exit
from ostler.cli.options import add_socket
from ostler.cli.output import add_format, print_message, print_table, time_text
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show the state of the running agent: role, readiness, sources, resources, registration, claims, holds, events."
    )
    add_format(parser)
    add_socket(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status."""
    with running_agent(arguments.socket) as agent:
        status = agent.GetStatus(agent_pb2.GetStatusRequest(), timeout=TIMEOUT)
    if arguments.output == "table":
        _print_text(status)
    else:
        print_message(status, arguments.output, defaults=False)
    return Exit.OK


def _print_text(status: agent_pb2.GetStatusResponse) -> None:
    ready = "ready" if status.ready else "not ready"
    node = f" on {status.node_name}" if status.node_name else ""
    sys.stdout.write(f"ostler {status.version}{node}, process {status.pid}: {status.role}, {ready}\n")
    for reason in status.reasons:
        sys.stdout.write(f"  {plain(reason)}\n")
    if status.quiesced:
        sys.stdout.write("  quiesced: the driver is left alone until 'ostler resume'\n")
    sys.stdout.write(f"snapshot {status.snapshot_generation}\n\n")
    print_table(
        ("SOURCE", "STATE", "DETAIL"), [(source.name, source.state, source.detail) for source in status.sources]
    )
    sys.stdout.write("\n")
    rows = [
        (item.name, f"{item.healthy}/{item.devices}", item.registration, item.path, item.socket, item.detail)
        for item in status.resources
    ]
    print_table(("RESOURCE", "HEALTHY", "REGISTRATION", "PATH", "SOCKET", "DETAIL"), rows)
    if status.HasField("dra"):
        _print_dra(status.dra)
    if status.HasField("holds"):
        _print_holds(status.holds, dra=status.HasField("dra"))
    if status.events:
        sys.stdout.write("\n")
        print_table(
            ("TIME", "TYPE", "REASON", "MESSAGE"),
            [(time_text(event.time), event.type, event.reason, event.message) for event in status.events],
        )


def _print_dra(dra: agent_pb2.DraStatus) -> None:
    sys.stdout.write("\n")
    row = (dra.driver, f"{dra.published}/{dra.devices}", dra.registration, str(dra.claims), dra.socket, dra.problem)
    print_table(("DRA DRIVER", "PUBLISHED", "REGISTRATION", "CLAIMS", "SOCKET", "DETAIL"), [row])
    if dra.nri:
        sys.stdout.write(f"interfaces move into pods by NRI: {plain(dra.nri)}\n")


def _print_holds(holds: agent_pb2.HoldsStatus, *, dra: bool) -> None:
    """One line about holds, and one for each problem; ``dra``: the agent serves claims."""
    words = [f"{holds.by_plugin} through the plugin door"]
    words += [f"{holds.by_dra} through the DRA door"] if dra or holds.by_dra else []
    words += [
        f"{number} {what}" for number, what in ((holds.draining, "pending release"), (holds.moving, "moving")) if number
    ]
    if holds.losers:
        words.append("1 claim lost its device" if holds.losers == 1 else f"{holds.losers} claims lost their devices")
    sys.stdout.write(f"\ndevices held: {', '.join(words)}\n")
    for problem in (holds.kubelet, holds.api_server, holds.both, holds.doors, holds.processes, holds.containers):
        if problem:
            sys.stdout.write(f"  {plain(problem)}\n")
