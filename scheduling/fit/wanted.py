"""The pods to place, and which of them the scheduler cannot tell apart.

A source is a pod, or a claim or claim template without one, that is wanted a number of times. Sources that differ in
names alone are one kind: what is found out about one pod of a kind holds for all. Copies get names of their own, and
claims of their own where a template makes them; a claim that pods name is one for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from kube.bodies import JsonObject, object_at, text_at
from scheduling.explain.extended import CLAIM_NAME
from scheduling.explain.question import Question
from scheduling.explain.state import FACTS, Kind, Objects, State, name_of, namespace_of, objects_at, uid_of
from scheduling.explain.subject import POD_CLAIM_NAME, ExplainSubject, subject_of
from scheduling.fit.room import Needs, needs_of

_CLAIMS_IN_STATUS = ("resourceClaimStatuses", "extendedResourceClaimStatus")
ClaimKey = tuple[str, str]
"""Namespace and name."""


def claim_key(claim: JsonObject) -> ClaimKey:
    """The key of a claim."""
    return namespace_of(claim), name_of(claim)


@dataclass(frozen=True, slots=True)
class PodSource:
    """``count``: how many are wanted, None for one on every node (a DaemonSet). ``title``: such as Deployment web."""

    question: Question
    count: int | None = 1
    title: str = ""

    def __str__(self) -> str:
        return self.title or str(self.question)


@dataclass(frozen=True)
class PodKind:
    """Pods, or claims without one, that differ in names alone; ``subject`` is that of the first.

    ``own``: the claims that every one of them has for itself; ``named``: those that they share.
    """

    subject: ExplainSubject
    own: Objects
    named: Objects

    @property
    def keys(self) -> tuple[ClaimKey, ...]:
        """Of the claims that they share and that are to be allocated."""
        return tuple(map(claim_key, self.named))

    @property
    def shared(self) -> Objects:
        """The claims that they share, also those that have their devices already."""
        return () if self.pod is None else (*self.named, *self.subject.allocated)

    @property
    def pod(self) -> JsonObject | None:
        """The first pod."""
        return self.subject.pod


@dataclass
class WantedPods:
    """A source with its kind. ``alone``: there is one of it, which keeps its name; ``number``: how many have names."""

    source: PodSource
    kind: PodKind
    needs: Needs
    alone: bool
    number: int = 0

    def next_name(self) -> str:
        """The name of the next one."""
        name = self.source.question.name
        self.number += 1
        return name if self.alone else f"{name}-{self.number - 1}"


def wanted_of(state: State, sources: Sequence[PodSource], *, copies: int | None) -> Iterator[WantedPods]:
    """The sources with their kinds, equal ones with the very same. Raises ``BadQuestion``."""
    known: dict[str, PodKind] = {}
    owning = (one for claim in state.claims for one in objects_at(claim, "metadata", "ownerReferences"))
    owners = {uid for one in owning if (uid := text_at(one, "uid"))}
    for source in sources:
        alike = _likeness(state, source, owners)
        kind = known.get(alike) or known.setdefault(alike, kind_of_source(state, source))
        needs = {} if kind.pod is None else needs_of(kind.pod)
        yield WantedPods(source, kind, needs, copies == 1 and source.count == 1)


def kind_of_source(state: State, source: PodSource) -> PodKind:
    """The kind of a source. Raises ``BadQuestion`` where there is nothing of its name."""
    subject = subject_of(state, source.question)
    claims = subject.to_allocate
    if subject.pod is None:
        # Without a pod each copy is a claim like this one.
        return PodKind(subject, claims, ())
    own = tuple(claim for claim in claims if _is_made(claim))
    return PodKind(subject, own, tuple(claim for claim in claims if not _is_made(claim)))


def _is_made(claim: JsonObject) -> bool:
    """Whether a claim does not exist yet and is made for one pod."""
    return uid_of(claim).endswith("-to-be-made") or name_of(claim) == CLAIM_NAME


def _likeness(state: State, source: PodSource, owners: Collection[str]) -> str:
    """Equal for sources of one kind; ``owners``: UIDs of those that have claims of their own already."""
    question = source.question
    kind = question.kind or Kind.POD
    body = state.find(kind, question.name, question.namespace) or {}
    status = object_at(body, "status")
    if kind is not Kind.POD or uid_of(body) in owners or any(key in status for key in _CLAIMS_IN_STATUS):
        return str(question)
    has = bool(uid_of(body)), bool(text_at(body, "metadata", "deletionTimestamp"))
    return json.dumps([namespace_of(body), object_at(body, "spec"), *has], sort_keys=True)


def copy_of(kind: PodKind, name: str) -> ExplainSubject:
    """The subject of a kind under the name of a copy, with the copy's own claims; that of the first as it is."""
    subject = kind.subject
    if name == subject.question.name:
        return subject
    own = {name_of(claim) for claim in kind.own if name_of(claim) != CLAIM_NAME}
    return replace(
        subject,
        question=replace(subject.question, name=name),
        pod=None if subject.pod is None else _pod_of_copy(subject.pod, name),
        to_allocate=tuple(
            claim_of_copy(claim, subject, name) if name_of(claim) in own else claim for claim in subject.to_allocate
        ),
    )


def _pod_of_copy(pod: JsonObject, name: str) -> JsonObject:
    """Without UID and status, by which claims of the first would be taken for those of the copy."""
    metadata = {key: value for key, value in object_at(pod, "metadata").items() if key not in ("uid", "generateName")}
    return {**{key: value for key, value in pod.items() if key != "status"}, "metadata": {**metadata, "name": name}}


def claim_of_copy(claim: JsonObject, subject: ExplainSubject, name: str) -> JsonObject:
    """A claim of a pod's own as the pod of that name has it; that of the first is as it is."""
    metadata = object_at(claim, "metadata")
    if name_of(claim) == CLAIM_NAME:
        made = f"{name}-extended-resources"
    elif name == subject.question.name:
        return claim
    elif subject.pod is None:
        made = name
    else:
        made = f"{name}-{object_at(metadata, 'annotations').get(POD_CLAIM_NAME)}"
    kept = {key: value for key, value in metadata.items() if key not in ("ownerReferences", "generateName")}
    return {**claim, "metadata": {**kept, "name": made, "uid": f"{made}-to-be-made"}}


def with_more(state: State, kind: Kind, bodies: Sequence[JsonObject]) -> State:
    """The state with more objects of a kind, each in the place of one with its name."""
    namespaced = FACTS[kind].namespaced
    found = {(namespace_of(body) if namespaced else "", name_of(body)): body for body in (*state.of(kind), *bodies)}
    return state.with_objects(kind, tuple(found.values()))
