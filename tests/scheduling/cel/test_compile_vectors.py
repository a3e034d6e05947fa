"""The compiler against what Kubernetes 1.37 answered: what compiles, as what type, and which errors."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CompileError
from tests.making.recorded_cases import cases_in, files_in

VECTORS = Path(__file__).parents[2] / "vectors" / "cel"
KINDS = {"RuleInvalid": "Invalid", "InternalError": "Internal"}
EITHER = {"dyn", "google.protobuf.Any"}
"""The vectors give the type of 1.36 where nothing else differs; what is `Any` there is `dyn` since 1.37."""


def compiled(case: dict[str, Any]) -> tuple[str, str]:
    switches = case["features"]
    stored = case["env"] == "stored"
    features = CelFeatures(switches["consumableCapacity"], switches["listTypeAttributes"], stored=stored)
    text = case["expr"] if "expr" in case else base64.b64decode(case["expr_base64"]).decode(errors="replace")
    try:
        return "type", compile_expression(text, features).output_type
    except CompileError as error:
        return "error", error.kind


def expected(case: dict[str, Any]) -> tuple[str, str]:
    newer = case.get("v1_37", {})
    output = newer.get("output_type", case.get("output_type"))
    if "compile_error" in newer or output is None:
        return "error", KINDS[newer.get("compile_error_type", case.get("compile_error_type", ""))]
    return "type", output


@pytest.mark.parametrize("file", files_in(VECTORS, "*.jsonl"), ids=lambda file: file.stem)
def test_the_same_expressions_compile_to_the_same_types(file: Path) -> None:
    different: list[tuple[str, object, object]] = []
    for case in cases_in(file):
        ours, theirs = compiled(case), expected(case)
        if ours != theirs and not {ours[1], theirs[1]} <= EITHER:
            different.append((case["name"], ours, theirs))
    assert not different
