"""The chart's values, as documents name them: held against its schema, which knows every key."""

from __future__ import annotations

import functools
import re
from typing import cast

import jsonschema
import yaml

from tests.docs.markdown import ROOT

CHART = "deploy/helm/ostler"

Values = dict[str, object]


def values_fault(given: Values) -> str:
    """Why the chart does not take these values over its own, empty where it does."""
    own, judge = _chart()
    unknown = [key for key in given if key not in own]
    if unknown:
        return f"{CHART}/values.yaml has no {', '.join(unknown)}"
    errors = judge.iter_errors(_merged(own, given))
    return next((f"{'.'.join(str(part) for part in error.path)}: {error.message}" for error in errors), "")


@functools.cache
def _chart() -> tuple[Values, jsonschema.Draft7Validator]:
    """The chart's own values, and its schema."""
    own = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
    return own, jsonschema.Draft7Validator(yaml.safe_load((ROOT / CHART / "values.schema.json").read_text()))


def _merged(own: object, given: object) -> object:
    if not (isinstance(own, dict) and isinstance(given, dict)):
        return given
    return {**own, **{key: _merged(own.get(key), value) for key, value in given.items()}}


def set_values(text: str, *, as_text: bool) -> Values:
    """What Helm makes of ``--set a.b=c,d={e}``; with ``as_text`` (``--set-file``) the value is not looked at."""
    values: Values = {}
    for part in [text] if as_text else re.split(r",(?=[A-Za-z][\w.\\/\[\]-]*=)", text):
        key, _, value = part.partition("=")
        names = [name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", key)]
        here = values
        for name in names[:-1]:
            here = cast("Values", here.setdefault(name, {}))
        here[names[-1]] = value if as_text else yaml.safe_load(value) if not value.startswith("{") else value
    return values
