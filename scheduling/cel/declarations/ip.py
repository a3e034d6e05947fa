"""Kubernetes' library for IP addresses."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, INT, IP, STRING

FUNCTIONS: Library = {
    "ip": (function("string_to_ip", STRING, result=IP),),
    "family": (method("ip_family", IP, result=INT),),
    "ip.isCanonical": (function("ip_is_canonical", STRING, result=BOOL),),
    "isUnspecified": (method("ip_is_unspecified", IP, result=BOOL),),
    "isLoopback": (method("ip_is_loopback", IP, result=BOOL),),
    "isLinkLocalMulticast": (method("ip_is_link_local_multicast", IP, result=BOOL),),
    "isLinkLocalUnicast": (method("ip_is_link_local_unicast", IP, result=BOOL),),
    "isGlobalUnicast": (method("ip_is_global_unicast", IP, result=BOOL),),
    "isIP": (function("is_ip", STRING, result=BOOL),),
    "string": (function("ip_to_string", IP, result=STRING),),
}
