"""The rules by which answers are equal."""

from __future__ import annotations

from typing import Any

from tests.judge.comparison import allocation_differences, cel_differences, cel_expected


def answer(**device: Any) -> dict[str, Any]:
    """An allocation of one device for each of two claims."""
    return {"results": [{"devices": {"results": [device]}}], "error": None, "errorKind": None}


def test_quantities_are_equal_by_value() -> None:
    ours = answer(device="a", consumedCapacity={"mem": "1024Mi"})
    assert allocation_differences(ours, answer(device="a", consumedCapacity={"mem": "1Gi"})) == []


def test_other_quantity_is_named_with_its_place() -> None:
    (line,) = allocation_differences(answer(consumedCapacity={"mem": "1"}), answer(consumedCapacity={"mem": "2"}))
    assert line == "results[0].devices.results[0].consumedCapacity.mem: '1', not '2'"


def test_null_is_not_absent() -> None:
    (line,) = allocation_differences(answer(device="a", adminAccess=None), answer(device="a"))
    assert line == "results[0].devices.results[0].adminAccess: None, must not be there"


def test_true_is_not_one() -> None:
    assert allocation_differences(answer(n=True), answer(n=1)) != []


def test_share_ids_may_be_any_but_must_differ() -> None:
    ours = {"results": [{"devices": {"results": [{"shareID": "x"}, {"shareID": "y"}]}}]}
    theirs = {"results": [{"devices": {"results": [{"shareID": "*"}, {"shareID": "*"}]}}]}
    assert allocation_differences(ours, theirs) == []
    ours["results"][0]["devices"]["results"][1]["shareID"] = "x"
    assert allocation_differences(ours, theirs) == ["share ID x was given twice"]


def test_error_texts_may_differ_but_not_their_kinds() -> None:
    ours = {"results": None, "error": "a", "errorKind": "fatal"}
    assert allocation_differences(ours, {"results": None, "error": "b", "errorKind": "fatal"}) == []
    (line,) = allocation_differences(ours, {"results": None, "error": "b", "errorKind": "node"})
    assert line == "errorKind: fatal (a), not node (b)"


def test_newer_verdict_replaces_the_older_one() -> None:
    case = {"compile_error": "x", "compile_error_type": "RuleInvalid", "v1_37": {"result": True, "cost": 1}}
    assert cel_expected(case) == {"result": True, "cost": 1}


def test_result_is_not_an_error() -> None:
    assert cel_differences({"result": True}, {"runtime_error": "no such key"}) == [
        "result True, not runtime_error 'no such key'"
    ]


def test_cost_that_varies_is_not_compared() -> None:
    assert cel_differences({"result": True, "cost": 5}, {"result": True, "cost_varies": True}) == []
