"""The account that the agents are given has the rights that they need and no others."""

from __future__ import annotations

import json

import pytest

from tests.deploy.chart.rendering import Document, Values, of_kind, only, pod_of, render
from tests.deploy.chart.rights import ALWAYS, BY_NAME, BY_NODE, DRA, EVENTS, NODE_STATUS, RECORDED, Right

EVICTS_BY_NAME = {"enabled": True, "evictByName": True}
pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ALWAYS | EVENTS),
        ({"dra": {"enabled": True}}, ALWAYS | EVENTS | DRA),
        ({"dra": {"enabled": True, "doorByNode": True}}, ALWAYS | EVENTS | DRA | BY_NODE),
        ({"dra": {"enabled": True, "evictByName": True}}, ALWAYS | EVENTS | DRA | BY_NAME),
        ({"dra": {"enabled": True}, "events": {"enabled": False}}, ALWAYS | DRA),
        ({"patchAllocatable": {"enabled": True}}, ALWAYS | EVENTS | NODE_STATUS),
        ({"patchAllocatable": {"enabled": True}, "events": {"enabled": False}}, ALWAYS | NODE_STATUS),
        ({"recordedDevices": {"enabled": True}}, ALWAYS | EVENTS | RECORDED),
        ({"recordedDevices": {"enabled": True}, "events": {"enabled": False}}, ALWAYS | RECORDED),
        ({"events": {"enabled": False}}, set()),
        ({"rbac": {"create": False}}, set()),
    ],
    # The order of a set is another one in every worker, and names must be the same in all.
    ids=[
        "defaults",
        "dra",
        "door-by-node",
        "evict-by-name",
        "dra-alone",
        "allocatable",
        "allocatable-alone",
        "recorded-devices",
        "recorded-devices-alone",
        "neither",
        "no-rbac",
    ],
)
def test_the_account_has_these_rights_alone(values: Values, expected: set[Right]) -> None:
    documents = render(values)
    assert _rights(documents) == expected
    for binding in of_kind(documents, "RoleBinding") + of_kind(documents, "ClusterRoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "ostler", "namespace": "ostler-system"}]


def test_without_the_api_server_the_pods_have_no_token() -> None:
    documents = render({"events": {"enabled": False}})
    assert pod_of(documents)["automountServiceAccountToken"] is False
    assert only(documents, "ServiceAccount")["automountServiceAccountToken"] is False


def test_an_account_that_is_there_already_is_used() -> None:
    documents = render({"serviceAccount": {"create": False, "name": "mine"}})
    assert not of_kind(documents, "ServiceAccount")
    assert pod_of(documents)["serviceAccountName"] == "mine"
    assert only(documents, "ClusterRoleBinding")["subjects"][0]["name"] == "mine"
    assert _users(documents) == {"system:serviceaccount:ostler-system:mine"}


def test_policies_keep_each_agent_to_its_own_node() -> None:
    documents = render()
    policies = of_kind(documents, "ValidatingAdmissionPolicy")
    assert [policy["metadata"]["name"] for policy in policies] == ["ostler-slices", "ostler-events"]
    bound = {binding["spec"]["policyName"]: binding["spec"] for binding in of_kind(documents, BINDING)}
    for policy in policies:
        spec = policy["spec"]
        assert spec["failurePolicy"] == "Fail"
        assert bound[policy["metadata"]["name"]]["validationActions"] == ["Deny"]
        (rule,) = spec["matchConstraints"]["resourceRules"]
        assert {"CREATE", "UPDATE", "DELETE"} == set(rule["operations"])
        own, also = spec["validations"]
        assert "variables.node != ''" in own["expression"]
        assert "variables.written.all(written, " in also["expression"]
        assert {own["reason"], also["reason"]} == {"Forbidden"}
    assert _users(documents) == {"system:serviceaccount:ostler-system:ostler"}


def test_policies_ask_the_written_and_the_former_object_for_the_pods_own_node() -> None:
    about = {
        "ostler-slices": "written.spec.?nodeName.orValue('')",
        "ostler-events": "(written.involvedObject.?kind.orValue('') == 'Node' ?"
        " written.involvedObject.?name.orValue('') : '')",
    }
    for policy in of_kind(render(), "ValidatingAdmissionPolicy"):
        spec, node = policy["spec"], about[policy["metadata"]["name"]]
        variables = {each["name"]: each["expression"] for each in spec["variables"]}
        assert variables == {
            "node": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')",
            "written": "(object == null ? [] : [object]) + (oldObject == null ? [] : [oldObject])",
        }
        expected = f"variables.node != '' && variables.written.all(written, {node} == variables.node)"
        assert spec["validations"][0]["expression"] == expected


def test_a_slice_is_of_the_releases_own_driver_and_of_the_nodes_own_pool_and_of_no_other_node() -> None:
    policies = of_kind(render({"dra": {"enabled": True, "driverName": "devices.example.com"}}), POLICY)
    (also,) = [policy["spec"]["validations"][1] for policy in policies if policy["metadata"]["name"] == "ostler-slices"]
    conditions = (
        "written.spec.?driver.orValue('') == 'devices.example.com'",
        "written.spec.?pool.?name.orValue('') == variables.node",
        "!written.spec.?allNodes.orValue(false)",
        "!written.spec.?nodeSelector.hasValue()",
        "!written.spec.?perDeviceNodeSelection.orValue(false)",
    )
    assert also["expression"] == f"variables.written.all(written, {' && '.join(conditions)})"
    assert also["message"] == (
        "ostler writes only ResourceSlices of its own driver devices.example.com, in the pool with its node's name and "
        "for that node alone"
    )


def test_an_event_is_of_ostler_on_that_node_and_about_nothing_besides() -> None:
    (policy,) = [each for each in of_kind(render(), POLICY) if each["metadata"]["name"] == "ostler-events"]
    conditions = (
        "written.involvedObject.?uid.orValue('') == variables.node",
        "!written.?related.hasValue()",
        "written.?source.?component.orValue('') == 'ostler'",
        "written.?source.?host.orValue('') == variables.node",
    )
    also = policy["spec"]["validations"][1]
    assert also["expression"] == f"variables.written.all(written, {' && '.join(conditions)})"
    assert also["message"].startswith("ostler writes only its own events: the source is ostler on this node")


def test_claims_are_written_by_the_node_that_has_their_devices_and_only_the_devices() -> None:
    policies = of_kind(render({"dra": {"enabled": True, "driverName": "devices.example.com"}}), POLICY)
    names = [policy["metadata"]["name"] for policy in policies]
    assert names == ["ostler-claim-parameters", "ostler-slices", "ostler-events", "ostler-claims"]
    spec = policies[3]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["resourceclaims/status"], ["UPDATE"])
    own, kept = spec["validations"]
    assert "each.driver == 'devices.example.com' && each.pool == variables.node" in own["expression"]
    mine = "each.driver == 'devices.example.com' && each.pool == variables.node"
    others = f"?status.?devices.orValue([]).filter(each, !({mine}))"
    fields = ("?status.?allocation", "?status.?reservedFor", others)
    assert kept["expression"] == " && ".join(f"object.{field} == oldObject.{field}" for field in fields)


