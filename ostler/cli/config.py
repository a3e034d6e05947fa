"""``ostler config``: check a configuration file, or print the schema of the format."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.config.errors import ConfigErrors
from ostler.config.load import load
from ostler.config.notes import NoteKind
from ostler.config.schema import json_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    commands = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    check = commands.add_parser("check", help="check a configuration file and say what it means")
    check.description = (
        "Check a configuration file: every problem with its line, or what will be offered (exit code 3 or 0)."
    )
    check.add_argument("file", type=Path, metavar="FILE")
    schema = commands.add_parser("schema", help="print the JSON Schema of ostler's format")
    schema.description = "Print the JSON Schema (draft 2020-12) of ostler's own format, for editors."


def run(arguments: argparse.Namespace) -> int:
    """Check or print."""
    if arguments.action == "schema":
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return Exit.OK
    return _check(arguments.file)


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
    for rule in loaded.settings.rules:
        strategies = ", ".join(rule.edits.strategies)
        sys.stdout.write(f"  offers {rule.resource} through the {rule.door} door ({strategies})\n")
    return Exit.OK
