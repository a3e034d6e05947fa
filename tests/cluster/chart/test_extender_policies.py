"""The policies of the extender and of recorded devices on a real API server: what each account may write of pods.

``tests/deploy/chart/test_extender_policies.py`` has all their cases, evaluated by ostler's own CEL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.generate import NAMESPACE
from tests.cluster.chart.account import OTHER, OWN, POD, PODS
from tests.cluster.chart.calls import ALLOWED, BY_POLICY, AccountCall, wrong
from tests.cluster.rig.api import MERGE, ApiRefused, Object, RigApi, RigCredentials
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until
from tests.deploy.chart.rendering import Document, render
from tests.deploy.chart.test_extender import CELLS

GROUP = "hivedscheduler.microsoft.com"
SPEC, PLACES, ISOLATION = (f"{GROUP}/pod-{name}" for name in ("scheduling-spec", "bind-info", "leaf-cell-isolation"))
DEVICES, ALLOCATED = "ostler.dev/pod-devices", "ostler.dev/pod-allocated-devices"
TEAMS = "ostler.dev/virtual-clusters"
VALUES: dict[str, Any] = {
    "recordedDevices": {"enabled": True},
    "extender": {
        "enabled": True,
        "tlsSecret": "none",
        "config": {**CELLS, "virtualClusters": {name: {} for name in ("team", "product", "secret")}},
        "namespaces": {"virtualClusters": {"default": ["team"]}, "annotation": TEAMS},
    },
}
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
"""Of what the chart makes, all that decides who may write what; nothing of it runs."""


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    return {**POD, "metadata": {"name": name, "annotations": annotations or {}}, "spec": {**POD["spec"], **spec}}


def annotated(**annotations: str | None) -> Object:
    return {"metadata": {"annotations": annotations}}


def binding(name: str, **annotations: str) -> Object:
    target = {"apiVersion": "v1", "kind": "Node", "name": OWN}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


NOWHERE = {"nodeSelector": {"tried": "nowhere"}}
RECORD = {PLACES: "places", ISOLATION: "0"}
HELD = (
    pod("recorded", RECORD, nodeName=OWN),
    pod("elsewhere", RECORD, nodeName=OTHER),
    pod("plain", nodeName=OWN),
    pod("waiting", **NOWHERE),
)

ANYBODY: list[AccountCall] = [
    AccountCall("POST", PODS, ALLOWED, pod("new"), "without annotations"),
    *(
        AccountCall("POST", PODS, BY_POLICY, pod("new", {key: "0"}), f"with {key}")
        for key in (PLACES, ISOLATION, f"{GROUP}/pod-gpu-isolation", DEVICES, ALLOCATED)
    ),
    AccountCall("PATCH", f"{PODS}/recorded", ALLOWED, {"metadata": {"labels": {"tried": "yes"}}}, "with a label"),
    AccountCall("PATCH", f"{PODS}/recorded", BY_POLICY, annotated(**{PLACES: "others"}), "with other places"),
    AccountCall("PATCH", f"{PODS}/recorded", BY_POLICY, annotated(**{PLACES: None}), "without its places"),
    AccountCall("PATCH", f"{PODS}/plain", BY_POLICY, annotated(**{ISOLATION: "1"}), "with devices"),
    AccountCall("PATCH", f"{PODS}/plain/status", BY_POLICY, annotated(**{ISOLATION: "1"}), "with devices"),
    AccountCall("POST", f"{PODS}/waiting/binding", ALLOWED, binding("waiting"), "without annotations"),
    AccountCall("POST", f"{PODS}/waiting/binding", BY_POLICY, binding("waiting", **{PLACES: "places"}), "with places"),
    *(
        AccountCall("POST", PODS, answer, pod("new", {SPEC: text}), f"with the text {text!r}")
        for text, answer in (
            ("virtualCluster: team", ALLOWED),
            ('{"leafCellNumber": 1, "virtualCluster": "team"}', ALLOWED),
            ("virtualCluster: product", ALLOWED),
            ("virtualCluster: secret", BY_POLICY),
            ("leafCellNumber: 1", BY_POLICY),
            ("virtualCluster: team\nvirtualCluster: secret", BY_POLICY),
            ('virtualCluster: team\n"virtual\\x43luster": secret', BY_POLICY),
        )
    ),
    AccountCall(
        "PATCH", f"{PODS}/plain", BY_POLICY, annotated(**{SPEC: "virtualCluster: secret"}), "to ask for others' cells"
    ),
]
EXTENDERS: list[AccountCall] = [
    AccountCall(
        "POST", f"{PODS}/waiting/binding", ALLOWED, binding("waiting", **RECORD, **{DEVICES: "GPU-1"}), "with places"
    ),
    AccountCall("PATCH", f"{PODS}/recorded/status", ALLOWED, annotated(**{PLACES: "others"}), "with other places"),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(**{ISOLATION: "1"}), "with other devices"),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(**{PLACES: None}), "without its places"),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, {"status": {"message": "x"}}, "with a message"),
    AccountCall("PATCH", f"{PODS}/plain/status", BY_POLICY, annotated(**{PLACES: "x"}), "of a pod without a record"),
]
AGENTS: list[AccountCall] = [
    *(
        AccountCall("PATCH", f"{PODS}/recorded/status", ALLOWED, annotated(**{key: "1"}), f"with another {key}")
        for key in (ISOLATION, DEVICES, ALLOCATED)
    ),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(**{PLACES: "others"}), "with other places"),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(other="x"), "with another annotation"),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(**{ISOLATION: None}), "without its devices"),
    AccountCall(
        "PATCH", f"{PODS}/recorded/status", BY_POLICY, {"metadata": {"labels": {"tried": "yes"}}}, "with a label"
    ),
    AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, {"status": {"message": "x"}}, "with a message"),
    AccountCall("PATCH", f"{PODS}/elsewhere/status", BY_POLICY, annotated(**{ISOLATION: "1"}), "of another node"),
    AccountCall("PATCH", f"{PODS}/plain/status", BY_POLICY, annotated(**{ALLOCATED: "1"}), "of a pod without a record"),
]


@pytest.fixture
def policies(api: RigApi, pods: RigPods) -> Iterator[list[Document]]:
    """The chart's accounts, rights and policies, made after the pods that could not be made under them."""
    made = [each for each in render(VALUES) if each["kind"] in COLLECTIONS]
    paths = [f"{COLLECTIONS[each['kind']]}/{each['metadata']['name']}" for each in made]
    for path in paths:
        # Tests before this one leave theirs, which are in force for a second or two after they are gone.
        api.delete(path)
    for body in HELD:
        call = AccountCall("POST", PODS, ALLOWED, body)

        def is_free(call: AccountCall = call) -> bool:
            return call.outcome(api) == ALLOWED

        wait_until(f"no policy forbids {body['metadata']['name']}", is_free)
        api.create(PODS, body)
    # Pods of a node that does not exist are deleted before long.
    api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}})
    api.request("PATCH", "/api/v1/namespaces/default", annotated(**{TEAMS: "product"}), MERGE)
    if api.find(f"/api/v1/namespaces/{NAMESPACE}") is None:
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for each in made:
        api.create(COLLECTIONS[each["kind"]], each)
    yield made
    for path in paths:
        api.delete(path)
    api.request("PATCH", "/api/v1/namespaces/default", annotated(**{TEAMS: None}), MERGE)
    for body in HELD:
        api.delete(f"{PODS}/{body['metadata']['name']}")
    api.delete(f"/api/v1/nodes/{OTHER}")


