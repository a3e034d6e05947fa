"""Keys that stand twice in one JSON object: JSON allows them, readers differ in which one counts, so ours refuse.

The API server keeps opaque parameters as they were sent, doubled keys and all. Whoever parses a claim gives ``pairs``
to ``json.loads`` as ``object_pairs_hook``; the objects it makes are ordinary dicts (the last one of a doubled key
counts) that remember what was doubled.
"""

from __future__ import annotations

from kube.bodies import Json, JsonObject

_DEEPEST = 8
"""Levels that are looked through: ours have two, and whatever is nested more is refused by the name of its field."""


class _Doubled(dict[str, Json]):
    """An object with doubled keys."""

    doubled: tuple[str, ...] = ()


def pairs(found: list[tuple[str, Json]]) -> JsonObject:
    """The object with these keys and values: an ``object_pairs_hook``."""
    made = dict(found)
    if len(made) == len(found):
        return made
    seen: set[str] = set()
    doubled = [key for key, _ in found if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    marked = _Doubled(made)
    marked.doubled = tuple(dict.fromkeys(doubled))
    return marked


def doubled_keys(parsed: Json, path: str = "", *, levels: int = _DEEPEST) -> tuple[str, ...]:
    """Paths (``a.b``, ``list[0].c``) of the keys that were doubled in what ``pairs`` made, in so many levels."""
    found: list[str] = []
    if levels == 0:
        return ()
    if isinstance(parsed, _Doubled):
        found += [f"{path}.{key}" if path else key for key in parsed.doubled]
    if isinstance(parsed, dict):
        for key, content in parsed.items():
            found += doubled_keys(content, f"{path}.{key}" if path else key, levels=levels - 1)
    elif isinstance(parsed, list):
        for index, content in enumerate(parsed):
            found += doubled_keys(content, f"{path}[{index}]", levels=levels - 1)
    return tuple(found)
