"""What the agents' account can do at the API server, as a table: this and nothing else.

A right is what a role says (``tests.deploy.chart.rights``); a call is what becomes of it in the end, after the
admission policies. Whoever gives the account a right adds to the calls at least one that it makes possible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deploy.generate import NAMESPACE
from tests.cluster.chart.calls import ALLOWED, BY_EITHER, BY_POLICY, BY_ROLE, AccountCall, refused
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.rig.api import STRATEGIC, Object

OWN, OTHER = "node-1", "stranger"
"""Names of Nodes: the one whose agent asks, and another one."""
DRIVER, FOREIGN = "ostler.dev", "foreign.example.com"

CORE, RBAC, APPS = "/api/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/apps/v1"
DRA = "/apis/resource.k8s.io/v1"
EVENTS = f"{CORE}/namespaces/default/events"
OURS = f"{CORE}/namespaces/{NAMESPACE}"
SLICES = f"{DRA}/resourceslices"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"


def event(kind: str, name: str, component: str = "ostler", **more: Any) -> Object:
    """An event about an object, as the agent makes them: the uid is the object's name."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"of-{name}", "namespace": "default"},
        "involvedObject": {"kind": kind, "name": name, "uid": name},
        "reason": "Tried",
        "message": "a test",
        "type": "Normal",
        "source": {"component": component, "host": name},
        **more,
    }


def claim(name: str, *results: tuple[str, str]) -> Object:
    """A claim that has a device of each driver in that pool, ``d``; its pools are those of one node."""
    made: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "any"}}]}},
    }
    if results:
        devices = [{"request": "one", "driver": driver, "pool": pool, "device": "d"} for driver, pool in results]
        where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [results[0][1]]}]}
        made["status"] = {
            "allocation": {"devices": {"results": devices}, "nodeSelector": {"nodeSelectorTerms": [where]}},
            # Not a pod: one that is not there would be taken out again.
            "reservedFor": [{"apiGroup": "example.com", "resource": "users", "name": "some", "uid": "some"}],
        }
    return made


def told(driver: str, pool: str = OWN, **more: Any) -> Object:
    """What a driver tells of a device in a claim's status."""
    return {"status": {"devices": [{"driver": driver, "pool": pool, "device": "d", "data": {"fact": 1}}], **more}}


LABEL: Object = {"metadata": {"labels": {"tried": "yes"}}}
FREE = claim("free")
OWN_CLAIM = claim("own", (DRIVER, OWN))
OTHERS = claim("other", (DRIVER, OTHER))
FOREIGNERS = claim("foreign", (FOREIGN, OWN))
MIXED = claim("mixed", (DRIVER, OWN), (FOREIGN, OWN))
SHARED = claim("shared", (DRIVER, OWN), (DRIVER, OTHER))
REPLACED = {**OWN_CLAIM, "status": {**OWN_CLAIM["status"], **told(DRIVER)["status"]}}
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tried"},
    "spec": {"containers": [{"name": "tried", "image": "tried"}]},
}

UID_OF_OTHER: Object = {"kind": "Node", "name": OWN, "uid": OTHER}
ABOUT_OWN: Object = {key: event("Node", OWN)[key] for key in ("involvedObject", "source")}

