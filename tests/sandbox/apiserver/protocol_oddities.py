"""What no client of ours asks: values out of range, wrong types, operations that do not apply, options in the body."""

from __future__ import annotations

from typing import Any

from tests.sandbox.apiserver.asked import CLAIMS, GROUP, JSON_PATCH, MERGE, SLICES, STRATEGIC, asked, claim_of, slice_of

CLASSES = f"{GROUP}/v1/deviceclasses"
TEMPLATES = f"{GROUP}/v1/namespaces/default/resourceclaimtemplates"
ODD = f"{SLICES}/odd"
FAR = "9" * 30
CLASS: dict[str, Any] = {
    "metadata": {"name": "odd.example.com"},
    "spec": {"selectors": [{"cel": {"expression": "true"}}]},
}
REPORT: dict[str, Any] = {"driver": "d.example.com", "pool": "p", "device": "x", "data": {"a": 1}}


def reported(**more: object) -> dict[str, Any]:
    return {"status": {"devices": [REPORT | more]}}


def operation(about: str, **op: object) -> dict[str, Any]:
    return asked(about, "PATCH", ODD, [op], type=JSON_PATCH)


FLAGS_AND_NUMBERS = [
    asked("an odd slice", "POST", SLICES, slice_of("odd", devices=("d",))),
    asked("watched with any word", "GET", SLICES, watch="maybe", timeoutSeconds="1"),
    asked("watched with no word", "GET", SLICES, watch="", timeoutSeconds="1"),
    asked("not watched", "GET", SLICES, watch="False"),
    asked("a limit below nothing", "GET", SLICES, limit="-1"),
    asked("a limit out of range", "GET", SLICES, limit=FAR),
    asked("a version out of range", "GET", SLICES, resourceVersion=FAR),
    asked("a version below nothing", "GET", SLICES, resourceVersion="-1"),
    asked("watched from a version out of range", "GET", SLICES, watch="1", resourceVersion=FAR),
    asked("a match alone", "GET", SLICES, resourceVersionMatch="Exact"),
    asked("an unknown match", "GET", SLICES, resourceVersion="1", resourceVersionMatch="Bad"),
    asked("exactly any", "GET", SLICES, resourceVersion="0", resourceVersionMatch="Exact"),
    asked("not older than any", "GET", SLICES, resourceVersion="0", resourceVersionMatch="NotOlderThan"),
    asked("a label without an end", "GET", SLICES, labelSelector="q=r,"),
    asked("a label's value that is too long", "GET", SLICES, labelSelector=f"q={'a' * 70}"),
    asked("no field", "GET", SLICES, fieldSelector=","),
]
TYPES = [
    asked("a number for a version", "PUT", ODD, slice_of("odd", resourceVersion=7)),
    asked("a number for a uid", "PUT", ODD, slice_of("odd", uid=7)),
    asked("a list for a slice", "POST", SLICES, []),
    asked("nothing for a name", "POST", SLICES, {"metadata": {"name": None}, "spec": slice_of("x")["spec"]}),
    asked("no metadata", "PATCH", ODD, {"metadata": None}, type=MERGE),
    asked("what is the server's removed", "PATCH", ODD, {"metadata": {"uid": None, "generation": None}}, type=MERGE),
    asked("a strategic patch", "PATCH", ODD, {"metadata": {"labels": {"q": "r"}}}, type=STRATEGIC),
    asked("an unknown field", "POST", SLICES, slice_of("unknown") | {"bogus": 1}, dryRun="All"),
    asked("an unknown field, strictly", "POST", SLICES, slice_of("u") | {"bogus": 1}, fieldValidation="Strict"),
]
OPERATIONS = [
    operation("added far behind the end", op="add", path="/spec/devices/9", value={"name": "e"}),
    operation("replaced behind the end", op="replace", path="/spec/devices/9/name", value="e"),
    operation("added at the end", op="add", path="/spec/devices/-", value={"name": "e"}),
    operation("removed what is not there", op="remove", path="/metadata/nothing"),
    operation("an unknown operation", op="frob", path="/metadata/uid", value="x"),
    operation("replaced by nothing", op="replace", path="/spec/nodeName"),
    operation("replaced as a whole", op="add", path="", value=5),
]
DELETE_OPTIONS = [
    asked("a word for a time", "DELETE", ODD, {"gracePeriodSeconds": "x"}),
    asked("a number for preconditions", "DELETE", ODD, {"preconditions": 5}),
    asked("a number for the uid to be", "DELETE", ODD, {"preconditions": {"uid": 5}}),
    asked("a list for options", "DELETE", ODD, [1]),
    asked("an unknown policy", "DELETE", ODD, {"propagationPolicy": "Weird"}),
    asked("an unknown way to try", "DELETE", ODD, {"dryRun": ["Some"]}),
    asked("only tried, by the body", "DELETE", ODD, {"dryRun": ["All"]}),
    asked("still there", "GET", ODD),
]
OBJECTS = [
    asked("a class", "POST", CLASSES, CLASS),
    asked("the same class", "PUT", f"{CLASSES}/odd.example.com", CLASS),
    asked("another class", "PUT", f"{CLASSES}/odd.example.com", CLASS | {"spec": {}}),
    asked("a template", "POST", TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": claim_of("x")["spec"]}}),
    asked("a template changed", "PATCH", f"{TEMPLATES}/t", {"spec": {"metadata": {"labels": {"a": "c"}}}}, type=MERGE),
    asked("a claim again", "POST", CLAIMS, claim_of("odd")),
    asked("status of a missing one", "PUT", f"{CLAIMS}/missing/status", claim_of("missing")),
    asked("a new status", "POST", f"{CLAIMS}/odd/status", claim_of("odd")),
    asked("a status deleted", "DELETE", f"{CLAIMS}/odd/status"),
    asked("told before it is allocated", "PATCH", f"{CLAIMS}/odd/status", reported(), type=MERGE),
]
ODDITIES = [*FLAGS_AND_NUMBERS, *TYPES, *OPERATIONS, *DELETE_OPTIONS, *OBJECTS]
