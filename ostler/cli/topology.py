"""``ostler topology``: where the devices of this node are, from the running agent or by a scan of its own."""

from __future__ import annotations

import argparse
import socket
import sys

from node.topology.model import Topology
from ostler.admin.messages import topology_from
from ostler.cli.client import TIMEOUT, NoAgent, running_agent
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_settings, read_settings
from ostler.cli.output import add_format, print_document
from ostler.config.errors import NoteKind
from ostler.config.load import Loaded
from ostler.config.settings import Settings
from ostler.drawing.scene import Scene, captions_of
from protos.agent.v1alpha1 import agent_pb2

FORMATS = ("matrix", "tree", "svg", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show how close the GPUs and NICs of this node are to each other: as a matrix like nvidia-smi's, a tree, a\n"
        "picture (SVG), or JSON. A virtual function has the place of its physical function.\n"
        "Asks the running agent; if none answers, scans the hardware itself and says so."
    )
    add_format(parser, FORMATS)
    parser.add_argument("--scan", action="store_true", help="scan here even if an agent is running")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the topology."""
    loaded = read_settings(arguments)
    scene = _scan(loaded) if arguments.scan else _ask(loaded)
    form: str = arguments.output
    # Here and not above: the command line's help draws nothing.
    if form == "svg":
        from ostler.drawing.svg import draw_svg

        sys.stdout.write(draw_svg(scene))
        return Exit.OK
    from ostler.drawing.text_forms import draw_matrix, draw_tree, topology_document

    if form == "json":
        print_document(topology_document(scene), form)
    else:
        sys.stdout.write(draw_tree(scene) if form == "tree" else draw_matrix(scene))
    return Exit.OK


def _ask(loaded: Loaded) -> Scene:
    try:
        with running_agent(loaded.settings.socket) as agent:
            # A scan in between does no harm: captions are matched by name.
            name = agent.GetStatus(agent_pb2.GetStatusRequest(), timeout=TIMEOUT).node_name
            topology = agent.GetTopology(agent_pb2.GetTopologyRequest(), timeout=TIMEOUT)
            devices = agent.ListDevices(agent_pb2.ListDevicesRequest(), timeout=TIMEOUT)
    except NoAgent as error:
        sys.stderr.write(f"{error}\nscanned by this command instead:\n")
        return _scan(loaded)
    try:
        return _scene(loaded.settings, name, topology, devices)
    except ValueError as error:
        fix = "use the command of the agent's own version, or --scan"
        raise CommandFailed(f"the agent's topology is not understood ({error}); {fix}") from error


def _scan(loaded: Loaded) -> Scene:
    # Here and not above: with a running agent none of this is needed.
    from node.inventory.model import Snapshot
    from node.inventory.places import places_of
    from node.offer import Offer
    from node.topology.cells import absent, topology_of
    from ostler.admin.messages import devices_message, topology_message
    from ostler.cli.scanning import scan_once

    settings = loaded.settings
    for note in loaded.notes:
        if note.kind is NoteKind.FAULT:
            sys.stderr.write(f"{note}\n")
    reading = scan_once(settings)
    topology = topology_of(places_of(reading.devices), settings.topology_overrides)
    snapshot = Snapshot(1, reading.devices, reading.sources, reading.host, topology)
    if missing := absent(topology.places, settings.topology_overrides):
        sys.stderr.write(f"{settings.topology_file} places devices that this node lacks: {', '.join(missing)}\n")
    return _scene(settings, "", topology_message(snapshot), devices_message(snapshot, Offer()))


def _scene(
    settings: Settings, name: str, topology: agent_pb2.GetTopologyResponse, devices: agent_pb2.ListDevicesResponse
) -> Scene:
    drawn: Topology = topology_from(topology)
    return Scene(name or settings.node_name or _own_name(settings), drawn, captions_of(devices.devices))


def _own_name(settings: Settings) -> str:
    recorded = settings.inventory.recorded
    return socket.gethostname() if recorded is None else recorded.stem
