"""The conversation that was recorded with a real API server: one request after the other, each with what it shows.

`<uid N>` and `<rv N>` stand for the Nth uid and resource version that occurred in the answers before.
"""

from __future__ import annotations

from typing import Any

from tests.sandbox.apiserver.asked import (
    CLAIMS,
    EVENTS,
    GROUP,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    SLICES,
    asked,
    claim_of,
    pod_of,
    slice_of,
)
from tests.sandbox.apiserver.protocol_oddities import ODDITIES

ALLOCATED = {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}}
USER = {"resource": "pods", "name": "p", "uid": "u"}
RULE = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
EVENT: dict[str, Any] = {
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Node", "name": "n", "uid": "n"},
    "reason": "Told",
    "message": "something",
    "type": "Normal",
}

DISCOVERY = [
    asked("a group that is not there", "GET", "/apis/nothing.example.com"),
    asked("a version that is not there", "GET", f"{GROUP}/v9"),
    asked("a list in a version that is not there", "GET", f"{GROUP}/v9/resourceslices"),
    asked("a resource that is not there", "GET", f"{GROUP}/v1/nothings"),
    asked("a part that is not there", "GET", f"{SLICES}/s/status"),
]
SLICES_ALONE = [
    asked("an empty list", "GET", SLICES),
    asked("a new slice", "POST", SLICES, slice_of("s")),
    asked("the same name again", "POST", SLICES, slice_of("s")),
    asked("a new slice with a resource version", "POST", SLICES, slice_of("t", resourceVersion="5")),
    asked("a new slice without a name", "POST", SLICES, slice_of("")),
    asked("a new slice with uid and generation of its own", "POST", SLICES, slice_of("t", uid="mine", generation=9)),
    asked("a new slice with a wrong driver", "POST", SLICES, slice_of("u") | {"spec": {"driver": "No_Name"}}),
    asked("a missing one", "GET", f"{SLICES}/missing"),
    asked("replaced without a resource version", "PUT", f"{SLICES}/s", slice_of("s", devices=("d",))),
    asked("replaced by the same", "PUT", f"{SLICES}/s", slice_of("s", devices=("d",))),
    asked("replaced with an old resource version", "PUT", f"{SLICES}/s", slice_of("s", resourceVersion="<rv 1>")),
    asked("replaced with another uid", "PUT", f"{SLICES}/s", slice_of("s", uid="other")),
    asked("replaced under another name", "PUT", f"{SLICES}/s", slice_of("t")),
    asked("replaced without a name", "PUT", f"{SLICES}/s", slice_of("")),
    asked("replaced with a wrong resource version", "PUT", f"{SLICES}/s", slice_of("s", resourceVersion="x")),
    asked("a missing one replaced", "PUT", f"{SLICES}/missing", slice_of("missing")),
    asked("a missing one replaced, with uid", "PUT", f"{SLICES}/missing", slice_of("missing", uid="other")),
    asked(
        "its driver changed", "PUT", f"{SLICES}/s", slice_of("s") | {"spec": slice_of("s")["spec"] | {"driver": "x"}}
    ),
    asked("another kind", "POST", SLICES, claim_of("s")),
    asked("another version in the body", "POST", SLICES, slice_of("v") | {"apiVersion": "resource.k8s.io/v1beta2"}),
    asked(
        "a body without kind and version", "POST", SLICES, {"metadata": {"name": "w"}, "spec": slice_of("w")["spec"]}
    ),
    asked("only tried", "POST", SLICES, slice_of("x"), dryRun="All"),
    asked("tried in an unknown way", "POST", SLICES, slice_of("x"), dryRun="Some"),
    asked("no method of a collection", "PATCH", SLICES, {}, type=MERGE),
    asked("no method of an object", "POST", f"{SLICES}/s", slice_of("s")),
]
SELECTORS = [
    asked("by node", "GET", SLICES, fieldSelector="spec.nodeName=one,spec.driver=drv.example.com"),
    asked("by no node", "GET", SLICES, fieldSelector="spec.nodeName="),
    asked("by a field that cannot be selected by", "GET", SLICES, fieldSelector="spec.pool.name=p"),
    asked("by half a field selector", "GET", SLICES, fieldSelector="spec.driver"),
    asked("by a wrong label selector", "GET", SLICES, labelSelector="a b"),
    asked("the first page", "GET", SLICES, limit="1"),
    asked("a page of nothing", "GET", SLICES, limit="1", continue_="nonsense"),
    asked("many are not a number", "GET", SLICES, limit="many"),
    asked("a version that is none", "GET", SLICES, resourceVersion="x"),
    asked("a version that has not been", "GET", SLICES, resourceVersion="1000000"),
    asked("one, in a version that has not been", "GET", f"{SLICES}/s", resourceVersion="1000000"),
]
OTHER_VERSIONS = [
    asked("one in v1beta1", "GET", f"{GROUP}/v1beta1/resourceslices/s"),
    asked("all in v1beta2", "GET", f"{GROUP}/v1beta2/resourceslices", fieldSelector="metadata.name=s"),
    asked("a patch in v1beta1", "PATCH", f"{GROUP}/v1beta1/resourceslices/s", {"spec": {"devices": []}}, type=MERGE),
    asked("a missing one in v1beta1", "DELETE", f"{GROUP}/v1beta1/resourceslices/missing"),
    asked("taint rules in v1", "POST", f"{GROUP}/v1/devicetaintrules", RULE),
]
PATCHES = [
    asked("labels", "PATCH", f"{SLICES}/s", {"metadata": {"labels": {"a": "b", "c": "d"}}}, type=MERGE),
    asked("a label less", "PATCH", f"{SLICES}/s", {"metadata": {"labels": {"a": None}}}, type=MERGE),
    asked("nothing", "PATCH", f"{SLICES}/s", {}, type=MERGE),
    asked("a stale patch", "PATCH", f"{SLICES}/s", {"metadata": {"resourceVersion": "<rv 1>"}}, type=MERGE),
    asked("another name", "PATCH", f"{SLICES}/s", {"metadata": {"name": "t"}}, type=MERGE),
    asked("an operation", "PATCH", f"{SLICES}/s", [{"op": "remove", "path": "/metadata/labels/c"}], type=JSON_PATCH),
    asked("a test that fails", "PATCH", f"{SLICES}/s", [{"op": "test", "path": "/kind", "value": 1}], type=JSON_PATCH),
    asked("a patch of no known kind", "PATCH", f"{SLICES}/s", {}, type="application/json"),
    asked("a missing one patched", "PATCH", f"{SLICES}/missing", {}, type=MERGE),
    asked("patched to what is wrong", "PATCH", f"{SLICES}/s", {"spec": {"nodeName": "two"}}, type=MERGE),
]
CLAIMS_ALONE = [
    asked("a new claim", "POST", CLAIMS, claim_of("c", finalizers=["example.com/wait"])),
    asked("a claim of another namespace", "POST", CLAIMS, claim_of("d", namespace="other")),
    asked("a claim of no namespace", "POST", f"{GROUP}/v1/resourceclaims", claim_of("d")),
    asked("all claims", "GET", f"{GROUP}/v1/resourceclaims"),
    asked("its spec changed", "PATCH", f"{CLAIMS}/c", {"spec": {"devices": {"requests": []}}}, type=MERGE),
    asked("reserved too early", "PATCH", f"{CLAIMS}/c/status", {"status": {"reservedFor": [USER]}}, type=MERGE),
    asked("allocated", "PATCH", f"{CLAIMS}/c/status", {"status": {"allocation": ALLOCATED}}, type=MERGE),
    asked("reserved", "PATCH", f"{CLAIMS}/c/status", {"status": {"reservedFor": [USER]}}, type=MERGE),
    asked("status by the wrong door", "PATCH", f"{CLAIMS}/c", {"status": {"reservedFor": []}}, type=MERGE),
    asked(
        "labels by the door of the status",
        "PATCH",
        f"{CLAIMS}/c/status",
        {"metadata": {"labels": {"a": "b"}}},
        type=MERGE,
    ),
    asked("deleted with a finalizer", "DELETE", f"{CLAIMS}/c"),
    asked("deleted again", "DELETE", f"{CLAIMS}/c"),
    asked(
        "a finalizer more",
        "PATCH",
        f"{CLAIMS}/c",
        {"metadata": {"finalizers": ["example.com/wait", "example.com/x"]}},
        type=MERGE,
    ),
    asked("no finalizer", "PATCH", f"{CLAIMS}/c", {"metadata": {"finalizers": []}}, type=MERGE),
    asked("gone", "GET", f"{CLAIMS}/c"),
]
CORE = [
    asked("a new node", "POST", NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}}),
    asked("status of a node", "PATCH", f"{NODES}/n/status", {"status": {"capacity": {"cpu": "2"}}}, type=MERGE),
    asked(
        "status of a node by the wrong door", "PATCH", f"{NODES}/n", {"status": {"capacity": {"cpu": "3"}}}, type=MERGE
    ),
    asked("a new pod", "POST", PODS, pod_of("p")),
    asked("bound", "POST", f"{PODS}/p/binding", BINDING),
    asked("bound again", "POST", f"{PODS}/p/binding", BINDING),
    asked("a pod on a node deleted", "DELETE", f"{PODS}/p"),
    asked(
        "deleted for good",
        "DELETE",
        f"{PODS}/p",
        {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0},
    ),
    asked("no pod", "GET", f"{PODS}/p"),
    asked("a pod nowhere", "POST", PODS, pod_of("q")),
    asked("a pod nowhere deleted", "DELETE", f"{PODS}/q"),
    asked("an event", "POST", EVENTS, EVENT | {"involvedObject": {**EVENT["involvedObject"], "namespace": "default"}}),
    asked("a node's name that is none", "POST", NODES, {"metadata": {"name": "N"}}),
    asked("a node's labels that are none", "POST", NODES, {"metadata": {"name": "m", "labels": ["a"]}}),
]
WATCHES = [
    asked("from the beginning", "GET", SLICES, watch="true", timeoutSeconds="1"),
    asked("from a version", "GET", SLICES, watch="1", timeoutSeconds="1", resourceVersion="<rv 1>"),
    asked("by labels", "GET", SLICES, watch="true", timeoutSeconds="1", resourceVersion="<rv 1>", labelSelector="c=d"),
    asked(
        "by node",
        "GET",
        SLICES,
        watch="true",
        timeoutSeconds="1",
        resourceVersion="<rv 1>",
        fieldSelector="spec.nodeName=two",
    ),
    asked(
        "with the initial state",
        "GET",
        SLICES,
        watch="true",
        timeoutSeconds="1",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
        fieldSelector="metadata.name=s",
    ),
    asked(
        "with half a wish for the initial state",
        "GET",
        SLICES,
        watch="true",
        timeoutSeconds="1",
        sendInitialEvents="true",
    ),
    asked("from a version that is too old", "GET", SLICES, watch="true", timeoutSeconds="1", resourceVersion="1"),
    asked("from a version that is none", "GET", SLICES, watch="true", timeoutSeconds="1", resourceVersion="x"),
    asked(
        "by a field that cannot be selected by", "GET", SLICES, watch="true", timeoutSeconds="1", fieldSelector="a=b"
    ),
]
DELETIONS = [
    asked("the wrong uid", "DELETE", f"{SLICES}/s", {"preconditions": {"uid": "other"}}),
    asked("the wrong version", "DELETE", f"{SLICES}/s", {"preconditions": {"resourceVersion": "<rv 1>"}}),
    asked("only tried", "DELETE", f"{SLICES}/s", dryRun="All"),
    asked("the right uid", "DELETE", f"{SLICES}/s", {"preconditions": {"uid": "<uid 1>"}}),
    asked("a missing one", "DELETE", f"{SLICES}/s"),
    asked("all of a node", "DELETE", SLICES, fieldSelector="spec.nodeName=one"),
    asked("none left", "GET", SLICES),
]
CONVERSATION = [
    *DISCOVERY,
    *SLICES_ALONE,
    *SELECTORS,
    *OTHER_VERSIONS,
    *PATCHES,
    *CLAIMS_ALONE,
    *CORE,
    *WATCHES,
    *DELETIONS,
    *ODDITIES,
]
