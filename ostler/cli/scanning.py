"""Scanning from the command line: sources opened, closed, and their faults as messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from node.inventory.recorded import RecordingError
from node.inventory.source import Source
from ostler.cli.exits import CommandFailed
from ostler.config.settings import Settings
from ostler.sources import make_sources


@contextmanager
def open_sources(settings: Settings) -> Iterator[tuple[Source, ...]]:
    """The sources that the settings ask for, closed afterwards."""
    try:
        sources = make_sources(settings)
    except RecordingError as error:
        raise CommandFailed(str(error)) from error
    try:
        yield sources
    finally:
        for source in sources:
            source.close()
