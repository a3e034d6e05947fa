"""An explanation as plain data, for programs: the facts of ``verdict`` and ``obstacles`` under the API's spelling.

The form is ``SCHEMA``; ``form()`` is its JSON Schema, made from the same facts, so that they cannot part. Within one
number of the schema members are only added, and kinds of obstacles too: readers pass over what they do not know.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

from ostler import __version__
from scheduling.explain import obstacles
from scheduling.explain.obstacles import Obstacle
from scheduling.explain.verdict import Explanation, FindingGroup

SCHEMA = "ostler.dev/explain/v1"
"""Name of the form of the data; a member that changes its meaning gets a new number."""


def document(verdict: Explanation) -> dict[str, object]:
    """The verdict as plain data."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "title": verdict.title,
        "claims": list(verdict.claims),
        "fits": verdict.fits,
        "nodes": verdict.nodes,
        "fitting": verdict.fitting,
        "settled": verdict.settled,
        "stops": _plain(verdict.stops),
        "groups": [_group(group) for group in verdict.groups],
        "notes": list(verdict.notes),
    }


def _group(group: FindingGroup) -> dict[str, object]:
    members = _plain(group.finding)
    assert isinstance(members, dict)
    members.pop("node")
    return {"nodes": list(group.nodes), "exact": group.exact, **members}


def _plain(fact: object) -> object:
    if isinstance(fact, tuple):
        return [_plain(item) for item in fact]
    if isinstance(fact, StrEnum):
        return str(fact)
    if not is_dataclass(fact):
        return fact
    members: dict[str, object] = {"kind": fact.kind} if isinstance(fact, Obstacle) else {}
    for each in fields(fact):
        members[_camel(each.name)] = _plain(getattr(fact, each.name))
    return members


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def form() -> dict[str, object]:
    """The JSON Schema of ``document``."""
    kinds = {str(kind.kind): _object(kind) for kind in obstacle_kinds()}
    group = _object(get_type_hints(FindingGroup)["finding"])
    properties = typing.cast("dict[str, object]", group["properties"])
    del properties["node"]
    properties["exact"] = {"type": "boolean"}
    properties["nodes"] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    group["required"] = sorted(properties)
    whole: dict[str, object] = {
        "schema": {"const": SCHEMA},
        "version": {"type": "string"},
        "title": {"type": "string"},
        "claims": {"type": "array", "items": {"type": "string"}},
        "fits": {"type": "boolean"},
        "nodes": {"type": "integer", "minimum": 0},
        "fitting": {"type": "integer", "minimum": 0},
        "settled": {"type": "string"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/obstacle"}},
        "groups": {"type": "array", "items": group},
        "notes": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answer of ostler explain",
        "type": "object",
        "required": sorted(whole),
        "properties": whole,
        "$defs": {"obstacle": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]}, **kinds},
    }


def obstacle_kinds() -> Iterator[type[Obstacle]]:
    """Every kind of obstacle."""
    for found in vars(obstacles).values():
        if isinstance(found, type) and issubclass(found, Obstacle) and found.kind:
            yield found


def _object(kind: type) -> dict[str, object]:
    hints = get_type_hints(kind)
    properties = {_camel(each.name): _type(hints[each.name]) for each in fields(kind)}
    if issubclass(kind, Obstacle):
        properties = {"kind": {"const": kind.kind}, **properties}
    return {"type": "object", "required": sorted(properties), "properties": properties}


def _type(hint: Any) -> dict[str, object]:
    """The form of one field."""
    if isinstance(hint, types.UnionType):
        inner = [_type(one) for one in get_args(hint) if one is not type(None)]
        return {"anyOf": [*inner, {"type": "null"}]}
    if get_origin(hint) is tuple:
        args = get_args(hint)
        if args[-1] is Ellipsis:
            return {"type": "array", "items": _type(args[0])}
        return {"type": "array", "prefixItems": [_type(one) for one in args], "minItems": len(args)}
    if hint is Obstacle:
        return {"$ref": "#/$defs/obstacle"}
    if issubclass(hint, StrEnum):
        return {"enum": [str(one) for one in hint]}
    if is_dataclass(hint):
        return _object(typing.cast("type", hint))
    return {"type": {str: "string", int: "integer", bool: "boolean"}[hint]}
