"""How commands print: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ostler.cli.exits import CommandFailed
from ostler.drawing.text import plain, table_lines

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from protos.agent.v1alpha1 import agent_pb2

FORMATS = ("table", "json", "yaml")


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add ``-o``."""
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help="output format (default: %(default)s)"
    )


def add_color(parser: argparse.ArgumentParser) -> None:
    """Add ``--color``."""
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: on a terminal)"
    )


def page_form(color: str) -> tuple[int | None, bool]:
    """The width of a page (None: no limit), and whether it has colours; ``color``: auto, always or never."""
    terminal = sys.stdout.isatty()
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    colour = color == "always" or (color == "auto" and terminal and not is_plain)
    return shutil.get_terminal_size().columns if terminal else None, colour


def print_document(document: object, form: str) -> None:
    """Print plain data as JSON or YAML."""
    if form == "json":
        emit(_printable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
        return
    # Here and not above: only this format needs it.
    import yaml

    emit(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))


def print_message(message: Message, form: str, *, defaults: bool = True) -> None:
    """Print an answer of the agent as JSON or YAML."""
    print_document(document_of(message, defaults=defaults), form)


def document_of(message: Message, *, defaults: bool = True) -> dict[str, Any]:
    """An answer of the agent as plain data; ``defaults``: also fields that have their default value."""
    # Here and not above: tables do not need it.
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=defaults)


def time_text(seconds: float) -> str:
    """A time in Unix seconds as people read it, ``-`` for none."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else "-"


def emit(text: str) -> None:
    """Write to standard output now; raises ``CommandFailed`` if that fails, such as on a full disk."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # The reader has seen enough.
    except OSError as error:
        # At its end the interpreter would try to write the buffer again, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CommandFailed(f"standard output cannot be written: {error.strerror or error}") from error


def _printable(text: str) -> str:
    """JSON with escapes for characters that could steer a terminal, which JSON itself lets through."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their content."""
    emit("".join(f"{line}\n" for line in table_lines((header, *rows))))


def print_changes(changes: Sequence[str]) -> None:
    """Print what a call has changed, one line each."""
    emit("".join(f"{plain(change)}\n" for change in changes or ["nothing changed"]))


def interface_words(place: agent_pb2.PodInterface) -> str:
    """Says in which pod a device's network interface is, or why it is neither there nor on the node."""
    if place.problem:
        return f"its interface {place.interface}, of pod {place.pod}, is not where it should be: {place.problem}"
    return f"its interface is in pod {place.pod} as {place.interface}"
