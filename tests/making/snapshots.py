"""A small cluster whose objects have secrets that no snapshot may keep."""

from __future__ import annotations

from kube.bodies import JsonObject, object_at
from scheduling.explain.state import (
    Kind,
    MissingKind,
    State,
)
from tests.making.slices import DRIVER
from tests.scheduling.explain.cluster import status
from tests.scheduling.explain.objects import (
    allocated,
    claim,
    device_class,
    node,
    pod,
    resource_slice,
    taint_rule,
    template,
)

SECRET = "s3cret"


def loaded_pod() -> JsonObject:
    """A pod with everything that must not be kept."""
    body = pod(
        "train", uid="u-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "held"}], serviceAccountName=SECRET
    )
    container: JsonObject = {
        "name": "main",
        "image": SECRET,
        "env": [{"name": "TOKEN", "value": SECRET}],
        "args": [SECRET],
    }
    body["spec"] = {**object_at(body, "spec"), "containers": [container], "volumes": [{"name": SECRET}]}
    noted: JsonObject = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    body["metadata"] = {**object_at(body, "metadata"), "annotations": noted, "managedFields": [{"manager": SECRET}]}
    return status(body, phase="Pending", podIP=SECRET, conditions=[{"type": "PodScheduled", "status": "False"}])


def small_state() -> State:
    held = allocated(claim("held"), ("node-1", "gpu-0"), pods=("train",))
    held = status(held, devices=[{"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "data": {"x": SECRET}}])
    big = status(
        node("node-1", {"zone": "a"}, spec={"podCIDR": SECRET, "unschedulable": True}),
        addresses=[{"address": SECRET}],
        conditions=[{"type": "Ready", "status": "True", "message": "x"}, {"type": "DiskPressure", "status": "False"}],
        allocatable={"cpu": "5", "example.com/gpu": "2"},
    )
    return State(
        "somewhere",
        "v1.37.0",
        slices=(resource_slice("s", "node-1", "gpu-0"),),
        claims=(held,),
        classes=(device_class("gpu"),),
        nodes=(big,),
        pods=(loaded_pod(),),
        templates=(template("t"),),
        taint_rules=(taint_rule("r", deviceSelector={"pool": "node-1"}, taint={"key": "k", "effect": "NoSchedule"}),),
        truncated=("only some",),
        missing=(MissingKind(Kind.TAINT_RULE, "rules are forbidden", "ask"),),
        whole=frozenset({Kind.NODE}),
    )
