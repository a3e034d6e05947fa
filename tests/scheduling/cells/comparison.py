"""Compares a replay with what HiveD answered, by the rules of tests/vectors/hived/README.md.

A scenario agrees if decisions and states equal the recorded ones, or any one of the recorded outcomes, or every
property of one that is not deterministic. The comparison ends before a step at which HiveD went wrong
(`compare_steps`), and also before one whose recorded state contradicts itself: `contradiction` names the defects that
the recording does not mark.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from scheduling.cells.decision import CellsUserError
from tests.scheduling.cells.replay import Json, Replay, ReplayRefused, merged

_COMPARED = {
    "bind": ("bindInfo", "affinity", "isolation"),
    "free": ("bindInfo", "affinity"),
    "preempt": ("victimsByNode", "victims"),
}


class Differs(Exception):
    """The first difference."""


def difference(scenario: Json) -> str:
    """Where a scenario differs; empty if it agrees."""
    if "expect" in scenario:
        return _against(scenario, scenario["expect"], scenario.get("compare_steps"))
    first = ""
    for each in scenario["outcomes"]:
        found = _against(scenario, each["expect"], each.get("compare_steps"))
        if not found:
            return ""
        first = first or found
    return _against_properties(scenario) and first


def _against(scenario: Json, expect: list[Json], steps: int | None) -> str:
    crashes = expect[0]["d"]["kind"] == "crash"
    try:
        replay = Replay(scenario)
    except ReplayRefused as error:
        # HiveD accepts some configurations that mean nothing; its README calls a clear refusal right.
        return "" if crashes or scenario["name"].startswith("config-") else f"step 0: refused: {error}"
    count = len(expect) if steps is None else min(steps, len(expect))
    if crashes and count:
        return "step 0: the configuration must be refused"
    judge = _Judge(scenario, replay)
    try:
        for step in range(count):
            if not judge.step(step, expect[step]):
                break
    except Differs as error:
        return str(error)
    return ""


class _Judge:
    """Compares step by step."""

    def __init__(self, scenario: Json, replay: Replay) -> None:
        self._events = [None, *scenario.get("events", [])]
        self._startup_counts = scenario.get("startup_states", False)
        self._replay = replay
        self._expected: Json = {}
        self._misplaced: set[str] = set()  # groups whose first restored pod HiveD puts at the wrong place

    def step(self, number: int, expect: Json) -> bool:
        """Compare one step; false if the recording cannot be used from here on."""
        event = self._events[number]
        self._expected = merged(self._expected, expect.get("s", {}))
        if contradiction(self._expected):
            return False
        if event is not None and event["op"] == "restart":
            self._misplaced |= _misplaced(self._replay, event)
        if self._misplaced and event is not None and _group_of(self._replay, event) in self._misplaced:
            return False
        decision = {"kind": "ok"} if event is None else self._replay.step(event)
        self._compare_decision(number, decision, expect["d"])
        if self._expected and not self._is_starting(number):
            self._compare_state(number)
        return True

    def _compare_decision(self, number: int, ours: Json, expected: Json) -> None:
        kind = expected["kind"]
        if kind == "crash" and ours["kind"] == "userError":
            return  # HiveD's process ends for a record that cannot be read; the request is refused here
        for key in ("kind", *_COMPARED.get(kind, ())):
            if ours.get(key) != expected.get(key):
                raise Differs(f"step {number} {self._events[number]}: {key}: ours {ours}, recorded {expected}")

    def _is_starting(self, number: int) -> bool:
        """Which virtual cluster gets a doomed cell while nodes come up is random."""
        if self._startup_counts or number + 1 >= len(self._events):
            return False
        return all(each is None or each["op"] == "addNode" for each in self._events[: number + 2])

    def _compare_state(self, number: int) -> None:
        ours = self._replay.state()
        expected = tolerant(ours, self._expected)
        for key in sorted(ours.keys() | expected.keys()):
            if ours.get(key) != expected.get(key):
                raise Differs(
                    f"step {number} {self._events[number]}: {key}: ours {ours.get(key)}, recorded {expected.get(key)}"
                )


def contradiction(state: Json) -> str:
    """A defect that the recorded state shows: what it says in one place contradicts another."""
    for cluster in state.get("vcs", {}).values():
        for address, cell in cluster["cells"].items():
            if cell.get("priority", -2) >= 0 and "bound" not in cell:
                return f"{address} is used, but not bound"
        for leaf in cluster.get("opportunistic", []):
            if leaf not in state["leaves"]:
                return f"{leaf} is listed for an opportunistic pod that is gone"
    return ""


def tolerant(ours: Json, recorded: Json) -> Json:
    """The recorded state with what may differ taken from ours."""
    expected: Json = _copied(recorded)
    for name, group in expected.get("groups", {}).items():
        own = ours["groups"].get(name)
        if own is not None and group.get("unreadable"):
            expected["groups"][name] = own
        elif own is not None and group.get("state") == "BeingPreempted" and own["state"] == "Allocated":
            leaves = [expected["leaves"].get(each, ["Free"])[0] for each in expected["leaves"]]
            if "Reserving" not in leaves or not _is_reserving(group, expected["leaves"]):
                group["state"] = "Allocated"
    for address, leaf in expected.get("leaves", {}).items():
        # Whose cell an opportunistic leaf is, HiveD tells by history: its user, who holds it bound, or nobody.
        own_leaf = ours["leaves"].get(address)
        if own_leaf is not None and leaf[:2] == ["Used", -1] == own_leaf[:2]:
            leaf[2] = own_leaf[2]
    _mend_counts(ours, expected)
    return expected


def _copied(recorded: Any) -> Any:
    """A deep copy of JSON, which need not remember what it has copied."""
    if isinstance(recorded, dict):
        return {key: _copied(each) for key, each in recorded.items()}
    return [_copied(each) for each in recorded] if isinstance(recorded, list) else recorded


def _is_reserving(group: Json, leaves: Json) -> bool:
    places = {(node, index) for node, indices in group["physical"].items() for index in indices}
    for address, (state, *_) in leaves.items():
        elements = address.split("/")
        if state == "Reserving" and any((node, int(elements[-1])) in places for node in elements[:-1]):
            return True
    return False


def _mend_counts(ours: Json, expected: Json) -> None:
    """Where the recorded number of used virtual leaves is not that of the recorded groups, take ours if that is."""
    held: dict[str, int] = {}
    for group in expected.get("groups", {}).values():
        for root, leaves in group.get("virtual", {}).items():
            held[root] = held.get(root, 0) + len(leaves)
    for name, cluster in expected.get("vcs", {}).items():
        for address, cell in cluster["cells"].items():
            own = ours["vcs"].get(name, {}).get("cells", {}).get(address)
            if own is None or _used(cell) == held.get(address, 0):
                continue
            if _used(own) == held.get(address, 0):
                cell["leaves"] = own["leaves"]


def _used(cell: Json) -> int:
    return sum(number for state, number in cell["leaves"].items() if state != "Free")


def _misplaced(replay: Replay, event: Json) -> set[str]:
    """Groups whose first restored pod is not at their first place: HiveD takes it for the one that is."""
    seen: set[str] = set()
    wrong: set[str] = set()
    for name in event.get("bound", []):
        info = replay.bound.get(name)
        if info is None:
            continue
        group = replay.pod(name).spec.group.name
        if group not in seen:
            own = (info.node, info.leaf_cell_isolation)
            same = [m for m in info.members if len(m.pod_placements[0].indices) == len(info.leaf_cell_isolation)]
            first = same[0].pod_placements[0] if same else None
            if first is not None and (first.node, first.indices) != own:
                wrong.add(group)
        seen.add(group)
    return wrong


def _group_of(replay: Replay, event: Json) -> str:
    try:
        return replay.pod(event["pod"]).spec.group.name if "pod" in event else ""
    except CellsUserError:
        return ""


def _against_properties(scenario: Json) -> str:
    """Where a replay leaves the values that were seen at a step, as long as its own choices have not diverged."""
    replay = Replay(scenario)
    for number, (event, seen) in enumerate(zip([None, *scenario["events"]], scenario["properties"], strict=False)):
        decision = {"kind": "ok"} if event is None else replay.step(event)
        for key, value in _properties(decision, replay.state()).items():
            if key in seen and value not in seen[key]:
                return f"step {number} {event}: {key}: ours {value}, seen {seen[key]}"
    return ""


def _properties(decision: Json, state: Json) -> Json:
    found: Json = {
        "kind": decision["kind"],
        "leavesByState": dict(Counter(each[0] for each in state["leaves"].values())),
    }
    found["groups"] = {
        name: group["state"] + ("+lazy" if "lazyPreemptedBy" in group else "")
        for name, group in state["groups"].items()
    }
    if "bindInfo" in decision:
        info: Any = decision["bindInfo"]
        found["affinity"] = decision["affinity"]
        found["leafCells"] = len(info["leafCellIsolation"])
        found["cellChain"] = info["cellChain"]
        found["members"] = [len(each["podPlacements"]) for each in info["affinityGroupBindInfo"]]
    if "victims" in decision:
        found["victims"] = decision["victims"]
    return found
