"""What the agents' account can do with ResourceSlices: it writes those of its own node, driver and pool.

The agent's own slice is the one that the running agent has published: a slice made by hand in its pool would be the
agent's to delete. Those of others are made by hand (``HELD``). Whoever loosens the policy makes calls here pass that
the table refuses.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.chart.account import DRIVER, FOREIGN, LABEL, OTHER, OWN, SLICES
from tests.cluster.chart.calls import ALLOWED, BY_EITHER, BY_POLICY, BY_ROLE, AccountCall, refused
from tests.cluster.rig.api import Object

HIGHEST = 10**9
"""A generation that makes every slice of the real pool obsolete."""


def resource_slice(name: str, driver: str = DRIVER, pool: str = OWN, generation: int = 1, **where: Any) -> Object:
    """A slice without devices, of a node (by default its own), of all nodes, or of those with a label."""
    pool_entry = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool_entry, "devices": [], **(where or {"nodeName": OWN})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


LABELLED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]}
PER_DEVICE: Object = {"perDeviceNodeSelection": True, "devices": [{"name": "d", "nodeName": OWN}]}

HELD: dict[str, Object] = {
    "other": resource_slice("other", pool=OTHER, nodeName=OTHER),
    "foreign": resource_slice("foreign", FOREIGN),
    "elsewhere": resource_slice("elsewhere", FOREIGN, OTHER),
    "all": resource_slice("all", "slices.example.com", "all", allNodes=True),
}
"""Slices that are not the agent's: another node's, two of another driver on its own node, and one of all nodes."""


def slice_calls(mine: Object) -> list[AccountCall]:
    """The calls; ``mine``: the agent's own slice as it is stored."""
    path = f"{SLICES}/{mine['metadata']['name']}"
    same = {**mine, "metadata": {"name": mine["metadata"]["name"], "labels": {"tried": "yes"}}}
    return [
        AccountCall("GET", SLICES, ALLOWED),
        AccountCall("GET", f"{SLICES}?watch=true&timeoutSeconds=1", ALLOWED),
        AccountCall("GET", f"{SLICES}?fieldSelector=spec.driver={DRIVER},spec.nodeName={OWN}", ALLOWED),
        AccountCall("GET", f"{SLICES}/other", ALLOWED),
        AccountCall("POST", SLICES, ALLOWED, resource_slice("new"), "of its own node, driver and pool"),
        AccountCall("PUT", path, ALLOWED, same, "its own"),
        AccountCall("PATCH", path, ALLOWED, LABEL, "its own"),
        AccountCall(
            "PATCH", path, ALLOWED, {"spec": {"pool": {"generation": HIGHEST}}}, "its own, to a higher generation"
        ),
        AccountCall("DELETE", path, ALLOWED, None, "its own"),
        AccountCall("POST", SLICES, BY_POLICY, resource_slice("new", nodeName=OTHER), "of another node"),
        AccountCall(
            "POST", SLICES, BY_POLICY, resource_slice("new", pool=OTHER, nodeName=OTHER), "of another node's pool there"
        ),
        AccountCall("POST", SLICES, BY_POLICY, resource_slice("new", DRIVER, OTHER, HIGHEST), "of another node's pool"),
        AccountCall("POST", SLICES, BY_POLICY, resource_slice("new", FOREIGN), "of another driver"),
        AccountCall(
            "POST", SLICES, BY_POLICY, resource_slice("new", FOREIGN, OTHER, HIGHEST), "of another driver's pool"
        ),
        AccountCall("POST", SLICES, BY_POLICY, resource_slice("new", allNodes=True), "of all nodes"),
        AccountCall("POST", SLICES, BY_POLICY, resource_slice("new", nodeSelector=LABELLED), "of nodes with a label"),
        # Where the server does not have that feature, the field is dropped and the slice has no node.
        AccountCall("POST", SLICES, BY_EITHER, resource_slice("new", **PER_DEVICE), "of a node for each device"),
        # What a slice belongs to is immutable; the policy does not rely on that.
        AccountCall("PATCH", path, BY_EITHER, {"spec": {"nodeName": OTHER}}, "its own, to another node"),
        AccountCall("PATCH", path, BY_EITHER, {"spec": {"nodeName": None, "allNodes": True}}, "its own, to all nodes"),
        AccountCall("PATCH", path, BY_EITHER, {"spec": {"driver": FOREIGN}}, "its own, to another driver"),
        AccountCall("PATCH", path, BY_EITHER, {"spec": {"pool": {"name": OTHER}}}, "its own, to another node's pool"),
        *(call for name in HELD for call in _of_others(name)),
        *refused(("DELETE", SLICES)),
    ]


def _of_others(name: str) -> list[AccountCall]:
    taken = {"spec": resource_slice(name)["spec"]}
    path, body = f"{SLICES}/{name}", HELD[name]
    return [
        AccountCall("PUT", path, BY_POLICY, body, "as it is"),
        AccountCall("PATCH", path, BY_POLICY, LABEL),
        AccountCall("PATCH", path, BY_POLICY, {"spec": {"pool": {"generation": HIGHEST}}}, "to a higher generation"),
        AccountCall("PATCH", path, BY_EITHER, taken, "to be its own"),
        AccountCall("DELETE", path, BY_POLICY),
    ]


def unbound_slice_calls(mine: Object) -> list[AccountCall]:
    """The same writes with a token that says no node: none is allowed."""
    outcome = {ALLOWED: BY_POLICY}
    return [
        AccountCall(call.method, call.path, outcome.get(call.answer, call.answer), call.body, call.about)
        for call in slice_calls(mine)
        if call.method != "GET" and call.answer != BY_ROLE
    ]
