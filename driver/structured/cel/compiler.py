"""From the text of a selector to a program.

Results are remembered, errors too: a scheduler compiles the selectors of every class and claim for every node. Kinds
of errors are Kubernetes': `Invalid` for what is wrong with an expression, `Internal` for what shows only when its
constants are computed (`int("x")`), which Kubernetes does after all checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from driver.structured.cel import advice
from driver.structured.cel.checked import Checked
from driver.structured.cel.checker import check
from driver.structured.cel.environment import Features, environment
from driver.structured.cel.errors import CompileError, EvaluationError, Fault, SyntaxFault, TypeFault
from driver.structured.cel.parser import parse
from driver.structured.cel.program import Program
from driver.structured.cel.syntax import Place
from driver.structured.cel.types import BOOL
from driver.structured.cel.unification import same
from driver.structured.cel.validators import validate
from driver.structured.cel.values import Stop

MAX_SELECTOR_LENGTH = 10 * 1024
"""Bytes of an expression that the API server accepts in a selector. The compiler itself takes longer ones."""

_REMEMBERED = 1024

_DEFAULTS = Features()


def compile(expression: str, features: Features = _DEFAULTS) -> Program:  # noqa: A001 (CEL's word)
    """The program of a selector. Safe to call from threads. Raises `CompileError`, a new one each time."""
    try:
        found = _compiled(expression, features)
    except RecursionError as fault:
        # Every walk bounds its own depth, but a caller may have used up the stack. Not remembered: the next may not.
        raise CompileError(expression, "the expression is nested too deep", None, "Internal") from fault
    if isinstance(found, CompileError):
        raise CompileError(found.expression, found.message, found.place, found.kind, found.others) from found.__cause__
    return found


@lru_cache(maxsize=_REMEMBERED)
def _compiled(expression: str, features: Features) -> Program | CompileError:
    try:
        return Program(checked(expression, features), features)
    except CompileError as error:
        return error
    except EvaluationError as error:
        message = f"this constant cannot be computed: {error.message}"
        failure = CompileError(error.expression, message, error.place, "Internal")
        failure.__cause__ = error
        return failure
    except Stop as error:
        failure = CompileError(expression, error.message, None, "Internal")
        failure.__cause__ = error
        return failure


def checked(expression: str, features: Features = _DEFAULTS) -> Checked:
    """The checked tree of a selector, before its constants are computed.

    Raises `CompileError`, and `functions.regex.MissingLibrary` for a regular expression without google-re2.
    """
    source = _scalar(expression)
    try:
        result = check(parse(source), environment(features))
        faults: Sequence[Fault] = validate(result)
    except (SyntaxFault, TypeFault) as fault:
        raise _error(source, fault.faults) from fault
    if faults:
        raise _error(source, faults)
    if not (same(result.result, BOOL) or same(result.result, environment(features).attribute)):
        found = advice.shown(result.result)
        raise CompileError(source, f"a selector must be true or false, but this is of type {found}", None)
    return result


def _scalar(expression: str) -> str:
    """Halves of surrogate pairs are no characters; like anything that is not UTF-8, Kubernetes reads them as U+FFFD."""
    if expression.isascii():
        return expression
    return expression.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(source: str, faults: Sequence[Fault]) -> CompileError:
    first, *rest = faults
    others = tuple((_place(source, each.offset), each.message) for each in rest)
    return CompileError(source, first.message, _place(source, first.offset), "Invalid", others)


def _place(source: str, offset: int) -> Place:
    before = source[:offset]
    return Place(line=before.count("\n") + 1, column=len(before) - (before.rfind("\n") + 1))
