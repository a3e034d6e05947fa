"""The table of a run for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import FIGURES, Figure

HEADINGS = ("figure", "ostler", "floor", "ratio", "target", "reached")


def rows(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> list[tuple[str, ...]]:
    """One row a figure: what it is, the agent's, the floor's, their ratio, the most it may be, and whether it is."""
    return [_row(figure, figures[figure.name], figures.get(figure.floor_name)) for figure in shown]


def render(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> str:
    """The table as text, columns aligned."""
    lines = [HEADINGS, *rows(figures, shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_aligned(line, widths) for line in lines)


def markdown(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> str:
    """The table for a document."""
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *rows(figures, shown)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quantity(name: str, value: float) -> str:
    """A value with a unit that people read: a figure's name ends in its SI unit."""
    if name.endswith("_s"):
        return f"{value * 1e6:.0f} us" if abs(value) < 0.001 else f"{value * 1e3:.1f} ms"
    if name.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB"
    return f"{value * 100:.3f} %" if name.endswith("_ratio") else f"{value:g}"


def _row(figure: Figure, ours: float, floor: float | None) -> tuple[str, ...]:
    target = figure.target(floor)
    name = figure.name
    # Growth may be zero or negative, and a ratio of such numbers says nothing.
    comparable = floor is not None and floor > 0 and ours > 0 and "growth" not in name
    return (
        name,
        quantity(name, ours),
        "" if floor is None else quantity(name, floor),
        f"{ours / floor:.2f}" if comparable and floor is not None else "",
        "" if target is None else f"<= {quantity(name, target)}",
        "" if target is None else "yes" if ours <= target else "no",
    )


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join((first, *rest)).rstrip()
