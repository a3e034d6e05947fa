"""What has been placed so far: pods, the claims that they got, the claims that they share, and what fits nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kube.bodies import JsonObject, object_at
from scheduling.explain.state import Objects, name_of, namespace_of, objects_at
from scheduling.explain.subject import MOST_PODS, ExplainSubject, is_allocated
from scheduling.fit.answer import Leftover, PlacedClaim, PlacedPod
from scheduling.fit.choosing import GivenPlace
from scheduling.fit.supply import NodePlace
from scheduling.fit.wanted import ClaimKey, PodKind, WantedPods, claim_key, claim_of_copy, copy_of


class PlacingRecord:
    """``changed``: numbers of places, one for each pod placed. ``leftovers``: by source, in the order of failing.

    ``takes``: whether anything has become less since the last ``begin_copy``.
    """

    def __init__(self) -> None:
        """Nothing is placed yet."""
        self.placed: list[tuple[PlacedPod, NodePlace]] = []
        self.changed: list[int] = []
        self.leftovers: dict[str, Leftover] = {}
        self.takes = False
        self._before_copy = 0
        self._made: list[JsonObject] = []
        self._named: dict[ClaimKey, JsonObject] = {}
        self._users: dict[ClaimKey, int] = {}

    def begin_copy(self) -> None:
        """What is placed from now on is another copy of the pods."""
        self.takes, self._before_copy = False, len(self.placed)

    def drop_copy(self) -> None:
        """Forget which pods of the last copy were placed: a copy of which a part does not fit is none."""
        del self.placed[self._before_copy :]

    def leave_out(self, place: NodePlace) -> None:
        """Forget which pods were placed there."""
        self.placed = [each for each in self.placed if each[1] is not place]

    @property
    def claims(self) -> Objects:
        """Every claim that was allocated here, with its allocation."""
        return (*self._named.values(), *self._made)

    def allocated(self, keys: Iterable[ClaimKey]) -> dict[ClaimKey, JsonObject]:
        """Those of the claims that pods share that were allocated here."""
        return {key: self._named[key] for key in keys if key in self._named}

    def is_full(self, claim: JsonObject) -> bool:
        """Whether no more pods can share a claim."""
        return len(objects_at(claim, "status", "reservedFor")) + self._users.get(claim_key(claim), 0) >= MOST_PODS

    def enter(self, wanted: WantedPods, name: str, given: GivenPlace) -> None:
        """Place a pod."""
        place, kind, subject = given.place, wanted.kind, wanted.kind.subject
        claims: list[PlacedClaim] = []
        takes = place.room.take(wanted.needs)
        for claim, result in zip(given.claims, given.results, strict=True):
            allocation = place.named(dict(result))
            takes = place.take({**claim, "status": {"allocation": result}}) or takes
            is_shared = claim_key(claim) in kind.keys
            body = claim if is_shared else claim_of_copy(claim, subject, name)
            made = _allocated(body, allocation, () if kind.pod is None else (name,))
            if is_shared:
                self._named[claim_key(claim)] = made
            else:
                self._made.append(made)
            claims.append(PlacedClaim(namespace_of(made), name_of(made), allocation))
        for claim in kind.shared:
            self._users[claim_key(claim)] = self._users.get(claim_key(claim), 0) + 1
            takes = True  # One of the reservations that a claim can have.
        place.pods += 1
        self.takes = self.takes or takes
        self.changed.append(place.number)
        pod = PlacedPod(f"{subject.question.namespace}/{name}", str(wanted.source), place.name, tuple(claims))
        self.placed.append((pod, place))

    def leave(self, wanted: WantedPods, name: str) -> None:
        """Note a pod that fits nowhere."""
        source = str(wanted.source)
        known = self.leftovers.get(source)
        first = f"{wanted.kind.subject.question.namespace}/{name}"
        self.leftovers[source] = replace(known, count=known.count + 1) if known else Leftover(source, first, 1)

    def subject(self, kind: PodKind, name: str) -> ExplainSubject:
        """What is to be explained of a pod: its claims as they are by now."""
        subject = copy_of(kind, name)
        missing = [
            f"claim {name_of(claim)} is reserved for {MOST_PODS} pods, and no more can share it; delete one of them"
            for claim in kind.shared
            # Of one that was full before, the subject says so already.
            if self.is_full(claim) and len(objects_at(claim, "status", "reservedFor")) < MOST_PODS
        ]
        now = [self._named.get(claim_key(claim), claim) for claim in (*subject.to_allocate, *subject.allocated)]
        return replace(
            subject,
            notes=(),  # Those of all pods are the answer's.
            to_allocate=tuple(claim for claim in now if not is_allocated(claim)),
            allocated=tuple(claim for claim in now if is_allocated(claim)),
            missing=(*subject.missing, *missing),
        )


def _allocated(body: JsonObject, allocation: JsonObject, pods: Iterable[str]) -> JsonObject:
    """The claim with its allocation, reserved for these pods beside those that have it."""
    status = object_at(body, "status")
    more: list[JsonObject] = [{"resource": "pods", "name": pod, "uid": f"{pod}-to-be-made"} for pod in pods]
    reserved = [*objects_at(status, "reservedFor"), *more]
    return {**body, "status": {**status, "allocation": allocation, "reservedFor": list(reserved)}}
