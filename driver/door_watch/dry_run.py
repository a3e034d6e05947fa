"""Asking the server whether it keeps the taints of devices: a slice with one, created by a dry run, so never stored.

A server whose gate DRADeviceTaints is off drops taints without a word, and says nowhere which gates are on. A dry run
passes admission like any other request: the policies that keep an agent to its own node see this node's name.
Blocking: for threads.
"""

from __future__ import annotations

from typing import Final, Protocol

from kube.bodies import Json, JsonObject, object_at, one_line
from kube.errors import Closed, Forbidden, KubeError, Unreachable
from node.door_policy.taint_support import Taints, TaintSupport

_GATE: Final = "DRADeviceTaints"
_FIX: Final = f"they are on since Kubernetes 1.36, and before with the feature gate {_GATE} of API server and scheduler"
_TEXT: Final = 400


class Asked(Protocol):
    """What is needed of a ``driver.resource_api.client.ResourceApi``."""

    def version(self) -> str:
        """The version of resource.k8s.io that is spoken."""
        ...

    def create_slice(self, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create a slice, or find out what would become of it."""
        ...


def probe(driver: str, node_name: str) -> JsonObject:
    """A small slice of this node with a tainted device."""
    taint: JsonObject = {"key": f"{driver}/dry-run", "effect": "NoSchedule"}
    device: JsonObject = {"name": "dry-run", "taints": [taint]}
    pool: JsonObject = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "ostler-dry-run-"},
        "spec": {"driver": driver, "nodeName": node_name, "pool": pool, "devices": [device]},
    }


def asked(api: Asked, driver: str, node_name: str, server: str) -> TaintSupport:
    """What the server does with a taint; ``server``: its release and version of the API, for people and to compare."""
    try:
        stored = api.create_slice(probe(driver, node_name), dry_run=True)
    except KubeError as error:
        return TaintSupport(Taints.UNKNOWN, _unknown(error), "")
    devices = object_at(stored, "spec").get("devices")
    if not isinstance(devices, list) or len(devices) != 1:
        text = "the API server's answer to a dry run of a slice is not the slice; look at its admission webhooks"
        return TaintSupport(Taints.UNKNOWN, text, "")
    if _has_taint(devices[0]):
        return TaintSupport(Taints.KEPT, f"the API server ({server}) keeps device taints", server)
    return TaintSupport(Taints.DROPPED, f"the API server ({server}) drops device taints: {_FIX}", server)


def _has_taint(device: Json) -> bool:
    taints = object_at(device).get("taints")
    return isinstance(taints, list) and bool(taints)


def _unknown(error: KubeError) -> str:
    begin = "whether the API server keeps device taints is not known"
    if isinstance(error, Forbidden):
        fix = "give the agent's account the verb create on resourceslices of the API group resource.k8s.io"
        return f"{begin}: it refuses the dry run of a slice ({one_line(error.message, _TEXT)}); {fix}"
    again = "; it is asked again" if isinstance(error, Unreachable) and not isinstance(error, Closed) else ""
    return f"{begin}: {one_line(str(error), _TEXT)}{again}"
