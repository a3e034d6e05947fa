"""Which nodes a selector selects; the rules are those of pods' node affinity."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.node_selection import SelectorFault, node_matcher, selector_matcher

LABELS = {"zone": "z1", "rack": "3", "example.com/pool": "", "odd": "x3", "big": "9" * 30, "signed": "-4"}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    made: dict[str, Any] = {"key": key, "operator": operator}
    return {**made, "values": list(values)} if values else made


def term(*expressions: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"matchExpressions": list(expressions)} if expressions else {}
    return {**made, "matchFields": fields} if fields else made


def selects(*terms: dict[str, Any], node: str = "node-1") -> bool:
    return selector_matcher({"nodeSelectorTerms": list(terms)})(node, LABELS)


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (requirement("zone", "In", "z1", "z2"), True),
        (requirement("zone", "In", "z2"), False),
        (requirement("nosuch", "In", "z1"), False),
        (requirement("example.com/pool", "In", ""), True),
        (requirement("zone", "NotIn", "z2"), True),
        (requirement("zone", "NotIn", "z1"), False),
        (requirement("nosuch", "NotIn", "z1"), True),
        (requirement("zone", "Exists"), True),
        (requirement("nosuch", "Exists"), False),
        (requirement("zone", "DoesNotExist"), False),
        (requirement("nosuch", "DoesNotExist"), True),
        (requirement("rack", "Gt", "2"), True),
        (requirement("rack", "Gt", "3"), False),
        (requirement("rack", "Lt", "4"), True),
        (requirement("rack", "Lt", "3"), False),
        (requirement("signed", "Lt", "0"), True),
        (requirement("odd", "Gt", "0"), False),
        (requirement("odd", "Lt", "0"), False),
        (requirement("big", "Gt", "0"), False),
        (requirement("nosuch", "Gt", "0"), False),
        (requirement("nosuch", "Lt", "0"), False),
    ],
)
def test_requirement_on_a_label(wanted: dict[str, Any], selected: bool) -> None:
    assert selects(term(wanted)) is selected


def test_terms_are_alternatives_and_requirements_of_a_term_all_hold() -> None:
    good, bad = requirement("zone", "Exists"), requirement("nosuch", "Exists")
    assert selects(term(bad), term(good))
    assert not selects(term(bad, good))
    assert not selects(term(good, bad))


def test_term_without_requirements_selects_nothing_and_so_does_no_term() -> None:
    assert not selects()
    assert not selects({})
    assert not selects({"matchExpressions": [], "matchFields": None})
    assert selects({}, term(requirement("zone", "Exists")))


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (requirement("metadata.name", "In", "node-1"), True),
        (requirement("metadata.name", "In", "node-2"), False),
        (requirement("metadata.name", "NotIn", "node-1"), False),
        (requirement("metadata.name", "NotIn", "node-2"), True),
        (requirement("metadata.uid", "In", "node-1"), False),
        (requirement("metadata.uid", "In", ""), True),
        (requirement("metadata.uid", "NotIn", "node-1"), True),
    ],
)
def test_only_the_name_is_a_field(wanted: dict[str, Any], selected: bool) -> None:
    assert selects(term(fields=[wanted])) is selected


def test_fields_and_labels_of_a_term_must_both_hold() -> None:
    name = requirement("metadata.name", "In", "node-1")
    assert selects(term(requirement("zone", "Exists"), fields=[name]))
    assert not selects(term(requirement("nosuch", "Exists"), fields=[name]))
    assert not selects(term(requirement("zone", "Exists"), fields=[name]), node="node-2")


def test_node_without_a_name_has_no_fields_to_test() -> None:
    assert selects(term(fields=[requirement("metadata.name", "In", "node-1")]), node="")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"nodeSelectorTerms": "x"}, "nodeSelectorTerms: 'x' is not a list"),
        ({"nodeSelectorTerms": [5]}, "nodeSelectorTerms[0]: 5 is not an object"),
        ({"nodeSelectorTerms": [{"matchExpressions": {}}]}, "nodeSelectorTerms[0].matchExpressions: {} is not a list"),
        (
            {"nodeSelectorTerms": [{"matchExpressions": ["x"]}]},
            "nodeSelectorTerms[0].matchExpressions[0]: 'x' is not an object",
        ),
    ],
)
def test_selector_of_another_shape_is_named(selector: dict[str, Any], message: str) -> None:
    with pytest.raises(SelectorFault) as caught:
        selector_matcher(selector)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (requirement("zone", "Foo"), 'operator: "Foo" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt'),
        (requirement("zone", "In"), "values: In needs at least one value"),
        (requirement("zone", "NotIn"), "values: NotIn needs at least one value"),
        (requirement("zone", "Exists", "x"), "values: Exists takes no values"),
        (requirement("zone", "DoesNotExist", "x"), "values: DoesNotExist takes no values"),
        (requirement("rack", "Gt", "x"), "values: Gt needs one whole number, not ['x']"),
        (requirement("rack", "Lt", "1", "2"), "values: Lt needs one whole number, not ['1', '2']"),
        (requirement("rack", "Gt", str(2**63)), "values: Gt needs one whole number, not ['9223372036854775808']"),
        (requirement("zone", "In", "a b"), 'values[0]: "a b" is not a label value'),
        (requirement("zone", "In", "z1", "a" * 64), f'values[1]: "{"a" * 64}" is not a label value'),
        (requirement("a b", "Exists"), 'key: "a b" is not a label key'),
        (requirement("", "Exists"), 'key: "" is not a label key'),
        (requirement("/zone", "Exists"), 'key: "/zone" is not a label key'),
        (requirement("a/b/c", "Exists"), 'key: "a/b/c" is not a label key'),
        (requirement("Example.com/zone", "Exists"), 'key: "Example.com/zone" is not a label key'),
    ],
)
def test_requirement_that_cannot_be_read_is_named(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(SelectorFault) as caught:
        selects(term(requirement("zone", "Exists")), term(wanted))
    assert str(caught.value) == f"nodeSelectorTerms[1].matchExpressions[0].{message}"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (requirement("metadata.name", "Exists"), 'operator: "Exists" is not one of In, NotIn'),
        (requirement("metadata.name", "In", "a", "b"), "values: 2 values where there must be one"),
        (requirement("metadata.name", "NotIn"), "values: 0 values where there must be one"),
    ],
)
def test_field_requirement_that_cannot_be_read_is_named(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(SelectorFault) as caught:
        selects(term(fields=[wanted]))
    assert str(caught.value) == f"nodeSelectorTerms[0].matchFields[0].{message}"


@pytest.mark.parametrize("field", ["key", "operator"])
def test_parts_of_a_requirement_are_texts(field: str) -> None:
    with pytest.raises(SelectorFault, match="key, operator and each of values must be a string"):
        selects(term({**requirement("zone", "In", "x"), field: 5}))
    with pytest.raises(SelectorFault, match="key, operator and each of values must be a string"):
        selects(term({**requirement("zone", "In"), "values": [None]}))


@pytest.mark.parametrize(
    ("name", "all_nodes", "selector", "selected"),
    [
        ("node-1", False, None, True),
        ("node-2", True, {"nodeSelectorTerms": [term(requirement("zone", "Exists"))]}, False),
        ("", True, {"nodeSelectorTerms": []}, True),
        ("", False, {"nodeSelectorTerms": []}, False),
    ],
)
def test_name_goes_before_all_nodes_and_that_before_a_selector(
    name: str, all_nodes: bool, selector: dict[str, Any] | None, selected: bool
) -> None:
    matcher = node_matcher(name, all_nodes, selector)
    assert matcher is not None
    assert matcher("node-1", LABELS) is selected


def test_nothing_chosen_is_no_choice() -> None:
    assert node_matcher("", False, None) is None


@given(st.sampled_from(("In", "Exists", "Gt")), st.dictionaries(st.sampled_from(("a", "b")), st.sampled_from("123")))
def test_operators_come_in_pairs_of_opposites(operator: str, labels: dict[str, str]) -> None:
    opposite = {"In": "NotIn", "Exists": "DoesNotExist", "Gt": "Lt"}[operator]
    values = () if operator == "Exists" else ("2",)
    one, other = (
        selector_matcher({"nodeSelectorTerms": [term(requirement("a", each, *values))]})("n", labels)
        for each in (operator, opposite)
    )
    if operator == "Gt":
        assert not (one and other)
        assert (one or other) == (labels.get("a", "2") != "2")
    else:
        assert one != other
