"""``ostler health``: the health of every device, why, since when and until when; and overrides of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from node.inventory.model import UnknownDevice
from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_socket, sendable
from ostler.cli.output import add_format, print_changes, print_message, print_table, time_text
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2

HEADER = ("DEVICE", "STATE", "CAUSE", "SINCE", "ENDS", "SHOWN AS", "WHY")
STATES = ("unhealthy", "degraded", "healthy")
_OLD_RELEASE = "release-brake"
"""The old name of ``release-eviction-limit``; the next release drops it."""
_ENDS = {
    "automatic": "by itself",
    "reset": "with a reset",
    "replace": "when a person clears it",
    "person": "when a person clears it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "List the health of this node's devices: state, cause, since when, what ends it, and what the doors show,\n"
        "which differs in a dry run. Active eviction limits and failed sources follow below."
    )
    add_format(parser)
    add_socket(parser)
    parser.add_argument("--device", metavar="NAME", help="show only this device")
    parser.add_argument("--faults", action="store_true", help="show only devices that are not healthy")
    actions = parser.add_subparsers(metavar="ACTION", dest="action")
    form = parser.formatter_class
    _add_set(actions.add_parser("set", help="override the health of a device", formatter_class=form))
    clear = actions.add_parser(
        "clear", help="remove the override, and troubles that only a person can end", formatter_class=form
    )
    clear.description = (
        "Remove the override of a device and forget its earlier troubles: a device that was replaced or reset is\n"
        "healthy again. A condition that still exists stays; 'ostler health set DEVICE healthy' overrides it."
    )
    clear.add_argument("name", type=sendable, metavar="DEVICE", help="name or UUID of a device")
    _add_common(clear)
    release = actions.add_parser(
        "release-eviction-limit",
        aliases=[_OLD_RELEASE],
        help="let unhealthy devices of a kind evict again",
        formatter_class=form,
    )
    release.description = (
        "If more than half of the devices of a kind become unhealthy at once, none of them evicts the pods that have\n"
        "it, because the fault is probably elsewhere. This command ends that limit."
    )
    release.add_argument("name", type=sendable, metavar="KIND", help="kind of device: gpu, mig, nic ...")
    _add_common(release)


def run(arguments: argparse.Namespace) -> int:
    """Print the health of devices, or change that of one."""
    match arguments.action:
        case "set":
            return _set(arguments)
        case "clear":
            clear = agent_pb2.ClearHealthRequest(device=arguments.name, dry_run=arguments.dry_run)
            with running_agent(arguments.socket) as agent:
                changes = agent.ClearHealth(clear, timeout=TIMEOUT).changes
        case "release-eviction-limit" | "release-brake":
            release = agent_pb2.ReleaseBrakeRequest(kind=arguments.name, dry_run=arguments.dry_run)
            with running_agent(arguments.socket) as agent:
                changes = agent.ReleaseBrake(release, timeout=TIMEOUT).changes
        case _:
            return _list(arguments)
    return _print(changes, dry_run=arguments.dry_run)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Override the health of a device. The override takes precedence over everything measured on the device, and\n"
        "applies to its parts too, except for what is measured on a part itself. 'healthy' overrides signals, but not\n"
        "a scan that finds the device unhealthy or unknown. It survives restarts of the agent and of the node."
    )
    parser.add_argument("name", type=sendable, metavar="DEVICE", help="name or UUID of a device")
    parser.add_argument("state", choices=STATES, help="the state to set")
    parser.add_argument("--reason", type=sendable, required=True, help="why, for people who look at the device later")
    parser.add_argument(
        "--for",
        dest="time",
        metavar="TIME",
        help="how long that holds, such as 90s, 2h or 1h30m (default: until it is cleared)",
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    add_socket(parser, action=True)


def _set(arguments: argparse.Namespace) -> int:
    request = agent_pb2.SetHealthRequest(
        device=arguments.name,
        state=arguments.state,
        reason=arguments.reason,
        seconds=_seconds(arguments.time),
        dry_run=arguments.dry_run,
    )
    with running_agent(arguments.socket) as agent:
        answer = agent.SetHealth(request, timeout=TIMEOUT)
    return _print(answer.changes, dry_run=arguments.dry_run)


def _seconds(text: str | None) -> float:
    if text is None:
        return 0.0
    # Here and not above: only who gives a time needs it.
    from ostler.config.scalars import BadValue, DurationType

    try:
        return DurationType("1s", "8784h").from_text(text)
    except BadValue as error:
        raise CommandFailed(f"--for {error.problem}; {error.fix}", Exit.USAGE) from error


def _print(changes: Sequence[str], *, dry_run: bool) -> int:
    if dry_run:
        sys.stdout.write("dry run, nothing is changed:\n")
    print_changes(changes)
    return Exit.OK


def _list(arguments: argparse.Namespace) -> int:
    with running_agent(arguments.socket) as agent:
        answer = agent.ListHealth(agent_pb2.ListHealthRequest(), timeout=TIMEOUT)
    chosen = [device for device in answer.devices if _is_meant(device, arguments)]
    if arguments.device is not None and not any(device.device == arguments.device for device in answer.devices):
        raise CommandFailed(str(UnknownDevice(arguments.device)))
    if arguments.output == "table":
        _print_text(answer, chosen)
        return Exit.OK
    found = agent_pb2.ListHealthResponse(
        devices=chosen, brakes=answer.brakes, dry_run=answer.dry_run, sources=answer.sources
    )
    print_message(found, arguments.output)
    return Exit.OK


def _is_meant(device: agent_pb2.DeviceHealth, arguments: argparse.Namespace) -> bool:
    if arguments.device is not None and device.device != arguments.device:
        return False
    return not arguments.faults or device.state != "healthy"


def _print_text(answer: agent_pb2.ListHealthResponse, chosen: list[agent_pb2.DeviceHealth]) -> None:
    if answer.dry_run:
        sys.stdout.write("dry run: these states are reported and counted, and affect no pod\n")
    if chosen:
        print_table(HEADER, [_row(device) for device in chosen])
    else:
        sys.stdout.write("every device is healthy\n" if answer.devices else "no devices\n")
    for limit in answer.brakes:
        names = ", ".join(limit.devices) or "none at the moment"
        fix = f"'ostler health release-eviction-limit {limit.kind}' ends it"
        text = f"eviction limit for kind {limit.kind} since {time_text(limit.since)}: {limit.reason}; "
        text += f"kept from evicting: {names}; {fix}"
        sys.stdout.write(f"{plain(text)}\n")
    for source in answer.sources:
        if source.state != "ok":
            sys.stdout.write(f"{plain(f'{source.name}: {source.state}: {source.detail}')}\n")


def _row(device: agent_pb2.DeviceHealth) -> tuple[str, ...]:
    shown = device.shown_state if not device.enforced else f"{device.state}, evicts" if device.evicts else device.state
    return (
        device.device,
        f"{device.state}, flapping" if device.flapping else device.state,
        device.cause or "-",
        time_text(device.since),
        _end(device),
        shown,
        "; also: ".join((device.reason, *device.also)),
    )


def _end(device: agent_pb2.DeviceHealth) -> str:
    if device.state == "healthy" and not device.until:
        return "-"
    return f"by itself, {time_text(device.until)}" if device.until else _ENDS.get(device.recovery, "-")
