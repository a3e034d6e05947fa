"""Events on the Node: whether people who look at it with kubectl learn what they must."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ostler.agent.node_events import NodeEvents
from ostler.metrics.shapes import counter, gauge


def node_events(poster: NodeEvents) -> Iterator[Metric]:
    """All of it; there is none where no events are posted."""
    yield counter("ostler_node_events_posted", "Events that the API server has taken.", poster.posted)
    yield counter(
        "ostler_node_events_dropped",
        "Events that were given up: too many waited, or the API server refused them.",
        poster.dropped,
    )
    yield counter("ostler_node_events_failures", "Attempts to post an event that failed.", poster.failed)
    yield gauge("ostler_node_events_failing", "1 while events cannot be posted on the Node.", bool(poster.failing))
