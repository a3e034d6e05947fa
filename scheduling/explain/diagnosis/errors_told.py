"""The allocator's errors as obstacles: with the expression and its place, the class, or the object and its field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from kube.bodies import JsonObject, text_at
from scheduling.allocator.claims import Claim
from scheduling.allocator.reading import AllocationError
from scheduling.allocator.selectors import SelectorError
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.environment import Features as CelFeatures
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.functions.regex import MissingLibrary
from scheduling.explain.diagnosis.cluster import Cluster
from scheduling.explain.diagnosis.obstacles import ClassMissing, Obstacle, Refused, Source
from scheduling.explain.diagnosis.selecting import broken, unreadable
from scheduling.explain.errors import ExplainError

NEAR = 5
"""Names of classes that are offered."""
_LIBRARY = str(MissingLibrary())
_INDEX = re.compile(r"selectors\[(\d+)\]")
_REQUEST = re.compile(r"spec\.devices\.requests\[(\d+)\](?:\.firstAvailable\[(\d+)\])?")


def told(error: AllocationError, claims: Sequence[JsonObject], features: CelFeatures = CelFeatures()) -> Obstacle:  # noqa: B008 - a frozen value
    """The error in facts; ``claims``: those that were to be allocated.

    Raises ``ExplainError`` where it is not the cluster that is at fault, but a library that is missing here.
    """
    if isinstance(error, SelectorError):
        if error.cause.message == _LIBRARY:
            raise ExplainError(_LIBRARY)
        return _selector(error, claims, features)
    return Refused(str(error.object), error.field, error.message)


def _selector(error: SelectorError, claims: Sequence[JsonObject], features: CelFeatures) -> Obstacle:
    found = _INDEX.search(error.field)
    index = int(found.group(1)) if found else 0
    if error.object.kind == "DeviceClass":
        source = Source("class", error.object.name, index)
    else:
        claim = f"{error.object.namespace or 'default'}/{error.object.name}" if len(claims) > 1 else ""
        source = Source("request", _request_name(error, claims), index, claim)
    cause = error.cause
    if isinstance(cause, CompileError):
        return unreadable(source, cause)
    assert isinstance(cause, EvaluationError)
    if error.device is None:
        return broken(source, cause, (), "")
    program = compile_expression(cause.expression, features)
    return broken(source, cause, program.account(error.device.cel), error.device.name)


def _request_name(error: AllocationError, claims: Sequence[JsonObject]) -> str:
    """The request at the error's path, as results name it."""
    found = _REQUEST.match(error.field)
    named = (one for one in claims if text_at(one, "metadata", "name") == error.object.name)
    claim = next(named, None)
    if found is None or claim is None:
        return error.field
    choice = Claim(claim).requests[int(found.group(1))]
    return choice.alternatives[int(found.group(2) or 0)].name


def class_missing(name: str, cluster: Cluster) -> ClassMissing:
    """No class has this name; what there is instead."""
    names = sorted(cluster.classes)
    near = get_close_matches(name, names, NEAR) or names[:NEAR]
    return ClassMissing(name, tuple(near))