def test_of_a_nodes_status_the_allocatable_of_the_named_resources_is_written_alone() -> None:
    patches = {"enabled": True, "resources": ["a.example/gpu", "b.example/mig-*"]}
    policies = of_kind(render({"patchAllocatable": patches}), POLICY)
    assert [policy["metadata"]["name"] for policy in policies] == [
        "ostler-slices",
        "ostler-events",
        "ostler-node-status",
    ]
    spec = policies[2]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["nodes/status"], ["UPDATE"])
    own, kept = spec["validations"]
    assert "variables.written.all(written, written.metadata.name == variables.node)" in own["expression"]
    names = '(name in ["a.example/gpu"] || ["b.example/mig-"].exists(prefix, name.startsWith(prefix)))'
    assert names in kept["expression"]
    container = pod_of(render({"patchAllocatable": patches}))["containers"][0]
    assert "--kubernetes-patch-allocatable=on" in container["args"]


def test_only_pods_of_its_own_node_that_ask_by_name_are_ended() -> None:
    policies = {each["metadata"]["name"]: each for each in of_kind(render({"dra": EVICTS_BY_NAME}), POLICY)}
    by_name = "oldObject.?status.?extendedResourceClaimStatus.hasValue()"
    for name, resource, operation in (
        ("ostler-pods", "pods", "DELETE"),
        ("ostler-pod-status", "pods/status", "UPDATE"),
    ):
        spec = policies[name]["spec"]
        (rule,) = spec["matchConstraints"]["resourceRules"]
        assert (rule["resources"], rule["operations"]) == ([resource], [operation])
        own, also = spec["validations"]
        assert "written.spec.?nodeName.orValue('') == variables.node" in own["expression"]
        assert also["expression"].startswith(by_name)
        assert also["expression"].count("each.type == 'DisruptionTarget'") == (2 if operation == "UPDATE" else 0)
    assert not {"ostler-pods", "ostler-pod-status"} & {
        each["metadata"]["name"] for each in of_kind(render({"dra": {"enabled": True}}), POLICY)
    }


