"""The JSON Schema agrees with what is read, in all that a schema can say."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from ostler.config import schema
from ostler.config.scalars import Json, JsonObject
from ostler.config.section import AnyField, ConfigList, Section
from tests.ostler.config.samples import BAD, GOOD, instance, remarks

SCHEMA = schema.json_schema()
JUDGE = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_schema_accepts_good_files(path: Path) -> None:
    JUDGE.validate(instance(path))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_schema_judges_bad_files_as_they_say(path: Path) -> None:
    (verdict,) = remarks(path, "schema")
    assert verdict in ("refuses", "accepts", "unread", "none")
    if verdict in ("refuses", "accepts"):
        assert JUDGE.is_valid(instance(path)) is (verdict == "accepts")


def test_every_key_has_a_sentence_of_help() -> None:
    for field in every_field(schema.ROOT):
        assert field.help.endswith("."), field.key


def test_defaults_in_the_schema_are_valid_values() -> None:
    found = list(defaults(SCHEMA))
    assert len(found) > 20
    for owner, default in found:
        jsonschema.Draft202012Validator({**owner, "$schema": SCHEMA["$schema"]}).validate(default)


def every_field(section: Section) -> list[AnyField]:
    fields = []
    for field in section.fields:
        fields.append(field)
        kind: object = field.type
        if isinstance(kind, ConfigList):
            kind = kind.item
        if isinstance(kind, Section):
            fields.extend(every_field(kind))
    return fields


def defaults(node: Json) -> list[tuple[JsonObject, Json]]:
    if isinstance(node, list):
        return [pair for item in node for pair in defaults(item)]
    if not isinstance(node, dict):
        return []
    own = [(node, node["default"])] if "default" in node and "description" in node else []
    return own + [pair for value in node.values() for pair in defaults(value)]
