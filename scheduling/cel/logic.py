"""`&&` and `||`: they give the same result in whatever order, because one operand may outvote another's error."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.cel.frame import Frame, Run
from scheduling.cel.values import Fault, Optional, Value, no_such_overload


def junction(node: int, operands: Sequence[Run], *, decisive: bool) -> Run:
    """`&&` (False is decisive) or `||` (True is): the first decisive operand wins, then the first error."""
    neutral = not decisive

    def run(frame: Frame) -> Value:
        failed: Fault | None = None
        for each in operands:
            try:
                value = each(frame)
            except Fault as fault:
                failed = failed or fault
                continue
            if value is decisive:
                return decisive
            if value is not neutral and failed is None:
                failed = no_such_overload("_&&_" if neutral else "_||_", value)
                failed.node = node
        if failed is not None:
            raise failed.with_traceback(None)  # else it would grow with every round of a loop
        return neutral

    return run


def optional_or(node: int, first: Run, second: Run, *, unwrap: bool) -> Run:
    """`a.or(b)` and, with `unwrap`, `a.orValue(b)`; free of cost, and `b` is evaluated only when needed."""

    def run(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not Optional:
            fault = no_such_overload("orValue" if unwrap else "or", value)
            fault.node = node
            raise fault
        if value.present:
            return value.get() if unwrap else value
        return second(frame)

    return run
