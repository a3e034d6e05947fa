"""Plain data as people read it on a terminal: YAML, indented."""

from __future__ import annotations

from collections.abc import Mapping

import yaml


def indented(seen: object) -> str:
    """Lines that begin with three blanks and end with a line feed."""
    plain = _plain(seen)
    text: str = yaml.safe_dump(plain, sort_keys=False, width=110) if not _is_empty(plain) else "nothing"
    return "".join(f"   {line}\n" for line in text.splitlines())


def _is_empty(seen: object) -> bool:
    return isinstance(seen, (Mapping, list, tuple)) and not seen


def _plain(seen: object) -> object:
    """Without tuples, empty values and mappings that YAML does not know."""
    if isinstance(seen, Mapping):
        return {key: _plain(value) for key, value in seen.items() if not _is_empty(value)}
    if isinstance(seen, (list, tuple)):
        return [_plain(item) for item in seen]
    return seen
