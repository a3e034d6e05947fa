"""Which pods are on this node and which are known to be gone: the bookkeeping, without I/O.

Invariants: a pod is never taken for gone for lack of news. It is gone when its object was seen and deleted, when it is
over, or when a list that was begun after the question about its UID does not have it. UIDs are never used twice, save
those of static pods, which come back with the same file; so these are gone only when the kubelet has had the time to
make their mirror pod anew, and one whose mirror pod was never seen is never gone: the kubelet may have been kept from
making one.

What the API server calls gone may still run for a moment (a pod deleted by force). Whoever has the kubelet's own word
believes that.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

from driver.holders.pods import NodePod

MIRROR_WAIT = 120.0
"""Seconds in which a kubelet makes a deleted mirror pod anew: it looks after every pod each 60 to 90 s."""
LOOK_AGAIN = 60.0
"""Seconds after which a pod that a list has and the watch has not is looked for again."""
_REMEMBERED = 4096
"""Pods that are gone and whose names are remembered; one that is forgotten is asked for like one never seen."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""Of pods of the API; a static pod's is the hash of its file, 32 digits without a dash."""


class Presence:
    """For one thread. ``monotonic``: seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._pods: dict[str, NodePod] = {}
        self._copies: dict[str, set[str]] = {}
        """UIDs of mirror pods by those of their static pods."""
        self._gone: OrderedDict[str, str] = OrderedDict()
        """Names by UID."""
        self._asked: dict[str, tuple[float, str]] = {}
        """By UIDs that are to be looked for in a list: the time at which it may begin, and the pod's name if known."""
        self.synced = False

    @property
    def pods(self) -> tuple[NodePod, ...]:
        """The pods that are not over, in the order in which they came."""
        return tuple(pod for pod in self._pods.values() if not pod.over)

    def replaced(self, pods: Iterable[NodePod]) -> None:
        """These are all there are."""
        before, self._pods = self._pods, {pod.uid: pod for pod in pods if pod.uid}
        self._copies = {}
        for pod in self._pods.values():
            if pod.static:
                self._copies.setdefault(pod.static, set()).add(pod.uid)
        for uid in before.keys() - self._pods.keys():
            self._forget(before[uid])
        # A static pod may be back, with the UID of before.
        for uid in [uid for uid in (*self._asked, *self._gone) if uid in self._pods or uid in self._copies]:
            self._asked.pop(uid, None)
            self._gone.pop(uid, None)
        self.synced = True

    def applied(self, pod: NodePod) -> bool:
        """A pod is there, or has changed; whether that is news."""
        if not pod.uid:
            return False
        before = self._pods.get(pod.uid)
        if before is not None and before.static != pod.static:
            self._uncopied(before)
        self._pods[pod.uid] = pod
        if pod.static:
            self._copies.setdefault(pod.static, set()).add(pod.uid)
        for uid in filter(None, (pod.uid, pod.static)):
            # A static pod may be back, with the UID of before.
            self._asked.pop(uid, None)
            self._gone.pop(uid, None)
        return before != pod

    def deleted(self, pod: NodePod) -> None:
        """A pod's object was deleted."""
        known = self._pods.pop(pod.uid, None)
        if known is not None:
            self._uncopied(known)
        self._forget(pod)

    def _forget(self, pod: NodePod) -> None:
        """Remember that a pod is gone, which is not among ``_pods`` any more."""
        self._asked.pop(pod.uid, None)
        self._remember(pod.uid, str(pod))
        if pod.static and not self._with(pod.static):
            self._asked[pod.static] = self._monotonic() + MIRROR_WAIT, str(pod)

    def gone(self, uid: str) -> bool:
        """Whether the pod, by the kubelet's UID, is known to be gone; a UID that is not known is looked for."""
        if not self.synced or not uid:
            return False
        if known := self._with(uid):
            return all(pod.over for pod in known)
        if uid in self._gone:
            return True
        if _UUID.fullmatch(uid) and uid not in self._asked:
            self._asked[uid] = self._monotonic(), ""
        return False

    def name_of(self, uid: str) -> str:
        """``namespace/name`` of a pod, by either of its UIDs; empty where it is not known."""
        for pod in self._with(uid):
            return str(pod)
        return self._gone.get(uid) or self._asked.get(uid, (0.0, ""))[1]

    def list_at(self) -> float | None:
        """The time from which on a list would answer a question; None: there is none."""
        return min((since for since, _ in self._asked.values()), default=None)

    def listed(self, began: float, pods: Iterable[NodePod]) -> bool:
        """A list that was begun at that time has these pods; whether somebody is known to be gone by that.

        Who is in it stays a question: nobody can say whether the list is newer or older than what the watch knows.
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

    def _remember(self, uid: str, name: str) -> None:
        self._gone[uid] = name
        self._gone.move_to_end(uid)
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
