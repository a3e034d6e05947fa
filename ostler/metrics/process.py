"""The process itself: what it is, whether it serves, whether its loop lives, what it told people."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

import grpc
from prometheus_client.core import Metric

from ostler import __version__
from ostler.metrics.counters import Counters
from ostler.metrics.figures import Figures
from ostler.metrics.shapes import counters, gauge, gauges, grown, histograms

REVISION = "OSTLER_REVISION"
"""Environment variable in which an image says what it was built from."""


def process(figures: Figures, counted: Counters) -> Iterator[Metric]:
    """Build, role, readiness, signs of life, events."""
    build = (__version__, os.environ.get(REVISION, ""), platform.python_version(), grpc.__version__)
    yield gauges(
        "ostler_build_info",
        "What this agent is built from; always 1.",
        ("version", "revision", "python", "grpc"),
        [(build, 1)],
    )
    yield gauge("ostler_active", "1 for the instance that serves, 0 for a standby.", figures.role == "active")
    yield gauge("ostler_ready", "1 when every resource with devices is registered; a standby is ready.", figures.ready)
    yield gauge("ostler_quiesced", "1 while the driver is left alone so that it can be replaced.", figures.quiesced)
    yield gauge(
        "ostler_heartbeat_timestamp_seconds",
        "Unix time of the event loop's last sign of life, due every 9.5 s.",
        counted.pulse.last,
    )
    yield histograms(
        "ostler_loop_delay_seconds", "How late the event loop's signs of life came.", (), [((), counted.pulse.delays)]
    )
    yield counters(
        "ostler_events", "Events told to people, in log and status.", ("type", "reason"), grown(figures.events)
    )
