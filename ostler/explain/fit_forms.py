"""An answer about pods to place, as text for people and as plain data for programs.

Nodes that took the same pods are one line. The data has every pod with its devices; within one number of the
``SCHEMA``, members are only added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ostler import __version__
from ostler.drawing.text import number, plain, table_lines
from ostler.explain.forms import document, draw
from ostler.explain.page import some
from scheduling.fit.answer import FilledNode, FitAnswer, Leftover

SCHEMA = "ostler.dev/fit/v1"
_HEADER = ("NODES", "PODS EACH", "DEVICES IN USE")
MOST = 20
"""Lines of nodes that are shown unless all are asked for."""


def draw_fit(answer: FitAnswer, noun: str, *, width: int | None, colour: bool, all_nodes: bool = False) -> str:
    """The text; ``noun``: the kind of the placed objects, ``pod`` or ``claim``; ``all_nodes``: every node by name."""
    lines = [plain(headline(answer, noun))]
    rows = list(_rows(answer.nodes, all_nodes=all_nodes))
    if rows:
        header = (_HEADER[0], _HEADER[1].replace("PODS", f"{noun.upper()}S"), _HEADER[2])
        shown = rows if all_nodes else rows[:MOST]
        lines += ["", *table_lines([header, *shown])]
        if len(shown) < len(rows):
            lines.append(f"{len(rows) - len(shown)} more lines; --all-nodes shows them")
    for left in answer.leftovers if answer.wanted is not None else ():
        lines += ["", plain(_leftover(left, noun))]
    for note in answer.notes:
        lines.append(f"note: {plain(note)}")
    text = "\n".join(lines) + "\n"
    if answer.why is None:
        return text
    first = "the next copy does not fit:" if answer.wanted is None else "why the first does not fit:"
    return f"{text}\n{first}\n{draw(answer.why, width=width, colour=colour, all_nodes=all_nodes)}"


def headline(answer: FitAnswer, noun: str) -> str:
    """The answer in one line."""
    if answer.wanted is None:
        return _copies(answer, noun)
    where = _where(answer)
    if not answer.wanted:
        return f"there are no {noun}s to place"
    if not answer.leftovers:
        if answer.wanted == 1:
            return f"the {noun} fits{where}"
        return f"all {answer.wanted} {noun}s fit{where}"
    if not answer.placed:
        return f"the {noun} does not fit" if answer.wanted == 1 else f"none of {answer.wanted} {noun}s fits"
    return f"{answer.placed} of {answer.wanted} {noun}s fit{where}"


def _copies(answer: FitAnswer, noun: str) -> str:
    if answer.endless:
        return f"any number of copies fits: nothing limits these {noun}s"
    if not answer.copies:
        return "no copy fits"
    least = "at least " if answer.cut else ""
    verb = "fits" if answer.copies == 1 else "fit"
    return f"{least}{number(answer.copies, 'copy', 'copies')} {verb}{_where(answer)}"


def _where(answer: FitAnswer) -> str:
    used = [node for node in answer.nodes if node.pods]
    kinds = Counter(node.template for node in used)
    words = [
        f"{number(count, 'node')} of the kind {kind}" if kind else number(count, "node")
        for kind, count in kinds.items()
    ]
    if not words:
        return ""
    if len(used) == 1:
        return f" on {used[0].name}"
    return f" on {' and '.join(words)}"


def _rows(nodes: Sequence[FilledNode], *, all_nodes: bool) -> Iterator[tuple[str, str, str]]:
    """Equal nodes as one row, in the order in which pods were placed."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for node in sorted(nodes, key=lambda each: not each.pods):
        pods = Counter(pod.source for pod in node.pods)
        said = ", ".join(f"{count} of {source}" for source, count in pods.items()) or "-"
        used = f"{node.in_use} of {node.devices}" if node.devices else "no devices"
        found.setdefault((said, used, bool(node.pods)), []).append(node.name)
    for (said, used, _), names in found.items():
        listed = ", ".join(names) if all_nodes else some(names, 2)
        yield (f"{len(names)}: {listed}" if len(names) > 1 else listed), said, used


def _leftover(left: Leftover, noun: str) -> str:
    if left.count == 1:
        of = "" if left.source.endswith(f" {left.first}") else f" of {left.source}"
        return f"{noun} {left.first}{of} does not fit"
    return f"{left.count} {noun}s of {left.source} do not fit, the first is {left.first}"


def fit_document(answer: FitAnswer, noun: str) -> dict[str, object]:
    """The answer as plain data."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "kind": noun,
        "fits": answer.fits,
        "wanted": answer.wanted,
        "placed": answer.placed,
        "copies": answer.copies,
        "endless": answer.endless,
        "cut": answer.cut,
        "nodesAdded": answer.added,
        "nodes": [_node(node) for node in answer.nodes],
        "leftovers": [{"source": each.source, "first": each.first, "count": each.count} for each in answer.leftovers],
        "why": None if answer.why is None else document(answer.why),
        "notes": list(answer.notes),
    }


def _node(node: FilledNode) -> dict[str, object]:
    return {
        "name": node.name,
        "template": node.template,
        "devices": node.devices,
        "inUse": node.in_use,
        "pods": [
            {
                "name": pod.name,
                "source": pod.source,
                "claims": [
                    {"name": f"{claim.namespace}/{claim.name}", "allocation": claim.allocation} for claim in pod.claims
                ],
            }
            for pod in node.pods
        ],
    }
