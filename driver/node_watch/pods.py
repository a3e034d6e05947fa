"""The pods of this node: the fields read of their objects, which pods are here, and which are known to be gone. No I/O.

Whoever may create pods may bind them to this node, as many and as large as the API server accepts, and the kubelet
refuses most of them afterwards. So only ``FIELDS`` of each object are decoded. A pod keeps its claims from the moment
at which the scheduler binds it or the kubelet accepts it until it has ended; a refused pod has ended. So the number of
such pods is bounded by what the node can run.

Reading trusts nothing: a field of an unexpected type counts as absent.

A pod never counts as gone for lack of news. It is gone when its object was seen and deleted, when it has ended, or when
a list that began after the question about its UID does not have it. UIDs are never used twice, except those of static
pods, which come back with the same file. A static pod is gone only when the kubelet has had the time to create its
mirror pod again, and one whose mirror pod was never seen is never gone: something may have kept the kubelet from
creating one. A pod that is gone for the API server may still run for a moment (a pod deleted by force), so the
kubelet's own answer takes precedence.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from kube.bodies import Json, JsonObject, object_at, text_at
from kube.json_stream import Fields
from node.clocks import Clocks
from node.values import Value, value

MOST_CLAIMS = 128
"""Most claim names kept of one pod: several times what a pod can use of any node.

A pod may name thousands, also of claims that do not exist. A claim that is left out reserves nothing before it is
prepared, and is refused then if somebody else has its device.
"""

_MIRROR = "kubernetes.io/config.mirror"
_OVER = ("Succeeded", "Failed")
_CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""A valid object name; a claim with any other name cannot exist."""
_STATIC = re.compile(r"[-0-9A-Za-z]{1,64}")
"""A UID that the kubelet made, or one from a static pod's file, where people who create pods may write 256 KiB."""
_STATUS: Fields = {"state": {"running": {}}}
_CLAIM_NAME: Fields = {"resourceClaimName": True}
_UNLISTED = "claimsLeftOut"
"""Our own field of a stripped pod's status."""
_SCHEDULED: JsonObject = {"type": "PodScheduled", "status": "True"}
FIELDS: Fields = {
    "metadata": {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "deletionTimestamp"), True),
        "annotations": {_MIRROR: True},
    },
    "spec": {"resourceClaims": _CLAIM_NAME, "hostNetwork": True},
    "status": {
        "phase": True,
        "startTime": True,
        "conditions": {"type": True, "status": True},
        "resourceClaimStatuses": _CLAIM_NAME,
        "extendedResourceClaimStatus": _CLAIM_NAME,
        **dict.fromkeys(_CONTAINERS, _STATUS),
    },
}
"""The fields that are read of a pod's object."""


@value
class NodePod(Value):
    """A pod that is bound to this node.

    ``uid``: of its object. ``static``: the kubelet's UID of a static pod, which the API server knows by a copy (mirror
    pod); else empty. ``over``: it has ended, and none of its containers runs. ``claims``: names of ResourceClaims, in
    its namespace, a bounded number; none while only its author says that it belongs here. ``unlisted``: how many are
    left out. ``extended``: the claim that the scheduler made for its extended resources, or empty. ``ending``: it is
    being deleted. ``host_network``: it has no network namespace of its own.
    """

    uid: str
    namespace: str
    name: str
    static: str = ""
    over: bool = False
    claims: tuple[str, ...] = ()
    unlisted: int = 0
    extended: str = ""
    ending: bool = False
    host_network: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a pod's object that ``pod_of`` and a reflector need."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    kept: JsonObject = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    mirror = _static(metadata)
    if mirror:
        kept["annotations"] = {_MIRROR: mirror}
    if text_at(metadata, "deletionTimestamp"):
        kept["deletionTimestamp"] = metadata.get("deletionTimestamp")
    state: JsonObject = {"phase": status.get("phase")}
    for key in _CONTAINERS:
        if any(_is_running(each) for each in _objects(status.get(key))):
            state[key] = [{"state": {"running": {}}}]
    if _is_accepted(status):
        state["conditions"] = [_SCHEDULED]
    if _is_over(status):
        return {"metadata": kept, "status": state}
    claims, unlisted = _named(body)
    named: list[Json] = [{"resourceClaimName": name} for name in claims]
    extended = _extended(status, claims)
    if extended:
        state["extendedResourceClaimStatus"] = {"resourceClaimName": extended}
    spec: JsonObject = {"resourceClaims": named}
    if object_at(body, "spec").get("hostNetwork") is True:
        spec["hostNetwork"] = True
    return {"metadata": kept, "spec": spec, "status": {**state, _UNLISTED: unlisted}}


