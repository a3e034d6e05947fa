"""Makes a case small that shows a difference: drops what is not needed for it, greedily."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]

KEPT = {"name", "metadata", "apiVersion", "kind", "driver", "pool", "features", "deviceClassName", "env", "expr"}
"""Keys whose values stay as they are: without them the case is another one, or none."""
PLAIN = ("true", "1", '"a"', "[1]", "1.5", "")
"""What the content of brackets is replaced by."""


def shrunk(case: Json, differs: Callable[[Json], bool], *, patience: int = 2_000) -> Json:
    """The smallest case found that still `differs`, in at most `patience` attempts.

    Whatever `differs` raises ends the search; it is not called on the case itself.
    """
    attempts = 0
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if attempts >= patience:
                return case
            attempts += 1
            if differs(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Json) -> Iterator[Json]:
    for expression in smaller_expressions(case.get("expr", "")):
        if expression and len(expression) < len(case["expr"]):
            yield {**case, "expr": expression}
    # Long subtrees first: one attempt may save hundreds.
    for path in sorted(_droppable(case), key=lambda path: (len(path), str(path))):
        smaller = _without(case, path)
        if smaller is not None:
            yield smaller


def smaller_expressions(text: str) -> Iterator[str]:
    """Shorter texts that may still be expressions: what is in brackets alone, and brackets' content made plain."""
    for start, end in _brackets(text):
        yield text[start + 1 : end]
        for plain in PLAIN:
            yield text[:start] + plain + text[end + 1 :]
            yield text[: start + 1] + plain + text[end:]
        yield text[:start] + text[start + 1 : end] + text[end + 1 :]
        yield text[end + 1 :].lstrip(" &|=<>.?:+-")
        yield text[:start].rstrip(" &|=<>.?:+-")


def _brackets(text: str) -> Iterator[tuple[int, int]]:
    """Places of pairs of brackets, outer ones first; brackets in strings count too, which only costs attempts."""
    opened: list[int] = []
    pairs = []
    for at, letter in enumerate(text):
        if letter in "([{":
            opened.append(at)
        elif letter in ")]}" and opened:
            pairs.append((opened.pop(), at))
    return iter(sorted(pairs, key=lambda pair: pair[0] - pair[1]))


def _droppable(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all entries of lists and of all keys that may be missing, last entries of lists first."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in KEPT:
                continue
            if path and key != "spec":
                yield (*path, key)
            yield from _droppable(each, (*path, key))
    elif isinstance(value, list):
        for index in reversed(range(len(value))):
            yield (*path, index)
            yield from _droppable(value[index], (*path, index))


def _without(case: Json, path: Path) -> Json | None:
    """A copy without what is at the path; None where the path is gone. A pool's count follows its slices."""
    smaller = copy.deepcopy(case)
    parent: Any = smaller
    try:
        for step in path[:-1]:
            parent = parent[step]
        gone = parent.pop(path[-1])
    except (KeyError, IndexError):
        return None
    if path[0] == "slices" and len(path) == 2:
        pool = gone["spec"]["driver"], gone["spec"]["pool"]["name"]
        for other in smaller["slices"]:
            spec = other["spec"]
            if (spec["driver"], spec["pool"]["name"]) == pool:
                spec["pool"]["resourceSliceCount"] = max(1, spec["pool"]["resourceSliceCount"] - 1)
    return smaller
