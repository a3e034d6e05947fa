"""Values of opaque parameters as messages show them: cut, and on one line."""

from __future__ import annotations

import json

from kube.bodies import Json, one_line

LONGEST = 60
"""Characters that are shown of a value."""


def shown(content: Json) -> str:
    """The value as JSON."""
    try:
        text = json.dumps(content)
    except RecursionError:
        return "a value of too many levels"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def shown_key(key: str) -> str:
    """A key in a path; one that is no plain word is quoted."""
    return key if key.isidentifier() and len(key) <= LONGEST else shown(key)


def shown_path(path: str) -> str:
    """A path of keys, whatever stands in them."""
    return one_line(path, 2 * LONGEST)


def missing_or(content: Json) -> str:
    """What is wrong with a value that is not one of those that are known."""
    return "is missing" if content is None else f"{shown(content)} is not known"
