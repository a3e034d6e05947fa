"""What keeps a pod from a node apart from devices."""

from __future__ import annotations

import pytest

from kube.bodies import Json, JsonObject
from scheduling.explain.nodes import HindranceKind, hindrances
from tests.scheduling.explain.cluster import status
from tests.scheduling.explain.objects import device_class, node, pod

GPU = "example.com/gpu"


def texts(body: JsonObject | None, on: JsonObject) -> list[str]:
    return [str(one) for one in hindrances(body, on)]


def wanting(*terms: Json) -> JsonObject:
    required: JsonObject = {"nodeSelectorTerms": list(terms)}
    return pod("p", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def expression(key: str, operator: str, *values: str) -> JsonObject:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: Json) -> JsonObject:
    return {"matchExpressions": list(expressions)}


def test_a_plain_pod_may_run_on_a_plain_node() -> None:
    assert hindrances(pod("p"), node("n")) == ()
    assert hindrances(None, node("n")) == ()


def test_a_bound_pod_is_for_its_node_alone() -> None:
    assert texts(pod("p", nodeName="m"), node("n")) == ["the pod is bound to node m; remove spec.nodeName"]
    assert hindrances(pod("p", nodeName="n"), node("n")) == ()


def test_a_node_selector_names_the_label_and_what_the_node_has() -> None:
    body = pod("p", nodeSelector={"zone": "a", "disk": "ssd", "arch": "arm"})
    assert texts(body, node("n", {"zone": "b", "arch": "arm"})) == [
        "spec.nodeSelector wants zone=a, the node has zone=b",
        "spec.nodeSelector wants disk=ssd, the node has no disk",
    ]


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        (expression("a", "In", "5", "x"), True), (expression("a", "In", "x"), False),
        (expression("b", "In", ""), False),
        (expression("a", "NotIn", "5"), False), (expression("b", "NotIn", "5"), True),
        (expression("a", "Exists"), True), (expression("b", "Exists"), False),
        (expression("a", "DoesNotExist"), False), (expression("b", "DoesNotExist"), True),
        (expression("a", "Gt", "4"), True), (expression("a", "Gt", "5"), False), (expression("a", "Lt", "6"), True),
        (expression("a", "Lt", "x"), False), (expression("b", "Gt", "1"), False), (expression("a", "Near", "5"), False),
    ],
)  # fmt: skip
def test_requirements_mean_what_they_mean_to_the_scheduler(requirement: JsonObject, fits: bool) -> None:
    assert (hindrances(wanting(term(requirement)), node("n", {"a": "5"})) == ()) is fits


def test_one_term_is_enough_and_else_each_says_what_it_lacks() -> None:
    on = node("n", {"zone": "b"})
    one, other = term(expression("zone", "In", "a", "c")), term(expression("gpu", "Exists"))
    assert hindrances(wanting(one, term(expression("zone", "In", "b"))), on) == ()
    (text,) = texts(wanting(one, other), on)
    assert text == (
        "required node affinity: wants zone in (a, c), the node has zone=b, or wants gpu to exist, the node has no gpu"
    )


def test_terms_without_requirements_fit_no_node() -> None:
    assert texts(wanting({}), node("n")) == ["required node affinity: a term without requirements fits no node"]


def test_affinity_may_name_the_node() -> None:
    body = wanting({"matchFields": [expression("metadata.name", "In", "m")]})
    assert texts(body, node("n")) == ["required node affinity: wants metadata.name in (m)"]
    assert hindrances(body, node("m")) == ()


TAINT: JsonObject = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True), ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True), ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nic", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Like", "value": "yes"}, False),
    ],
)  # fmt: skip
def test_tolerations_mean_what_they_mean_to_the_scheduler(toleration: JsonObject, tolerated: bool) -> None:
    found = hindrances(pod("p", tolerations=[toleration]), node("n", spec={"taints": [TAINT]}))
    assert (found == ()) is tolerated


def test_a_taint_comes_with_the_toleration_for_it() -> None:
    (text,) = texts(pod("p"), node("n", spec={"taints": [TAINT]}))
    assert text == (
        "the node has the taint gpu=yes:NoSchedule; "
        "let the pod tolerate it: {key: gpu, operator: Exists, effect: NoSchedule}"
    )


def test_a_taint_that_only_prefers_is_none() -> None:
    assert hindrances(pod("p"), node("n", spec={"taints": [{**TAINT, "effect": "PreferNoSchedule"}]})) == ()


def test_a_cordoned_node_is_said_once_and_can_be_tolerated() -> None:
    taint: JsonObject = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node("n", spec={"unschedulable": True, "taints": [taint]})
    assert texts(pod("p"), cordoned) == ["the node is cordoned; run 'kubectl uncordon'"]
    assert texts(None, cordoned) == ["the node is cordoned; run 'kubectl uncordon'"]
    assert hindrances(pod("p", tolerations=[{"operator": "Exists"}]), cordoned) == ()


def test_a_node_that_is_not_ready_is_told_but_does_not_block() -> None:
    on = status(node("n"), conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}])
    (found,) = hindrances(pod("p"), on)
    assert (found.ground, found.blocking) == (HindranceKind.NOT_READY, False)
    assert str(found) == "the node is not Ready (NodeStatusUnknown); check its kubelet"


def test_an_extended_resource_must_come_from_a_plugin_or_a_class() -> None:
    body = pod("p", containers=[{"name": "a", "resources": {"limits": {GPU: "2"}}}])
    some, none = status(node("n"), allocatable={GPU: "1"}), status(node("n"), allocatable={"cpu": "1"})
    assert texts(body, some) == [f"the pod asks for 2 {GPU}, the node has 1"]
    (text,) = texts(body, none)
    assert text == (
        f"the pod asks for 2 {GPU}, the node has none; "
        "check whether a device plugin runs there, or set this extendedResourceName on a device class"
    )
    assert hindrances(body, none, {GPU: device_class("gpu")}) == ()
    assert hindrances(body, node("n")) == ()


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ({"key": "rank", "operator": "Gt", "values": ["5"]}, "wants rank > 5, the node has rank=1_0"),
        ({"key": "rank", "operator": "In", "values": []}, "rank in (): In needs at least one value"),
        ({"key": "rank", "operator": "Near", "values": ["x"]}, "is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt"),
    ],
)
def test_affinity_is_judged_as_the_scheduler_judges_it(requirement: dict[str, Json], text: str) -> None:
    terms: Json = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    asked = pod("p", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    (found,) = hindrances(asked, node("a", {"rank": "1_0"}))
    assert text in found.text
