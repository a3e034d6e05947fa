"""Reads and writes whole documents; pools, classes and claims come in here and nowhere else.

`read` and `read_text` give documents that the rest of this package can rely on: they refuse every unknown field, wrong
value and broken rule at once, each with field, value and fix. `decode` reads only the shape, as the prototype's decoder
did; it is what the recorded answers are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.pools.claim_documents import TYPES, Document
from scheduling.pools.documents import API_VERSION
from scheduling.pools.fields import DocumentError, FieldProblem, Json, ObjectField, ReadingPlace, Spelling, described
from scheduling.pools.rules import problems_of
from scheduling.pools.text import parse_documents

_UNNAMED = "document"


def read_text(text: str, name: str = _UNNAMED) -> list[Document]:
    """The documents of a YAML text with any number of them; documents of other API groups are left out.

    A List, as kubectl writes it, stands for its items. `name` is the file's name for messages. Raises DocumentError.
    """
    found: list[Document] = []
    for number, value in enumerate(parse_documents(text, name), 1):
        for title, body in _items(value, f"{name}, document {number}"):
            if body is not None and not (isinstance(body, Mapping) and _is_foreign(body)):
                found.append(read(body, title))
    return found


def _items(value: Json, title: str) -> list[tuple[str, Json]]:
    """What a document stands for, with its place: the items of a List, or itself."""
    if isinstance(value, Mapping) and (value.get("apiVersion"), value.get("kind")) == ("v1", "List"):
        items = value.get("items")
        if isinstance(items, list):
            return [(f"{title}, items[{number}]", each) for number, each in enumerate(items)]
    return [(title, value)]


def read(value: Json, name: str = _UNNAMED) -> Document:
    """The document of decoded JSON or YAML in either spelling. Raises DocumentError with all broken rules."""
    if not isinstance(value, Mapping):
        raise DocumentError(name, (f"must be a map with apiVersion and kind, not {described(value)}",))
    version, kind = value.get("apiVersion"), value.get("kind")
    if version != API_VERSION:
        raise DocumentError(name, (f"apiVersion must be {API_VERSION}, not {described(version)}",))
    if not isinstance(kind, str) or kind not in TYPES:
        raise DocumentError(name, (f"kind must be one of {', '.join(TYPES)}, not {described(kind)}",))
    found: Document = decode(kind, value, name=name)
    problems = problems_of(found)
    if problems:
        title = f"{kind} {title_of(found)}" if found.metadata.name else str(kind)
        raise DocumentError(title if name == _UNNAMED else f"{name}, {title}", tuple(problems))
    return found


def title_of(document: Document) -> str:
    """The name of a document, with its namespace if it has one."""
    metadata = document.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def decode(
    kind: str, value: Json, *, strict: bool = True, spelling: Spelling = Spelling.EITHER, name: str = _UNNAMED
) -> Any:
    """The values of a document of one kind, whatever it says about its own; no rule but the shape is checked.

    strict: unknown fields are an error instead of dropped. Raises DocumentError.
    """
    try:
        return ObjectField(TYPES[kind]).read(value, ReadingPlace(strict=strict, spelling=spelling))
    except FieldProblem as problem:
        raise DocumentError(name, (str(problem),)) from problem


def encode(document: Document) -> Json:
    """The document as JSON data in the reference spelling; `read` gives the same document again.

    What only the later spelling has (names of claims, several details in one, selectors) is written by its names.
    """
    return ObjectField(type(document)).write(document)


def _is_foreign(value: Mapping[str, Json]) -> bool:
    version = value.get("apiVersion")
    group = API_VERSION.partition("/")[0]
    return isinstance(version, str) and version.partition("/")[0] != group
