"""The kinds of single values that configuration knows: what each accepts, and the JSON Schema that says the same.

A kind reads a scalar of a file (``read``) and the text of a flag or environment variable (``from_text``) with the same
rules. An error has the problem and the fix; the caller adds the place.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ostler.config.document import Mapping, Meaning, Node, RefusedNode, ScalarNode, Sequence, clipped, shown
from ostler.config.errors import ConfigError, Origin

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=str)

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""The form of domains, node names and most names of objects; each field limits its length."""

MAX_SOCKET_PATH = 107
"""Bytes that a Unix socket's path may have."""


class BadValue(Exception):
    """A value is refused; the code that catches this knows the place."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix


class Unusable(Exception):
    """A value is refused, and its error is already reported."""


class ValueType(Protocol[T_co]):
    """Any kind of value, single or compound."""

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> T_co:
        """The value of ``node``, which stands ``at``; raises ``BadValue`` or ``Unusable``."""

    def from_text(self, text: str) -> T_co:
        """The value of a flag's or variable's text; raises ``BadValue``."""

    def schema(self) -> JsonObject:
        """JSON Schema of the value."""

    @property
    def accepts(self) -> str:
        """The accepted values, for people."""

    @property
    def example(self) -> str:
        """A value as a file has it."""


class ScalarType(Generic[T]):
    """A single value; kinds differ in ``from_text``. ``example`` and ``accepts``: see ``ValueType``.

    ``takes_any``: a number, or a word such as true, is read as it is written, without quotes.
    """

    example: str = "text"
    accepts: str = "text"
    takes_any = False

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> T:
        """See ``ValueType``."""
        del at, problems  # a single value has one place and one problem
        scalar = expect_scalar(node, self.example)
        if scalar.meaning is Meaning.NULL:
            raise BadValue("has no value", f"write a value, such as {self.example}, or remove the key")
        return self.from_scalar(scalar)

    def from_scalar(self, scalar: ScalarNode) -> T:
        """The value of a scalar that is not null."""
        if scalar.meaning is not Meaning.TEXT and not self.takes_any:
            text = clipped(scalar.text)
            raise BadValue(f"is the {scalar.meaning} {text}, not text", f'put it in quotes: "{text}"')
        return self.from_text(scalar.text)

    def from_text(self, text: str) -> T:
        """See ``ValueType``."""
        raise NotImplementedError

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string"}


def expect_scalar(node: Node, example: str) -> ScalarNode:
    """The node as a single value; raises ``BadValue`` for a list or mapping, ``Unusable`` for what is refused."""
    match node:
        case ScalarNode():
            return node
        case Sequence():
            raise BadValue("is a list", f"write one value, such as {example}")
        case Mapping():
            raise BadValue("is a mapping", f"write one value, such as {example}")
        case RefusedNode():
            raise Unusable


class Choice(ScalarType[E]):
    """One of a few words. ``later``: words that will be allowed, each refused with its own sentence."""

    takes_any = True  # whatever it is, the allowed words are the answer

    def __init__(self, words: Iterable[E], later: dict[str, str] | None = None, example: E | None = None) -> None:
        self.words: tuple[E, ...] = tuple(words)
        self.later = later or {}
        self.example = str(example or self.words[0])
        self.accepts = ", ".join(self.words)

    def from_text(self, text: str) -> E:
        """See ``ValueType``."""
        for word in self.words:
            if word == text:
                return word
        if text in self.later:
            raise BadValue(self.later[text], f"allowed: {self.accepts}")
        raise BadValue(f"is {shown(text)}", f"allowed: {self.accepts}")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"enum": [str(word) for word in self.words]}


class Boolean(ScalarType[bool]):
    """true or false, in the words of YAML 1.2."""

    example = "true"
    accepts = "true, false"

    def from_scalar(self, scalar: ScalarNode) -> bool:
        """See ``ScalarType``."""
        if scalar.meaning is Meaning.BOOLEAN:
            return scalar.text.lower() == "true"
        if scalar.text.lower() in ("true", "false"):
            raise BadValue(f"is the text {shown(scalar.text)}", f"write {scalar.text.lower()} without quotes")
        raise BadValue(f"is {shown(scalar.text)}", "allowed: true, false")

    def from_text(self, text: str) -> bool:
        """See ``ValueType``."""
        if text.lower() not in ("true", "false"):
            raise BadValue(f"is {shown(text)}", "allowed: true, false")
        return text.lower() == "true"

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "boolean"}


class Integer(ScalarType[int]):
    """A whole number within bounds."""

    def __init__(self, least: int, most: int, example: int = 0) -> None:
        self.least = least
        self.most = most
        self.example = str(example)
        self.accepts = f"only {least}" if least == most else f"whole numbers from {least} to {most}"

    def from_scalar(self, scalar: ScalarNode) -> int:
        """See ``ScalarType``."""
        if scalar.meaning is Meaning.TEXT and re.fullmatch(r"[0-9]+", scalar.text):
            raise BadValue(f"is the text {shown(scalar.text)}", "write the number without quotes")
        return self.from_text(scalar.text)

    def from_text(self, text: str) -> int:
        """See ``ValueType``."""
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", text) or not self.least <= int(text) <= self.most:
            raise BadValue(f"is {shown(text)}", f"allowed: {self.accepts}")
        return int(text)

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+"


class DurationType(ScalarType[float]):
    """A time in seconds, written with units: ``500ms``, ``60s``, ``1m30s``; bounds as they are written."""

    example = "60s"
    takes_any = True

    def __init__(self, least: str, most: str) -> None:
        self.least = least
        self.most = most
        self.accepts = f"durations from {least} to {most}"

    def from_text(self, text: str) -> float:
        """See ``ValueType``."""
        if re.fullmatch(r"[0-9]{1,9}", text):
            raise BadValue(f"is {shown(text)}, without a unit", f"write {text}s for seconds, {text}ms for milliseconds")
        if len(text) > 40 or not re.fullmatch(_DURATION, text):
            raise BadValue(f"is {shown(text)}, not a duration", "write a number and a unit of ms, s, m, h, such as 60s")
        if not _seconds(self.least) <= _seconds(text) <= _seconds(self.most):
            raise BadValue(f"is {text}", f"allowed: {self.accepts}")
        return _seconds(text)

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": f"^{_DURATION}$"}


def _seconds(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", text))


class HostPath(ScalarType[str]):
    """An absolute path without ``..``, normalised. ``optional``: may be empty. ``socket``: a Unix socket's."""

    takes_any = True

    def __init__(self, example: str, *, optional: bool = False, socket: bool = False) -> None:
        self.example = example
        self.optional = optional
        self.socket = socket
        self.accepts = "an absolute path" + (", or empty" if optional else "")

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if not text and self.optional:
            return ""
        if not text.startswith("/"):
            raise BadValue(
                f"is {shown(text)}, not an absolute path", f"write a path that begins with /, such as {self.example}"
            )
        if ".." in text.split("/"):
            raise BadValue(f"is {shown(text)}, which contains '..'", "write the path without '..'")
        if not text.isprintable():
            raise BadValue(f"is {shown(text)}, which contains a control character", "write the path without it")
        path = posixpath.normpath("/" + text.strip("/"))
        if self.socket and len(path.encode("utf-8", "surrogateescape")) > MAX_SOCKET_PATH:
            size = len(path.encode("utf-8", "surrogateescape"))
            raise BadValue(f"has {size} bytes", f"use a shorter one: a socket's path may have {MAX_SOCKET_PATH} bytes")
        return path

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": "^(/.*)?$" if self.optional else "^/"}


