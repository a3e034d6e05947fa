"""Our own answers to cases of CEL, in the judge's format."""

from __future__ import annotations

import base64
from typing import Any

from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CompileError, EvaluationError

Json = dict[str, Any]

_KINDS = {"Invalid": "RuleInvalid", "Internal": "InternalError"}


def evaluate(case: Json) -> Json:
    """Our answer to a case of CEL."""
    given = case["features"]
    switches = CelFeatures(given["consumableCapacity"], given["listTypeAttributes"], stored=case["env"] == "stored")
    # An expression is text: what is not UTF-8 reaches us as replacement characters, as in a decoded request.
    text = case["expr"] if "expr" in case else base64.b64decode(case["expr_base64"]).decode(errors="replace")
    limit = case.get("cost_limit", 1_000_000)
    try:
        program = compile_expression(text, switches)
    except CompileError as error:
        return {"compile_error": str(error), "compile_error_type": _KINDS[error.kind]}
    answer: Json = {"output_type": program.output_type, "max_cost": program.max_cost}
    if program.max_cost > limit:
        answer["estimate_exceeds_limit"] = True
    try:
        outcome = program.evaluate(CelDevice(case["device"].get("driver", ""), case["device"]), limit)
    except EvaluationError as error:
        answer |= {"runtime_error": str(error), "cost": error.cost}
        if error.cost_exceeded:
            answer["cost_exceeded_at_runtime"] = True
        return answer
    return answer | {"result": outcome.result, "cost": outcome.cost}
