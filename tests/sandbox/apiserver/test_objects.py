"""Create, read, replace, patch, delete: what is stored and what is refused."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import CLAIMS, MERGE, NODES, PODS, RESOURCES, SLICES, ask, claim_of, slice_of


def test_new_object_gets_uid_version_time_and_generation() -> None:
    with ApiServer(clock=lambda: 0.0, random=Random(1)) as server:
        made = ask(server, "POST", SLICES, slice_of() | {"metadata": {"name": "s", "uid": "mine", "generation": 9}})
    assert made.code == 201
    metadata = made.body["metadata"]
    assert metadata["creationTimestamp"] == "1970-01-01T00:00:00Z"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert (metadata["resourceVersion"], metadata["generation"]) == ("991", 1)


def test_generated_name_is_cut_and_has_five_random_characters(server: ApiServer) -> None:
    prefix = "a" * 70
    names = {server.store.create("resourceslices", generated(prefix))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def generated(prefix: str) -> dict[str, Any]:
    return slice_of() | {"metadata": {"generateName": prefix}}


def test_second_object_of_a_name_is_refused(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of())
    reply = ask(server, "POST", SLICES, slice_of())
    assert (reply.code, reply.body["reason"]) == (409, "AlreadyExists")
    assert reply.body["message"] == 'resourceslices.resource.k8s.io "s" already exists'


def test_resource_version_at_creation_is_refused(server: ApiServer) -> None:
    reply = ask(server, "POST", SLICES, slice_of() | {"metadata": {"name": "s", "resourceVersion": "5"}})
    assert (reply.code, reply.body["message"]) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


def test_missing_object_is_named(server: ApiServer) -> None:
    for method, body in (("GET", None), ("PUT", slice_of()), ("DELETE", None)):
        reply = ask(server, method, f"{SLICES}/s", body)
        assert (reply.code, reply.body["reason"]) == (404, "NotFound")
        assert reply.body["message"] == 'resourceslices.resource.k8s.io "s" not found'
        assert reply.body["details"] == {"name": "s", "group": "resource.k8s.io", "kind": "resourceslices"}


def test_stale_replacement_conflicts(server: ApiServer) -> None:
    old = server.store.create("resourceslices", slice_of())
    server.store.patch("resourceslices", "s", {"metadata": {"labels": {"a": "b"}}})
    reply = ask(server, "PUT", f"{SLICES}/s", old)
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert reply.body["message"] == (
        'Operation cannot be fulfilled on resourceslices.resource.k8s.io "s": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_replacement_of_an_object_made_anew_conflicts(server: ApiServer) -> None:
    old = server.store.create("resourceslices", slice_of())
    server.store.delete("resourceslices", "s")
    server.store.create("resourceslices", slice_of())
    del old["metadata"]["resourceVersion"]
    reply = ask(server, "PUT", f"{SLICES}/s", old)
    assert reply.code == 409
    assert "Precondition failed: UID in precondition" in reply.body["message"]


def test_replacement_without_a_version_is_taken(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of())
    reply = ask(server, "PUT", f"{SLICES}/s", slice_of(devices=[{"name": "d"}]))
    assert reply.code == 200
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert reply.body["metadata"]["generation"] == 2


def test_replacement_that_changes_nothing_makes_no_version(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of())
    before = server.store.version
    assert ask(server, "PUT", f"{SLICES}/s", made).body == made
    assert server.store.version == before


def test_name_must_be_that_of_the_path(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of())
    reply = ask(server, "PUT", f"{SLICES}/s", slice_of("t"))
    assert (reply.code, reply.body["message"]) == (
        400,
        "the name of the object (t) does not match the name on the URL (s)",
    )


def test_namespace_must_be_that_of_the_path(server: ApiServer) -> None:
    reply = ask(server, "POST", CLAIMS, claim_of(namespace="other"))
    assert reply.code == 400
    assert "the namespace of the provided object does not match" in reply.body["message"]


def test_broken_rule_is_answered_with_its_cause(server: ApiServer) -> None:
    reply = ask(server, "POST", SLICES, slice_of(driver="Not_A_Name"))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert reply.body["message"].startswith('ResourceSlice.resource.k8s.io "s" is invalid: spec.driver: ')
    assert [cause["field"] for cause in reply.body["details"]["causes"]] == ["spec.driver"]


def test_body_that_is_no_json_is_refused(server: ApiServer) -> None:
    assert ask(server, "POST", SLICES, b"{").code == 400
    assert ask(server, "POST", SLICES, b"[]").code == 400
    assert ask(server, "POST", SLICES, b"k8s", content_type="application/cbor").code == 415
    assert ask(server, "POST", SLICES, b" " * (3 << 20) + b"{}").code == 413


def test_other_kind_is_refused(server: ApiServer) -> None:
    reply = ask(server, "POST", SLICES, claim_of())
    assert reply.code == 400
    assert 'ResourceClaim in version "v1" cannot be handled as a ResourceSlice' in reply.body["message"]


@pytest.mark.parametrize("wrong", [{"uid": "other"}, {"resourceVersion": "1"}])
def test_deletion_with_a_failed_precondition_conflicts(server: ApiServer, wrong: dict[str, str]) -> None:
    server.store.create("resourceslices", slice_of())
    reply = ask(server, "DELETE", f"{SLICES}/s", {"preconditions": wrong})
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert "in the precondition" in reply.body["message"]
    assert server.store.list("resourceslices")


def test_deletion_with_right_preconditions_answers_the_object(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of())["metadata"]
    conditions = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    reply = ask(server, "DELETE", f"{SLICES}/s", {"preconditions": conditions})
    assert (reply.code, reply.body["metadata"]["uid"]) == (200, made["uid"])
    assert not server.store.list("resourceslices")


def test_object_with_finalizers_stays_until_they_are_gone(server: ApiServer) -> None:
    server.store.create("resourceclaims", claim_of(finalizers=["example.com/wait"]))
    marked = ask(server, "DELETE", f"{CLAIMS}/c").body
    assert marked["metadata"]["deletionTimestamp"]
    assert ask(server, "DELETE", f"{CLAIMS}/c").body == marked
    ask(server, "PATCH", f"{CLAIMS}/c", {"metadata": {"finalizers": None}}, MERGE)
    assert ask(server, "GET", f"{CLAIMS}/c").code == 404


def test_pod_on_a_node_is_ended_by_its_kubelet(server: ApiServer) -> None:
    server.store.create("pods", {"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 7}})
    binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p"}, "target": {"name": "n"}}
    assert ask(server, "POST", f"{PODS}/p/binding", binding).code == 201
    again = ask(server, "POST", f"{PODS}/p/binding", binding)
    assert (again.code, 'already assigned to node "n"' in again.body["message"]) == (409, True)
    marked = ask(server, "DELETE", f"{PODS}/p").body["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 7
    assert ask(server, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}).code == 200
    assert ask(server, "GET", f"{PODS}/p").code == 404


def test_pod_nowhere_is_deleted_at_once(server: ApiServer) -> None:
    server.store.create("pods", {"metadata": {"name": "p"}})
    assert ask(server, "DELETE", f"{PODS}/p").code == 200
    assert not server.store.list("pods")


def test_status_is_written_by_itself(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}})
    node = server.store.get("nodes", "n")
    node["status"]["capacity"]["cpu"] = "2"
    assert ask(server, "PUT", f"{NODES}/n", node).body["status"]["capacity"] == {"cpu": "1"}
    node["spec"] = {"unschedulable": True}
    changed = ask(server, "PUT", f"{NODES}/n/status", node).body
    assert (changed["status"]["capacity"], "spec" in changed) == ({"cpu": "2"}, False)


def test_claim_status_is_judged(server: ApiServer) -> None:
    claim = server.store.create("resourceclaims", claim_of())
    claim["status"] = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    reply = ask(server, "PUT", f"{CLAIMS}/c/status", claim)
    assert reply.code == 422
    results = [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]
    claim["status"]["allocation"] = {"devices": {"results": results}}
    reply = ask(server, "PUT", f"{CLAIMS}/c/status", claim)
    assert reply.code == 200, reply
    assert reply.body["status"]["reservedFor"][0]["name"] == "p"
    del claim["status"]
    claim["metadata"]["labels"] = {"a": "b"}
    claim["metadata"].pop("resourceVersion")
    assert ask(server, "PUT", f"{CLAIMS}/c", claim).body["status"]["reservedFor"]


def test_admin_access_needs_a_labelled_namespace(server: ApiServer) -> None:
    claim = claim_of()
    claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    assert ask(server, "POST", CLAIMS, claim).code == 422
    label = {"resource.kubernetes.io/admin-access": "true"}
    server.store.create("namespaces", {"metadata": {"name": "default", "labels": label}})
    assert ask(server, "POST", CLAIMS, claim).code == 201


def test_patch_is_applied_in_the_version_of_the_request(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of(devices=[{"name": "d", "attributes": {"a": {"int": 1}}}]))
    path = f"{SLICES.replace('/v1/', '/v1beta1/')}/s"
    patch = {"spec": {"devices": [{"name": "d", "basic": {"attributes": {"a": {"int": 2}}}}]}}
    reply = ask(server, "PATCH", path, patch, MERGE)
    assert reply.body["apiVersion"] == "resource.k8s.io/v1beta1"
    stored = server.store.get("resourceslices", "s")
    assert stored["spec"]["devices"] == [{"name": "d", "attributes": {"a": {"int": 2}}}]


def test_patch_with_a_stale_version_conflicts(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n"}})
    reply = ask(server, "PATCH", f"{NODES}/n", {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}, MERGE)
    assert reply.code == 409


def test_taint_gets_its_time(server: ApiServer) -> None:
    devices = [{"name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}]}]
    made = ask(server, "POST", SLICES, slice_of(devices=devices))
    assert made.body["spec"]["devices"][0]["taints"][0]["timeAdded"]


def test_dry_run_stores_nothing(server: ApiServer) -> None:
    assert ask(server, "POST", SLICES, slice_of(), dryRun="All").code == 201
    server.store.create("resourceslices", slice_of())
    assert ask(server, "PUT", f"{SLICES}/s", slice_of(devices=[{"name": "d"}]), dryRun="All").code == 200
    assert ask(server, "DELETE", f"{SLICES}/s", dryRun="All").code == 200
    assert "devices" not in server.store.get("resourceslices", "s")["spec"]
    assert ask(server, "POST", SLICES, slice_of("t"), dryRun="Some").code == 422


def test_collection_is_deleted_by_selectors(server: ApiServer) -> None:
    for name, node in (("a", "one"), ("b", "two"), ("c", "one")):
        server.store.create("resourceslices", slice_of(name, node=node))
    reply = ask(server, "DELETE", SLICES, fieldSelector="spec.driver=drv.example.com,spec.nodeName=one")
    assert (reply.code, reply.body["kind"]) == (200, "ResourceSliceList")
    assert [each["metadata"]["name"] for each in server.store.list("resourceslices")] == ["b"]


def test_store_hands_out_copies(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of())
    made["spec"]["driver"] = "changed"
    assert server.store.get("resourceslices", "s")["spec"]["driver"] == "drv.example.com"


def test_store_refuses_as_the_server_does(server: ApiServer) -> None:
    with pytest.raises(StatusError, match="not found") as caught:
        server.store.get("resourceslices", "s")
    assert caught.value.code == 404


def test_templates_and_classes_are_served(server: ApiServer) -> None:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim_of()["spec"]}}
    assert ask(server, "POST", f"{RESOURCES}/namespaces/default/resourceclaimtemplates", template).code == 201
    assert ask(server, "POST", f"{RESOURCES}/deviceclasses", {"metadata": {"name": "c"}, "spec": {}}).code == 201


@pytest.mark.parametrize(
    ("node", "code", "told"),
    [
        ({"metadata": {"name": 5}}, 400, "metadata.name: must be a string"),
        ({"metadata": {"name": "n", "labels": ["a"]}}, 400, "metadata.labels: must be a mapping of strings"),
        ({"metadata": {"name": "n", "finalizers": "a"}}, 400, "metadata.finalizers: must be a list of strings"),
        ({"metadata": {"name": "n"}, "spec": []}, 400, "spec: must be a mapping"),
        ({"metadata": {"name": "N"}}, 422, 'Node "N" is invalid: metadata.name: '),
        ({"metadata": {}}, 422, 'Node "" is invalid: metadata.name: needs a name'),
    ],
)
def test_object_that_others_would_stumble_over_is_refused(server: ApiServer, node: Any, code: int, told: str) -> None:
    reply = ask(server, "POST", NODES, node)
    assert (reply.code, told in reply.body["message"]) == (code, True), reply.body["message"]


def test_unknown_part_of_an_object_is_refused(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n"}})
    assert ask(server, "GET", f"{NODES}/n/scale").code == 404
    assert ask(server, "GET", f"{NODES}/n/status").body["metadata"]["name"] == "n"


def test_list_deletion_leaves_what_is_waited_for(server: ApiServer) -> None:
    server.store.create("resourceclaims", claim_of("a"))
    server.store.create("resourceclaims", claim_of("b", finalizers=["example.com/wait"]))
    assert ask(server, "DELETE", CLAIMS).code == 200
    left = server.store.list("resourceclaims")
    assert [each["metadata"]["name"] for each in left] == ["b"]
    assert "deletionTimestamp" in left[0]["metadata"]