def token(api: RigApi, account: str, pod_name: str = "") -> str:
    """A token of an account, of that pod if it is named."""
    spec: Object = {}
    if pod_name:
        uid = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name}")["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(api.create(path, body)["status"]["token"])


def test_records_and_virtual_clusters_are_protected(cluster: RigCluster, api: RigApi, policies: list[Document]) -> None:
    # The API server reads new policies a second or two after they were made.
    record = AccountCall("PATCH", f"{PODS}/plain", BY_POLICY, annotated(**{PLACES: "x"}))
    tie = AccountCall("POST", PODS, BY_POLICY, pod("new", {SPEC: "virtualCluster: secret"}))
    wait_until("records are protected", lambda: record.outcome(api) == BY_POLICY)
    wait_until("namespaces are tied", lambda: tie.outcome(api) == BY_POLICY)
    assert wrong(api, ANYBODY) == {}
    with pytest.raises(ApiRefused) as refusal:
        api.create(f"{PODS}?dryRun=All", pod("new", {SPEC: "virtualCluster: secret"}))
    expected = "namespace default may not use the virtual cluster secret; it may use team, product"
    assert expected in str(refusal.value)
    with pytest.raises(ApiRefused) as refusal:
        api.create(f"{PODS}?dryRun=All", pod("new", RECORD))
    assert f"annotation {PLACES} records the devices of a pod; only the scheduler extender" in str(refusal.value)

    extender = cluster.api_as(RigCredentials(token=token(api, "ostler-extender")))
    message = AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, {"status": {"message": "x"}})
    wait_until("the extender is limited", lambda: message.outcome(extender) == BY_POLICY)
    assert wrong(extender, EXTENDERS) == {}

    here = pod("agent", nodeName=OWN, serviceAccountName="ostler")
    api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", here)
    try:
        agent = cluster.api_as(RigCredentials(token=token(api, "ostler", "agent")))
        label = AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, {"metadata": {"labels": {"tried": "yes"}}})
        wait_until("the agents are limited", lambda: label.outcome(agent) == BY_POLICY)
        assert wrong(agent, AGENTS) == {}
        unbound = cluster.api_as(RigCredentials(token=token(api, "ostler")))
        call = AccountCall("PATCH", f"{PODS}/recorded/status", BY_POLICY, annotated(**{ISOLATION: "1"}))
        assert wrong(unbound, [call]) == {}
    finally:
        api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/agent")


def test_the_policies_have_no_mistake_of_types(api: RigApi, policies: list[Document]) -> None:
    """The API server checks every expression against the types of what it is about, and says so in the status."""
    for each in policies:
        if each["kind"] != "ValidatingAdmissionPolicy":
            continue
        path = f"{COLLECTIONS[each['kind']]}/{each['metadata']['name']}"
        found = api.wait(path, "its types are checked", lambda one: "typeChecking" in one.get("status", {}))
        assert found["status"]["typeChecking"] == {}, path