def pod_of(body: JsonObject) -> NodePod:
    """A pod's object, whole or ``stripped``."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    over = _is_over(status)
    claims, unlisted = ((), 0) if over else _named(body)
    return NodePod(
        text_at(metadata, "uid"),
        text_at(metadata, "namespace"),
        text_at(metadata, "name"),
        _static(metadata),
        over,
        claims,
        unlisted,
        _extended(status, claims),
        bool(text_at(metadata, "deletionTimestamp")),
        object_at(body, "spec").get("hostNetwork") is True,
    )


def _static(metadata: JsonObject) -> str:
    """The static pod's UID if this is a mirror pod."""
    uid = text_at(metadata, "annotations", _MIRROR)
    return uid if _STATIC.fullmatch(uid) else ""


def _named(body: JsonObject) -> tuple[tuple[str, ...], int]:
    """The claims that count, and how many others the pod names."""
    status = object_at(body, "status")
    if not _is_accepted(status):
        return (), 0
    names = dict.fromkeys(name for name in _claims(body) if _NAME.fullmatch(name))
    before = status.get(_UNLISTED)
    unlisted = max(0, len(names) - MOST_CLAIMS) + (before if isinstance(before, int) else 0)
    return tuple(islice(names, MOST_CLAIMS)), unlisted


def _is_accepted(status: JsonObject) -> bool:
    """Whether scheduler or kubelet have accepted the pod; until then only its author says that it belongs here."""
    return (
        bool(text_at(status, "startTime"))
        or text_at(status, "phase") == "Running"
        or any(
            text_at(each, "type") == "PodScheduled" and text_at(each, "status") == "True"
            for each in _objects(status.get("conditions"))
        )
    )


def _is_over(status: JsonObject) -> bool:
    """Whether phase and containers say that it has ended: others also set a phase while containers still run."""
    if text_at(status, "phase") not in _OVER:
        return False
    return not any(_is_running(each) for key in _CONTAINERS for each in _objects(status.get(key)))


def _is_running(container: JsonObject) -> bool:
    return object_at(container, "state").get("running") is not None


def _claims(body: JsonObject) -> Iterator[str]:
    """Names of claims: given by the pod, made for it from a template, or made for its extended resources."""
    status = object_at(body, "status")
    for each in _objects(object_at(body, "spec").get("resourceClaims")):
        yield text_at(each, "resourceClaimName")
    for each in _objects(status.get("resourceClaimStatuses")):
        yield text_at(each, "resourceClaimName")
    yield text_at(status, "extendedResourceClaimStatus", "resourceClaimName")


def _extended(status: JsonObject, claims: tuple[str, ...]) -> str:
    name = text_at(status, "extendedResourceClaimStatus", "resourceClaimName")
    return name if name in claims else ""


def _objects(found: Json) -> Iterator[JsonObject]:
    return (each for each in found if isinstance(each, dict)) if isinstance(found, list) else iter(())


MIRROR_WAIT = 120.0
"""Seconds in which a kubelet creates a deleted mirror pod again: it syncs every pod each 60 to 90 s."""
LOOK_AGAIN = 60.0
"""Seconds after which a pod that is in a list but not in the watch is looked up again."""
_REMEMBERED = 4096
"""Most gone pods whose names are remembered; a forgotten one is looked up like one never seen."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""The form of the UIDs of pods of the API; a static pod's is the hash of its file, 32 digits without a dash."""


