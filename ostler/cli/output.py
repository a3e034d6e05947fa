"""How commands print: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ostler.drawing.text import columns, padded, plain

FORMATS = ("table", "json", "yaml")


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add ``-o``."""
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help="output format (default: %(default)s)"
    )


def print_document(document: object, form: str) -> None:
    """Print plain data as JSON or YAML."""
    if form == "json":
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    # Here and not above: only this format needs it.
    import yaml

    yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True, width=120)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their content; the last one is not padded. Control characters become escapes."""
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    widths = [max(columns(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [padded(cell, width) for cell, width in zip(line[:-1], widths[:-1], strict=True)]
        sys.stdout.write("  ".join((*cells, line[-1])).rstrip() + "\n")


def print_changes(changes: Sequence[str]) -> None:
    """Print what a call has changed, one line each."""
    for change in changes or ["nothing changed"]:
        sys.stdout.write(f"{plain(change)}\n")
