"""Pods and claims as the cluster has them, and what is true of them on the node whoever knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from driver.node_watch.pods import NodePod
from kube.bodies import Json, JsonObject
from tests.model import hardware

NAMESPACE = "team"
DRIVER, POOL = "ostler.dev", "node-1"


@dataclass(frozen=True)
class ModelAsk:
    """A container: so many devices of a kind (a position in ``hardware.WANTED``); ``ordinary``: an init container."""

    kind: int
    count: int = 1
    ordinary: bool = False

    @property
    def resource(self) -> str:
        return hardware.WANTED[self.kind]


class ModelPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


@dataclass(eq=False)
class ModelPod:
    """``admitted``: the kubelet has let it in; ``alive``: its containers run or may be started; see ``Kubelet``."""

    uid: str
    name: str
    asks: tuple[ModelAsk, ...] = ()
    claims: tuple[str, ...] = ()
    wants: tuple[ModelClaim, ...] = ()
    """The claims as they were when it was made."""
    controlled: bool = False
    bound: bool = False
    deleted: bool = False
    phase: ModelPhase = ModelPhase.PENDING
    admitted: bool = False
    alive: bool = False
    evicted: bool = False
    ended: ModelPhase | None = None
    """How, once its containers are through; the API server may not know yet."""
    devices: dict[tuple[str, str], bool] = field(default_factory=dict)
    """What its containers were given through the plugin door by resource and id, and whether podresources tells it."""

    @property
    def over(self) -> bool:
        return self.phase in (ModelPhase.FAILED, ModelPhase.SUCCEEDED)

    def seen(self) -> NodePod:
        return NodePod(self.uid, NAMESPACE, self.name, over=self.over and not self.alive, claims=self.claims)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Allocated:
    device: str
    share: str = ""
    percent: int = 0
    """Of its compute, of a GPU that claims consume."""


@dataclass(eq=False)
class ModelClaim:
    """``template``: it lives and ends with its pod."""

    uid: str
    name: str
    kind: int
    count: int = 1
    admin: bool = False
    shares: bool = False
    template: bool = True
    percent: int = hardware.PERCENT
    """Of the compute of each shared GPU."""
    allocation: tuple[Allocated, ...] = ()
    reserved: list[str] = field(default_factory=list)

    @property
    def body(self) -> JsonObject:
        results: list[Json] = []
        for number, each in enumerate(self.allocation):
            result: JsonObject = {"request": f"r{number}", "driver": DRIVER, "pool": POOL, "device": each.device}
            if self.admin:
                result["adminAccess"] = True
                result["tolerations"] = [{"operator": "Exists"}]
            if each.share:
                result["shareID"] = each.share
            if each.percent:
                result["consumedCapacity"] = {"compute": str(each.percent)}
            results.append(result)
        users: list[Json] = [{"resource": "pods", "name": uid, "uid": uid} for uid in self.reserved]
        allocation: JsonObject = {"allocation": {"devices": {"results": results}}} if self.allocation else {}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": NAMESPACE, "name": self.name, "uid": self.uid},
            "status": {**allocation, "reservedFor": users},
        }

    def __repr__(self) -> str:
        return self.name
