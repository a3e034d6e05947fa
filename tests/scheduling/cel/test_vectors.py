"""The evaluator against what Kubernetes 1.37 answered: types, errors, worst costs, results and costs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from scheduling.cel.checker import check
from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures, environment
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.estimate import estimate
from scheduling.cel.library.prices import UNBOUNDED
from scheduling.cel.parser import parse
from tests.making.recorded_cases import cases_in, files_in

FILES = files_in(Path(__file__).parents[2] / "vectors" / "cel", "*.jsonl")
RECORDED = Path(__file__).parent / "recorded"
"""Generated expressions and corners of the language and its libraries, as Kubernetes 1.37 answered (tests/judge)."""
HEAD, *CORNERS = cases_in(RECORDED / "evaluations.jsonl")
DEVICE: dict[str, Any] = HEAD["device"]

KINDS = {"RuleInvalid": "Invalid", "InternalError": "Internal"}
EITHER = {"dyn", "google.protobuf.Any"}
"""The vectors give the type of 1.36 where nothing else differs; what is `Any` there is `dyn` since 1.37."""
OUTCOMES = ("result", "runtime_error", "compile_error")

Case = dict[str, Any]


def _merged(case: Case) -> Case:
    """A line as Kubernetes 1.37 answers it."""
    changed = case.pop("v1_37", {})
    if any(outcome in changed for outcome in OUTCOMES):
        for outcome in (*OUTCOMES, "cost_exceeded_at_runtime"):
            case.pop(outcome, None)
    return {**case, **changed}


def _text(case: Case) -> str:
    return case["expr"] if "expr" in case else base64.b64decode(case["expr_base64"]).decode(errors="replace")


def _features(case: Case) -> CelFeatures:
    switches = case["features"]
    return CelFeatures(switches["consumableCapacity"], switches["listTypeAttributes"], stored=case["env"] == "stored")


def _compiled(case: Case) -> tuple[str, str]:
    try:
        return "type", compile_selector(_text(case), _features(case)).output_type
    except CompileError as error:
        return "error", error.kind


def _expected(case: Case) -> tuple[str, str]:
    newer = case.get("v1_37", {})
    output = newer.get("output_type", case.get("output_type"))
    if "compile_error" in newer or output is None:
        return "error", KINDS[newer.get("compile_error_type", case.get("compile_error_type", ""))]
    return "type", output


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_same_expressions_compile_to_the_same_types(file: Path) -> None:
    different: list[tuple[str, object, object]] = []
    for case in cases_in(file):
        ours, theirs = _compiled(case), _expected(case)
        if ours != theirs and not {ours[1], theirs[1]} <= EITHER:
            different.append((case["name"], ours, theirs))
    assert not different


def _answer(text: str, features: CelFeatures, device: Case, limit: int = 1_000_000) -> Case:
    program = compile_selector(text, features)
    try:
        found = program.evaluate(CelDevice(device.get("driver", ""), device), limit)
    except EvaluationError as error:
        return {"fails": True, "cost": error.cost, "exceeded": error.cost_exceeded}
    return {"result": found.result, "cost": found.cost, "fails": False, "exceeded": False}


CASES = [case for file in FILES for line in cases_in(file) if "compile_error" not in (case := _merged(line))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_selector_gives_what_kubernetes_gives_at_the_same_cost(case: Case) -> None:
    answer = _answer(_text(case), _features(case), case["device"], case.get("cost_limit", 1_000_000))
    wanted = {"fails": "runtime_error" in case, "exceeded": case.get("cost_exceeded_at_runtime", False)}
    if "result" in case:
        wanted["result"] = case["result"]
    if "cost" in case and not case.get("cost_varies"):
        wanted["cost"] = case["cost"]
    assert {key: answer.get(key) for key in wanted} == wanted


def _end(expression: str) -> Case:
    try:
        found = _answer(expression, CelFeatures(list_attributes=True), DEVICE)
    except CompileError as error:
        return {"compiles": False, "kind": error.kind}
    return {key: found[key] for key in ("fails" if found["fails"] else "result", "cost")}


@pytest.mark.parametrize("case", CORNERS, ids=lambda case: case["expr"][:60])
def test_a_corner_case_ends_as_recorded(case: Case) -> None:
    assert _end(case["expr"]) == case["answer"]


def _max_cost(expression: str, features: CelFeatures) -> int:
    return estimate(check(parse(expression), environment(features)))


def _recorded_cost(case: Case) -> int | None:
    changed = case.get("v1_37", {})
    return None if "compile_error" in changed else changed.get("max_cost", case.get("max_cost"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_worst_cost_is_that_of_kubernetes(file: Path) -> None:
    recorded = [(case, cost) for case in cases_in(file) if (cost := _recorded_cost(case)) is not None]
    found = [(_text(case), _max_cost(_text(case), _features(case))) for case, _ in recorded]
    assert found == [(_text(case), cost) for case, cost in recorded]


def test_generated_expressions_have_the_recorded_worst_cost() -> None:
    cases = cases_in(RECORDED / "estimates.jsonl")
    found = {case["expr"]: _max_cost(case["expr"], CelFeatures()) for case in cases}
    assert found == {case["expr"]: case["max_cost"] for case in cases}


def test_a_path_is_overwritten_by_the_next_step_from_the_same_part() -> None:
    # The key of a map of capacities has at most 32 characters, a capacity has no size: the second loop variable's path
    # takes the place of the first one's, as cel-go's do.
    assert _max_cost('device.capacity["d"].all(k, k != "a")', CelFeatures()) == 164
    assert _max_cost('device.capacity["d"].all(k, v, k != "a")', CelFeatures()) == 132


def test_the_deepest_nesting_is_estimated() -> None:
    assert _max_cost("[1].exists_one(x, " * 249 + "true" + ")" * 249, CelFeatures()) == 3486


def test_a_cost_without_a_bound_is_unbounded() -> None:
    expression = 'device.attributes["d"].x.flatten().all(x, x.flatten().all(y, y == 1))'
    assert _max_cost(expression, CelFeatures()) == UNBOUNDED
