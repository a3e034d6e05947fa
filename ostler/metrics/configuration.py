"""The configuration: whether the file that lies there is the one in force."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ostler.config.notes import NoteKind
from ostler.metrics.counters import ConfigCounters
from ostler.metrics.shapes import counted, counters, gauge, gauges


def configuration(config: ConfigCounters) -> Iterator[Metric]:
    """Reloads, and what the configuration in force says of itself."""
    yield gauge(
        "ostler_config_last_reload_successful",
        "1 when the last attempt to read the configuration succeeded.",
        config.successful,
    )
    yield gauge(
        "ostler_config_last_reload_success_timestamp_seconds",
        "Unix time at which the configuration in force was read.",
        config.loaded,
    )
    yield counters(
        "ostler_config_reloads", "Attempts to read the configuration again.", ("result",), counted(config.reloads)
    )
    yield gauge(
        "ostler_config_pending_settings",
        "Settings that the file changed and that take effect with the next restart.",
        config.pending,
    )
    notes = {kind.value: config.notes.get(kind.value, 0) for kind in NoteKind}
    yield gauges(
        "ostler_config_notes",
        "What the configuration in force remarks on: values taken or ignored, remarks, faults.",
        ("kind",),
        counted(notes),
    )
