"""Running a plan for one device, and what its failures mean to the user."""

from __future__ import annotations

from scheduling.cel.errors import EvaluationError
from scheduling.cel.frame import Frame
from scheduling.cel.nodes import Plan
from scheduling.cel.syntax import Ast
from scheduling.cel.values import Fault, Optional, Stop, TooExpensive, Value, refill, type_name

DEFAULT_LIMIT = 1_000_000
"""Units an evaluation may cost in the scheduler."""

_HINT = "; an identifier that not every device has can be read with .? and orValue(), or guarded with has()"


def run_plan(plan: Plan, frame: Frame, ast: Ast) -> bool:
    """The result; what was spent is in the frame. Raises EvaluationError."""
    if frame.device.fault:
        raise EvaluationError(ast.source, frame.device.fault, None)
    try:
        result = plan.run(frame)
    except Fault as fault:
        message = fault.message + (_HINT if fault.message.startswith("no such key") else "")
        raise EvaluationError(ast.source, message, ast.place(fault.node), frame.cost) from fault
    except TooExpensive as stop:
        frame.cost = max(frame.cost, frame.limit + 1)
        message = f"the evaluation was stopped because it costs more than {frame.limit} units"
        raise EvaluationError(ast.source, message, None, frame.cost, cost_exceeded=True) from stop
    except Stop as stop:
        raise EvaluationError(ast.source, stop.message, None, frame.cost) from stop
    except RecursionError as error:
        # The plan bounds its own depth; a caller deep in its stack already may still leave too little.
        raise EvaluationError(ast.source, "the expression is nested too deep", None, frame.cost) from error
    finally:
        refill()
    return _truth(result, frame, ast)


def _truth(result: Value, frame: Frame, ast: Ast) -> bool:
    while type(result) is Optional and result.present:
        result = result.get()
    if isinstance(result, bool):
        return result
    message = f"the result must be true or false, but it is of type {type_name(result)}"
    raise EvaluationError(ast.source, message, None, frame.cost)
