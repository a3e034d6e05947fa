"""What health counts, in plain memory, until somebody scrapes it."""

from __future__ import annotations

from dataclasses import field

from node.values import Record, record


@record
class HealthCounters(Record):
    """``transitions`` by kind of device, kind of trouble (empty for getting well) and the state that it has now.

    ``events`` by kind of trouble; ``xids`` by number (``other`` for those that the catalog lacks) and action; ``looks``
    by source.
    """

    transitions: dict[tuple[str, str, str], int] = field(default_factory=dict)
    events: dict[tuple[str], int] = field(default_factory=dict)
    xids: dict[tuple[str, str], int] = field(default_factory=dict)
    looks: dict[tuple[str], int] = field(default_factory=dict)
