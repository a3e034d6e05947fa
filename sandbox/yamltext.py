"""Plain data as people read it on a terminal: YAML, indented."""

from __future__ import annotations

from collections.abc import Mapping

import yaml


def indented(seen: object) -> str:
    """Lines that begin with three blanks and end with a line feed."""
    text: str = yaml.safe_dump(_plain(seen), sort_keys=False, width=110)
    return "".join(f"   {line}\n" for line in text.splitlines())


def _plain(seen: object) -> object:
    """Without tuples, empty values and mappings that YAML does not know."""
    if isinstance(seen, Mapping):
        return {key: _plain(value) for key, value in seen.items() if value not in ({}, [], ())}
    if isinstance(seen, (list, tuple)):
        return [_plain(item) for item in seen]
    return seen
