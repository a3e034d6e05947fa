"""The commands with the rights that people have, and from a snapshot: what cannot be read is told, never a crash."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.cluster.components.versions import DRA_GATES_ON, newest
from tests.cluster.explain import page
from tests.cluster.explain.reasons import NODE, REASONS, ClusterReason, gpu, request, slice_of
from tests.cluster.explain.stage import TEAM, ExplainStage
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.processes import wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEVICES, CORE = "resource.k8s.io", ""
HELD = next(reason for reason in REASONS if reason.title == "All devices are held")


def rule(group: str, verbs: str, *kinds: str) -> Object:
    return {"apiGroups": [group], "verbs": verbs.split(), "resources": list(kinds)}


@pytest.fixture(scope="module")
def accounts(built: ExplainStage) -> ExplainStage:
    """``member`` may read what is in its namespace, and classes and slices; ``stranger`` nothing."""
    api = built.cluster.api
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    member = [{**group, "kind": "User", "name": "member"}]
    own, all_of = {"name": "member", "namespace": TEAM}, {"name": "member"}
    inner = [rule(CORE, "get list", "pods"), rule(DEVICES, "get list", "resourceclaims", "resourceclaimtemplates")]
    api.create(f"{RBAC}/namespaces/{TEAM}/roles", {"metadata": own, "rules": inner})
    outer = [rule(DEVICES, "get list", "deviceclasses", "resourceslices")]
    api.create(f"{RBAC}/clusterroles", {"metadata": all_of, "rules": outer})
    for path, kind, metadata in (
        (f"namespaces/{TEAM}/rolebindings", "Role", own),
        ("clusterrolebindings", "ClusterRole", all_of),
    ):
        role = {**group, "kind": kind, "name": "member"}
        api.create(f"{RBAC}/{path}", {"metadata": metadata, "subjects": member, "roleRef": role})
    for group_, verb, kind, namespace in (
        (CORE, "get", "pods", TEAM), (DEVICES, "list", "resourceclaims", TEAM), (DEVICES, "list", "resourceslices", "")
    ):  # fmt: skip
        asked = {"group": group_, "verb": verb, "resource": kind, "namespace": namespace}
        wait_until(f"member may {verb} {kind}", partial(may, api, asked))
    return built


def may(api: RigApi, asked: Object) -> bool:
    """Whether ``member`` may do this already: the API server takes up rights a moment after they were given."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": "member", "resourceAttributes": asked}
    answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**review, "spec": spec})
    return bool(answer["status"]["allowed"])


def kubeconfig(stage: ExplainStage, tmp_path: Path, name: str) -> Path:
    return stage.cluster.authority.kubeconfig(name, f"/CN={name}", tmp_path / f"{name}.kubeconfig")


def test_member_of_a_namespace_gets_the_reason_and_the_rights_that_are_missing(
    accounts: ExplainStage, stage: ExplainStage, tmp_path: Path
) -> None:
    stage.lay(HELD)
    as_member = accounts.ostler("explain", "pod/train", "-n", TEAM, kubeconfig=kubeconfig(stage, tmp_path, "member"))
    assert (as_member.returncode, as_member.stderr) == (1, "")
    said = " ".join(as_member.stdout.split())
    assert "gpu-0, gpu-1 held by claim team/infer (pod team/infer)" in said
    assert "claims outside namespace team could not be read, so devices that they hold look free" in said
    assert 'grant your account the verb list on nodes of the API group "" with a ClusterRole' in said


def test_account_without_rights_is_told_what_it_needs(stage: ExplainStage, tmp_path: Path) -> None:
    stage.lay(HELD)
    refused = stage.ostler("explain", "pod/train", "-n", TEAM, kubeconfig=kubeconfig(stage, tmp_path, "stranger"))
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "pods" in refused.stderr + refused.stdout


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: str(reason.title))
def test_snapshot_gives_the_same_answer_as_the_cluster(
    stage: ExplainStage, tmp_path: Path, reason: ClusterReason
) -> None:
    stage.lay(reason)
    words = page.recorded(reason.title, page.SCHEDULER).rstrip("\n")
    stage.verdict(words if stage.cluster.version == newest() else "")
    file = tmp_path / "cluster.yaml"
    taken = stage.ostler("snapshot", "-o", str(file))
    assert (taken.returncode, taken.stdout) == (0, ""), taken.stderr
    assert "not in it" not in taken.stderr
    question = ("explain", "pod/train", "-n", TEAM)
    live = stage.ostler(*question)
    kept = stage.ostler(*question, "--from", str(file), kubeconfig=tmp_path / "none")
    assert (kept.returncode, kept.stderr) == (live.returncode, live.stderr) == (1, "")
    assert kept.stdout == live.stdout


def test_snapshot_of_a_member_says_what_it_lacks(accounts: ExplainStage, stage: ExplainStage, tmp_path: Path) -> None:
    stage.lay(HELD)
    file = tmp_path / "cluster.yaml"
    taken = accounts.ostler("snapshot", "-o", str(file), kubeconfig=kubeconfig(stage, tmp_path, "member"))
    assert taken.returncode == 0, taken.stderr
    assert "not in it: nodes cannot be read" in taken.stderr
    assert "ResourceSlice" in file.read_text()


def test_manifest_is_explained_before_it_is_applied(stage: ExplainStage, tmp_path: Path) -> None:
    stage.lay(ClusterReason("", slices=(slice_of(gpu("gpu-0"), gpu("gpu-1")),), train=(request(),)))
    stage.cluster.api.wait(f"/api/v1/namespaces/{TEAM}/pods/train", "runs", lambda pod: "nodeName" in pod["spec"])
    file = tmp_path / "claim.yaml"
    file.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: more, namespace: team}\n"
        "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}\n"
    )
    asked = stage.ostler("explain", "-f", str(file))
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert f"fits on {NODE}" in asked.stdout
    assert "gpu-1" in asked.stdout
    stage.cluster.kubectl("apply", "-f", str(file))


def test_toleration_without_effect_does_not_keep_a_pod_from_being_evicted(stage: ExplainStage) -> None:
    """The page says so: scheduler and eviction read a toleration without effect differently."""
    taint = {"key": "gpu.example.com/xid", "value": "79", "effect": "NoExecute"}
    tolerant = request(tolerations=[{"key": "gpu.example.com/xid", "operator": "Exists"}])
    stage.lay(
        ClusterReason("", slices=(slice_of(gpu("gpu-0", taints=[taint])),), train=(tolerant,), since=DRA_GATES_ON)
    )
    events = f"/api/v1/namespaces/{TEAM}/events?fieldSelector=involvedObject.name=train"
    wanted = {"Scheduled", "DeviceTaintManagerEviction"}
    stage.cluster.api.wait(events, "tell both", lambda found: wanted <= {event["reason"] for event in found["items"]})
