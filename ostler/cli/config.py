"""``ostler config``: check a configuration file, convert a foreign one, or print the schema of the format."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from node.rules import Doors, Rule
from ostler.cli.exits import CommandFailed, Exit
from ostler.config.document import MAX_BYTES, read_bytes, source_name
from ostler.config.errors import ConfigErrors, NoteKind
from ostler.config.load import load
from ostler.config.schema import json_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    commands = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    check = commands.add_parser("check", help="check a configuration file and say what it means")
    check.description = (
        "Check a configuration file: every problem with its line, or what will be offered (exit code 3 or 0)."
    )
    check.add_argument("file", type=Path, metavar="FILE")
    convert = commands.add_parser("convert", help="print a foreign plugin's configuration file in ostler's format")
    convert.description = (
        "Print a configuration file of NVIDIA's device plugin or of the SR-IOV network device plugin in ostler's own\n"
        "format, with comments on everything that differs or is ignored. Such a file can also be used as it is."
    )
    convert.formatter_class = argparse.RawDescriptionHelpFormatter
    convert.add_argument("file", type=Path, metavar="FILE", help="the file; - reads standard input")
    schema = commands.add_parser("schema", help="print the JSON Schema of ostler's format")
    schema.description = "Print the JSON Schema (draft 2020-12) of ostler's own format, for editors."


def run(arguments: argparse.Namespace) -> int:
    """Check, convert or print."""
    if arguments.action == "schema":
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return Exit.OK
    if arguments.action == "convert":
        return _convert(arguments.file)
    return _check(arguments.file)


def _convert(path: Path) -> int:
    from ostler.config.conversion import convert  # only for those who change over

    try:
        if str(path) == "-":
            text = convert("standard input", sys.stdin.buffer.read(MAX_BYTES + 1))
        else:
            source = source_name(path)
            text = convert(source, read_bytes(path, source))
    except ConfigErrors as error:
        raise CommandFailed(f"cannot be converted\n{error}", Exit.CONFIG) from error
    sys.stdout.write(text)
    return Exit.OK


def _check(path: Path) -> int:
    try:
        loaded = load(path, {}, {})
    except ConfigErrors as error:
        raise CommandFailed(f"the configuration is not usable\n{error}", Exit.CONFIG) from error
    faults = [str(note) for note in loaded.notes if note.kind is NoteKind.FAULT]
    if faults:
        raise CommandFailed("\n".join((f"{path}: usable, but not all of it has effect", *faults)), Exit.CONFIG)
    sys.stdout.write(f"{path}: usable ({loaded.source_format})\n")
    for note in loaded.notes:
        sys.stdout.write(f"  {note}\n")
    for number, functions in enumerate(loaded.settings.virtual_functions):
        of = "each physical function" if functions.count else "physical functions"
        made = f"{functions.count or 'no'} virtual functions of {of}"
        sys.stdout.write(f"  makes {made} that virtualFunctions[{number}] selects\n")
    for rule in loaded.settings.rules:
        sys.stdout.write(f"  offers {rule.resource} through {_doors(rule)}{_shares(rule)}\n")
    return Exit.OK


def _shares(rule: Rule) -> str:
    if rule.partitions:
        return ", with partitions on demand"
    if rule.sharing is None:
        return ""
    varying = " or as perDevice says" if rule.sharing.own_replicas else ""
    return f", {rule.sharing.replicas} shares of each device{varying} ({rule.sharing.strategy})"


def _doors(rule: Rule) -> str:
    strategies = ", ".join(rule.edits.strategies)
    if rule.door is Doors.BOTH:
        return f"both doors ({strategies}; claims by CDI)"
    return f"the {rule.door} door ({strategies if rule.door is Doors.PLUGIN else 'CDI'})"
