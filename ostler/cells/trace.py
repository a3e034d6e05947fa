"""Reads a trace of jobs: YAML or JSON with a list, or CSV with a header. A fault names the job and the field."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from node.documents import DocumentLimits, DocumentRefused
from node.yaml_text import parse_yaml

MOST_JOBS = 20_000
_LIMITS = DocumentLimits(values=40 * MOST_JOBS)
"""A job has at most fifteen values: names, what they stand for, and itself."""
FIELDS = ("name", "at", "duration", "virtualCluster", "priority", "pods", "gpus")


class TraceError(ValueError):
    """A trace that cannot be used; the message says where and what to write."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A gang of equal pods: it comes at a time and runs for a while (seconds) on ``pods`` times ``gpus`` GPUs."""

    name: str
    at: float
    duration: float
    virtual_cluster: str
    priority: int
    pods: int
    gpus: int

    @property
    def total(self) -> int:
        """All of its GPUs."""
        return self.pods * self.gpus

    @property
    def shape(self) -> tuple[object, ...]:
        """The properties that decide whether it fits."""
        return self.virtual_cluster, self.priority, self.pods, self.gpus


def read_trace(text: str, source: str) -> tuple[TraceJob, ...]:
    """The jobs of a trace, by time. Raises ``TraceError``."""
    rows = _rows(text, source)
    if not rows:
        raise TraceError(f"{source}: there are no jobs; write a list of jobs with {', '.join(FIELDS)}")
    if len(rows) > MOST_JOBS:
        raise TraceError(f"{source}: there are {len(rows)} jobs; the limit is {MOST_JOBS}")
    jobs = [_job(row, f"{source}: job {number}") for number, row in enumerate(rows, 1)]
    seen: set[str] = set()
    for number, job in enumerate(jobs, 1):
        if job.name in seen:
            raise TraceError(f"{source}: job {number}: name {job.name!r} is given twice; give every job its own name")
        seen.add(job.name)
    return tuple(sorted(jobs, key=attrgetter("at")))


def _rows(text: str, source: str) -> list[object]:
    if source.endswith(".csv"):
        return list(csv.DictReader(io.StringIO(text)))
    try:
        found = parse_yaml(text, _LIMITS)
    except DocumentRefused as error:
        raise TraceError(f"{source}: {error}; correct the file") from error
    rows = found.get("jobs") if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TraceError(f"{source}: must be a list of jobs, or a map with jobs; write - {{{', '.join(FIELDS)}}}")
    return rows


def _job(row: object, where: str) -> TraceJob:
    if not isinstance(row, Mapping):
        raise TraceError(f"{where}: must be a map, not {row!r}; write {', '.join(FIELDS)}")
    unknown = next((key for key in row if key not in FIELDS), None)
    if unknown is not None:
        raise TraceError(f"{where}: {unknown} is not a known field; allowed here: {', '.join(FIELDS)}")
    name, cluster = (row.get(key) for key in ("name", "virtualCluster"))
    for key, found in (("name", name), ("virtualCluster", cluster)):
        if not isinstance(found, str) or not found:
            raise TraceError(f"{where}: {key} is {found!r}; write a text")
    return TraceJob(
        str(name),
        _number(row, "at", where, default=0, least=0),
        _number(row, "duration", where, default=None, least=1e-3),
        str(cluster),
        int(_number(row, "priority", where, default=0, least=-1, most=1000)),
        int(_number(row, "pods", where, default=1, least=1, most=10_000)),
        int(_number(row, "gpus", where, default=1, least=1, most=1024)),
    )


def _number(
    row: Mapping[object, object],
    key: str,
    where: str,
    *,
    default: float | None,
    least: float,
    most: float = math.inf,
) -> float:
    """A number of a job; a whole one if there is a largest one, else seconds."""
    found = row.get(key)
    if found in (None, ""):
        if default is None:
            raise TraceError(f"{where}: {key} is missing; write a number of seconds")
        return default
    try:
        number = float(found) if isinstance(found, (int, float, str)) and not isinstance(found, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    whole = most < math.inf
    if not least <= number <= most or number == math.inf or (whole and number != int(number)):
        wanted = f"a whole number between {least:g} and {most:g}" if whole else f"a number of seconds from {least:g} on"
        raise TraceError(f"{where}: {key} is {found!r}; write {wanted}")
    return number
