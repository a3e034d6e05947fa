"""The functions of URLs: `url`, `isURL` and the parts of a URL."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.types import STRING, URL
from scheduling.cel.urls import Url, UrlError, is_url, parse
from scheduling.cel.values import Fault, Value


def _read(text: str) -> Value:
    try:
        return parse(text)
    except UrlError as error:
        raise Fault(str(error)) from error


def _query(url: Url) -> Value:
    return {name: list(values) for name, values in url.parameters().items()}


_ONE = (URL,)

IMPLEMENTATIONS = (
    Implementation("string_to_url", "url", (STRING,), _read),
    Implementation("is_url_string", "isURL", (STRING,), is_url),
    Implementation("url_get_scheme", "getScheme", _ONE, lambda url: url.scheme),
    Implementation("url_get_host", "getHost", _ONE, lambda url: url.host),
    Implementation("url_get_hostname", "getHostname", _ONE, lambda url: url.hostname),
    Implementation("url_get_port", "getPort", _ONE, lambda url: url.port),
    Implementation("url_get_escaped_path", "getEscapedPath", _ONE, lambda url: url.escaped_path),
    Implementation("url_get_query", "getQuery", _ONE, _query),
)
