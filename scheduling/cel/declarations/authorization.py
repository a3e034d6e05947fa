"""Kubernetes' library for asking what a user may do.

A selector has no authorizer, but Kubernetes declares the methods everywhere: an expression that calls one on a value
whose type is not known compiles, and fails when it is evaluated.
"""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, method
from scheduling.cel.types import BOOL, STRING, opaque

_AUTHORIZER = opaque("kubernetes.authorization.Authorizer")
_PATH = opaque("kubernetes.authorization.PathCheck")
_GROUP = opaque("kubernetes.authorization.GroupCheck")
_RESOURCE = opaque("kubernetes.authorization.ResourceCheck")
_DECISION = opaque("kubernetes.authorization.Decision")
TYPES = (_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION)

FUNCTIONS: Library = {
    "path": (method("authorizer_path", _AUTHORIZER, STRING, result=_PATH),),
    "group": (method("authorizer_group", _AUTHORIZER, STRING, result=_GROUP),),
    "serviceAccount": (method("authorizer_serviceaccount", _AUTHORIZER, STRING, STRING, result=_AUTHORIZER),),
    "resource": (method("groupcheck_resource", _GROUP, STRING, result=_RESOURCE),),
    "subresource": (method("resourcecheck_subresource", _RESOURCE, STRING, result=_RESOURCE),),
    "namespace": (method("resourcecheck_namespace", _RESOURCE, STRING, result=_RESOURCE),),
    "name": (method("resourcecheck_name", _RESOURCE, STRING, result=_RESOURCE),),
    "check": (
        method("pathcheck_check", _PATH, STRING, result=_DECISION),
        method("resourcecheck_check", _RESOURCE, STRING, result=_DECISION),
    ),
    "errored": (method("decision_errored", _DECISION, result=BOOL),),
    "error": (method("decision_error", _DECISION, result=STRING),),
    "allowed": (method("decision_allowed", _DECISION, result=BOOL),),
    "reason": (method("decision_reason", _DECISION, result=STRING),),
    "fieldSelector": (method("authorizer_fieldselector", _RESOURCE, STRING, result=_RESOURCE),),
    "labelSelector": (method("authorizer_labelselector", _RESOURCE, STRING, result=_RESOURCE),),
}
