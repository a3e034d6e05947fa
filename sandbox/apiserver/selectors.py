"""Label and field selectors of lists, watches and deletions of collections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sandbox.apiserver.kinds import Object, ServedKind
from sandbox.apiserver.refusals import bad_request
from scheduling.api.labels import label_value_faults

_SET: Final = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_PAIR: Final = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_KEY: Final = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")
_ESCAPED: Final = re.compile(r"\\([\\,=])")


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: the value at `key` is (`among`), or is not, one of `values`; None: it is there at all."""

    key: str
    among: bool
    values: frozenset[str] | None

    def holds(self, value: str | None) -> bool:
        """Tell for a value, None where there is none."""
        if self.values is None:
            return (value is not None) == self.among
        return (value in self.values) == self.among


@dataclass(frozen=True, slots=True)
class ListSelector:
    """Which objects are meant: all conditions hold."""

    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether it leaves nothing out."""
        return not self.labels and not self.fields

    def matches(self, kind: ServedKind, resource: Object) -> bool:
        """Tell whether an object of `kind` is meant."""
        labels = resource.get("metadata", {}).get("labels") or {}
        return all(term.holds(labels.get(term.key)) for term in self.labels) and all(
            term.holds(_at(resource, kind.fields[term.key])) for term in self.fields
        )


def selector(kind: ServedKind, labels: str = "", fields: str = "") -> ListSelector:
    """Read both texts. Raises StatusError (400) for what cannot be read, and for fields that cannot be selected by."""
    return ListSelector(tuple(_label_terms(labels)), tuple(_field_terms(kind, fields)))


def _label_terms(text: str) -> Iterator[Term]:
    position = 0
    while position < len(text):
        if found := _SET.match(text, position):
            key, operator, values = found.groups()
            yield Term(key, operator == "in", frozenset(_value(value.strip()) for value in values.split(",")))
        elif found := _PAIR.match(text, position):
            key, operator, value = found.groups()
            yield Term(key, operator != "!=", frozenset({_value(value)}))
        elif found := _KEY.match(text, position):
            yield Term(found[2], not found[1], None)
        else:
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        position = found.end()
        if text[position:] == "," or text[position : position + 1] not in ("", ","):
            raise bad_request(f"unable to parse requirement: found {text[position:]!r}, expected: ',' and another one")
        position += 1


def _value(text: str) -> str:
    """A label's value, as it may be; raises StatusError (400)."""
    for fault in label_value_faults(text):
        raise bad_request(f"values: Invalid value: {text!r}: {fault}")
    return text


def _field_terms(kind: ServedKind, text: str) -> Iterator[Term]:
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.fullmatch(r"((?:[^!=\\]|\\.)*)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        key, operator, value = found.groups()
        if key not in kind.fields:
            raise bad_request(f"field label not supported for {kind.api_version('v1')}, Kind={kind.name}: {key}")
        yield Term(key, operator != "!=", frozenset({_ESCAPED.sub(r"\1", value)}))


def _at(resource: Object, path: tuple[str, ...]) -> str:
    """The value as text; absent is empty, as the server judges."""
    value: Any = resource
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
