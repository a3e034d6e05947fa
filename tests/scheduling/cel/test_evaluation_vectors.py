from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import EvaluationError
from tests.making.recorded_cases import cases_in, files_in

FILES = files_in(Path(__file__).parents[2] / "vectors" / "cel", "*.jsonl")
OUTCOMES = ("result", "runtime_error", "compile_error")


def _case(case: dict[str, Any]) -> dict[str, Any]:
    """A line as Kubernetes 1.37 answers it."""
    changed = case.pop("v1_37", {})
    if any(outcome in changed for outcome in OUTCOMES):
        for outcome in (*OUTCOMES, "cost_exceeded_at_runtime"):
            case.pop(outcome, None)
    return {**case, **changed}


CASES = [case for file in FILES for line in cases_in(file) if "compile_error" not in (case := _case(line))]


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    given = case["features"]
    features = CelFeatures(given["consumableCapacity"], given["listTypeAttributes"], case["env"] == "stored")
    expression = case.get("expr") or base64.b64decode(case["expr_base64"]).decode("utf-8", "replace")
    device = CelDevice(case["device"].get("driver", ""), case["device"])
    program = compile_selector(expression, features)
    try:
        outcome = program.evaluate(device, case.get("cost_limit", 1_000_000))
    except EvaluationError as error:
        return {"failed": True, "cost": error.cost, "exceeded": error.cost_exceeded}
    return {"result": outcome.result, "cost": outcome.cost, "failed": False, "exceeded": False}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_selector_gives_what_kubernetes_gives_at_the_same_cost(case: dict[str, Any]) -> None:
    answer = _answer(case)
    wanted = {"failed": "runtime_error" in case, "exceeded": case.get("cost_exceeded_at_runtime", False)}
    if "result" in case:
        wanted["result"] = case["result"]
    if "cost" in case and not case.get("cost_varies"):
        wanted["cost"] = case["cost"]
    assert {key: answer.get(key) for key in wanted} == wanted
