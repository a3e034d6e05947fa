"""Objects that nest deeper than any object of the API: what is too deep is taken out, and its place is told.

Opaque parameters of drivers are any JSON, of whoever writes a claim. Readers and writers of objects recurse, so nothing
deeper than ``MAX_DEPTH`` reaches them; and one such claim of many must not make a file useless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kube.bodies import Json, text_at
from kube.json_stream import Form, JsonStream
from ostler.explain.reading.lines import Path

MAX_DEPTH = 64
"""Levels of a document, the lists around its objects among them."""
_MARK = "\0nested too deep"
"""Stands for what is taken out while JSON is decoded."""


def without_deep(text: str) -> str:
    """The JSON with a mark in the place of what is nested too deep."""
    data = text.encode("utf-8", "surrogatepass")
    stream = JsonStream(
        Form.OBJECT, {"*": True}, most=2 * len(data), depth=MAX_DEPTH, instead=json.dumps(_MARK).encode()
    )
    for _ in stream.feed(data):
        raise AssertionError("only a list has items")
    return stream.end().data.decode("utf-8", "surrogatepass")


def take_marks(body: Json) -> Iterator[Path]:
    """Take the marks out; where they stood."""
    left: list[tuple[Path, Json]] = [((), body)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            for key in [key for key, inner in value.items() if inner == _MARK]:
                del value[key]
                yield (*path, key)
            left += [((*path, key), inner) for key, inner in value.items() if isinstance(inner, (dict, list))]
        elif isinstance(value, list):
            for number in [number for number, inner in enumerate(value) if inner == _MARK]:
                value[number] = None
                yield (*path, number)
            left += [((*path, number), inner) for number, inner in enumerate(value) if isinstance(inner, (dict, list))]


def object_on(body: Json, path: Path) -> tuple[Json, Path] | None:
    """The first object on a path that is no list of others, and the path in it; None where there is none."""
    for taken, key in enumerate(path):
        is_item = taken > 1 and path[taken - 2] == "items"
        if isinstance(body, dict) and (is_item or (text_at(body, "kind") and "items" not in body)):
            return body, path[taken:]
        if isinstance(body, dict) and isinstance(key, str):
            body = body.get(key)
        elif isinstance(body, list) and isinstance(key, int):
            body = body[key]
    return None
