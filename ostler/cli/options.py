"""Options that several commands share: where the configuration is, and settings given over it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from ostler.cli.exits import CommandFailed, Exit
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load
from ostler.config.overrides import OVERRIDES
from ostler.config.settings import Settings

if TYPE_CHECKING:
    import argparse

DEFAULT_CONFIG = Path("/etc/ostler/config.yaml")
_CONFIG = "--config"
LONGEST = 1000
"""Bytes of an argument that the agent is sent; gRPC loses a refusal that repeats more than some thousand."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` and one flag for every setting that can be given over the file."""
    parser.add_argument(
        _CONFIG,
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


def plain_settings(words: Sequence[str]) -> argparse.Namespace | None:
    """The arguments that ``add_settings`` describes, read without argparse, which takes 5 ms of the agent's start.

    None if a word is anything but such a flag in full with its value: argparse knows what to do with it.
    """
    given: dict[str, str] = {}
    known = {override.flag for override in OVERRIDES} | {_CONFIG}
    rest = iter(words)
    for word in rest:
        flag, equals, text = word.partition("=")
        if flag not in known:
            return None
        if not equals:
            text = next(rest, "-")
            if text.startswith("-"):
                return None
        given[flag] = text
    config = given.pop(_CONFIG, None)
    return cast("argparse.Namespace", SimpleNamespace(config=None if config is None else Path(config), **given))


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
    import argparse  # only for commands that argparse has parsed

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
    import argparse  # only for commands that argparse has parsed

    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise argparse.ArgumentTypeError(f"has the byte 0x{byte:02x}, which is not UTF-8; write it as UTF-8") from error
    if size > LONGEST:
        raise argparse.ArgumentTypeError(f"has {size} bytes; the limit is {LONGEST}")
    return text
