"""How commands print: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

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
    """Print columns as wide as their content; the last one is not padded."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        sys.stdout.write("  ".join((*cells, row[-1])).rstrip() + "\n")
