"""One device and short ways to evaluate expressions for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures, overloads
from scheduling.cel.errors import EvaluationError
from scheduling.cel.program import EvaluationResult, Program

FEATURES = CelFeatures(list_attributes=True)
GPU = CelDevice(
    "gpu.example.com",
    {
        "allowMultipleAllocations": True,
        "attributes": {
            "model": {"string": "H200"},
            "slots": {"int": 8},
            "ecc": {"bool": True},
            "fw": {"version": "2.1.3"},
            "links": {"strings": ["a", "b", "c"]},
            "other.example.com/zone": {"string": "z1"},
        },
        "capacity": {"memory": {"value": "141Gi"}},
    },
)
CALLS: dict[str, Callable[..., Any]] = {each.id: each.call for each in overloads().values() if each.call is not None}
"""The implementations of functions, by the identifiers of their overloads."""


def program(expression: str) -> Program:
    """The compiled expression."""
    return compile_selector(expression, FEATURES)


def outcome(expression: str, limit: int = 1_000_000) -> EvaluationResult:
    """What the expression gives for the device."""
    return program(expression).evaluate(GPU, limit)


def holds(expression: str) -> bool:
    """Whether the expression is true for the device."""
    return outcome(expression).result


def failure(expression: str, limit: int = 1_000_000) -> EvaluationError:
    """The error that the expression ends with."""
    try:
        found = outcome(expression, limit)
    except EvaluationError as error:
        return error
    raise AssertionError(f"no error but {found}")
