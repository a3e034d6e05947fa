"""The judge of CDI specs: a schema written from the CDI specification, and what no schema can say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from jsonschema import Draft202012Validator

from node.cdi.spec import Spec, encode

_VALIDATOR = Draft202012Validator(json.loads((Path(__file__).parent / "schema.json").read_text()))


def faults(document: object) -> list[str]:
    """What a container runtime would not take, with its place in the document."""
    found = [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(document)]
    devices = document.get("devices") if isinstance(document, dict) else None
    names = [device.get("name") for device in devices or () if isinstance(device, dict)]
    if len(set(names)) < len(names):
        found.append("$.devices: two have one name")
    return found


def judged(spec: Spec) -> dict[str, object]:
    """The spec as it is written, once it is judged."""
    document = cast("dict[str, object]", json.loads(encode(spec)))
    assert faults(document) == []
    return document
