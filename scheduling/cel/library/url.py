"""Kubernetes' library of URLs: `url`, `isURL` and the parts of a URL.

Source of the rules: Go's net/url. Python's `urllib.parse` accepts nearly everything and keeps escapes, so reading is
done here. Invariant: a `Url` was accepted both as the target of a request and as a reference, which is what the API
server's library asks for; that is why a fragment is read twice (the first reading takes `#` for a part of the path).

Escapes may encode bytes that are not UTF-8. Such bytes are carried in texts as lone surrogates ("surrogateescape").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import ClassVar

from scheduling.cel.errors import TextError
from scheduling.cel.library.function import Library, function, method, reader
from scheduling.cel.library.ip import is_address
from scheduling.cel.library.prices import COPIES_TEXT
from scheduling.cel.types import BOOL, STRING, URL, Type, list_of, map_of
from scheduling.cel.values import Opaque, Value, no_such_overload

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_PORT = re.compile(r"(?::[0-9]*)?")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_ESCAPE = re.compile(rb"%([0-9a-fA-F]{2})")
_MAX_PARAMETERS = 10_000

_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_PATH = frozenset((_UNRESERVED + "$&+,/:;=@").encode())
_HOST = frozenset((_UNRESERVED + "!$&'()*+,;=:[]<>\"").encode())
_PASSWORD = frozenset((_UNRESERVED + "$&+,;=").encode())
_FRAGMENT = frozenset((_UNRESERVED + "$&+,/:;=?@!()*").encode())
_ALSO_VALID = frozenset(b"!$&'()*+,;=:@[]%")  # left as written in a path or a fragment


class UrlError(TextError):
    """A text that is not a URL."""

    expected = "is not a URL: "


@dataclass(frozen=True, slots=True)
class Url(Opaque):
    """One URL. Texts are unescaped, except `opaque`, `query` and `raw_` ones (empty if they equal the plain escape).

    user: name and password (None when there is no colon); None without user information. omit_host: there was no
    authority, so none is written. force_query: a question mark without a query.
    """

    cel_type: ClassVar[Type] = URL

    scheme: str = ""
    opaque: str = ""
    user: tuple[str, str | None] | None = None
    host: str = ""
    path: str = ""
    raw_path: str = ""
    omit_host: bool = False
    force_query: bool = False
    query: str = ""
    fragment: str = ""
    raw_fragment: str = ""

    def __str__(self) -> str:
        text = f"{self.scheme}:" if self.scheme else ""
        text += self.opaque or self._authority_and_path()
        if self.force_query or self.query:
            text += f"?{self.query}"
        if self.fragment:
            text += "#" + _written(self.fragment, self.raw_fragment, _FRAGMENT)
        return text

    def cel_equal(self, other: Value) -> bool:
        """URLs are equal when they are written the same."""
        if not isinstance(other, Url):
            raise no_such_overload()
        return str(self) == str(other)

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        return self._split_host()[0]

    @property
    def port(self) -> str:
        """The digits after the last colon of the host; empty if there are none."""
        return self._split_host()[1]

    @property
    def escaped_path(self) -> str:
        """The path as it was written if that is validly escaped, else the escaped path."""
        return "*" if self.path == "*" and not self.raw_path else _written(self.path, self.raw_path, _PATH)

    def parameters(self) -> Mapping[str, tuple[str, ...]]:
        """The query's parameters in order. Malformed ones are left out; above 10,000 there are none."""
        found: dict[str, tuple[str, ...]] = {}
        if self.query.count("&") >= _MAX_PARAMETERS:
            return found
        for pair in self.query.split("&"):
            if not pair or ";" in pair:
                continue
            before, _, after = pair.partition("=")
            try:
                key, value = (_unescape(each.replace("+", " ")) for each in (before, after))
            except UrlError:
                continue
            found[key] = (*found.get(key, ()), value)
        return found

    def _split_host(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        if not colon or not _PORT.fullmatch(":" + port):
            host, port = self.host, ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port

    def _authority_and_path(self) -> str:
        text = ""
        has_authority = bool(self.host) or self.user is not None
        if has_authority or (self.scheme and not self.omit_host):
            if has_authority or self.path:
                text = "//"
            if self.user is not None:
                name, password = self.user
                text += _escape(name, _PASSWORD)
                text += "@" if password is None else f":{_escape(password, _PASSWORD)}@"
            text += _escape(self.host, _HOST)
        return text + self.escaped_path


@lru_cache(maxsize=1024)
def parse(text: str) -> Url:
    """Read a URL. Raises UrlError."""
    _read(text, text, request=True)
    before, _, fragment = text.partition("#")
    parts = _read(text, before, request=False)
    if fragment:
        plain = _unescape(fragment)
        parts |= {"fragment": plain, "raw_fragment": "" if _escape(plain, _FRAGMENT) == fragment else fragment}
    return Url(**parts)  # type: ignore[arg-type]


def is_url(text: str) -> bool:
    """Whether a text is a URL as the target of a request."""
    try:
        _read(text, text, request=True)
    except UrlError:
        return False
    return True


def _read(text: str, reference: str, *, request: bool) -> dict[str, object]:
    """The fields of a `Url` without its fragment."""
    if _CONTROL.search(reference):
        raise UrlError(text, "it must not have control characters")
    if reference == "" and request:
        raise UrlError(text, "it is empty")
    if reference == "*":
        return {"path": "*"}
    scheme, rest = _scheme(text, reference)
    parts: dict[str, object] = {"scheme": scheme}
    if rest.endswith("?") and rest.count("?") == 1:
        parts["force_query"], rest = True, rest[:-1]
    else:
        rest, _, parts["query"] = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return parts | {"opaque": rest}
        raise UrlError(text, "it must begin with a scheme or a slash")
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        parts["user"], parts["host"] = _authority(text, scheme, authority)
    elif scheme and rest.startswith("/"):
        parts["omit_host"] = True
    path = _unescape(rest, text)
    return parts | {"path": path, "raw_path": "" if _escape(path, _PATH) == rest else rest}


def _scheme(text: str, reference: str) -> tuple[str, str]:
    if reference.startswith(":"):
        raise UrlError(text, "its scheme is missing")
    match = _SCHEME.match(reference)
    return (match[0][:-1].lower(), reference[match.end() :]) if match else ("", reference)


def _authority(text: str, scheme: str, authority: str) -> tuple[tuple[str, str | None] | None, str]:
    """User information and host."""
    information, at, host = authority.rpartition("@")
    host = _bracketed(text, host) if host.startswith("[") else _host(text, scheme, host)
    if not at:
        return None, host
    if not _USER.fullmatch(information):
        raise UrlError(text, "its user information has characters that are not allowed")
    name, colon, password = information.partition(":")
    return (_unescape(name, text), _unescape(password, text) if colon else None), host


def _host(text: str, scheme: str, host: str) -> str:
    if "[" in host:
        raise UrlError(text, "a bracket in its host must stand first")
    first, last = host.find(":"), host.rfind(":")
    port = host[first if scheme in {"http", "https"} else last :] if first >= 0 else ""
    if not _PORT.fullmatch(port):
        raise UrlError(text, f'"{port}" after its host must be a colon and digits')
    return _unescape_host(text, host)


def _bracketed(text: str, host: str) -> str:
    """A host in brackets: an IPv6 address, with or without a zone."""
    end = host.rfind("]")
    if "[" in host[1:] or end < 0:
        raise UrlError(text, "a bracket in its host must be opened once, first, and closed")
    name, port = host[1:end], host[end + 1 :]
    if not _PORT.fullmatch(port):
        raise UrlError(text, f'"{port}" after its host must be a colon and digits')
    zone = name.find("%25")
    if zone >= 0:
        name = _unescape_host(text, name[:zone]) + _unescape_host(text, name[zone:], zone=True)
    else:
        name = _unescape_host(text, name)
    if ":" not in name or not is_address(name):
        raise UrlError(text, "a host in brackets must be an IPv6 address")
    return f"[{name}]{port}"


def _unescape_host(text: str, host: str, *, zone: bool = False) -> str:
    """Unescapes a host. Of ASCII only the percent sign may be escaped, in a zone also those of hosts and spaces."""
    raw = _bytes(host)
    for escape in _ESCAPE.findall(raw):
        value = int(escape, 16)
        allowed = value == ord("%") or (value == ord(" ") or value in _HOST if zone else value >= 0x80)
        if not allowed:
            raise UrlError(text, f'its host must not have the escape "%{escape.decode()}"')
    if any(each < 0x80 and each not in _HOST and each != ord("%") for each in raw):
        raise UrlError(text, "its host has characters that are not allowed")
    return _unescape(host, text)


def _unescape(part: str, text: str = "") -> str:
    """Resolve escapes of two hexadecimal digits. Raises UrlError for a broken one."""
    if "%" not in part:
        return part
    raw = _bytes(part)
    if len(_ESCAPE.findall(raw)) != raw.count(b"%"):
        raise UrlError(text or part, "a percent sign must be followed by two hexadecimal digits")
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw).decode("utf-8", "surrogateescape")


