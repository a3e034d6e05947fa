"""Lists: pages of one moment, and answers that are not a list."""

from __future__ import annotations

import pytest

from kube.bodies import Json, text_at
from kube.client import RequestLimits
from kube.collection import INITIAL_END, Collection, Listing, read_whole
from kube.errors import BadAnswer, Gone, ServerFault
from kube.json_stream import WHOLE, Fields
from tests.kube.conftest import client_of
from tests.kube.server import CannedAnswer, refused
from tests.kube.watched import PATH, event, fed, line, query_of, thing, watched


def test_pages_are_put_together() -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number) for number in range(7)]
        listing = read_whole(Collection(client_of(collection.server), PATH, {"fieldSelector": "a=b"}), 3)
        assert [text_at(one, "metadata", "name") for one in listing.objects] == [f"t{number}" for number in range(7)]
        assert listing.resource_version == "10"
        assert [query_of(asked) for asked in collection.server.asked] == [
            {"fieldSelector": "a=b", "limit": "3"},
            {"fieldSelector": "a=b", "limit": "3", "continue": "3"},
            {"fieldSelector": "a=b", "limit": "3", "continue": "6"},
        ]


def test_objects_are_what_is_made_of_them_as_they_come() -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number, large="x" * 1000) for number in range(3)]
        source = Collection(
            client_of(collection.server), PATH, read=lambda body: {"name": text_at(body, "metadata", "name")}
        )
        assert read_whole(source, 2).objects == ({"name": "t0"}, {"name": "t1"}, {"name": "t2"})
        assert source.read(thing("t9", 1)) == {"name": "t9"}


def test_a_list_whose_beginning_is_forgotten_is_read_in_one_piece() -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number) for number in range(7)]
        first = CannedAnswer.of({"metadata": {"continue": "x", "resourceVersion": "8"}, "items": [thing("t0", 1)]})
        collection.lists.extend((first, refused(410, "Expired", "too old")))
        listing = read_whole(Collection(client_of(collection.server), PATH), 3)
        assert (len(listing.objects), listing.resource_version) == (7, "10")
        assert query_of(collection.server.asked[-1]) == {}


def test_a_list_that_is_forgotten_in_one_piece_as_well_is_an_error() -> None:
    with watched() as collection:
        collection.lists.extend((refused(410, "Expired", "too old"),) * 2)
        with pytest.raises(Gone):
            read_whole(Collection(client_of(collection.server), PATH))


def test_a_list_is_asked_for_once_at_a_time() -> None:
    with watched() as collection:
        collection.lists.append(refused(500, "InternalError", "not now"))
        with pytest.raises(ServerFault):
            read_whole(Collection(client_of(collection.server), PATH))
        assert len(collection.server.asked) == 1


def test_an_empty_list_may_have_null_items() -> None:
    with watched() as collection:
        collection.lists.append(CannedAnswer.of({"metadata": {"resourceVersion": "3"}, "items": None}))
        assert read_whole(Collection(client_of(collection.server), PATH)).objects == ()


BAD: dict[str, tuple[Json, str]] = {
    "items": ({"items": "x"}, "the answer is not a list of objects"),
    "item": ({"items": [{}, 1]}, "an item of the list is not an object"),
    "no list": ([], r"the answer is not a JSON object: \[\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_list_is_refused(case: str) -> None:
    body, text = BAD[case]
    with watched() as collection:
        collection.lists.append(CannedAnswer.of(body))
        with pytest.raises(BadAnswer, match=text):
            read_whole(Collection(client_of(collection.server), PATH))


def test_a_list_that_points_to_itself_has_an_end() -> None:
    with watched() as collection:
        collection.lists.extend([CannedAnswer.of({"metadata": {"continue": "x"}, "items": []})] * 3)
        with pytest.raises(BadAnswer, match="the list never ends: a page points to itself"):
            read_whole(Collection(client_of(collection.server), PATH))
        assert len(collection.server.asked) == 2


def named(listing: Listing) -> list[str]:
    return [text_at(one, "metadata", "name") for one in listing.objects]


def test_a_page_that_turns_out_large_is_given_up_and_asked_for_with_fewer_objects() -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number, text="x" * (2 << 20)) for number in range(20)]
        listing = read_whole(Collection(client_of(collection.server), PATH), 16)
        assert named(listing) == [f"t{number}" for number in range(20)]
        limits = [int(query_of(asked)["limit"]) for asked in collection.server.asked]
        assert limits == [16, *[1] * 20]


