"""Errors of opaque parameters, and how they quote a value.

Parameters hold anything that JSON can, so every quotation is bounded: the texts go into events and conditions.
"""

from __future__ import annotations

import json

from driver.claims.model import ClaimError
from kube.bodies import Json, one_line


class ParameterError(ClaimError):
    """Parameters of ours that cannot be used: ``field`` below ``place`` holds ``found``; ``fix`` says what to do.

    ``place``: the path inside the claim (``status.allocation.devices.config[0].opaque.parameters``), with a note if the
    administrator wrote it. ``field``: empty for the whole of it. ``found``: empty if the field is absent.
    """

    condition = "ParametersRefused"

    def __init__(self, place: str, field: str, found: str, fix: str) -> None:
        where = f"{place}.{field}" if field else place
        super().__init__(f"{where}: {found}; {fix}" if found else f"{where}: {fix}")
        self.place = place


class UnservedParameter(ParameterError):
    """Parameters for another driver, whose claims our driver serves, ask for something that ostler lacks."""


LONGEST = 60
"""Characters shown of a value."""


def shown(content: Json) -> str:
    """The value as JSON."""
    try:
        text = json.dumps(content)
    except RecursionError:
        return "a value that nests too deep"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def shown_key(key: str) -> str:
    """A key in a path; quoted unless it is a plain word."""
    return key if key.isidentifier() and len(key) <= LONGEST else shown(key)


def shown_path(path: str) -> str:
    """A path of keys, whatever characters they have."""
    return one_line(path, 2 * LONGEST)


def missing_or(content: Json) -> str:
    """The fault of a value that is absent or unknown."""
    return "is missing" if content is None else f"{shown(content)} is not known"
