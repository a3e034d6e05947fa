"""The figures of the DRA door: names, targets, and what is counted; no time is measured here."""

from __future__ import annotations

import pytest

from bench.cluster.figures import CLUSTER_FIGURES, KINDS, cluster_figures
from bench.dra.claims import status
from bench.dra.figures import DRA_FIGURES, FLOORS, NAMES
from bench.dra.library import DEVICES, PER_SLICE, resources
from bench.dra.watching import Slices
from bench.figures import FLOOR, checked
from bench.recording import gpu_uuid, many_gpus
from bench.table import HEADINGS, rows
from node.inventory.recordings.source import read


def measured(**others: float) -> dict[str, float]:
    return {**dict.fromkeys(NAMES, 1.0), **others}


def row(name: str, figures: dict[str, float]) -> dict[str, str]:
    return next(dict(zip(HEADINGS, line, strict=True)) for line in rows(figures, DRA_FIGURES) if line[0] == name)
