"""``ostler record``: this node as a recorded node, for the sandbox, for tests, and for bug reports."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

from node.files import WriteFailed
from node.inventory.devices import devices_of
from node.inventory.facts import merge
from node.inventory.identity import Identities
from node.inventory.model import DeviceKind
from node.inventory.recordings.source import anonymize, dump
from node.named_files import write_named_file
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_settings, read_settings
from ostler.cli.scanning import open_sources


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Write everything that the sources see of this node into one YAML file of raw facts.\n"
        "Replayed with --recorded, it gives the same devices. Read it before you send it to anybody."
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here (default: standard output)")
    parser.add_argument("--name", help="name of the recorded node (default: the host's name, or 'node' if anonymous)")
    parser.add_argument("--description", default="", help="one sentence about the machine")
    parser.add_argument("--anonymize", action="store_true", help="replace UUIDs, serial numbers, MAC and IP addresses")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Scan once and write the recording."""
    settings = read_settings(arguments).settings
    sys.stderr.write("reading the hardware ...\n")
    with open_sources(settings, profiles=True) as sources:
        facts = merge(tuple(source.read() for source in sources))
    if arguments.anonymize:
        facts = anonymize(facts, salt=secrets.token_hex(8))
    name = arguments.name or ("node" if arguments.anonymize else socket.gethostname())
    now = datetime.now(UTC).replace(microsecond=0)
    text = dump(facts, name=name, description=arguments.description, recorded_at=now)
    if arguments.output is None:
        sys.stdout.write(text)
        return Exit.OK
    try:
        write_named_file(arguments.output, text.encode(), 0o644)
    except WriteFailed as error:
        raise CommandFailed(str(error)) from error
    devices = devices_of(facts, Identities())
    gpus = sum(device.kind is DeviceKind.GPU for device in devices)
    nics = sum(device.kind in (DeviceKind.NIC, DeviceKind.RDMA) for device in devices)
    sys.stderr.write(f"{arguments.output}: {gpus} GPUs and {nics} NICs recorded\n")
    return Exit.OK
