"""Kubernetes' library for URLs."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, STRING, URL, list_of, map_of

FUNCTIONS: Library = {
    "url": (function("string_to_url", STRING, result=URL),),
    "getScheme": (method("url_get_scheme", URL, result=STRING),),
    "getHost": (method("url_get_host", URL, result=STRING),),
    "getHostname": (method("url_get_hostname", URL, result=STRING),),
    "getPort": (method("url_get_port", URL, result=STRING),),
    "getEscapedPath": (method("url_get_escaped_path", URL, result=STRING),),
    "getQuery": (method("url_get_query", URL, result=map_of(STRING, list_of(STRING))),),
    "isURL": (function("is_url_string", STRING, result=BOOL),),
}
