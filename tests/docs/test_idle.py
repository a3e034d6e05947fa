"""The tables of what an idle agent looks at: every period is the code's, and no look is left out.

Whatever waits with a limit, again and again, may be a look. So every class or function that has a loop and a wait with
a limit, or a timer, is in one of the tables, or here with the reason why it wakes nobody while nothing happens.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from tests.docs.markdown import ROOT, text_of

PAGE, SECTION = "docs/performance.md", "## What an idle agent still looks at\n"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text_of(PAGE).partition(SECTION)[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith(("| Look |", "| While |", "| --- |"))
]
TABLE = [row for row in ROWS if len(row) == 6]
"""What it always looks at, or while a feature is on."""
WHILE = [row for row in ROWS if len(row) == 5]
"""What it looks at only while something lasts."""
_NAME = re.compile(r"`([a-z_/]+\.py):([A-Za-z_.]+)`")
PACKAGES = ("node", "plugin", "driver", "ostler", "kube")
MILLISECONDS = {"node/inventory/nvidia/signals/events.py:WAIT"}
"""Constants of calls that count in milliseconds."""


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def _value(file: str, name: str) -> Any:
    """What a name of a module stands for; an attribute of a class of values is its default."""
    found: Any = importlib.import_module(_module(file))
    for part in name.split("."):
        if inspect.isclass(found):
            found = inspect.signature(found).parameters[part].default
        else:
            found = getattr(found, part)
    return found


CALLED = "waits for the end of a call or of work that has begun"
FAILED = "waits before another attempt at what has failed"
PUT_OFF = "waits for a time that something has set, as when work is put off so that more comes together"
NO_LOOKS = {
    "driver/claims/claim_status.py:ClaimStatusWriter": PUT_OFF,
    "driver/claims/preparation.py:Preparation": CALLED,
    "driver/door/successor.py:Successor": CALLED,
    "driver/interfaces/claim_mover.py:ClaimMover": CALLED,
    "driver/nri/framing.py:frames": CALLED,
    "driver/node_watch/evictions.py:PodEvictions": PUT_OFF,
    "driver/node_watch/following.py:Following": FAILED,
    "driver/node_watch/node_doors.py:NodeDoorsKeeper": FAILED,
    "driver/node_watch/node_pods.py:NodePods": PUT_OFF,
    "driver/node_watch/reservations.py:Reservations": PUT_OFF,
    "driver/slices/controller.py:Controller": CALLED,
    "driver/slices/queue.py:PoolQueue": PUT_OFF,
    "node/tasks.py:Alarm": CALLED,
    "node/tasks.py:LastingTasks": CALLED,
    "kube/client.py:Client": FAILED,
    "kube/events.py:EventPoster": PUT_OFF,
    "kube/node_identity.py:await_node": FAILED,
    "kube/reflector.py:Reflector": FAILED,
    "node/named_files.py:_first_byte": CALLED,
    "node/interfaces/watch.py:PodLinkWatch": FAILED,
    "node/inventory/live/hardware.py:LiveHardware": FAILED,
    "node/inventory/live/hardware.py:Wakeups": PUT_OFF,
    "node/inventory/live/links.py:LinkMonitor": FAILED,
    "node/ledger/bookkeeping.py:Bookkeeping": CALLED,
    "node/ledger/reader.py:LocalKubelet": CALLED,
    "node/mps/modes.py:ExclusiveModes": CALLED,
    "node/mps/supervisor.py:MpsSupervisor": CALLED,
    "ostler/admin/probes.py:_listener": FAILED,
    "ostler/agent/health_record.py:HealthRecord": FAILED,
    "ostler/agent/node_events.py:NodeEvents": FAILED,
    "ostler/agent/node_status.py:NodeStatus": PUT_OFF,
    "ostler/agent/pod_interfaces.py:PodInterfaces": PUT_OFF,
    "ostler/agent/pod_records.py:PodRecords": FAILED,
    "plugin/records.py:Arrivals": CALLED,
    "plugin/serving.py:Serving": CALLED,
    "plugin/slot_ownership.py:SlotOwnership": CALLED,
    "ostler/agent/loading.py:tidy": "waits until a start has ended, once",
}
"""Loops that wait with a limit and are no looks."""
_TIMERS = {"call_later", "call_at"}
_LIMITS = {"sleep", "timeout", "timeout_at", "wait_until"}
_WAITS = {"wait", "wait_for", "acquire", "join", "pause", "poll"}
_OTHER_PROCESSES = ("ostler/cli/", "ostler/doctor/", "ostler/extender/")


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_limited(call: ast.Call) -> bool:
    """Whether the call waits, and a time ends that."""
    name, first = _name(call), call.args[0] if call.args else None
    if name in _LIMITS:
        return not (isinstance(first, ast.Constant) and not first.value)
    if name in _WAITS and any(each.arg == "timeout" for each in call.keywords):
        return True
    return (name in {"wait", "pause", "poll"} and first is not None) or (name == "wait_for" and len(call.args) > 1)


def _waits_in_a_loop(tree: ast.AST) -> bool:
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    loops = any(isinstance(node, ast.While) for node in nodes)
    return any(_name(call) in _TIMERS for call in calls) or (loops and any(map(_is_limited, calls)))


def _found() -> set[str]:
    """Classes and functions of the agent that may look at something again and again."""
    files = {str(path.relative_to(ROOT)): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return {
        f"{name}:{each.name}"
        for name, path in files.items()
        if not name.startswith(_OTHER_PROCESSES)
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _waits_in_a_loop(each)
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_period_is_that_of_the_code_and_every_row_says_what_looks_what_it_costs_and_why(row: list[str]) -> None:
    assert all(row)
    _, period, constant, where = row[:4] if row in TABLE else row[1:]
    ((file, name),) = _NAME.findall(constant)
    seconds = _value(file, name) / (1000 if f"{file}:{name}" in MILLISECONDS else 1)
    assert period == f"{seconds:g} s"
    named = _NAME.findall(where)
    assert named
    for file, name in named:
        assert _value(file, name).__module__ == _module(file), f"{file} defines no {name}"


def test_whatever_waits_with_a_limit_again_and_again_is_in_a_table_or_known_to_be_no_look() -> None:
    places = [row[3] for row in TABLE] + [row[4] for row in WHILE]
    listed = {f"{file}:{name}" for place in places for file, name in _NAME.findall(place)}
    found = _found()
    assert found - listed - NO_LOOKS.keys() == set(), "a new look is missing in the tables of the page"
    assert NO_LOOKS.keys() - found == set(), "these no longer wait with a limit"
    assert NO_LOOKS.keys() & listed == set(), "these are in a table"


def test_each_table_is_read() -> None:
    assert len(TABLE) > 10
    assert len(WHILE) > 10
    assert len(ROWS) == len(TABLE) + len(WHILE)


def test_a_loop_with_a_limited_wait_and_a_timer_are_found() -> None:
    loop = "class A:\n  async def run(self):\n    while True:\n      await self.pause()\n"
    wait = "  async def pause(self):\n    await asyncio.sleep(5)\n"
    assert _waits_in_a_loop(ast.parse(loop + wait))
    assert not _waits_in_a_loop(ast.parse(loop + wait.replace("sleep(5)", "sleep(0)")))
    assert not _waits_in_a_loop(ast.parse(loop))
    assert _waits_in_a_loop(ast.parse("def soon(loop):\n  loop.call_later(5, print)\n"))
