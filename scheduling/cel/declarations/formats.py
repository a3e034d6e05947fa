"""Kubernetes' library for named formats of strings."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import NAMED_FORMAT, STRING, list_of, optional_of

FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
)

FUNCTIONS: Library = {
    "validate": (method("format-validate", NAMED_FORMAT, STRING, result=optional_of(list_of(STRING))),),
    "format.named": (function("format-named", STRING, result=optional_of(NAMED_FORMAT)),),
    **{f"format.{name}": (function(f"format.{name}", result=NAMED_FORMAT),) for name in FORMATS},
}
