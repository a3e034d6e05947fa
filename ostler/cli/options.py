"""Options that several commands share: where the configuration is, and settings given over it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load
from ostler.config.overrides import OVERRIDES
from ostler.config.settings import Settings

DEFAULT_CONFIG = Path("/etc/ostler/config.yaml")
LONGEST = 1000
"""Bytes of an argument that the agent is sent; gRPC loses a refusal that repeats more than some thousand."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` and one flag for every setting that can be given over the file."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"configuration file, ostler's format or NVIDIA's (default: {DEFAULT_CONFIG} if it exists)",
    )
    group = parser.add_argument_group(
        "settings over the file", "a flag wins over its variable, a variable over the file"
    )
    for override in OVERRIDES:
        group.add_argument(
            override.flag, dest=override.flag, metavar="VALUE", help=f"{override.field.help} [{override.variable}]"
        )


def given_flags(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings given as flags, by flag."""
    values = vars(arguments)
    return {override.flag: values[override.flag] for override in OVERRIDES if values.get(override.flag) is not None}


def read_settings(arguments: argparse.Namespace) -> Loaded:
    """The settings that hold for this command; raises ``CommandFailed`` with every problem."""
    path = arguments.config
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    try:
        return load(path, given_flags(arguments), os.environ)
    except ConfigErrors as error:
        raise CommandFailed(f"the configuration is not usable\n{error}", Exit.CONFIG) from error


def add_socket(parser: argparse.ArgumentParser, *, action: bool = False) -> None:
    """Add ``--socket``; for an ``action`` of a command that has it already, so that it may stand at either place."""
    default = Path(os.environ.get("OSTLER_SOCKET") or Settings().socket)
    parser.add_argument(
        "--socket",
        type=Path,
        default=argparse.SUPPRESS if action else default,
        metavar="PATH",
        help=f"the agent's socket (default: {default}) [OSTLER_SOCKET]",
    )


def sendable(text: str) -> str:
    """The type of an argument that the agent is sent: text of a length that its answer can name."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise argparse.ArgumentTypeError(f"has the byte 0x{byte:02x}, which is not UTF-8; write it as UTF-8") from error
    if size > LONGEST:
        raise argparse.ArgumentTypeError(f"has {size} bytes; the limit is {LONGEST}")
    return text
