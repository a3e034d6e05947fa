"""Turns text into objects: YAML with any number of documents, or JSON, as kubectl reads them and in bounded time.

Bounds: ``MAX_BYTES`` of text, ``MAX_VALUES``, ``MAX_DEPTH`` levels, ``MAX_ALIASED`` values that aliases add. A key
without a value (null) is left out, as the API server does. Parts of an object below ``MAX_DEPTH`` are left out too, and
their place is reported: drivers' opaque parameters are any JSON, written by whoever creates a claim, and one such claim
must not make a file useless. Readers and writers of objects recurse, so nothing deeper reaches them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator

from kube.bodies import Json, is_deeper, one_line
from kube.json_stream import Form, JsonStream
from ostler.explain.yaml_objects import (
    MAX_DEPTH,
    MAX_VALUES,
    Document,
    FieldPath,
    YamlBuilder,
    check_pruned,
    too_many,
)
from scheduling.explain.state import BadInput, InputFault

MAX_BYTES = 128 << 20
_GLIMPSE = 60
_MARK = "\0nested too deep"
"""Replaces a part that is left out while JSON is decoded."""


def documents(source: str, data: bytes) -> Iterator[Document]:
    """All documents that are not empty; raises ``BadInput``."""
    text = _text(source, data)
    if text.lstrip()[:1] in ("{", "["):
        document = _json(source, text)
        if document is not None:
            yield document
            return
    yield from YamlBuilder(source).documents(text)


def _text(source: str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise BadInput([too_large(source)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise BadInput([InputFault(source, problem, "save the file as UTF-8", line)]) from error


def _json(source: str, text: str) -> Document | None:
    """The one document of a JSON text; None if it is not JSON, which may still be YAML in brackets."""
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    if text.count(",") > MAX_VALUES:
        raise BadInput([too_many(source)])
    pruned: tuple[FieldPath, ...] = ()
    try:
        body, too_deep = _decoded(text)
        if too_deep:
            body, _ = _decoded(without_deep(text))
            pruned = tuple(take_marks(body))
    except json.JSONDecodeError as error:
        if '"apiVersion"' in text[:4096] and not error.msg.startswith("Extra data"):
            fix = "correct it, or fetch it again with -o json"
            raise BadInput([InputFault(source, f"not valid JSON: {error.msg}", fix, error.lineno)]) from error
        return None
    except ValueError as error:
        raise BadInput(
            [InputFault(source, f"not valid JSON: {error}", "correct it, or fetch it again with -o json")]
        ) from error
    check_pruned(source, 0, body, pruned)
    return Document(0, line, _whole(body) if "\\ud" in text or "\\uD" in text else body, pruned)


def _decoded(text: str) -> tuple[Json, bool]:
    """The value, and whether it nests too deep; raises ``ValueError``."""
    try:
        body: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        return None, True
    return body, is_deeper(body, MAX_DEPTH)


def _whole(value: Json) -> Json:
    """A value with halves of characters (\\ud800 alone) replaced, as the API server does: no output can hold them."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {str(_whole(key)): _whole(one) for key, one in value.items()} if isinstance(value, dict) else value


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {one_line(twice, _GLIMPSE)!r} appears twice in one object")
    return {key: value for key, value in made.items() if value is not None} if None in made.values() else made


def _constant(word: str) -> Json:
    raise ValueError(f"{word} is not a number that the API accepts")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {one_line(text, _GLIMPSE)} is too large")
    return number


def too_large(source: str) -> InputFault:
    """The fault of a file with more than ``MAX_BYTES``."""
    fix = "give the objects in several files, or leave out what is not about devices"
    return InputFault(source, f"has more than {MAX_BYTES >> 20} MiB", fix)


def without_deep(text: str) -> str:
    """The JSON with a mark in place of each part that nests too deep."""
    data = text.encode("utf-8", "surrogatepass")
    stream = JsonStream(
        Form.OBJECT, {"*": True}, most=2 * len(data), depth=MAX_DEPTH, instead=json.dumps(_MARK).encode()
    )
    for _ in stream.feed(data):
        raise AssertionError("only a list has items")
    return stream.end().data.decode("utf-8", "surrogatepass")


def take_marks(body: Json) -> Iterator[FieldPath]:
    """Remove the marks; returns where they were."""
    left: list[tuple[FieldPath, Json]] = [((), body)]
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