def test_pages_become_larger_again_behind_large_objects() -> None:
    with watched() as collection:
        collection.things = [
            thing(f"t{number}", number, text="x" * (9 << 20 if number < 2 else 1)) for number in range(20)
        ]
        client = client_of(collection.server, RequestLimits(largest=10 << 20))
        listing = read_whole(Collection(client, PATH), 16)
        assert len(listing.objects) == 20
        limits = [int(query_of(asked)["limit"]) for asked in collection.server.asked]
        smallest = limits.index(1)
        assert limits[: smallest + 1] == sorted(limits[: smallest + 1], reverse=True)
        assert limits[smallest:] == sorted(limits[smallest:])
        assert (limits[0], limits[-1] > 4) == (16, True)


def test_a_list_in_one_piece_may_have_any_size() -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number, text="x" * (2 << 20)) for number in range(20)]
        collection.lists.append(refused(410, "Expired", "too old"))
        source = Collection(client_of(collection.server), PATH, fields={"metadata": {"name": True}})
        assert named(read_whole(source, 16)) == [f"t{number}" for number in range(20)]


def test_objects_that_cannot_be_read_or_only_in_part_are_named() -> None:
    deep: Json = 1
    for _ in range(200):
        deep = [deep]
    with watched() as collection:
        collection.things = [
            thing("a", 1),
            thing("large", 2, text="x" * 2000),
            thing("deep", 3, spec=deep),
            thing("z", 4),
        ]
        listing = read_whole(Collection(client_of(collection.server, RequestLimits(largest=1000)), PATH), 2)
    assert named(listing) == ["a", "deep", "z"]
    assert [str(each) for each in listing.unread] == [
        f"large has more than 1000 bytes in fields that are used ({len(line(collection.things[1]))} bytes in all)"
    ]
    assert [str(each) for each in listing.pruned] == ["deep nests deeper than 64 levels; what is deeper is left out"]


def test_only_the_fields_that_are_asked_for_are_read_of_lists_and_changes() -> None:
    with watched() as collection:
        collection.things = [thing("a", 1, spec={"x": 1, "y": [2]}, more=3)]
        collection.watches.append(fed(event("ADDED", thing("b", 2, spec={"x": 4, "y": 5}))))
        fields: Fields = {"metadata": {"name": True}, "spec": {"y": True}}
        source = Collection(client_of(collection.server), PATH, fields=fields)
        assert source.page({}).objects == ({"metadata": {"name": "a"}, "spec": {"y": [2]}},)
        with source.watch({"watch": "1"}, read_timeout=60, whole=60) as stream:
            assert next(stream) == event("ADDED", {"metadata": {"name": "b"}, "spec": {"y": 5}})


@pytest.mark.parametrize(
    "fields",
    [
        WHOLE,
        {"*": True},
        {"spec": True},
        {"metadata": {"name": True}},
        {"metadata": {"annotations": {"other": True}}},
        {"metadata": {"annotations": True}},
        {"metadata": False, "*": True},
    ],
)
def test_a_watch_keeps_the_mark_of_its_list_whatever_else_is_asked_for(fields: Fields) -> None:
    end = event("BOOKMARK", {"metadata": {"annotations": {INITIAL_END: "true"}}})
    with watched() as collection:
        collection.watches.append(fed(end))
        source = Collection(client_of(collection.server), PATH, fields=fields)
        with source.watch({"watch": "1"}, read_timeout=10, whole=10) as stream:
            assert next(stream) == end
