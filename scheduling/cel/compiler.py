"""From the text of a selector to a program.

Results are cached, errors too: a scheduler compiles the selectors of every class and claim for every node. The kinds of
errors are Kubernetes': `Invalid` for an expression that is wrong, `Internal` for an error that shows only when its
constants are computed (`int("x")`), which Kubernetes does after all checks.

The cache is bounded by the memory of programs, not by their number. A program takes about a kilobyte for each node of
its tree, and macros make large trees of short texts: a thousand programs may be some megabytes or all the memory there
is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from scheduling.cel import advice
from scheduling.cel.checked import Checked
from scheduling.cel.checker import check
from scheduling.cel.environment import CelFeatures, environment
from scheduling.cel.errors import CompileError, EvaluationError, InvalidExpression, Issue
from scheduling.cel.parser import parse
from scheduling.cel.program import Program
from scheduling.cel.syntax import place_at
from scheduling.cel.types import BOOL
from scheduling.cel.unification import same
from scheduling.cel.validators import validate
from scheduling.cel.values import Stop, refill

_REMEMBERED = 200_000
"""Nodes of all programs that are cached."""
_TEXT_PER_NODE = 100
"""Characters of an expression that count as much as one node."""

T = TypeVar("T")


class ProgramCache(Generic[T]):
    """A cache by weight; the least recently used entry is dropped first. Safe to use from threads."""

    def __init__(self, limit: int) -> None:
        """`limit`: the largest sum of weights that is kept."""
        self._limit = limit
        self._weight = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The entry of the key; `make` gives a new one and its weight. Threads may make the same entry at once."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known[0]
        made, weight = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (made, weight)
                self._weight += weight
            while self._weight > self._limit:
                _, (_, lost) = self._kept.popitem(last=False)
                self._weight -= lost
        return made


_DEFAULTS = CelFeatures()
_PROGRAMS: ProgramCache[Program | CompileError] = ProgramCache(_REMEMBERED)


def compile(expression: str, features: CelFeatures = _DEFAULTS) -> Program:  # noqa: A001 (CEL's word)
    """The program of a selector. Safe to call from threads. Raises `CompileError`, a new one each time."""
    try:
        found = _PROGRAMS.get((expression, features), lambda: _compiled(expression, features))
    except RecursionError as fault:
        # Every walk bounds its own depth, but a caller may have used up the stack. Not remembered: the next may not.
        raise CompileError(expression, "the expression is nested too deeply", None, "Internal") from fault
    if isinstance(found, CompileError):
        raise CompileError(found.expression, found.message, found.place, found.kind, found.others) from found.__cause__
    return found


def _compiled(expression: str, features: CelFeatures) -> tuple[Program | CompileError, int]:
    """The program or its error, and the weight of it."""
    text = 1 + len(expression) // _TEXT_PER_NODE
    try:
        program = Program(checked(expression, features))
    except CompileError as error:
        return error, text
    except EvaluationError as error:
        message = f"this constant cannot be computed: {error.message}"
        failure = CompileError(error.expression, message, error.place, "Internal")
        failure.__cause__ = error
        return failure, text
    except Stop as error:
        failure = CompileError(expression, error.message, None, "Internal")
        failure.__cause__ = error
        return failure, text
    finally:
        refill()
    return program, text + len(program.checked.types)


def checked(expression: str, features: CelFeatures = _DEFAULTS) -> Checked:
    """The checked tree of a selector, before its constants are computed.

    Raises `CompileError`, and `library.regex.MissingLibrary` for a regular expression without google-re2.
    """
    source = _scalar(expression)
    try:
        result = check(parse(source), environment(features))
        issues: Sequence[Issue] = validate(result)
    except InvalidExpression as fault:
        raise _error(source, fault.issues) from fault
    if issues:
        raise _error(source, issues)
    if not (same(result.result, BOOL) or same(result.result, environment(features).attribute)):
        found = advice.shown(result.result)
        raise CompileError(source, f"a selector must be true or false, but this is of type {found}", None)
    return result


def _scalar(expression: str) -> str:
    """Replaces halves of surrogate pairs by U+FFFD, as Kubernetes does with anything that is not UTF-8."""
    if expression.isascii():
        return expression
    return expression.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(source: str, issues: Sequence[Issue]) -> CompileError:
    first, *rest = issues
    others = tuple((place_at(source, each.offset), each.message) for each in rest)
    return CompileError(source, first.message, place_at(source, first.offset), "Invalid", others)