def _escape(part: str, plain: frozenset[int]) -> str:
    return "".join(chr(each) if each in plain else f"%{each:02X}" for each in _bytes(part))


def _written(value: str, raw: str, plain: frozenset[int]) -> str:
    if raw and all(each in plain or each in _ALSO_VALID for each in _bytes(raw)):
        return raw
    return "*" if value == "*" and plain is _PATH else _escape(value, plain)


def _bytes(part: str) -> bytes:
    try:
        return part.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return part.encode("utf-8", "surrogatepass")


def _query(url: Url) -> Value:
    return {name: list(values) for name, values in url.parameters().items()}


_QUERY = map_of(STRING, list_of(STRING))

LIBRARY: Library = (
    function("url", "string_to_url", STRING, result=URL, call=reader(parse, UrlError), price=COPIES_TEXT),
    function("isURL", "is_url_string", STRING, result=BOOL, call=is_url),
    method("getScheme", "url_get_scheme", URL, result=STRING, call=attrgetter("scheme")),
    method("getHost", "url_get_host", URL, result=STRING, call=attrgetter("host")),
    method("getHostname", "url_get_hostname", URL, result=STRING, call=attrgetter("hostname")),
    method("getPort", "url_get_port", URL, result=STRING, call=attrgetter("port")),
    method("getEscapedPath", "url_get_escaped_path", URL, result=STRING, call=attrgetter("escaped_path")),
    method("getQuery", "url_get_query", URL, result=_QUERY, call=_query),
)
