"""The JSON Schema of ``ostler explain -o json``, made from the facts that it prints, so that the two cannot part."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

from ostler.explain.forms import SCHEMA, member_name
from scheduling.explain import obstacles
from scheduling.explain.obstacles import Obstacle
from scheduling.explain.verdict import FindingGroup


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
    properties = {member_name(each.name): _type(hints[each.name]) for each in fields(kind)}
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