class AnyPath(ScalarType[Path | None]):
    """A path, which may be relative to the working directory; empty for none."""

    example = "/var/lib/ostler/node.yaml"
    accepts = "a path, or empty"

    def from_text(self, text: str) -> Path | None:
        """See ``ValueType``."""
        if not text.isprintable():
            raise BadValue(f"is {shown(text)}, which contains a control character", "write the path without it")
        return Path(text) if text else None


class ListenAddress(ScalarType[str | None]):
    """``host:port`` to listen on, the host an IP address or empty for all; ``off`` or empty for none."""

    example = '"0.0.0.0:9410"'
    accepts = "ADDRESS:PORT, or off"
    takes_any = True

    def from_text(self, text: str) -> str | None:
        """See ``ValueType``."""
        if text in ("", "off"):
            return None
        host, colon, port = text.rpartition(":")
        fix = 'write "ADDRESS:PORT", such as "0.0.0.0:9410", or "off"'
        if not colon:
            raise BadValue(f"is {shown(text)}, without a port", fix)
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise BadValue(f"has the port {shown(port)}", "allowed: 0 (any free one) to 65535")
        if host and host != "localhost" and not _is_address(host):
            raise BadValue(
                f"has the address {shown(host)}", "allowed: an IPv4 address, an IPv6 address in [], localhost"
            )
        return f"{host or '0.0.0.0'}:{int(port)}"

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": "^(off|.*:[0-9]{1,5})?$"}


def _is_address(host: str) -> bool:
    import ipaddress  # only where an address is given

    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    return bracketed == (address.version == 6)


class Text(ScalarType[str]):
    """Text of a form: the regular expression of the whole, the form in words; ``optional``: may be empty."""

    def __init__(self, form: str, wanted: str, example: str, *, optional: bool = False) -> None:
        self.form = form
        self.accepts = wanted
        self.example = example
        self.optional = optional

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if not (self.optional and not text) and not re.fullmatch(self.form, text):
            raise BadValue(f"is {shown(text)}", f"write {self.accepts}, such as {self.example}")
        return text

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": f"^({self.form}){'?' if self.optional else ''}$"}


class ResourceName(Text):
    """Checked as a whole in ``resources``, where the profiles are known that may fill it in."""

    def __init__(self) -> None:
        super().__init__(r"(?s:.+)", "a resource name", "nvidia.com/gpu")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string"}


_SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = r"[0-9]{1,15}(k|M|G|T|Ki|Mi|Gi|Ti)?"


class Size(ScalarType[int | None]):
    """An amount of memory in bytes, written as a Kubernetes quantity of whole numbers: ``8Gi``, ``512Mi``."""

    example = "8Gi"
    accepts = "a quantity of bytes, from 1Mi on"
    takes_any = True

    def from_text(self, text: str) -> int | None:
        """See ``ValueType``."""
        match = re.fullmatch(r"([0-9]{1,15})([a-zA-Z]*)", text)
        if match is None or match[2] not in _SIZES:
            raise BadValue(f"is {shown(text)}, not a quantity of bytes", f"write it as {self.example} or 512Mi")
        size = int(match[1]) * _SIZES[match[2]]
        if size < _SIZES["Mi"]:
            raise BadValue(f"is {shown(text)}, less than 1Mi", f"give it a unit, such as {self.example}")
        return size

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": ["string", "integer"], "pattern": f"^{_SIZE}$", "minimum": _SIZES["Mi"]}
