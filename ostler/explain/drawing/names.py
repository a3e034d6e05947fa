"""Lists of names for people: the first few, and how many more."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.explain.obstacles import Holder, Source, Value

MOST = 3
"""Names told before the rest becomes a number."""


def some(names: Sequence[str], most: int = MOST) -> str:
    """``a, b, c … 5 more``; one name more than ``most`` is told rather than counted."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} … {len(names) - most} more"


def joined(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return ", ".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def number(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def quoted(text: str) -> str:
    """In double quotes, as names of requests are shown."""
    return f'"{text}"'


def holder(who: Holder) -> str:
    """Who has a device."""
    if not who.claim:
        return "a claim that is not among those read"
    if not who.pods:
        return f"claim {who.claim} (no pod uses it)"
    return f"claim {who.claim} ({'pod' if len(who.pods) == 1 else 'pods'} {some(who.pods, 2)})"


def source(where: Source) -> str:
    """Where a selector stands; people count from 1."""
    name = where.name if where.kind == "class" else quoted(where.name)
    of = f" of claim {where.claim}" if where.claim else ""
    return f"{where.kind} {name}{of}, selector {where.index + 1}"


def values(read: Sequence[Value]) -> str:
    """``model is "A100", memory is absent``: by the last part of each path, or all of it where two would look equal.

    What an expression reads as optional (``.?type``) is told as ``attribute type (optional)``.
    """
    short = [brief(each.path) for each in read]
    shown = short if len(set(short)) == len(short) else [each.path for each in read]
    shown = [_optional(path, each.path) for path, each in zip(shown, read, strict=True)]
    return ", ".join(
        f"{path} is {'absent' if each.value is None else each.value}" for path, each in zip(shown, read, strict=True)
    )


def _optional(shown: str, path: str) -> str:
    last = path.rsplit(".", 1)[-1] if not path.endswith("]") else path.rsplit("[", 1)[-1]
    if not last.startswith("?"):
        return shown
    kind = "capacity" if path.startswith("device.capacity") else "attribute"
    return f"{kind} {brief(path).lstrip('?')} (optional)"


def brief(path: str) -> str:
    """The last part of a path or qualified name: ``device.attributes["gpu.example.com"].model`` is ``model``."""
    if path.endswith("]") and "[" in path:
        return path.rsplit("[", 1)[1][:-1].lstrip("?").strip("\"'").rsplit("/", 1)[-1]
    return path.rsplit("/", 1)[-1] if "/" in path else path.rsplit(".", 1)[-1]
