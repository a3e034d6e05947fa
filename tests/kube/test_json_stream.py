"""JSON that is reduced while it arrives: whatever the cut, the same objects; nothing deep, nothing unused, no crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.json_stream import DEPTH, WHOLE, Fields, Form, JsonStream, Piece
from kube.small_objects import SMALL, SmallFirst

MOST = 1 << 20
ALL: Fields = {"*": True}

texts = st.text(max_size=8) | st.sampled_from(['"', "\\", '\\"', "[", "{}", "\u2028", "\\u005b", "\ud83d\ude00", ",:"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)
objects = st.dictionaries(texts, values, max_size=5)


def read(
    data: bytes, cuts: list[int] | int, form: Form, fields: Fields, *, most: int = MOST, depth: int = DEPTH
) -> tuple[list[Piece], Piece]:
    """All objects and what is left, of an answer that is cut at these places, or into pieces of one size."""
    stream = JsonStream(form, fields, most=most, depth=depth)
    places = list(range(0, len(data), cuts)) if isinstance(cuts, int) else sorted({min(cut, len(data)) for cut in cuts})
    pieces: list[Piece] = []
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        pieces.extend(stream.feed(data[begin:end]))
    return pieces, stream.end()


def listed(*items: Any, cuts: int = 7, fields: Fields = WHOLE, most: int = MOST) -> list[Piece]:
    texts = ",".join(item if isinstance(item, str) else json.dumps(item) for item in items)
    data = ('{"kind":"L","metadata":{"resourceVersion":"7"},"items":[' + texts + "]}").encode()
    pieces, rest = read(data, cuts, Form.LIST, fields, most=most)
    assert json.loads(rest.data) == {"kind": "L", "metadata": {"resourceVersion": "7"}, "items": []}
    return pieces


def nested(levels: int, inner: str = "1") -> str:
    return '{"a":' * levels + inner + "}" * levels


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def depth_of(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (list, dict))]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


@settings(max_examples=50, deadline=None)
@given(
    items=st.lists(objects | scalars.filter(lambda value: value != ""), max_size=5),
    metadata=st.dictionaries(texts, scalars, max_size=3),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    written=st.fixed_dictionaries({"indent": st.sampled_from([None, 1]), "ensure_ascii": st.booleans()}),
    items_first=st.booleans(),
)
def test_the_objects_of_a_list_are_the_same_wherever_its_bytes_are_cut(
    items: list[Any], metadata: dict[str, Any], cuts: list[int], written: dict[str, Any], items_first: bool
) -> None:
    metadata.pop("managedFields", None)
    parts = {"metadata": metadata, "items": items}
    whole = dict(reversed(parts.items())) if items_first else parts
    data = json.dumps(whole, **written).encode("utf-8", "surrogatepass")
    pieces, rest = read(data, cuts, Form.LIST, ALL)
    expected = json.loads(data)
    assert [json.loads(piece.data) for piece in pieces] == expected["items"]
    assert json.loads(rest.data) == {**expected, "items": []}


@settings(max_examples=30, deadline=None)
@given(body=objects, cuts=st.lists(st.integers(0, 400), max_size=12), names=st.sets(texts, max_size=3))
@example(body={'\\"': [{}], "k" * 5000: "v", "a": "x" * 9000}, cuts=[3, 4, 5, 5005, 9000], names={"a"})
def test_only_fields_that_are_used_are_kept(body: dict[str, Any], cuts: list[int], names: set[str]) -> None:
    # Names are compared as they are written.
    names = {name for name in names if name.isprintable() and json.dumps(name, ensure_ascii=False) == f'"{name}"'}
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    pieces, rest = read(data, cuts, Form.OBJECT, dict.fromkeys(names, True))
    assert not pieces
    assert json.loads(rest.data) == {key: value for key, value in json.loads(data).items() if key in names}


def test_fields_reach_into_lists_and_objects() -> None:
    fields: Fields = {
        "metadata": {"name": True},
        "status": {"c": {"state": {"running": {}}}, "all": {"x": False, "*": True}},
    }
    body = {
        "metadata": {"uid": [1], "name": "a", "labels": {"name": "b"}},
        "spec": {"metadata": {"name": "no"}},
        "status": {"c": [{"x": 1, "state": {"running": {"since": 1}}}, {"state": 3}, 4], "all": {"x": [{}], "y": [1]}},
    }
    for cuts in (1, 3, 1000):
        (piece,) = listed(body, cuts=cuts, fields=fields)
        assert json.loads(piece.data) == {
            "metadata": {"name": "a"},
            "status": {"c": [{"state": {"running": {}}}, {"state": 3}, 4], "all": {"y": [1]}},
        }


@pytest.mark.parametrize("levels", [DEPTH - 2, DEPTH - 1, 1500, 100_000])
@pytest.mark.parametrize("fields", [ALL, {"spec": {"p": True}}, {"spec": {"p": {"a": {"a": True}}}}])
def test_what_nests_deeper_than_the_bound_is_null_and_all_above_is_kept(levels: int, fields: Fields) -> None:
    item = '{"spec":{"p":' + nested(levels) + ',"q":"after"},"z":[' + "[" * levels + "]" * levels + ',"after"]}'
    other = {"spec": {"p": {"a": {"a": "other"}}}}
    deep, plain = listed(item, other, cuts=4096, fields=fields)
    body = json.loads(deep.data)
    kept, expected = body["spec"]["p"], min(levels, DEPTH - 2)
    assert depth_of(kept) == expected
    for _ in range(expected):
        kept = kept["a"]
    assert kept == (1 if levels == expected else None)
    assert deep.is_pruned is (levels > DEPTH - 2)
    if fields is ALL:
        assert (body["spec"]["q"], body["z"][1]) == ("after", "after")
    assert (json.loads(plain.data), plain.is_pruned) == (other, False)


@settings(max_examples=30, deadline=None)
@given(body=objects, depth=st.integers(1, 4), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_the_bound_on_levels_prunes_containers_alone(body: dict[str, Any], depth: int, cuts: list[int]) -> None:
    def pruned(value: Any, level: int) -> Any:
        if isinstance(value, dict):
            return None if level > depth else {key: pruned(inner, level + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return None if level > depth else [pruned(inner, level + 1) for inner in value]
        return value

    _, rest = read(json.dumps(body).encode(), cuts, Form.OBJECT, WHOLE, depth=depth)
    if isinstance(body.get("metadata"), dict):
        body["metadata"].pop("managedFields", None)
    body = json.loads(json.dumps(body))
    assert json.loads(rest.data) == pruned(body, 1)
    assert rest.is_pruned is (pruned(body, 1) != body)


@pytest.mark.parametrize(
    "bad",
    [
        '{"metadata":{"name":"bad","namespace":"n","uid":"u"}, oops: 1}',
        '{"metadata":{"name":"bad","namespace":"n","uid":"u"},"a":}',
        '{"metadata":{"name":"bad","namespace":"n","uid":"u"},"a":[1 2]}',
        '{"metadata":{"name":"bad","namespace":"n","uid":"u"},"a" "b"}',
        '{"metadata":{"name":"bad","namespace":"n","uid":"u"},"a":tru}',
    ],
)
def test_an_object_that_is_no_json_is_known_by_name_and_its_neighbours_are_read(bad: str) -> None:
    for cuts in (1, 1000):
        before, broken, after = listed({"a": 1}, bad, {"b": 2}, cuts=cuts)
        assert (json.loads(before.data), json.loads(after.data)) == ({"a": 1}, {"b": 2})
        assert not is_json(broken.data)
        assert broken.identity == {"name": b"bad", "namespace": b"n", "uid": b"u"}


def test_an_object_that_is_too_large_is_known_by_name_and_not_kept() -> None:
    large = {"metadata": {"name": "large", "labels": {"x": "y"}}, "spec": {"text": "x" * 50_000, "list": [{}] * 20_000}}
    for fields in (ALL, WHOLE, {"metadata": {"name": True}, "spec": {"text": True}}):
        before, skipped, after = listed({"a": 1}, large, {"a": 2}, cuts=1000, most=10_000, fields=fields)
        assert (skipped.data, skipped.is_too_large) == (b"", True)
        assert skipped.size == len(json.dumps(large))
        assert skipped.identity == ({} if fields is ALL else {"name": b"large"})
        assert (before.is_too_large, after.is_too_large) == (False, False)
    (kept,) = listed(large, cuts=1000, most=10_000, fields={"metadata": {"name": True}})
    assert json.loads(kept.data) == {"metadata": {"name": "large"}}


@pytest.mark.parametrize(
    "answer",
    ["", "garbage", "[1,2]", '"x"', "{", '{"items":[{}', '{"items":[{"a":"', '{"items":[]', "{}}", '{"items":[}]}'],
)
def test_an_answer_that_is_no_list_or_not_whole_is_not_taken_for_one(answer: str) -> None:
    _, rest = read(answer.encode(), 1, Form.LIST, WHOLE)
    assert not is_json(rest.data) or not isinstance(json.loads(rest.data), dict)


@settings(max_examples=50, deadline=None)
@given(
    data=st.binary(max_size=80) | st.text(alphabet='{}[]":,\\ax1 ', max_size=60).map(str.encode), cuts=st.integers(1, 9)
)
def test_no_bytes_break_it_and_none_become_json_that_were_none(data: bytes, cuts: int) -> None:
    for form in Form:
        read(data, cuts, form, WHOLE)
    _, rest = read(data, cuts, Form.OBJECT, ALL)
    if is_json(rest.data) and not isinstance(found := json.loads(rest.data), dict):
        assert json.loads(data) == found


def test_a_change_is_known_by_its_type_and_object() -> None:
    object_ = {"metadata": {"name": "a", "resourceVersion": "9"}, "spec": {"x": "y" * 200, "z": 1}, "code": 410}
    data = json.dumps({"type": "MODIFIED", "object": object_}).encode()
    _, kept = read(data, 5, Form.CHANGE, {"metadata": METADATA_NAMES, "spec": {"z": True}})
    metadata = {"name": "a", "resourceVersion": "9"}
    assert json.loads(kept.data) == {
        "type": "MODIFIED", "object": {"metadata": metadata, "spec": {"z": 1}, "code": 410}
    }  # fmt: skip
    _, skipped = read(data, 5, Form.CHANGE, WHOLE, most=100)
    assert skipped.is_too_large
    assert skipped.identity == {"type": b"MODIFIED", "name": b"a", "resourceVersion": b"9"}


METADATA_NAMES: Fields = {"name": True, "resourceVersion": True}


PLAIN = st.sampled_from(["a", "b", "metadata", "object", "managedFields"])
names = PLAIN | st.just("*")
some_fields = st.dictionaries(
    names,
    st.recursive(st.booleans(), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=3),
    max_size=3,
)
plain_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3), max_leaves=12
)


def first(data: bytes, cuts: list[int], form: Form, fields: Fields, most: int = MOST) -> Any:
    """What ``SmallFirst`` and its stream make of an object in these pieces."""
    stream = JsonStream(form, fields, most=most)
    small = SmallFirst(stream, most)
    places = sorted({min(cut, len(data)) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        assert list(small.feed(data[begin:end])) == []
    found = small.decoded()
    return found if found is not None else stream.end()


@given(
    st.dictionaries(PLAIN, plain_values, max_size=4),
    st.lists(st.integers(0, 200), max_size=4),
    st.sampled_from([Form.OBJECT, Form.CHANGE]),
    some_fields,
)
@settings(max_examples=40, deadline=None)
def test_a_small_object_becomes_what_the_stream_makes_of_it(
    body: dict[str, Any], cuts: list[int], form: Form, fields: Fields
) -> None:
    data = json.dumps(body).encode()
    _, piece = read(data, cuts, form, fields)
    assert first(data, cuts, form, fields) == json.loads(piece.data)


@pytest.mark.parametrize("size", [SMALL // 4, 2 * SMALL])
def test_an_object_that_is_not_small_is_left_to_the_stream(size: int) -> None:
    data = json.dumps({"a": {"b": "x" * size, "c": 1}, "d": "y" * size}).encode()
    kept = first(data, list(range(0, len(data), 1000)), Form.OBJECT, {"a": {"c": True}})
    assert (json.loads(kept.data) if isinstance(kept, Piece) else kept) == {"a": {"c": 1}}
    assert isinstance(kept, Piece) is (2 * size > SMALL)


def test_a_small_object_that_is_too_large_for_its_reader_is_too_large() -> None:
    kept = first(json.dumps({"a": "x" * 100}).encode(), [], Form.OBJECT, ALL, most=50)
    assert isinstance(kept, Piece)
    assert kept.is_too_large


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (nested(DEPTH + 1), nested(DEPTH, "null")),
        ('{"a":1,"dropped":[tru]}', '{"a":1}'),
        ("[" * 20_000, ""),
        ("", ""),
        ("7", "7"),
    ],
)
def test_what_the_decoder_refuses_or_what_is_deep_goes_through_the_stream(text: str, kept: str) -> None:
    found = first(text.encode(), [5], Form.OBJECT, {"a": True})
    assert isinstance(found, Piece)
    assert found.data.decode() == kept