CALLS: list[AccountCall] = [
    # It compares the Node of its name with the machine that it runs on. A role cannot say "its own".
    AccountCall("GET", f"{CORE}/nodes/{OWN}", ALLOWED),
    AccountCall("GET", f"{CORE}/nodes/{OTHER}", ALLOWED),
    *refused(
        ("POST", f"{CORE}/nodes"),
        ("PATCH", f"{CORE}/nodes/{OWN}"),
        ("PUT", f"{CORE}/nodes/{OWN}/status"),
        ("DELETE", f"{CORE}/nodes/{OTHER}"),
        ("GET", f"{CORE}/nodes/{OWN}/proxy/pods"),
    ),
    AccountCall("POST", EVENTS, ALLOWED, event("Node", OWN), "about its own Node"),
    AccountCall("PATCH", f"{EVENTS}/own", ALLOWED, {"count": 2}, "which is about its own Node"),
    AccountCall("POST", EVENTS, BY_POLICY, event("Node", OTHER), "about another Node"),
    AccountCall("POST", EVENTS, BY_POLICY, event("Pod", OWN), "about a Pod with its Node's name"),
    AccountCall("POST", EVENTS, BY_POLICY, event("Node", OWN, "kubelet"), "about its own Node, as another component"),
    AccountCall(
        "POST", EVENTS, BY_POLICY, event("Node", OWN, source={"component": "ostler"}), "without its node as source"
    ),
    AccountCall(
        "POST", EVENTS, BY_POLICY, event("Node", OWN, involvedObject=UID_OF_OTHER), "with the uid of another Node"
    ),
    AccountCall("POST", EVENTS, BY_POLICY, event("Node", OWN, related=UID_OF_OTHER), "with a related object"),
    AccountCall("PATCH", f"{EVENTS}/other", BY_POLICY, {"count": 2}, "which is about another Node"),
    AccountCall("PATCH", f"{EVENTS}/other", BY_POLICY, ABOUT_OWN, "to be about its own Node"),
    AccountCall("PATCH", f"{EVENTS}/own", BY_POLICY, {"involvedObject": UID_OF_OTHER}, "to be about another Node"),
    AccountCall("PATCH", f"{EVENTS}/kubelets", BY_POLICY, {"count": 2}, "which another component made"),
    AccountCall("PATCH", f"{EVENTS}/kubelets", BY_POLICY, ABOUT_OWN, "which another component made, to be its own"),
    *refused(
        ("GET", EVENTS),
        ("GET", f"{EVENTS}/own"),
        ("PUT", f"{EVENTS}/own"),
        ("DELETE", f"{EVENTS}/own"),
        ("POST", f"{OURS}/events"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events"),
    ),
    *refused(
        ("GET", f"{OURS}/pods/any"),
        ("DELETE", f"{OURS}/pods"),
        ("DELETE", f"{OURS}/pods/any"),
        ("PATCH", f"{OURS}/pods/any/status"),
        ("POST", f"{OURS}/pods/any/exec"),
        ("GET", f"{CORE}/secrets"),
        ("GET", f"{OURS}/secrets"),
        ("GET", f"{CORE}/namespaces/kube-system/secrets/any"),
        ("GET", f"{OURS}/configmaps/ostler"),
        ("PATCH", f"{OURS}/configmaps/ostler"),
        ("POST", f"{OURS}/serviceaccounts/ostler/token"),
        ("GET", f"{CORE}/namespaces"),
        ("GET", f"{APPS}/namespaces/{NAMESPACE}/daemonsets/ostler"),
        ("PATCH", f"{APPS}/namespaces/{NAMESPACE}/daemonsets/ostler"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
        ("GET", f"{RBAC}/clusterroles"),
        ("PATCH", f"{RBAC}/clusterroles/ostler"),
        ("POST", f"{RBAC}/clusterrolebindings"),
        ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/ostler-events"),
        ("GET", "/metrics"),
    ),
    AccountCall("POST", f"{CORE}/namespaces/default/pods", BY_ROLE, POD),
]
"""With the chart's defaults."""

NO_DRA: list[AccountCall] = refused(
    ("GET", f"{CORE}/nodes"),
    ("GET", f"{CORE}/nodes?fieldSelector=metadata.name={OWN}"),
    ("GET", f"{CORE}/nodes?watch=true&timeoutSeconds=1"),
    ("GET", f"{CORE}/pods"),
    ("GET", f"{CORE}/pods?fieldSelector=spec.nodeName={OWN}"),
    ("GET", f"{OURS}/pods"),
    ("GET", SLICES),
    ("POST", SLICES),
    ("DELETE", f"{SLICES}/own"),
    ("GET", f"{CLAIMS}/own"),
    ("GET", f"{DRA}/resourceclaims"),
    ("PATCH", f"{CLAIMS}/own/status"),
    ("GET", f"{DRA}/deviceclasses"),
)
"""Without ``dra.enabled``."""

DRA_CALLS: list[AccountCall] = [
    # It asks for its own node's pods alone. A role cannot say so, and has no word for "listed once" (claims).
    AccountCall("GET", f"{CORE}/pods?fieldSelector=spec.nodeName={OWN}", ALLOWED),
    AccountCall("GET", f"{CORE}/pods?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName={OWN}", ALLOWED),
    AccountCall("GET", f"{CORE}/pods", ALLOWED),
    AccountCall("GET", f"{OURS}/pods", ALLOWED),
    AccountCall("GET", f"{DRA}/resourceclaims?limit=500", ALLOWED),
    AccountCall("GET", CLAIMS, ALLOWED),
    # A role cannot say "those of its own pods".
    AccountCall("GET", f"{CLAIMS}/own", ALLOWED),
    AccountCall("GET", f"{CLAIMS}/other", ALLOWED),
    AccountCall("PATCH", f"{CLAIMS}/own/status", ALLOWED, told(DRIVER), "of its own device"),
    AccountCall("PUT", f"{CLAIMS}/own/status", ALLOWED, REPLACED, "of its own device"),
    AccountCall("PATCH", f"{CLAIMS}/mixed/status", ALLOWED, told(DRIVER), "of its own device, beside another driver's"),
    AccountCall("PATCH", f"{CLAIMS}/free/status", BY_POLICY, LABEL, "without a device"),
    AccountCall("PATCH", f"{CLAIMS}/other/status", BY_POLICY, LABEL, "of another node"),
    AccountCall("PATCH", f"{CLAIMS}/foreign/status", BY_POLICY, LABEL, "of another driver"),
    AccountCall("PATCH", f"{CLAIMS}/other/status", BY_EITHER, told(DRIVER, OTHER), "of another node's device"),
    AccountCall("PATCH", f"{CLAIMS}/foreign/status", BY_EITHER, told(FOREIGN), "of another driver's device"),
    AccountCall(
        "PATCH", f"{CLAIMS}/mixed/status", BY_EITHER, told(FOREIGN), "of another driver's device, beside its own"
    ),
    AccountCall("PATCH", f"{CLAIMS}/shared/status", ALLOWED, told(DRIVER), "of its own device, beside another node's"),
    AccountCall(
        "PATCH", f"{CLAIMS}/shared/status", BY_EITHER, told(DRIVER, OTHER), "of another node's device, beside its own"
    ),
    AccountCall("PATCH", f"{CLAIMS}/own/status", BY_EITHER, told(DRIVER, OTHER), "of a device that it has not"),
    AccountCall(
        "PATCH", f"{CLAIMS}/own/status", BY_EITHER, told(DRIVER, reservedFor=None), "that takes it from its users"
    ),
    AccountCall("PATCH", f"{CLAIMS}/own/status", BY_EITHER, {"status": None}, "that takes all away"),
    *refused(
        ("GET", f"{DRA}/resourceclaims?watch=true&timeoutSeconds=1"),
        ("GET", f"{CLAIMS}?watch=true&timeoutSeconds=1"),
        ("POST", CLAIMS),
        ("PATCH", f"{CLAIMS}/own"),
        ("DELETE", f"{CLAIMS}/own"),
        ("GET", f"{DRA}/deviceclasses"),
        ("POST", f"{DRA}/deviceclasses"),
    ),
]
"""With ``dra.enabled``."""

BY_NODE_CALLS: list[AccountCall] = [
    # It asks for its own Node alone, which a role cannot say.
    AccountCall("GET", f"{CORE}/nodes?fieldSelector=metadata.name={OWN}", ALLOWED),
    AccountCall("GET", f"{CORE}/nodes?watch=true&timeoutSeconds=1&fieldSelector=metadata.name={OWN}", ALLOWED),
    AccountCall("GET", f"{CORE}/nodes", ALLOWED),
]
"""With ``dra.doorByNode``."""

GPU, UNSERVED = "nvidia.com/gpu", "example.com/unserved"
NUMBERS: Object = {"status": {"capacity": {GPU: "4", UNSERVED: "4"}, "allocatable": {GPU: "4", UNSERVED: "3"}}}
"""Status of the own Node before the calls: two resources, of which the agents serve one."""
STATUS = f"{CORE}/nodes/{OWN}/status"


def allocatable(number: str | None, resource: str = GPU) -> Object:
    """What says that the Node has so many of a resource."""
    return {"status": {"allocatable": {resource: number}}}


NO_NODE_STATUS: list[AccountCall] = refused(("PATCH", STATUS))
"""Without ``patchAllocatable.enabled``."""
NODE_STATUS_CALLS: list[AccountCall] = [
    AccountCall("PATCH", STATUS, ALLOWED, allocatable("3"), "that lowers what it serves"),
    AccountCall("PATCH", STATUS, ALLOWED, allocatable("0"), "that says it has none"),
    AccountCall("PATCH", STATUS, ALLOWED, allocatable("4"), "that says what is there"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable("5"), "above the capacity"),
    AccountCall("PATCH", STATUS, BY_EITHER, allocatable("-1"), "below zero"),
    AccountCall("PATCH", STATUS, BY_EITHER, allocatable("500m"), "of half a device"),
    AccountCall("PATCH", STATUS, BY_EITHER, allocatable("many"), "that is no number"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable(None), "that takes the resource away"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable("1", "nvidia.com/new"), "of a resource that is not there"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable("2", UNSERVED), "of another's resource"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable("1", "cpu"), "of CPUs"),
    AccountCall("PATCH", STATUS, BY_POLICY, allocatable("0", "pods"), "of pods"),
    AccountCall("PATCH", STATUS, BY_POLICY, {"status": {"capacity": {GPU: "8"}}}, "of capacity"),
    *(
        AccountCall("PATCH", STATUS, BY_POLICY, {"status": {field: value}}, f"of {field}")
        for field, value in (
            ("conditions", []),
            ("addresses", []),
            ("images", []),
            ("nodeInfo", {"machineID": "another"}),
            ("daemonEndpoints", {"kubeletEndpoint": {"Port": 1}}),
            ("volumesInUse", ["some"]),
        )
    ),
    *(
        AccountCall("PATCH", STATUS, BY_POLICY, {"metadata": {field: value}}, f"of {field}")
        for field, value in (("labels", {"tried": "yes"}), ("annotations", {"tried": "yes"}))
    ),
    AccountCall("PATCH", f"{CORE}/nodes/{OTHER}/status", BY_POLICY, allocatable("3"), "of another Node"),
]
"""With ``patchAllocatable.enabled``."""
UNBOUND_NODE_STATUS: list[AccountCall] = [AccountCall("PATCH", STATUS, BY_POLICY, allocatable("3"))]

PODS = f"{CORE}/namespaces/default/pods"


def pod(name: str, node: str, *, by_name: bool) -> Object:
    """A pod on a node, and whether the scheduler made a claim for its extended resources."""
    asks = {"limits": {UNSERVED: "1"}, "requests": {UNSERVED: "1"}}
    containers = [{**POD["spec"]["containers"][0], "resources": asks}]
    made: Object = {**POD, "metadata": {"name": name}, "spec": {"containers": containers, "nodeName": node}}
    mapping = {"containerName": "tried", "resourceName": UNSERVED, "requestName": "one"}
    made_for = {"resourceClaimName": "made", "requestMappings": [mapping]}
    status = {"extendedResourceClaimStatus": made_for} if by_name else {}
    return {**made, "status": {"phase": "Pending", **status}}


def condition(kind: str, **more: Any) -> Object:
    """What sets a condition of a pod, and whatever else."""
    return {"status": {"conditions": [{"type": kind, "status": "True"}], **more}}


_EVICT_CALLS: list[AccountCall] = [
    AccountCall("DELETE", f"{PODS}/by-name", ALLOWED, None, "that asks by name"),
    AccountCall("DELETE", f"{PODS}/by-claim", BY_POLICY, None, "that names its claim"),
    AccountCall("DELETE", f"{PODS}/elsewhere", BY_POLICY, None, "of another node"),
    AccountCall(
        "PATCH", f"{PODS}/by-name/status", ALLOWED, condition("DisruptionTarget"), "that it is evicted", STRATEGIC
    ),
    AccountCall("PATCH", f"{PODS}/by-name/status", BY_POLICY, condition("Resized"), "that it is otherwise", STRATEGIC),
    AccountCall("PATCH", f"{PODS}/by-name/status", BY_POLICY, condition("DisruptionTarget"), "that nothing else is so"),
    AccountCall(
        "PATCH", f"{PODS}/by-name/status", BY_POLICY, condition("DisruptionTarget", phase="Failed"), "of its phase"
    ),
    AccountCall("PATCH", f"{PODS}/by-name/status", BY_POLICY, LABEL, "of its labels"),
    AccountCall("PATCH", f"{PODS}/by-claim/status", BY_POLICY, condition("DisruptionTarget"), "that names its claim"),
    AccountCall("PATCH", f"{PODS}/elsewhere/status", BY_POLICY, condition("DisruptionTarget"), "of another node"),
    *refused(("GET", f"{PODS}/by-name"), ("POST", f"{PODS}/by-name/eviction"), ("PATCH", f"{PODS}/by-name")),
]


def evict_calls(version: str) -> list[AccountCall]:
    """With ``dra.evictByName``. An older API server drops what makes a pod one that asks by name."""
    if has_dra_gates(version):
        return _EVICT_CALLS
    return [replace(call, answer=BY_POLICY) if call.answer == ALLOWED else call for call in _EVICT_CALLS]


HELD_PODS: list[Object] = [
    pod("by-name", OWN, by_name=True),
    pod("by-claim", OWN, by_name=False),
    pod("elsewhere", OTHER, by_name=True),
]

UNBOUND: list[AccountCall] = [
    AccountCall("GET", f"{CORE}/nodes/{OWN}", ALLOWED),
    AccountCall("POST", EVENTS, BY_POLICY, event("Node", OWN), "about any Node"),
    AccountCall("PATCH", f"{EVENTS}/own", BY_POLICY, {"count": 2}),
]
"""With a token of the account that is bound to no pod, and so says no node."""
UNBOUND_DRA: list[AccountCall] = [AccountCall("PATCH", f"{CLAIMS}/own/status", BY_POLICY, LABEL)]
"""The same with ``dra.enabled``; those about slices come on top."""


def held_objects() -> list[tuple[str, Object]]:
    """Collections and objects that calls are about; they are there before."""
    events = {"own": event("Node", OWN), "other": event("Node", OTHER), "kubelets": event("Node", OWN, "kubelet")}
    for name, body in events.items():
        body["metadata"]["name"] = name
    return [
        (f"{CORE}/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}}),
        *((EVENTS, body) for body in events.values()),
        *((CLAIMS, body) for body in (FREE, OWN_CLAIM, OTHERS, FOREIGNERS, MIXED, SHARED)),
    ]
