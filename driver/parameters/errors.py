"""Errors of opaque parameters, and how they show what somebody wrote.

Parameters hold anything that JSON can, so everything that is quoted is bounded: texts go into events and conditions.
"""

from __future__ import annotations

import json

from driver.claims.model import ClaimError
from kube.bodies import Json, one_line


class ParameterError(ClaimError):
    """Parameters of ours that cannot be used: ``field`` below ``place`` holds ``found``; ``fix`` says what to do.

    ``place`` is the path inside the claim (``status.allocation.devices.config[0].opaque.parameters``) and, where the
    administrator wrote it, says so. ``field`` is empty for the whole of it, ``found`` where nothing was found.
    """

    condition = "ParametersRefused"

    def __init__(self, place: str, field: str, found: str, fix: str) -> None:
        where = f"{place}.{field}" if field else place
        super().__init__(f"{where}: {found}; {fix}" if found else f"{where}: {fix}")
        self.place = place


class UnservedParameter(ParameterError):
    """Parameters for another driver, whose claims run on ours, ask for what nothing here serves."""


LONGEST = 60
"""Characters that are shown of a value."""


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
    """A path of keys, whatever stands in them."""
    return one_line(path, 2 * LONGEST)


def missing_or(content: Json) -> str:
    """The fault of a value that is not one of the known ones."""
    return "is missing" if content is None else f"{shown(content)} is not known"
