"""An agent's /metrics, read as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterable

from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from node.metrics import Metric
from ostler.metrics.exposition import family
from sandbox.node import SandboxNode
from tests.waiting import eventually

HTTP = {"--http": "127.0.0.1:0"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def address(box: SandboxNode) -> str:
    """Where the agent serves its pages, as its log tells; the last one after a restart."""

    def served() -> str:
        ports: list[str] = re.findall(r"serving probes and metrics.*port=(\d+)", box.log.read_text())
        return ports[-1] if ports else ""

    return f"http://127.0.0.1:{await eventually(served)}"


async def scrape(box: SandboxNode) -> str:
    """The whole page."""
    url = f"{await address(box)}/metrics"

    def read() -> str:
        with urllib.request.urlopen(url, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(read)


def families(text: str) -> dict[str, Family]:
    """The families by the name that their first line has (a counter's with ``_total``)."""
    found = text_string_to_metric_families(text)
    return {each.name + ("_total" if each.type == "counter" else ""): each for each in found}


def samples(text: str) -> Samples:
    """Every number by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for each in families(text).values()
        for sample in each.samples
    }


def numbers(*parts: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """Samples of what would be exported, by name and the values of their labels."""
    found = [family(metric, {}) for part in parts for metric in part]
    return {(each.name, *each.labels.values()): each.value for one in found for each in one.samples}


class Scrape:
    """Samples that are asked for by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series = samples(text)

    def __call__(self, name: str, /, **labels: str) -> float:
        """One number; KeyError names what there is instead."""
        wanted = frozenset((key.rstrip("_"), value) for key, value in labels.items())
        if (name, wanted) not in self.series:
            raise KeyError(f"no {name}{labels}; there is {self.labels_of(name)}")
        return self.series[name, wanted]

    def sum(self, name: str, /, **labels: str) -> float:
        """The sum of all series of ``name`` that have these labels."""
        wanted = {(key.rstrip("_"), value) for key, value in labels.items()}
        return sum(value for (found, has), value in self.series.items() if found == name and wanted <= has)

    def labels_of(self, name: str) -> list[dict[str, str]]:
        """The labels of every series of ``name``."""
        return [dict(sorted(has)) for found, has in self.series if found == name]

    def names(self) -> set[str]:
        """The names of all series."""
        return {name for name, _ in self.series}


async def scraped(box: SandboxNode) -> Scrape:
    """What the agent says now."""
    return Scrape(await scrape(box))


def label_names(metrics: Iterable[Family]) -> set[str]:
    """The labels that the samples of these have, without a histogram's own."""
    return {label for metric in metrics for sample in metric.samples for label in sample.labels} - {"le"}
