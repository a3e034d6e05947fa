"""The extender's page has every metric and every event that the code has, in the code's words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from node.metrics import Counter, Histogram, Metric
from ostler.extender.metrics import ExtenderFigures, ExtenderMetrics, ExtenderState

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/extender.md").read_text()


def kind(metric: Metric) -> str:
    return "counter" if isinstance(metric, Counter) else "histogram" if isinstance(metric, Histogram) else "gauge"


def test_the_table_of_metrics_is_the_codes() -> None:
    rows = re.findall(r"^\| `(ostler_extender_\w+)` \| (\w+) \| (.*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
    shown = {name: (of, set(re.findall(r"`(\w+)`", labels)), meaning) for name, of, labels, meaning in rows}
    figures = ExtenderFigures(ExtenderMetrics(), ExtenderState({}, {"nodes": 0, "devices": 0}, 0, is_active=True))
    assert shown == {each.name: (kind(each), set(each.labels), each.help) for each in figures.collect()}


def test_the_table_of_events_is_the_codes() -> None:
    posted = {
        node.args[1].value
        for path in (ROOT / "ostler/extender").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "warn"
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }
    table = PAGE.partition("| Event | Meaning |")[2].partition("\n\n")[0]
    assert posted == set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
