"""The command line: every command with its summary, and the parser of the chosen one.

A command's own module is loaded for its options, and no other command's. Subcommands have modules of their own:
``ostler.cli.pools_view`` for ``ostler pools view``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from ostler import __version__
from ostler.cli.imports import left_out

COMMANDS = {
    "run": "run the agent on this node",
    "devices": "list the devices of this node and where they are offered",
    "topology": "show how close the GPUs and NICs of this node are to each other",
    "status": "show the state of the running agent",
    "slices": "show what this node publishes through DRA, and what it wants to publish",
    "claims": "list the resource claims that hold devices of this node",
    "holds": "show who has which device, and which door withholds which device",
    "health": "show the health of this node's devices, or override it",
    "rescan": "have the running agent look at the hardware now",
    "reload": "have the running agent read its configuration again",
    "quiesce": "have the running agent close the driver, so that it can be replaced",
    "resume": "have the running agent use the driver again",
    "record": "record this node's hardware facts as a file",
    "sandbox": "run the agent against an embedded kubelet on a recorded node",
    "kubelet": "run any device plugin or DRA driver against an embedded kubelet, without a cluster",
    "conformance": "judge a device plugin or DRA driver by the rules that it must follow",
    "doctor": "check this node, and say what is wrong and how to fix it",
    "checkpoint": "show, verify and compare the kubelet's state files",
    "probe": "show what serves a Unix socket: services, methods, devices",
    "explain": "say why a pod or claim waits for its devices, or where it would be placed",
    "fit": "say how many pods fit a cluster, or how many nodes of a kind they take",
    "snapshot": "save everything that decides allocations in a cluster as a file",
    "pools": "show the devices of a cluster as pools: what is free, and what a need would get",
    "cells": "guarantee whole islands of GPUs to teams: discover, check and draw the cells",
    "extender": "answer kube-scheduler's extender calls: gangs on cells of virtual clusters",
    "config": "check or convert a configuration file, or print the format's JSON Schema",
}
_MODULES = dict.fromkeys(("rescan", "reload", "quiesce", "resume"), "actions")
"""Modules of commands that have none of their own name."""
EPILOG = """\
exit codes:
  0  done
  1  failed; the message says why
  2  the command line is wrong
  3  the configuration is not usable; every problem is listed
  4  no agent answers at its socket

'ostler COMMAND --help' describes a command and its options.
"""


class Command(Protocol):
    """A command's module, or its object in a module of several."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Describe the command and its options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code or raises ``CommandFailed``."""


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Help as it is written. The width is given: argparse would load shutil (5 ms) to ask for it, also without help."""
    try:
        width = int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        try:
            width = os.get_terminal_size().columns or 80
        except OSError:  # Not a terminal.
            width = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=width - 2)


class CommandParser(argparse.ArgumentParser):
    """A command's parser. What follows ``--`` is another program's command where ``words`` has a default.

    argparse itself would take the words for further arguments of the command wherever options are between them.
    """

    def parse_known_args(  # type: ignore[override]  # its overloads say no more than this
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, with the words after ``--`` as ``words``."""
        given = list(sys.argv[1:] if args is None else args)
        if self.get_default("words") is None or "--" not in given:
            return super().parse_known_args(given, namespace)
        end = given.index("--")
        parsed, unknown = super().parse_known_args(given[:end], namespace)
        parsed.words = given[end + 1 :]
        return parsed, unknown


def command_line(chosen: str | None) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the ``chosen`` command alone."""
    parser = argparse.ArgumentParser(
        prog="ostler",
        description="Node agent for devices: finds GPUs and NICs, and offers them to pods by device plugin and claims.",
        epilog=EPILOG,
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=f"ostler {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=CommandParser
    )
    # A known command's own parser is all that its line needs; the rest is for help and for mistakes.
    for name, summary in COMMANDS.items() if chosen is None else [(chosen, COMMANDS[chosen])]:
        command = commands.add_parser(name, help=summary, description=summary, formatter_class=_formatter)
        if name == chosen:
            command_named(name).add_arguments(command)
    return parser


def command_named(name: str) -> Command:
    """The command's module, or what the module of several commands has by its name."""
    with left_out() if name == "run" else contextlib.nullcontext():
        module = importlib.import_module(f"ostler.cli.{_MODULES.get(name, name)}")
    command: Command = getattr(module, name) if name in _MODULES else module
    return command


def add_subcommands(parser: argparse.ArgumentParser, command: str, summaries: Mapping[str, str]) -> None:
    """Describe the subcommands; each module is loaded, since argparse parses all of the line at once."""
    commands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", dest="subcommand", required=True)
    for name, summary in summaries.items():
        inner = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _subcommand(command, name).add_arguments(inner)


def run_subcommand(command: str, arguments: argparse.Namespace) -> int:
    """Run the subcommand of the command line."""
    return _subcommand(command, arguments.subcommand).run(arguments)


def _subcommand(command: str, name: str) -> Command:
    module: Command = importlib.import_module(f"ostler.cli.{command}_{name}")
    return module
