"""``ostler claims``: the resource claims that this node has prepared, and where one is stuck."""

from __future__ import annotations

import argparse
import sys

from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_socket
from ostler.cli.output import add_format, print_message, print_table, time_text
from protos.agent.v1alpha1 import agent_pb2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "List the resource claims that hold devices of this node, or were recently refused them: since when, for\n"
        "which pods, with which devices and CDI names, why one is stuck, and the files that describe the\n"
        "devices to the claim's containers."
    )
    add_format(parser)
    add_socket(parser)
    parser.add_argument("claim", nargs="?", metavar="[NAMESPACE/]NAME", help="show only this claim")


def run(arguments: argparse.Namespace) -> int:
    """Print the claims."""
    with running_agent(arguments.socket) as agent:
        answer = agent.ListClaims(agent_pb2.ListClaimsRequest(), timeout=TIMEOUT)
    claims = [claim for claim in answer.claims if _is_meant(claim, arguments.claim)]
    if arguments.claim and not claims:
        raise CommandFailed(f"this node has no claim {arguments.claim}; 'ostler claims' lists those that it has")
    if arguments.output == "table":
        _print_text(claims)
    else:
        chosen = agent_pb2.ListClaimsResponse(claims=claims)
        print_message(chosen, arguments.output)
    return Exit.OK


def _is_meant(claim: agent_pb2.Claim, name: str | None) -> bool:
    return not name or name in (claim.name, f"{claim.namespace}/{claim.name}", claim.uid)


def _print_text(claims: list[agent_pb2.Claim]) -> None:
    if not claims:
        sys.stdout.write("no claim holds devices of this node, and none was refused lately\n")
        return
    print_table(("CLAIM", "STATE", "SINCE", "REQUEST", "DEVICE", "CDI DEVICES", "PODS", "STUCK"), _rows(claims))
    files = [file for claim in claims for file in claim.metadata_files]
    if files:
        sys.stdout.write("\nmetadata files:\n" + "".join(f"  {file}\n" for file in files))


def _rows(claims: list[agent_pb2.Claim]) -> list[tuple[str, ...]]:
    """One row for each device; the first one also has what belongs to the claim."""
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        of_claim = (f"{claim.namespace}/{claim.name}", claim.state, time_text(claim.since))
        pods = ",".join(claim.pods) or "-"
        for number, device in enumerate(claim.devices or [agent_pb2.ClaimDevice()]):
            first = number == 0
            rows.append(
                (
                    *(of_claim if first else ("", "", "")),
                    ",".join(device.requests) or "-",
                    _device(device),
                    " ".join(device.cdi_devices) or "-",
                    pods if first else "",
                    claim.stuck if first else "",
                )
            )
    return rows


def _device(device: agent_pb2.ClaimDevice) -> str:
    return f"{device.device} (share {device.share_id})" if device.share_id else device.device or "-"
