"""Lays a world before the real scheduler: its objects in the API server, its pods one after the other.

The scheduler learns of each kind of object in order, but of different kinds at different times. So the last slice,
class and claim of a world are there to be waited for: once a pod that needs them is scheduled, it has seen everything
before. They are for a node of their own, where no other pod goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from scheduling.explain.cluster import features_of
from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.pods import simple
from tests.cluster.scheduler.world import NODES, ROUND
from tests.judge.chance import Json

GROUP = "/apis/resource.k8s.io/v1"
NAMESPACE = "scheduler-test"
CLAIMS = f"{GROUP}/namespaces/{NAMESPACE}/resourceclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SLICES = f"{GROUP}/resourceslices"
CLASSES = f"{GROUP}/deviceclasses"
LABEL = {"ostler.dev/test": "scheduler"}
SELECTED = "labelSelector=ostler.dev/test%3Dscheduler"
WATCHED = "fake-watched"
"""The node of the objects that are waited for."""
WRITERS = 4
WAITING = ("not found", "waiting for", "in the process of being")
"""Said by a scheduler that has not seen everything yet: it will ask again."""


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """What the scheduler decided about a pod: its node or '', the reason in the pod's condition, and what it says.

    ``claims``: the pod's claims as they are afterwards.
    """

    node: str
    reason: str
    message: str
    claims: list[Object]


@dataclass(slots=True)
class Laid:
    """A world as the API server has stored it, defaults filled in. ``refused``: what it did not take, and why."""

    slices: list[Object] = field(default_factory=list)
    classes: list[Object] = field(default_factory=list)
    claims: dict[str, Object] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


class LiveStage:
    """The nodes and the namespace on which worlds are laid out, one at a time."""

    def __init__(self, api: RigApi, version: str) -> None:
        self._api = api.kept()
        self.features = features_of(version)
        """Those of a scheduler of this version of Kubernetes."""
        self._writers = ThreadPoolExecutor(WRITERS)
        self._round = 0
        self.nodes: dict[str, Object] = {}

    def build(self) -> None:
        """Make nodes without kubelets and a namespace whose claims may have adminAccess."""
        labels = {**LABEL, "resource.kubernetes.io/admin-access": "true"}
        self._api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        self._api.wait(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", "exists", lambda _: True)
        for name, more in {**NODES, WATCHED: {}}.items():
            self.nodes[name] = self._api.create("/api/v1/nodes", _node(name, more))

    def strike(self) -> None:
        """Remove everything again."""
        self.clear()
        self._api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        self._api.request("DELETE", f"/api/v1/nodes?{SELECTED}")
        self._api.wait_gone(f"/api/v1/namespaces/{NAMESPACE}")

    def close(self) -> None:
        """Close connections."""
        self._writers.shutdown()
        self._api.close()

    def clear(self) -> None:
        """Remove what the last world left, without waiting: later worlds use other names for pools and claims."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (PODS, CLAIMS, SLICES, CLASSES):
            self._api.request("DELETE", f"{path}?{SELECTED}", now)

    def fresh(self, world: Json) -> Json:
        """The world with names that no other has, of the next round."""
        self._round += 1
        named: Json = json.loads(json.dumps(world).replace(ROUND, str(self._round)))
        return named

    def fresh_names(self, devices: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Pools and devices as the world of this round names them."""
        return [(pool.replace(ROUND, str(self._round)), device) for pool, device in devices]

    def lay(self, world: Json) -> Laid:
        """Create all objects of a world, and return when the scheduler knows them."""
        laid = Laid()
        claims = [claim for pod in world["pods"] for claim in pod["claims"]]
        create = self._creator(laid)
        laid.slices = self._all(create, SLICES, world["slices"])
        laid.classes = self._all(create, CLASSES, world["classes"])
        made = self._all(create, CLAIMS, claims)
        laid.claims = {each["metadata"]["name"]: each for each in made}
        self._wait_seen()
        return laid

    def _all(self, create: Callable[[str, Object], Object | None], path: str, bodies: Iterable[Object]) -> list[Object]:
        return [each for each in self._writers.map(lambda body: create(path, body), bodies) if each]

    def _creator(self, laid: Laid) -> Callable[[str, Object], Object | None]:
        def create(path: str, body: Object) -> Object | None:
            body = {**body, "metadata": {"name": body["metadata"]["name"], "labels": LABEL}}
            try:
                return self._api.create(path, body)
            except ApiRefused as refused:
                laid.refused.append(f"{body['kind']} {body['metadata']['name']}: {refused}")
                return None

        return create

    def _wait_seen(self) -> None:
        """Return when the scheduler has seen what was created so far."""
        name, driver = f"seen-{self._round}", "seen.example.com"
        meta = {"metadata": {"name": name, "labels": LABEL}}
        device = {"name": "device", "attributes": {"round": {"int": self._round}}}
        place = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": WATCHED, "pool": place, "devices": [device]}
        self._api.create(SLICES, {**meta, "spec": spec})
        # An older device may be free again, and some devices are for all nodes.
        expression = f'device.driver == "{driver}" && device.attributes["{driver}"].round == {self._round}'
        self._api.create(CLASSES, {**meta, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
        request = {"name": "device", "exactly": {"deviceClassName": name}}
        self._api.create(CLAIMS, {**meta, "spec": {"devices": {"requests": [request]}}})
        self._api.create(PODS, _pod(name, [name], {"kubernetes.io/hostname": WATCHED}))
        self._api.wait(f"{PODS}/{name}", "is scheduled", lambda pod: "nodeName" in pod["spec"])

    def schedule(self, name: str, claims: list[str], node: str) -> LiveDecision:
        """Create a pod with these claims, for one node or for any (''); what becomes of it."""
        where = {"kubernetes.io/hostname": node} if node else {"fake": "true"}
        self._api.create(PODS, _pod(name, claims, where))
        pod = self._api.wait(f"{PODS}/{name}", "is decided about", _decided)
        after: list[Object] = [self._api.get(f"{CLAIMS}/{claim}") for claim in claims]
        said = _scheduled(pod)
        if not pod["spec"].get("nodeName"):
            # It must not be scheduled later.
            self._api.delete(f"{PODS}/{name}")
        return LiveDecision(pod["spec"].get("nodeName", ""), said.get("reason", ""), said.get("message", ""), after)


def _decided(pod: Object) -> bool:
    if pod["spec"].get("nodeName"):
        return True
    said = _scheduled(pod)
    return said.get("status") == "False" and not any(words in said.get("message", "") for words in WAITING)


def _scheduled(pod: Object) -> Object:
    conditions: list[Object] = pod.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def _node(name: str, labels: dict[str, str]) -> Object:
    """A node that seems well; soon the controllers think that it is lost, which its pods tolerate."""
    own = {**LABEL, "kubernetes.io/hostname": name, **labels}
    if name != WATCHED:
        own["fake"] = "true"
    allocatable = {"pods": "1000", "cpu": "64", "memory": "256Gi"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": own}, "status": status}


def _pod(name: str, claims: list[str], where: dict[str, str]) -> Object:
    made = simple(name, nodeSelector=where, tolerations=[{"operator": "Exists"}])
    made["metadata"]["labels"] = LABEL
    made["spec"]["resourceClaims"] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": claim} for claim in claims]}
    return made