def test_policies_are_made_where_the_cluster_knows_them() -> None:
    assert len(of_kind(render({}, "--kube-version", "1.30.0"), "ValidatingAdmissionPolicy")) == 2
    assert not of_kind(render({}, "--kube-version", "1.29.9"), "ValidatingAdmissionPolicy")
    assert not of_kind(render({"admissionPolicy": {"enabled": False}}), "ValidatingAdmissionPolicy")
    assert not of_kind(render({"admissionPolicy": {"enabled": False}}), BINDING)


def test_without_events_there_is_no_policy_for_them() -> None:
    documents = render({"events": {"enabled": False}})
    assert only(documents, "ValidatingAdmissionPolicy")["metadata"]["name"] == "ostler-slices"


def test_objects_are_named_after_the_release_unless_a_name_is_given() -> None:
    names = {document["metadata"]["name"] for document in render({"fullnameOverride": "devices"})}
    assert names == {"devices", "devices-events", "devices-slices"}


POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"


def _users(documents: list[Document]) -> set[str]:
    found = set()
    for policy in of_kind(documents, "ValidatingAdmissionPolicy"):
        (condition,) = policy["spec"]["matchConditions"]
        left, user = condition["expression"].split(" == ")
        assert left == "request.userInfo.username"
        found.add(user.strip("'"))
    return found


def _rights(documents: list[Document]) -> set[Right]:
    found: set[Right] = set()
    for role in of_kind(documents, "Role") + of_kind(documents, "ClusterRole"):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = f"{group}/{resource}" if group else resource
                    for which in rule.get("resourceNames", [""]):
                        found |= {(role["metadata"].get("namespace", ""), name, which, verb) for verb in rule["verbs"]}
    return found


def test_of_a_pods_status_the_annotations_of_recorded_devices_are_written_alone() -> None:
    recorded = {"enabled": True}
    policies = {each["metadata"]["name"]: each for each in of_kind(render({"recordedDevices": recorded}), POLICY)}
    assert policies.keys() == {"ostler-slices", "ostler-events", "ostler-pod-status"}
    spec = policies["ostler-pod-status"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods/status"], ["UPDATE"])
    own, also = spec["validations"]
    assert "written.spec.?nodeName.orValue('') == variables.node" in own["expression"]
    names = ["hivedscheduler.microsoft.com/pod-leaf-cell-isolation", "ostler.dev/pod-devices"]
    assert f"exists(key, key in {json.dumps(names, separators=(',', ':'))})" in also["expression"]
    assert also["message"] == (
        "ostler writes only the annotations of devices, of pods for which a scheduler recorded some"
    )
    container = pod_of(render({"recordedDevices": recorded}))["containers"][0]
    assert "--kubernetes-recorded-devices=on" in container["args"]


def test_with_both_rights_to_write_pods_one_policy_allows_either() -> None:
    values = {"recordedDevices": {"enabled": True}, "dra": EVICTS_BY_NAME}
    policies = {each["metadata"]["name"]: each for each in of_kind(render(values), POLICY)}
    _, also = policies["ostler-pod-status"]["spec"]["validations"]
    either = also["expression"].split(" || oldObject.metadata.?annotations")
    assert len(either) == 2
    assert either[0].startswith("oldObject.?status.?extendedResourceClaimStatus.hasValue()")
    assert also["message"] == (
        "ostler writes only the condition DisruptionTarget, of pods whose claim the scheduler made for an extended "
        "resource, and the annotations of devices, of pods for which a scheduler recorded some"
    )
