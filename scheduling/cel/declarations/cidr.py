"""Kubernetes' library for networks."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, CIDR, INT, IP, STRING

FUNCTIONS: Library = {
    "cidr": (function("string_to_cidr", STRING, result=CIDR),),
    "containsIP": (
        method("cidr_contains_ip_string", CIDR, STRING, result=BOOL),
        method("cidr_contains_ip_ip", CIDR, IP, result=BOOL),
    ),
    "containsCIDR": (
        method("cidr_contains_cidr_string", CIDR, STRING, result=BOOL),
        method("cidr_contains_cidr", CIDR, CIDR, result=BOOL),
    ),
    "ip": (method("cidr_ip", CIDR, result=IP),),
    "prefixLength": (method("cidr_prefix_length", CIDR, result=INT),),
    "masked": (method("cidr_masked", CIDR, result=CIDR),),
    "isCIDR": (function("is_cidr", STRING, result=BOOL),),
    "string": (function("cidr_to_string", CIDR, result=STRING),),
}
