"""YAML and JSON: plain scalars mean what they mean to kubectl, any bytes are read or refused, and lines are found."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.bodies import Json
from ostler.explain.documents import documents
from ostler.explain.yaml_objects import line_of, plain_value
from scheduling.explain.state import BadInput


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("Off", False), ("~", None), ("n", False), ("010", 8), ("0o10", 8), ("0x1F", 31), ("0b11", 3),
        ("1_000", 1000), ("-5", -5), ("1e3", 1000.0), ("1.", 1.0), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"),
        ("80Gi", "80Gi"), ("-", "-"), ("09", 9.0), ("18446744073709551615", (1 << 64) - 1), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_plain_scalars_mean_what_they_mean_to_kubectl(text: str, value: Json) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,4}x", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=12,
)


def without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}x", fullmatch=True), values, min_size=1, max_size=4))
def test_yaml_and_json_of_one_value_are_read_alike(value: dict[str, Json]) -> None:
    from ostler.explain.snapshot import _dumper

    ours = yaml.dump(value, Dumper=_dumper(), allow_unicode=True)
    expected = without_nulls(value)
    assert [document.body for document in documents("a", ours.encode())] == [expected]
    assert [document.body for document in documents("a", json.dumps(value).encode())] == [expected]


@given(st.binary(max_size=60) | st.text("{}[]:-?&*!<>|'\"#%@ \n\tab1", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        for document in documents("a", data):
            assert line_of(data, document.number, ("a", 0)) >= 0


def test_a_line_is_found_in_any_document_and_in_json() -> None:
    text = b"a: 1\n---\nb:\n- x\n- c: 5\n  d: 6\n"
    assert line_of(text, 1, ("b", 1, "d")) == 6
    assert line_of(text, 1, ("b", 1, "nothing", "there")) == 5
    assert line_of(b'{"a": [\n1,\n{"b":\n2}]}', 0, ("a", 1, "b")) == 3
