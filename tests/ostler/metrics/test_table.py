"""The table of metrics in the documentation and what agents export are the same, to the word."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from tests.ostler.metrics.exercise import everything
from tests.ostler.metrics.promtool import promtool, run
from tests.ostler.metrics.scraping import families, label_names

PAGE = Path(__file__).resolve().parents[3] / "docs/metrics.md"
CELLS = r"`(?P<name>[a-z_]+)`", r"(?P<kind>\w+)", r"(?P<labels>.*?) *", r"(?P<meaning>.*)", r"(?P<series>.+)"
ROW = re.compile(r"^\| " + r" \| ".join(CELLS) + r" \|$", re.MULTILINE)
LABEL = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)


@cache
def scrapes() -> tuple[str, ...]:
    return asyncio.run(everything())


def exported() -> dict[str, list[Metric]]:
    found: dict[str, list[Metric]] = {}
    for text in scrapes():
        for name, family in families(text).items():
            found.setdefault(name, []).append(family)
    return found


def documented() -> dict[str, re.Match[str]]:
    rows = list(ROW.finditer(PAGE.read_text()))
    assert len({row["name"] for row in rows}) == len(rows), "a metric is named twice"
    return {row["name"]: row for row in rows}


def documented_values() -> dict[str, set[str]]:
    text = PAGE.read_text().partition("## Values of labels")[2].partition("## Alerts")[0]
    return {row[1]: set(re.findall(r"`([\w-]+)`", row[2])) for row in LABEL.finditer(text)}


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    assert sorted(documented()) == sorted(exported())


def test_type_labels_and_meaning_are_those_of_the_code() -> None:
    rows = documented()
    said = {
        name: (row["kind"], set(re.findall(r"`(\w+)`", row["labels"])), row["meaning"]) for name, row in rows.items()
    }
    meant = {name: (found[0].type, label_names(found), found[0].documentation) for name, found in exported().items()}
    assert said == meant


def test_every_metric_was_exercised() -> None:
    assert [name for name, found in exported().items() if not any(family.samples for family in found)] == []


def test_values_of_labels_are_documented() -> None:
    known = documented_values()
    for found in exported().values():
        for sample in (sample for family in found for sample in family.samples):
            for label, value in sample.labels.items():
                if label in known.keys() - {"code", "revision"}:
                    assert value in known[label], f"{sample.name}: {label}={value!r}"


@pytest.mark.parametrize("which", [0, 1, 2, 4], ids=["recorded", "this-machine", "second-door", "mps"])
def test_prometheus_has_nothing_to_say_about_names_and_helps(which: int) -> None:
    promtool()
    assert run("check", "metrics", standard_input=scrapes()[which].encode()) == (0, "")


def test_prometheus_would_complain_about_a_bad_name() -> None:
    bad = b"# HELP ostler_bad_milliseconds Bad.\n# TYPE ostler_bad_milliseconds counter\nostler_bad_milliseconds 1\n"
    code, said = run("check", "metrics", standard_input=bad)
    assert code != 0
    assert "_total" in said
