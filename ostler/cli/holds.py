"""``ostler holds``: who has which device through which door, and what is withheld because of it until when."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from node.sharing import amount_words
from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_socket, sendable
from ostler.cli.output import add_format, interface_words, print_changes, print_message, print_table, time_text
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2

SHARED_HEADER = ("SHARED DEVICE", "RESOURCE", "SHARES", "HELD", "FREE", "LEFT (OF)")
HEADER = ("DEVICE", "DOOR", "HOLDER", "SINCE", "STATE", "WITHHELD FROM", "WHY", "WAITS FOR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "List the devices that are held, and those withheld from a door because of a hold: which pod or claim has\n"
        "them, through which door and since when; which door withholds them, why, and what it waits for."
    )
    add_format(parser)
    add_socket(parser)
    parser.add_argument("--device", metavar="NAME", help="show only this device")
    actions = parser.add_subparsers(metavar="ACTION", dest="action")
    release = actions.add_parser(
        "release", help="release a device that is pending release", formatter_class=parser.formatter_class
    )
    release.description = (
        "Release a device that is pending release, although a process may still use it. A device that a pod or a\n"
        "claim holds is released when that ends; for such a device the command fails and names the holder."
    )
    release.add_argument("name", type=sendable, metavar="DEVICE", help="name or UUID of a device")
    add_socket(release, action=True)


def run(arguments: argparse.Namespace) -> int:
    """Print the holds, or release one."""
    if arguments.action is None:
        return _list(arguments, arguments.device)
    request = agent_pb2.ReleaseHoldRequest(device=arguments.name)
    with running_agent(arguments.socket) as agent:
        answer = agent.ReleaseHold(request, timeout=TIMEOUT)
    print_changes(answer.changes)
    return Exit.OK


def _list(arguments: argparse.Namespace, name: str | None) -> int:
    with running_agent(arguments.socket) as agent:
        answer = agent.ListHolds(agent_pb2.ListHoldsRequest(), timeout=TIMEOUT)
    chosen = [device for device in answer.devices if name is None or device.device == name]
    shared = [device for device in answer.shared if name is None or device.device == name]
    if name is not None and not chosen and not shared:
        raise CommandFailed(f"device {name} is neither held nor withheld from a door because of a hold")
    if arguments.output == "table":
        print_holds(chosen, shared, answer.status)
    else:
        found = agent_pb2.ListHoldsResponse(devices=chosen, status=answer.status, shared=shared)
        print_message(found, arguments.output)
    return Exit.OK


def print_holds(
    devices: list[agent_pb2.DeviceHolds], shared: list[agent_pb2.SharedDevice], status: agent_pb2.HoldsStatus
) -> None:
    """Print holds and shared devices as tables, and what the agent cannot know as sentences."""
    if devices:
        print_table(HEADER, [row for device in devices for row in _rows(device)])
    else:
        sys.stdout.write("no device is held, and none is withheld from a door because of a hold\n")
    if shared:
        print_table(SHARED_HEADER, [_shared_row(each) for each in shared])
    for device in devices:
        if device.losers:
            names = ", ".join(plain(each) for each in device.losers)
            sys.stdout.write(f"{plain(device.device)}: could not be allocated to {names}\n")
        if device.HasField("interface"):
            sys.stdout.write(f"{plain(device.device)}: {plain(interface_words(device.interface))}\n")
    for problem in (status.kubelet, status.api_server, status.both, status.doors, status.processes, status.containers):
        if problem:
            sys.stdout.write(f"{plain(problem)}\n")


def _rows(device: agent_pb2.DeviceHolds) -> list[tuple[str, ...]]:
    """Rows with a hold on the left and a withholding door on the right; the shorter side is filled up."""
    rows = []
    for number in range(max(len(device.holds), len(device.withheld), 1)):
        hold = device.holds[number] if number < len(device.holds) else None
        withheld = device.withheld[number] if number < len(device.withheld) else None
        rows.append((device.device if number == 0 else "", *_held(hold), *_withheld(withheld)))
    return rows


def _held(hold: agent_pb2.Hold | None) -> tuple[str, ...]:
    if hold is None:
        return ("-", "-", "-", "-")
    amounts = f": {_words(hold.amounts)}" if hold.amounts else ""
    holder = f"{hold.holder} (share {hold.share}{amounts})" if hold.share else hold.holder
    state = f"{hold.state}, admin" if hold.admin else hold.state
    return (hold.door or "-", holder or hold.owner or "-", time_text(hold.since), state)


def _shared_row(shared: agent_pb2.SharedDevice) -> tuple[str, ...]:
    numbers = (str(shared.shares), str(shared.held), str(shared.free))
    return (shared.device, shared.resource, *numbers, f"{_words(shared.left)} ({_words(shared.whole)})")


def _words(amounts: Iterable[agent_pb2.Capacity]) -> str:
    return amount_words(tuple((each.name, each.value) for each in amounts))


def _withheld(withheld: agent_pb2.Withholding | None) -> tuple[str, ...]:
    if withheld is None:
        return ("-", "", "")
    return (withheld.door, withheld.why, withheld.waits_for)
