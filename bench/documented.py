"""``python -m bench.documented``: the tables of docs/performance.md anew, out of bench/results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.cluster.figures import CLUSTER_FIGURES
from bench.doors.figures import DOORS_FIGURES
from bench.dra.figures import DRA_FIGURES
from bench.figures import FIGURES, Figure
from bench.health.figures import HEALTH_FIGURES
from bench.results import HEADINGS, RESULTS, markdown
from bench.scale.figures import SCALE_FIGURES
from bench.sharing.figures import SHARING_FIGURES

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
TABLES: tuple[Sequence[Figure], ...] = (
    FIGURES,
    DRA_FIGURES,
    SHARING_FIGURES,
    HEALTH_FIGURES,
    DOORS_FIGURES,
    CLUSTER_FIGURES,
    SCALE_FIGURES,
)
_HEAD = f"| {' | '.join(HEADINGS)} |\n"


def documented(text: str, figures: Mapping[str, float]) -> str:
    """The document with the tables of these figures.

    A table is known by the figure of its first row, and has a row for every figure of its benchmark that was measured.
    A table of which nothing was measured stays as it is.
    Raises ValueError where a benchmark has no table, or a table no benchmark.
    """
    before, *parts = text.split(_HEAD)
    missing = list(TABLES)
    for number, part in enumerate(parts):
        table, _, rest = part.partition("\n\n")
        first = table.splitlines()[1].split("|")[1].strip()
        shown = next((each for each in missing if first in {figure.name for figure in each}), None)
        if shown is None:
            raise ValueError(f"the table that begins with {first} is of no benchmark, or is there twice")
        missing.remove(shown)
        measured = [figure for figure in shown if figure.name in figures]
        rows = markdown(figures, measured) if measured else f"{_HEAD}{table}"
        parts[number] = f"{rows}\n\n{rest}"
    if missing:
        raise ValueError(f"there is no table for {', '.join(each[0].name for each in missing)}")
    return before + "".join(parts)


if __name__ == "__main__":
    DOCUMENT.write_text(documented(DOCUMENT.read_text(), json.loads(RESULTS.read_text())))
