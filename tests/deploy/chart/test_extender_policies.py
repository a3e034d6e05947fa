"""The extender's admission policies, evaluated: who writes records, and which virtual clusters a namespace may name.

``tests/cluster/chart/test_extender_policies.py`` asks a real API server a part of this.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import ANNOTATION_BIND_INFO, ANNOTATION_ISOLATION, ANNOTATION_SPEC, read_pod_spec
from tests.deploy.chart.rendering import Document, Values, refusal, render
from tests.deploy.chart.test_extender import CELLS, values
from tests.making.policies import PolicyAdmission

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

RECORDS, CLUSTERS, AGENTS = "ostler-extender-records", "ostler-extender-clusters", "ostler-pod-status"
WORKLOADS = "ostler-extender-workloads"
OWN = "ostler-extender-pod-status"
EXTENDER, AGENT = (f"system:serviceaccount:ostler-system:{name}" for name in ("ostler-extender", "ostler"))
DEVICES, ALLOCATED = "ostler.dev/pod-devices", "ostler.dev/pod-allocated-devices"
TIED = {"virtualClusters": {"default": ["team"]}}
UNCLEAR = (
    "annotation hivedscheduler.microsoft.com/pod-scheduling-spec must have at most 16384 characters, contain "
    "virtualCluster exactly once, as virtualCluster: NAME, and contain none of \\ & * !; write it in this form"
)


def policies(given: Values) -> dict[str, Document]:
    return {each["metadata"]["name"]: each for each in render(given) if each["kind"] == "ValidatingAdmissionPolicy"}


def pod(annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    own = {"name": "p", **({} if annotations is None else {"annotations": annotations}), **metadata}
    return {"metadata": own, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}


RECORDED = pod({ANNOTATION_BIND_INFO: "a", ANNOTATION_ISOLATION: "0"})


def test_without_the_extender_there_is_neither_of_them() -> None:
    assert not {RECORDS, CLUSTERS} & policies({}).keys()
    assert {RECORDS, CLUSTERS} & policies(values()).keys() == {RECORDS}
    assert {RECORDS, CLUSTERS} <= policies(values(namespaces=TIED)).keys()
    assert not {RECORDS} & policies({**values(), "admissionPolicy": {"enabled": False}}).keys()


def test_policies_are_bound_and_fail_closed() -> None:
    documents = render(values(namespaces=TIED))
    bound = {
        each["spec"]["policyName"]: each["spec"]["validationActions"]
        for each in documents
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    for name, policy in policies(values(namespaces=TIED)).items():
        assert bound[name] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"
    rules = policies(values())[RECORDS]["spec"]["matchConstraints"]["resourceRules"]
    assert {"pods", "pods/status", "pods/binding", "bindings"} < set(rules[0]["resources"])


@pytest.mark.parametrize("annotation", [ANNOTATION_BIND_INFO, ANNOTATION_ISOLATION, DEVICES, ALLOCATED])
def test_a_record_is_written_by_the_extender_alone(annotation: str) -> None:
    policy = policies(values())[RECORDS]
    expected = (
        f"annotation {annotation} records the devices of a pod; only the scheduler extender ({EXTENDER}) and the "
        "agents of ostler may write it; leave it as it was"
    )
    recorded, other = pod({annotation: "0"}), pod({annotation: "1"})
    # A Binding is created with annotations as well, and has none before.
    for written, stored in ((recorded, None), (other, recorded), (pod(), recorded), (recorded, pod({}))):
        assert PolicyAdmission(written, stored).refusals(policy) == [expected]
        assert PolicyAdmission(written, stored, user=AGENT, subresource="status").refusals(policy) == [expected]
        assert PolicyAdmission(written, stored, user=EXTENDER).refusals(policy) == []


def test_whoever_changes_something_else_is_not_kept_from_it() -> None:
    policy = policies(values())[RECORDS]
    assert PolicyAdmission(pod()).refusals(policy) == []
    assert PolicyAdmission(pod({"other": "x"})).refusals(policy) == []
    labelled = pod(RECORDED["metadata"]["annotations"], labels={"a": "b"})
    assert PolicyAdmission(labelled, RECORDED).refusals(policy) == []


def test_agents_correct_devices_in_the_status_of_pods_if_they_are_to() -> None:
    policy = policies({**values(), "recordedDevices": {"enabled": True}})[RECORDS]
    before = RECORDED["metadata"]["annotations"]
    for annotation in (ANNOTATION_ISOLATION, DEVICES, ALLOCATED):
        corrected = pod({**before, annotation: "7"})
        assert PolicyAdmission(corrected, RECORDED, user=AGENT, subresource="status").refusals(policy) == []
        assert PolicyAdmission(corrected, RECORDED, user=AGENT).refusals(policy)
        assert PolicyAdmission(corrected, RECORDED, subresource="status").refusals(policy)
    places = pod({**before, ANNOTATION_BIND_INFO: "b"})
    assert PolicyAdmission(places, RECORDED, user=AGENT, subresource="status").refusals(policy)


def test_agents_with_their_kubelets_account_correct_devices_as_well() -> None:
    policy = policies(values())[RECORDS]
    before = RECORDED["metadata"]["annotations"]
    kubelet: dict[str, Any] = {"user": "system:node:node-1", "groups": ["system:nodes", "system:authenticated"]}
    corrected, places = (pod({**before, key: "7"}) for key in (ANNOTATION_ISOLATION, ANNOTATION_BIND_INFO))
    assert PolicyAdmission(corrected, RECORDED, subresource="status", **kubelet).refusals(policy) == []
    assert PolicyAdmission(corrected, RECORDED, **kubelet).refusals(policy)
    assert PolicyAdmission(places, RECORDED, subresource="status", **kubelet).refusals(policy)


def test_the_extender_writes_of_a_pods_status_only_the_record_of_a_pod_that_has_one() -> None:
    assert OWN not in policies({}).keys() | policies({**values(), "admissionPolicy": {"enabled": False}}).keys()
    policy = policies(values())[OWN]
    before = RECORDED["metadata"]["annotations"]
    moved = pod({**before, ANNOTATION_BIND_INFO: "b"})

    def refused(written: Document, stored: Document = RECORDED, user: str = EXTENDER) -> list[str]:
        return PolicyAdmission(written, stored, user=user, subresource="status").refusals(policy)

    assert refused(moved) == []
    expected = [f"the scheduler extender writes only the annotation {ANNOTATION_BIND_INFO}, of pods that have it"]
    for wrong in (
        pod({**before, ANNOTATION_ISOLATION: "1"}),
        pod({ANNOTATION_BIND_INFO: "b"}),
        pod({**before, ANNOTATION_BIND_INFO: "b", "other": "x"}),
        pod({**before, ANNOTATION_BIND_INFO: "b"}, labels={"a": "b"}),
        {**moved, "status": {"phase": "Failed"}},
        pod(),
    ):
        assert refused(wrong) == expected
        assert refused(wrong, user=AGENT) == []
    assert refused(pod({ANNOTATION_BIND_INFO: "b"}), pod()) == expected


def test_an_agent_writes_of_a_pods_status_only_the_annotations_of_recorded_devices() -> None:
    policy = policies({"recordedDevices": {"enabled": True}})[AGENTS]
    before = RECORDED["metadata"]["annotations"]
    corrected = pod({**before, ANNOTATION_ISOLATION: "1", DEVICES: "GPU-1", ALLOCATED: "GPU-1"})

    def refused(written: Document, stored: Document = RECORDED, node: str = "node-1") -> list[str]:
        return PolicyAdmission(written, stored, user=AGENT, node=node, subresource="status").refusals(policy)

    assert refused(corrected) == []
    assert refused(corrected, node="node-2") == [
        "the agent on node node-2 may write the status of pods of that node alone"
    ]
    only = ["ostler writes only the annotations of devices, of pods for which a scheduler recorded some"]
    assert refused(pod({**before, "other": "x"})) == only
    assert refused(pod({ANNOTATION_ISOLATION: "0"})) == only
    assert refused(pod(before, labels={"a": "b"})) == only
    assert refused({**RECORDED, "status": {"phase": "Failed"}}) == only
    assert refused(pod({ALLOCATED: "GPU-1"}), pod({})) == only


@pytest.mark.parametrize(
    "text",
    [
        "virtualCluster: team",
        "virtualCluster: 'team'\npriority: 1",
        'leafCellNumber: 1\n"virtualCluster" : "team"  \n',
        json.dumps({"leafCellNumber": 1, "virtualCluster": "team", "priority": 1}),
        json.dumps({"leafCellNumber": 1, "virtualCluster": "team"}, indent=2),
        '{"virtualCluster":"team"}',
    ],
)
def test_pods_of_a_namespace_may_name_its_virtual_cluster(text: str) -> None:
    policy = policies(values(namespaces=TIED))[CLUSTERS]
    assert PolicyAdmission(pod({ANNOTATION_SPEC: text})).refusals(policy) == []
    elsewhere = PolicyAdmission(pod({ANNOTATION_SPEC: text}), namespace={"metadata": {"name": "other"}})
    expected = "namespace other may not use the virtual cluster team; it may use none"
    assert elsewhere.refusals(policy) == [expected]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("virtualCluster: product", "namespace default may not use the virtual cluster product; it may use team"),
        ("priority: 1", UNCLEAR),
        ("virtualCluster: team\nvirtualCluster: product", UNCLEAR),
        ("{virtualCluster: team, virtualCluster: product}", UNCLEAR),
        ('"virtualCluster": team\n"virtual\\x43luster": product', UNCLEAR),
        ("a: &x virtualCluster\n*x : product", UNCLEAR),
        ("&x virtualCluster: team\n*x : product", UNCLEAR),
        ("? virtualCluster\n: product", UNCLEAR),
        ("virtualCluster: !!str product", UNCLEAR),
        ("virtualCluster: team product", UNCLEAR),
        ("virtualCluster: team" + " " * 16384, UNCLEAR),
    ],
)
def test_other_virtual_clusters_and_unclear_texts_are_refused(text: str, problem: str) -> None:
    policy = policies(values(namespaces=TIED))[CLUSTERS]
    assert PolicyAdmission(pod({ANNOTATION_SPEC: text})).refusals(policy) == [problem]
    # A text that has not changed was admitted before, maybe under other rules.
    stored = pod({ANNOTATION_SPEC: text})
    assert PolicyAdmission(pod({ANNOTATION_SPEC: text}, labels={"a": "b"}), stored).refusals(policy) == []
    assert PolicyAdmission(pod({ANNOTATION_SPEC: text}), pod({})).refusals(policy) == [problem]


def workload(*texts: str | None) -> dict[str, Any]:
    templates: list[dict[str, Any]] = [
        {"spec": {}} if text is None else {"metadata": {"annotations": {ANNOTATION_SPEC: text}}} for text in texts
    ]
    sets = [{"name": str(number), "template": each} for number, each in enumerate(templates)]
    return {"metadata": {"name": "w"}, "spec": {"podSets": sets}}


def test_workloads_of_a_namespace_may_name_its_virtual_cluster_alone() -> None:
    assert WORKLOADS not in policies(values(namespaces=TIED))
    assert WORKLOADS not in policies(values(kueue={"enabled": True}))
    policy = policies(values(namespaces=TIED, kueue={"enabled": True}))[WORKLOADS]
    ours, theirs = "virtualCluster: team", "{virtualCluster: product}"
    assert PolicyAdmission(workload(ours, None, ours)).refusals(policy) == []
    assert PolicyAdmission(workload(None)).refusals(policy) == []
    assert PolicyAdmission({"metadata": {"name": "w"}, "spec": {}}).refusals(policy) == []
    expected = "namespace default may not use the virtual cluster product; it may use team"
    assert PolicyAdmission(workload(ours, theirs)).refusals(policy) == [expected]
    assert PolicyAdmission(workload(ours, "virtualCluster: *a")).refusals(policy) == [UNCLEAR]
    # What was admitted before may be changed otherwise, and deleted.
    assert PolicyAdmission(workload(theirs), workload(theirs)).refusals(policy) == []
    assert PolicyAdmission(workload(ours, theirs), workload(ours)).refusals(policy) == [expected]


PARTS = (
    "virtualCluster", "virtual", "Cluster", "team", "product", ":", ": ", " ", "\n", "\n  ", ",", "{", "}", "[", "]",
    '"', "'", "#", " #", "|", ">", "? ", "- ", "&a ", "*a", "!", "\\", "%", "---\n", "...", "<<", "\r", "\t", "\u2028",
    "virtualCluster: team", "virtualCluster: product", '"virtualCluster": "team"', "leafCellNumber: 1", "~",
)  # fmt: skip


def test_what_is_admitted_is_read_as_the_virtual_cluster_that_was_allowed() -> None:
    """Any text: if it is admitted, the extender takes it for the allowed virtual cluster or refuses it."""
    policy = policies(values(namespaces=TIED))[CLUSTERS]
    chance = random.Random(1)
    admitted = 0
    for _ in range(600):
        text = "".join(chance.choices(PARTS, k=chance.randrange(1, 7)))
        text = chance.choice(("{}", "leafCellNumber: 1\n{}", "{{leafCellNumber: 1, {}}}")).format(text)
        if "virtualCluster" not in text or PolicyAdmission(pod({ANNOTATION_SPEC: text})).refusals(policy):
            continue
        admitted += 1
        try:
            spec = read_pod_spec({ANNOTATION_SPEC: text}, "default", "p")
        except CellsUserError:
            continue
        assert spec.virtual_cluster == "team", text
    assert admitted > 15


def test_an_annotation_of_the_namespace_names_virtual_clusters() -> None:
    both = {**TIED, "annotation": "ostler.dev/virtual-clusters"}
    policy = policies(values(namespaces=both))[CLUSTERS]

    def refused(cluster: str, named: str | None) -> list[str]:
        metadata: dict[str, Any] = {"name": "default"}
        if named is not None:
            metadata["annotations"] = {"ostler.dev/virtual-clusters": named}
        written = pod({ANNOTATION_SPEC: f"virtualCluster: {cluster}"})
        return PolicyAdmission(written, namespace={"metadata": metadata}).refusals(policy)

    assert refused("team", None) == refused("team", "other") == []
    assert refused("product", "other, product ") == []
    assert refused("product", None) == ["namespace default may not use the virtual cluster product; it may use team"]
    expected = "namespace default may not use the virtual cluster product; it may use team, prod, uct"
    assert refused("product", "prod,,uct") == [expected]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {**values(namespaces=TIED), "admissionPolicy": {"enabled": False}},
            "extender.namespaces ties namespaces to virtual clusters by an admission policy: set admissionPolicy",
        ),
        (
            values(namespaces={"virtualClusters": {"default": ["tean"]}}),
            'extender.namespaces.virtualClusters.default: extender.config has no virtual cluster "tean"; it has team',
        ),
        (
            values(namespaces=TIED, config={**CELLS, "virtualClusters": {"team": {}, "my team": {}}}),
            'extender.namespaces: an admission policy cannot tell the virtual cluster "my team" from others',
        ),
        (values(namespaces={"annotation": "a b"}), "'/extender/namespaces/annotation'"),
        (values(namespaces={"virtualClusters": {"Default": []}}), "Default"),
    ],
)
def test_what_cannot_be_tied_is_refused(given: Values, problem: str) -> None:
    assert problem in " ".join(refusal(given).split())
