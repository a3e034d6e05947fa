"""Scans of the hardware by a command: opens the sources, reads them once, closes them, and reports their faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from node.clocks import SYSTEM
from node.inventory.source import Source
from ostler.agent.sources import make_sources
from ostler.cli.exits import CommandFailed
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from node.inventory.model import Snapshot


def sources_of(settings: Settings, *, profiles: bool = False) -> tuple[Source, ...]:
    """The sources that the settings ask for; a recording that cannot be replayed is a message.

    ``profiles``: read what MIG can make of the GPUs in any case.
    """
    if settings.inventory.recorded is None:
        return make_sources(settings, profiles=profiles)
    # Here and not above: an agent on a real node never needs it.
    from node.inventory.recordings.source import RecordingError

    try:
        return make_sources(settings)
    except RecordingError as error:
        raise CommandFailed(str(error)) from error


@contextmanager
def open_sources(settings: Settings, *, profiles: bool = False) -> Iterator[tuple[Source, ...]]:
    """The sources that the settings ask for, closed afterwards; ``profiles`` as for ``sources_of``."""
    sources = sources_of(settings, profiles=profiles)
    try:
        yield sources
    finally:
        for source in sources:
            source.close()


def scan_once(settings: Settings) -> Snapshot:
    """Scan without an agent, and without its state."""
    # Here and not above: the agent scans by itself.

    from node.inventory.identity import IdentityStore
    from node.inventory.model import Snapshot
    from node.inventory.scan import Scanner

    with open_sources(settings) as sources:
        return Scanner(sources, IdentityStore(None), SYSTEM).scan(Snapshot())
