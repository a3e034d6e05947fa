"""Kubernetes' library for asking what a user may do.

A selector has no authorizer, so every call fails for the type of its target. Kubernetes declares the methods everywhere
anyway: an expression that calls one on a value whose type is not known compiles, and fails when it is evaluated.
"""

from __future__ import annotations

from math import ceil

from scheduling.cel.library.function import Library, Overload, method
from scheduling.cel.library.prices import LIST, MESSAGE, ONE_UNIT, TEXT, CallEstimate, Price, exactly
from scheduling.cel.types import BOOL, STRING, Type, opaque
from scheduling.cel.values import Value, no_such_overload, size_of

_AUTHORIZER = opaque("kubernetes.authorization.Authorizer")
_PATH = opaque("kubernetes.authorization.PathCheck")
_GROUP = opaque("kubernetes.authorization.GroupCheck")
_RESOURCE = opaque("kubernetes.authorization.ResourceCheck")
_DECISION = opaque("kubernetes.authorization.Decision")
TYPES = (_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION)

_CHECK_UNITS = 350_000
"""Units of asking an authorizer; two of these exceed the limit of an expression."""


_EACH = LIST + MESSAGE
_REQUIREMENTS = Price(
    lambda arguments, _result: LIST + ceil(size_of(arguments[1]) * TEXT) + ceil(size_of(arguments[1]) * 0.5) * _EACH,
    lambda operands: CallEstimate(
        exactly(LIST) + operands[1].range().times(TEXT) + operands[1].range().times(0.5).times(_EACH)
    ),
    by_name=True,
)
"""Reading a text of selectors into a list of requirements, of two characters at least each."""
_CHECK = Price(
    lambda _arguments, _result: _CHECK_UNITS, lambda _operands: CallEstimate(exactly(_CHECK_UNITS)), by_name=True
)


def _failing(
    name: str, identifier: str, target: Type, *arguments: Type, result: Type, price: Price = ONE_UNIT
) -> Overload:
    def call(*values: Value) -> Value:
        raise no_such_overload(name, *values)

    return method(name, identifier, target, *arguments, result=result, call=call, price=price)


LIBRARY: Library = (
    _failing("path", "authorizer_path", _AUTHORIZER, STRING, result=_PATH),
    _failing("group", "authorizer_group", _AUTHORIZER, STRING, result=_GROUP),
    _failing("serviceAccount", "authorizer_serviceaccount", _AUTHORIZER, STRING, STRING, result=_AUTHORIZER),
    _failing("resource", "groupcheck_resource", _GROUP, STRING, result=_RESOURCE),
    _failing("subresource", "resourcecheck_subresource", _RESOURCE, STRING, result=_RESOURCE),
    _failing("namespace", "resourcecheck_namespace", _RESOURCE, STRING, result=_RESOURCE),
    _failing("name", "resourcecheck_name", _RESOURCE, STRING, result=_RESOURCE),
    _failing("check", "pathcheck_check", _PATH, STRING, result=_DECISION, price=_CHECK),
    _failing("check", "resourcecheck_check", _RESOURCE, STRING, result=_DECISION, price=_CHECK),
    _failing("errored", "decision_errored", _DECISION, result=BOOL),
    _failing("error", "decision_error", _DECISION, result=STRING),
    _failing("allowed", "decision_allowed", _DECISION, result=BOOL),
    _failing("reason", "decision_reason", _DECISION, result=STRING),
    _failing("fieldSelector", "authorizer_fieldselector", _RESOURCE, STRING, result=_RESOURCE, price=_REQUIREMENTS),
    _failing("labelSelector", "authorizer_labelselector", _RESOURCE, STRING, result=_RESOURCE, price=_REQUIREMENTS),
)
