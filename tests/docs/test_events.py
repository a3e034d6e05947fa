"""Every event that the agent can tell has a line in the table of events, and nothing else has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from driver.node_watch.node_doors import HELD_BACK, INVALID
from node.health.wording import REASONS
from ostler.agent.node_events import NOT_OURS
from tests.docs.markdown import ROOT, text_of

PAGE = "docs/troubleshooting.md"
SOURCES = ("node", "plugin", "driver", "ostler")
HANDED_ON = {
    "driver/claims/book.py": "warn",
    "driver/door/door.py": "_report",
    "driver/interfaces/claim_mover.py": "warn",
    "driver/interfaces/lost.py": "warn",
    "driver/node_watch/node_doors.py": "_warn",
    "node/health/keeper.py": "",
    "ostler/agent/event_log.py": "",
}
"""Modules with a function that emits what its callers in the same folder say; empty where nobody calls it so."""
CHOSEN = {NOT_OURS, HELD_BACK, INVALID, *(reason for _, reason in REASONS.values())}
"""Reasons that are not written where they are told."""


_CALLS = "|".join({"emit", "emit_once", *filter(None, HANDED_ON.values())})
_TELLS = re.compile(rf"""\.({_CALLS})\(|["']([A-Z][a-z]+)+["']""")
"""What a module has that emits an event, or has the text of a reason: a call, or words without blanks."""


def modules() -> dict[Path, ast.Module]:
    """The agent's code, but for modules that have nothing of events: parsing takes a second of a core."""
    texts = {path: path.read_text() for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))}
    return {path: ast.parse(text) for path, text in texts.items() if _TELLS.search(text)}


def constants(tree: ast.Module) -> dict[str, str]:
    """Names of a module that are texts."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        texts = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, text in zip(names, texts, strict=False):
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[name.id] = text.value
    return found


def arguments(tree: ast.Module, function: str, place: int) -> Iterator[ast.expr]:
    """What stands at that place in calls of a method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function:
            yield from node.args[place : place + 1]


@cache
def told() -> tuple[set[str], list[str]]:
    """All reasons, and the modules with one that cannot be read."""
    trees = modules()
    shared: dict[str, str] = {}
    for tree in trees.values():
        shared |= {name: text for name, text in constants(tree).items() if re.fullmatch(r"([A-Z][a-z]+)+", text)}
    reasons, unread = set(CHOSEN), []
    for path, tree in trees.items():
        known, where = {**shared, **constants(tree)}, str(path.relative_to(ROOT))
        said = [each for name in ("emit", "emit_once") for each in arguments(tree, name, 1)]
        said += [each for hander in handers(where) for each in arguments(tree, hander, 0)]
        for each in said:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                reasons.add(each.value)
            elif isinstance(each, ast.Name) and each.id in known:
                reasons.add(known[each.id])
            elif not (isinstance(each, ast.Name) and each.id == "reason" and where in HANDED_ON):
                unread.append(f"{where}:{each.lineno}")
    return reasons, unread


def handers(where: str) -> set[str]:
    """Functions that a module may tell by: its own, and what others of its folder have for it."""
    beside = {each: name for each, name in HANDED_ON.items() if Path(each).parent == Path(where).parent}
    return {name for each, name in beside.items() if name and (each == where or not name.startswith("_"))}


def listed() -> list[str]:
    """The reasons in the table."""
    section = text_of(PAGE).partition("\n## Events\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([A-Z]\w+)`", section, re.MULTILINE)


def test_every_reason_can_be_read() -> None:
    reasons, unread = told()
    assert unread == []
    assert {"PodLostDevice", "ClaimLostDevice", "SlicesNotPublished", "DoorHeldBack", "HealthBrakeOn"} <= reasons


def test_the_table_has_every_event_once_and_no_other() -> None:
    rows = listed()
    assert sorted(rows) == sorted(told()[0])
    assert rows == sorted(rows)
