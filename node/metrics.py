"""Metrics in plain memory: each is declared once, with its name, help and labels, and counted where things happen.

A part keeps its metrics as attributes and calls ``add``, ``set`` or ``observe``; a scrape finds them with
``metrics_of`` and turns them into Prometheus' format (``ostler.metrics.exposition``). Nothing here knows Prometheus,
whose library costs too much at the start (decision 0007). One thread writes; others read, and copy a dictionary before
they walk through it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

Labels = tuple[str, ...]
Sample = tuple[Labels, float]
"""The values of the labels in their order, and the number."""
Known = Mapping[Labels, Iterable[Labels]]
"""Values that labels have on this node at the moment, by the names of the labels: resources, kinds of device."""


class Metric:
    """``name`` as in Prometheus, a counter's without ``_total``; ``help``: one sentence, which the docs repeat."""

    __slots__ = ("help", "labels", "name")

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = meaning
        self.labels = labels


class Counter(Metric):
    """A number that only grows, for each combination of labels.

    ``always``: combinations that have a series from the start, so that a first rise is seen. ``per``: the first labels,
    where their values depend on the node; ``always`` then holds the values of the other labels, and each value that the
    node has gets these series. A counter without labels always has its series.
    """

    __slots__ = ("always", "counts", "per")

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: Labels = (),
        always: Iterable[Labels] = (),
        per: Labels = (),
    ) -> None:
        super().__init__(name, meaning, labels)
        self.per = per
        self.always = tuple(always) if labels and per != labels else ((),)
        self.counts: dict[Labels, int] = {} if per else dict.fromkeys(self.always, 0)

    @property
    def total(self) -> int:
        """All series together."""
        return sum(tuple(self.counts.values()))

    def add(self, *labels: str, by: int = 1) -> None:
        """Count ``by`` more."""
        self.counts[labels] = self.counts.get(labels, 0) + by

    def samples(self, known: Known) -> list[Sample]:
        """Every series, sorted."""
        counts = dict(self.counts)
        if self.per:
            for first in known.get(self.per, ()):
                for rest in self.always:
                    counts.setdefault((*first, *rest), 0)
        return sorted(counts.items())


class Gauge(Metric):
    """A number that goes up and down, for each combination of labels; it has no series until it is set."""

    __slots__ = ("values",)

    def __init__(self, name: str, meaning: str, labels: Labels = (), samples: Iterable[Sample] = ()) -> None:
        super().__init__(name, meaning, labels)
        self.values: dict[Labels, float] = dict(samples)

    def set(self, value: float, *labels: str) -> None:
        """It is ``value`` from now on."""
        self.values[labels] = value


def single(name: str, meaning: str, value: float) -> Gauge:
    """A gauge without labels, with its value."""
    return Gauge(name, meaning, samples=[((), value)])


class Histogram(Metric):
    """Observations by size: ``bounds`` are the upper bounds of the buckets; a last bucket has none."""

    __slots__ = ("bounds", "series")

    def __init__(self, name: str, meaning: str, bounds: tuple[float, ...], labels: Labels = ()) -> None:
        super().__init__(name, meaning, labels)
        self.bounds = bounds
        self.series: dict[Labels, Distribution] = {} if labels else {(): Distribution(len(bounds) + 1)}

    def observe(self, seen: float, *labels: str) -> None:
        """Count one observation."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Distribution(len(self.bounds) + 1)
        found.counts[bisect_left(self.bounds, seen)] += 1
        found.total += seen


class Distribution:
    """Observations of one series: how many each bucket has, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


def metrics_of(owner: object) -> Iterator[Metric]:
    """The metrics among the attributes of a part."""
    for each in vars(owner).values():
        if isinstance(each, Metric):
            yield each
