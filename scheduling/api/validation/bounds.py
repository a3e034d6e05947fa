"""Rules for collections: how many entries, none twice.

A collection that is too large is not looked into: its one fault is its size, so that a hostile object costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from scheduling.api.validation.cause import Cause, duplicate, too_many

T = TypeVar("T")
Rule = Callable[[T, str], Iterator[Cause]]
"""Judges an entry at a path."""


def listed(entries: Sequence[T], limit: int | None, path: str, rule: Rule[T]) -> Iterator[Cause]:
    """Judge the size of a list, then each entry. `limit` None: any size."""
    if limit is not None and len(entries) > limit:
        yield too_many(path, len(entries), limit)
        return
    for index, entry in enumerate(entries):
        yield from rule(entry, f"{path}[{index}]")


def distinct(
    entries: Sequence[T], limit: int | None, path: str, rule: Rule[T], key: Callable[[T], Hashable]
) -> Iterator[Cause]:
    """Judge as `listed` does, and that no two entries have the same key."""
    yield from listed(entries, limit, path, rule)
    if limit is not None and len(entries) > limit:
        return
    yield from repeated(entries, path, key)


def repeated(entries: Sequence[T], path: str, key: Callable[[T], Hashable], field: str = "") -> Iterator[Cause]:
    """Judge that no two entries have the same key; the path of one that does ends in `field`."""
    seen: set[Hashable] = set()
    for index, entry in enumerate(entries):
        name = key(entry)
        if name in seen:
            yield duplicate(f"{path}[{index}]{field}", name)
        seen.add(name)


def mapped(
    entries: Mapping[str, T], limit: int | None, path: str, name_rule: Rule[str], rule: Rule[T], *, shown_bytes: int
) -> Iterator[Cause]:
    """Judge the size of a mapping, then each name (at the path of the mapping) and each value.

    In the path of a value, a name of more than `shown_bytes` bytes has its middle replaced by an ellipsis.
    """
    if limit is not None and len(entries) > limit:
        yield too_many(path, len(entries), limit)
        return
    for name, entry in entries.items():
        yield from name_rule(name, path)
        yield from rule(entry, f"{path}[{_shortened(name, shown_bytes)}]")


def _shortened(name: str, limit: int) -> str:
    raw = name.encode(errors="surrogatepass")
    if len(raw) <= limit:
        return name
    kept = limit - len("...")
    return (raw[: (kept + 1) // 2] + b"..." + raw[len(raw) - kept // 2 :]).decode(errors="replace")


def anything(_entry: object, _path: str) -> Iterator[Cause]:
    """A rule that finds nothing."""
    return iter(())
