"""Counts the events that a process posts on objects of the API server."""

from __future__ import annotations

from node.metrics import Counter


class PostingMetrics:
    """A ``kube.events.PostingObserver``; the names of its metrics begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.taken = Counter(f"{prefix}_events_posted", "Events that the API server has accepted.")
        self.given_up = Counter(
            f"{prefix}_events_dropped", "Events that were dropped: too many waited, or the API server refused them."
        )
        self.failures = Counter(f"{prefix}_events_failures", "Attempts to post an event that failed.")

    def posted(self, events: int) -> None:
        """See ``kube.events.PostingObserver``."""
        self.taken.add(by=events)

    def dropped(self, events: int) -> None:
        """See ``kube.events.PostingObserver``."""
        self.given_up.add(by=events)

    def failed(self) -> None:
        """See ``kube.events.PostingObserver``."""
        self.failures.add()