class Presence:
    """The pods that are here and those that are known to be gone. For one thread."""

    def __init__(self, clocks: Clocks) -> None:
        self._monotonic = clocks.monotonic
        self._pods: dict[str, NodePod] = {}
        self._copies: dict[str, set[str]] = {}
        """UIDs of mirror pods by those of their static pods."""
        self._gone: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        """By UID, the name, and whether it is an object's UID, which is never used again, whatever a mirror pod says.
        """
        self._asked: dict[str, tuple[float, str]] = {}
        """By UID to look up in a list: the earliest time at which the list may begin, and the pod's name if known."""
        self.synced = False

    @property
    def pods(self) -> tuple[NodePod, ...]:
        """The pods that have not ended, in the order of their arrival."""
        return tuple(pod for pod in self._pods.values() if not pod.over)

    def replaced(self, pods: Iterable[NodePod]) -> None:
        """Take the complete list."""
        before, self._pods = self._pods, {pod.uid: pod for pod in pods if pod.uid}
        self._copies = {}
        for pod in self._pods.values():
            if pod.static:
                self._copies.setdefault(pod.static, set()).add(pod.uid)
        for uid in before.keys() - self._pods.keys():
            self._forget(before[uid])
        # A static pod may be back, with the UID of before.
        for uid in [uid for uid in (*self._asked, *self._gone) if uid in self._pods or uid in self._copies]:
            self._is_back(uid)
        self.synced = True

    def applied(self, pod: NodePod) -> bool:
        """A pod is new or has changed; returns whether its claims or an answer of ``gone`` may differ now."""
        if not pod.uid:
            return False
        before = self._pods.get(pod.uid)
        news = _news_of(before) != _news_of(pod)
        if before is not None and before.static != pod.static:
            self._uncopied(before)
        self._pods[pod.uid] = pod
        if pod.static:
            self._copies.setdefault(pod.static, set()).add(pod.uid)
        for uid in filter(None, (pod.uid, pod.static)):
            # A static pod may be back, with the UID of before.
            news |= self._is_back(uid)
        return news

    def deleted(self, pod: NodePod) -> None:
        """A pod's object was deleted."""
        known = self._pods.pop(pod.uid, None)
        if known is not None:
            self._uncopied(known)
        self._forget(pod)

    def _forget(self, pod: NodePod) -> None:
        """Remember that a pod, no longer in ``_pods``, is gone."""
        self._asked.pop(pod.uid, None)
        self._remember(pod.uid, str(pod), is_object=True)
        if pod.static and not self._with(pod.static):
            self._asked[pod.static] = self._monotonic() + MIRROR_WAIT, str(pod)

    def gone(self, uid: str) -> bool:
        """Whether the pod with the kubelet's UID is known to be gone; an unknown UID becomes a question."""
        if not self.synced or not uid:
            return False
        if uid in self._pods:
            # Anybody may create a pod that claims to be the mirror of another one.
            return self._pods[uid].over
        _, was_object = self._gone.get(uid, ("", False))
        if not was_object and (copies := self._with(uid)):
            return all(pod.over for pod in copies)
        if uid in self._gone:
            return True
        if _UUID.fullmatch(uid) and uid not in self._asked:
            self._asked[uid] = self._monotonic(), ""
        return False

    def name_of(self, uid: str) -> str:
        """``namespace/name`` of a pod, by either of its UIDs; empty if it is unknown."""
        for pod in self._with(uid):
            return str(pod)
        return self._gone.get(uid, ("", False))[0] or self._asked.get(uid, (0.0, ""))[1]

    def uid_of(self, name: str) -> str:
        """The kubelet's UID of the running or pending pod with this ``namespace/name``; empty if there is none."""
        return next((pod.static or pod.uid for pod in self._pods.values() if str(pod) == name and not pod.over), "")

    def list_at(self) -> float | None:
        """The time from which on a list would answer a question; None without a question."""
        return min((since for since, _ in self._asked.values()), default=None)

    def listed(self, began: float, pods: Iterable[NodePod]) -> bool:
        """A list that began at that time has these pods; returns whether that proves a pod gone.

        A question about a listed pod stays open: the list may be older or newer than the watch.
        """
        there = {uid: str(pod) for pod in pods for uid in (pod.uid, pod.static)}
        answered = [uid for uid, (since, _) in self._asked.items() if since <= began]
        for uid in answered:
            name = self._asked.pop(uid)[1]
            if uid in there:
                self._asked[uid] = self._monotonic() + LOOK_AGAIN, there[uid]
            else:
                self._remember(uid, name)
        return any(uid not in there for uid in answered)

    def _with(self, uid: str) -> list[NodePod]:
        """Pods that have this UID, at the API server or at the kubelet."""
        own = [uid] if uid in self._pods else []
        return [self._pods[each] for each in (*own, *self._copies.get(uid, ())) if each in self._pods]

    def _uncopied(self, pod: NodePod) -> None:
        copies = self._copies.get(pod.static)
        if copies is not None:
            copies.discard(pod.uid)
            if not copies:
                del self._copies[pod.static]

    def _is_back(self, uid: str) -> bool:
        """Forget that a pod is gone or asked for, if its UID may be used again; returns whether anything changed."""
        news = uid in self._asked
        self._asked.pop(uid, None)
        if uid in self._gone and (uid in self._pods or not self._gone[uid][1]):
            del self._gone[uid]
            news = True
        return news

    def _remember(self, uid: str, name: str, *, is_object: bool = False) -> None:
        self._gone[uid] = name, is_object
        self._gone.move_to_end(uid)
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def _news_of(pod: NodePod | None) -> tuple[tuple[str, ...], int, bool, str]:
    """The part of a pod whose changes matter to others; empty for one that has no claims and has not ended."""
    return ((), 0, False, "") if pod is None else (pod.claims, pod.unlisted, pod.over, pod.static)
