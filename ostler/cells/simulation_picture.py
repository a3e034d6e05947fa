"""The picture of a simulation: GPUs in use over time under each policy, as one SVG file that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ostler.cells.simulation import SimulationRun, figures
from ostler.drawing.svg import INK, SANS, SOFT
from ostler.drawing.text import plain

_WIDTH, _HEIGHT, _LEFT, _TOP, _BETWEEN = 720, 120, 70, 86, 60
_MOST_POINTS = 2000
"""Steps of one curve; of more, every second, third, ... is drawn."""


def svg_of_simulation(runs: Sequence[SimulationRun], gpus: int, title: str) -> str:
    """The picture, as the text of an SVG file; ``gpus``: how many there are."""
    end = max((time for run in runs for time, _ in run.used), default=0.0) or 1.0
    parts = [_text(24, 36, title, size=20, bold=True), _text(24, 58, f"GPUs in use of {gpus}, over {end:.0f} s")]
    y = _TOP
    for run in runs:
        found = figures(run)
        words = f"{run.policy}: mean wait {found.mean_wait:.0f} s, longest {found.worst_wait:.0f} s,"
        words += f" {found.broken} of {found.pods} pods with a broken island, {found.never} jobs never ran"
        parts.append(_text(24, y + 12, words))
        parts.append(_chart(run, gpus, end, y + 24))
        parts.append(_text(24, y + 34, str(gpus), fill=SOFT) + _text(24, y + 24 + _HEIGHT, "0", fill=SOFT))
        y += _HEIGHT + _BETWEEN
    size = f'width="{_LEFT + _WIDTH + 24}" height="{y}" viewBox="0 0 {_LEFT + _WIDTH + 24} {y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{SANS}" role="img">'
    back = f'<rect width="{_LEFT + _WIDTH + 24}" height="{y}" fill="#f4f6fa"/>'
    return "\n".join([head, f"<title>{escape(plain(title))}</title>", back, *parts, "</svg>"]) + "\n"


def _chart(run: SimulationRun, gpus: int, end: float, top: float) -> str:
    steps = run.used[:: max(1, len(run.used) // _MOST_POINTS)]
    base = top + _HEIGHT
    points, level = [f"M{_LEFT} {base:.0f}"], base
    for time, count in steps:
        x = _LEFT + time / end * _WIDTH
        points.append(f"L{x:.1f} {level:.1f}")
        level = base - count / max(gpus, 1) * _HEIGHT
        points.append(f"L{x:.1f} {level:.1f}")
    points.append(f"L{_LEFT + _WIDTH} {level:.1f} L{_LEFT + _WIDTH} {base:.0f} Z")
    frame = f'<rect x="{_LEFT}" y="{top:.0f}" width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff" stroke="#aebccd"/>'
    return f'{frame}<path d="{" ".join(points)}" fill="#cfe3f7" stroke="#3a74bd"/>'


def _text(x: float, y: float, text: str, *, size: int = 13, bold: bool = False, fill: str = INK) -> str:
    look = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}"{look}>{escape(plain(text))}</text>'
