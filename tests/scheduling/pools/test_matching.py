"""Matching: the recorded eligibility, the classes of a need, equal attributes."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.pools.claim_documents import DeviceClaimDetail
from scheduling.pools.constraints import Outcome, outcome_of
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.matching import (
    MatchingError,
    candidate_classes,
    devices_of,
    has_admin_access,
    is_eligible,
    labels_match,
)
from scheduling.pools.reading import read
from tests.making.pool_documents import claim, class_, decoded, device, document, pool, recorded


def shown(outcome: Outcome) -> dict[str, Any]:
    return {"errorKind": outcome.error.fault.value} if outcome.error else {"result": outcome.result}


def expected(outcome: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in outcome.items() if key not in ("error", "driver")}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in recorded("eligibility")])
def test_eligibility_is_as_recorded(case: dict[str, Any]) -> None:
    pools, classes, claims = decoded(case)
    rows = iter(case["expect"])
    for each in (one for owner in pools for one in devices_of(owner)):
        row = next(rows)
        assert each.name == (row["pool"], row["device"])
        for kind in classes:
            recorded_class = row["classes"][kind.metadata.name]
            assert shown(outcome_of(kind.spec.constraints, each.facts)) == expected(recorded_class)
            assert (each.pool.spec.driver == kind.spec.driver) == recorded_class["driver"]
        for asked in claims:
            for instance, outcome in zip(asked.spec.claims, row["claims"][asked.metadata.name], strict=True):
                found = [shown(outcome_of(need.constraints, each.facts)) for need in instance.one_of or instance.all_of]
                assert found == [expected(one) for one in outcome.get("oneOf", [outcome])]
                for need, one in zip(instance.one_of or instance.all_of, outcome.get("oneOf", [outcome]), strict=True):
                    _judge(each, need, one, classes, row["classes"])
    assert next(rows, None) is None


def _judge(each: Any, need: DeviceClaimDetail, one: Any, classes: list[PoolDeviceClass], judged: Any) -> None:
    """A device is eligible if driver, class and claim say so; errors count only when they are reached."""
    for kind in classes:
        ours = judged[kind.metadata.name]
        outcomes = [one] if ours.get("result") else [ours] if "error" in ours else []
        if ours["driver"] and any("error" in outcome for outcome in outcomes):
            with pytest.raises(MatchingError):
                is_eligible(each, kind, need)
        else:
            holds = ours["driver"] and ours.get("result") is True and one.get("result") is True
            assert is_eligible(each, kind, need) == holds


CLASSES = {
    each.metadata.name: each
    for each in (class_("gpu"), class_("big-gpu"), class_("nic", deviceType="nic"), class_("plain", deviceType=""))
}


def test_need_is_met_by_its_class_or_by_all_of_its_type_in_the_order_of_names() -> None:
    assert [each.metadata.name for each in candidate_classes(DeviceClaimDetail(device_class="nic"), CLASSES)] == ["nic"]
    by_type = candidate_classes(DeviceClaimDetail(device_type="gpu"), CLASSES)
    assert [each.metadata.name for each in by_type] == ["big-gpu", "gpu"]
    both = candidate_classes(DeviceClaimDetail(device_class="gpu", device_type="gpu"), CLASSES)
    assert [each.metadata.name for each in both] == ["gpu"]


WRONG = [
    (DeviceClaimDetail(device_class="gpus"), "no DeviceClass gpus; the classes are: big-gpu, gpu, nic, plain"),
    (DeviceClaimDetail(device_type="fpga"), "no DeviceClass is of deviceType fpga; the types are: gpu, nic"),
    (DeviceClaimDetail(device_class="plain", device_type="gpu"), "class plain is of deviceType no type, not gpu"),
    (DeviceClaimDetail(), "a need must name a deviceClass or a deviceType"),
]


@pytest.mark.parametrize(("detail", "text"), WRONG)
def test_need_without_a_class_is_an_error_that_says_so(detail: DeviceClaimDetail, text: str) -> None:
    with pytest.raises(MatchingError, match=text):
        candidate_classes(detail, CLASSES)


def labelled(name: str, **labels: str) -> PoolDeviceClass:
    found = read(document("DeviceClass", name, {"driver": "d"}) | {"metadata": {"name": name, "labels": labels}})
    assert isinstance(found, PoolDeviceClass)
    return found


def selecting(**selector: Any) -> PoolDeviceClass:
    found = read(document("DeviceClass", "any", {"selector": selector}))
    assert isinstance(found, PoolDeviceClass)
    return found


EXPRESSIONS = [
    ({"key": "type", "operator": "In", "values": ["gpu", "nic"]}, ["a", "b"]),
    ({"key": "type", "operator": "NotIn", "values": ["gpu"]}, ["b", "c"]),
    ({"key": "type", "operator": "Exists"}, ["a", "b"]),
    ({"key": "type", "operator": "DoesNotExist"}, ["c"]),
]


@pytest.mark.parametrize(("expression", "names"), EXPRESSIONS)
def test_class_with_a_selector_stands_for_classes_by_their_labels(expression: Any, names: list[str]) -> None:
    any_ = selecting(matchExpressions=[expression])
    known = [labelled("a", type="gpu"), labelled("b", type="nic"), labelled("c"), any_]
    classes = {each.metadata.name: each for each in known}
    found = candidate_classes(DeviceClaimDetail(device_class="any"), classes)
    assert [each.metadata.name for each in found] == names


def test_selector_that_no_class_meets_is_an_error() -> None:
    any_ = selecting(matchLabels={"type": "gpu"})
    assert any_.spec.selector is not None
    assert labels_match(any_.spec.selector, {"type": "gpu"})
    with pytest.raises(MatchingError, match="no DeviceClass has the labels that the selector of class any asks for"):
        candidate_classes(DeviceClaimDetail(device_class="any"), {"any": any_})


def test_failing_constraint_names_its_owner_and_the_device() -> None:
    (only,) = devices_of(pool("p", device("dev-0")))
    need = claim({"constraints": "device.x == 1"}).spec.claims[0].all_of[0]
    with pytest.raises(MatchingError, match=r"the claim, at device dev-0 of pool p: constraint .* no attribute x"):
        is_eligible(only, class_(), need)
    with pytest.raises(MatchingError, match="DeviceClass gpu, at device dev-0 of pool p"):
        is_eligible(only, class_(constraints="device.x == 1"), need)


def test_need_decides_about_admin_access_before_its_class() -> None:
    watching = class_(adminAccess=True)
    assert has_admin_access(DeviceClaimDetail(), watching)
    assert not has_admin_access(DeviceClaimDetail(admin_access=False), watching)
    assert has_admin_access(DeviceClaimDetail(admin_access=True), class_())


def test_attributes_are_compared_by_kind_and_value() -> None:
    first, second = devices_of(pool("p", device("a", root="r", n=1), device("b", root="r", n="1")))
    assert first.attribute("root") == second.attribute("root") == ("string", "r")
    assert first.attribute("n") != second.attribute("n")
    assert first.attribute("slot") is None
