"""``ostler devices``: the devices of this node, from the running agent or by a scan of its own."""

from __future__ import annotations

import argparse
import itertools
import sys

from node.rules import Door, Doors
from ostler.cli.client import TIMEOUT, NoAgent, running_agent
from ostler.cli.exits import Exit
from ostler.cli.options import add_settings, read_settings
from ostler.cli.output import add_format, interface_words, print_message, print_table
from ostler.config.settings import Settings
from ostler.drawing.text import plain
from protos.agent.v1alpha1 import agent_pb2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "List the devices of this node, their health, and where they are offered.\n"
        "Asks the running agent; if none answers, scans the hardware itself and says so."
    )
    add_format(parser)
    parser.add_argument("--scan", action="store_true", help="scan here even if an agent is running")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the devices."""
    settings = read_settings(arguments).settings
    answer = _scan(settings) if arguments.scan else _ask(settings)
    if arguments.output == "table":
        _print_table(answer)
    else:
        print_message(answer, arguments.output, defaults=False)
    return Exit.OK


def _ask(settings: Settings) -> agent_pb2.ListDevicesResponse:
    try:
        with running_agent(settings.socket) as agent:
            answer: agent_pb2.ListDevicesResponse = agent.ListDevices(agent_pb2.ListDevicesRequest(), timeout=TIMEOUT)
    except NoAgent as error:
        sys.stderr.write(f"{error}\nscanned by this command instead:\n")
        return _scan(settings)
    return answer


def _scan(settings: Settings) -> agent_pb2.ListDevicesResponse:
    # Here and not above: with a running agent none of this is needed.
    from driver.devices.partitions import partitioned
    from driver.devices.view import door_offer
    from node.eligibility import offer
    from node.inventory.model import Snapshot
    from node.ledger.offer_context import NOTHING_HELD
    from ostler.admin.messages import devices_message
    from ostler.cli.scanning import scan_once

    reading = scan_once(settings)
    snapshot = Snapshot(1, reading.devices, reading.sources, reading.host)
    if settings.virtual_functions:
        from node.virtual_functions import with_virtual_functions

        snapshot = with_virtual_functions(snapshot, settings.virtual_functions)
    plugin = offer(snapshot, settings.rules, NOTHING_HELD, Door.PLUGIN)
    return devices_message(snapshot, plugin, door_offer(partitioned(snapshot, settings.rules), settings.rules))


def _print_table(answer: agent_pb2.ListDevicesResponse) -> None:
    rows = []
    for device in answer.devices:
        numa = str(device.numa_node) if device.HasField("numa_node") else "-"
        offered = f"{device.resource} ({_through(device)}{_shares(device)})" if device.resource else "-"
        rows.append((device.name, _described(device), numa, device.health.state, offered, _why(device)))
    if rows:
        print_table(("NAME", "WHAT IT IS", "NUMA", "HEALTH", "OFFERED AS", "WHY"), rows)
    else:
        sys.stdout.write("no devices\n")
    for device in answer.devices:
        if device.memory_slices:
            _print_partitions(device)
    for source in answer.sources:
        if source.state != "ok":
            sys.stdout.write(f"{source.name}: {source.state}: {source.detail}\n")


_FREE = "."
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _print_partitions(gpu: agent_pb2.Device) -> None:
    """One bar of the GPU's memory slices, with their holders."""
    bar = [_FREE] * gpu.memory_slices
    rows = []
    for letter, part in zip(itertools.cycle(_LETTERS), gpu.partitions, strict=False):
        bar[part.start : part.start + part.size] = letter * part.size
        last = part.start + part.size - 1
        place = f"slice {part.start}" if part.size == 1 else f"slices {part.start}-{last}"
        rows.append(f"  {letter}  {part.profile or 'a partition'} at {place}: {part.holder or 'not held'}")
    free = bar.count(_FREE)
    said = "all memory slices are free" if free == len(bar) else f"{free} of {len(bar)} memory slices are free"
    sys.stdout.write(f"{gpu.name} [{''.join(bar)}] {said}\n")
    for row in rows:
        sys.stdout.write(f"{plain(row)}\n")


def _through(device: agent_pb2.Device) -> str:
    """The state in which the doors show the device, and through which of them."""
    if device.door == Doors.BOTH:
        return f"{device.offered_as}, by claims {device.claims_as or 'not'}"
    return f"{device.offered_as}, by claims" if device.door == Doors.DRA else device.offered_as


def _shares(device: agent_pb2.Device) -> str:
    return f", {device.shares_free} of {device.shares} shares free" if device.shares else ""


def _described(device: agent_pb2.Device) -> str:
    """A GPU's product and profile; a NIC's interface, RDMA device, number as a virtual function and driver."""
    texts = {item.name: item.string_value for item in device.attributes if item.string_value}
    if device.kind not in ("nic", "rdma"):
        words = [texts.get("productName") or texts.get("driver"), texts.get("profile")]
    else:
        virtual = next((item.int_value for item in device.attributes if item.name == "vfIndex"), None)
        parent = texts.get("pfName") or texts.get("pfPciAddress", "")
        words = [
            texts.get("ifName"),
            texts.get("rdmaDevice"),
            None if virtual is None else f"vf {virtual} of {parent}",
            texts.get("driver"),
        ]
    return " ".join(word for word in words if word) or "-"


def _why(device: agent_pb2.Device) -> str:
    """The reason for the device's state, and what the node itself uses it for."""
    place = interface_words(device.interface) if device.HasField("interface") else ""
    reasons = (place, device.offer_reason, f"by claims: {device.claims_reason}" if device.claims_reason else "")
    reason = device.health.reason or "; ".join(reason for reason in reasons if reason)
    if device.host_use and device.host_use not in reason:
        return f"{reason}; the node itself uses it: {device.host_use}".removeprefix("; ")
    return reason
