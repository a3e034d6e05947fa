"""The claims that a question is about.

A pod's references are followed to their ends. A reference that leads nowhere becomes a sentence with the fix, since a
pod waits for it as it waits for devices. Claims that do not exist yet, because a controller or the scheduler makes
them, are made here as those would.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kube.bodies import JsonObject, object_at, text_at
from scheduling.explain.extended import ANNOTATION, CLAIM_NAME, asks_of, class_of, extended_claim, owner_of
from scheduling.explain.question import Question
from scheduling.explain.state import GROUP, BadQuestion, Kind, Objects, State, name_of, namespace_of, objects_at, uid_of

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
MOST_PODS = 256
"""Pods that one claim can be reserved for."""
DEFAULT_SCHEDULER = "default-scheduler"
ASKS_FOR_NOTHING = "the pod asks for no claims, and for no extended resource that a device class provides"


@dataclass(frozen=True, slots=True)
class ExplainSubject:
    """The object to explain.

    ``to_allocate`` and ``allocated``: the claims in the pod's order. ``missing``: sentences (without their ends) on
    what keeps the pod from being scheduled apart from nodes and devices; ``notes``: what is worth knowing.
    """

    question: Question
    pod: JsonObject | None = None
    to_allocate: Objects = ()
    allocated: Objects = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extended: dict[str, JsonObject] = field(default_factory=dict)
    """The classes behind the pod's extended resources, by resource."""

    @property
    def title(self) -> str:
        """Such as ``pod team/train-0``."""
        return str(self.question)

    def claims_on(self, node: JsonObject) -> Objects:
        """The claims to allocate on one node: that for extended resources differs from node to node."""
        if self.pod is None or not self.extended:
            return self.to_allocate
        own = extended_claim(self.pod, self.extended, node)
        claims = (own if name_of(claim) == CLAIM_NAME else claim for claim in self.to_allocate)
        return tuple(claim for claim in claims if claim is not None)


def subject_of(state: State, question: Question) -> ExplainSubject:
    """What a question is about; raises ``BadQuestion`` if nothing has that name."""
    found = {kind: body for kind in _kinds(question) if (body := state.find(kind, question.name, question.namespace))}
    if not found:
        raise BadQuestion(_nothing(state, question))
    if len(found) > 1:
        raise BadQuestion(f"both a pod and a claim are named {question}; say 'pod {question.name}' or 'claim ...'")
    kind, body = next(iter(found.items()))
    asked = replace(question, kind=kind)
    if kind is Kind.POD:
        return _Resolution(state, asked, body).subject()
    if kind is Kind.TEMPLATE:
        return ExplainSubject(asked, to_allocate=(_from_template(body, question.name, question.name, None),))
    return _claim_subject(state, asked, body)


def _kinds(question: Question) -> tuple[Kind, ...]:
    return (Kind.POD, Kind.CLAIM) if question.kind is None else (question.kind,)


def _nothing(state: State, question: Question) -> str:
    for kind in _kinds(question):
        if lack := state.lacks(kind):
            return f"cannot look up {question}: {lack}"
    what = f"there is no {question}" if question.kind else f"there is neither a pod nor a claim {question}"
    elsewhere = sorted(
        {namespace_of(one) for kind in _kinds(question) for one in state.of(kind) if name_of(one) == question.name}
    )
    fix = (
        f"it is in namespace {', '.join(elsewhere)}: pass it with -n" if elsewhere else "check name and namespace (-n)"
    )
    return f"{what} in {state.origin or 'what was read'}; {fix}"


def _claim_subject(state: State, question: Question, claim: JsonObject) -> ExplainSubject:
    users = [
        pod
        for pod in state.pods
        if namespace_of(pod) == namespace_of(claim) and name_of(claim) in _claim_names(pod).values()
    ]
    notes = [
        f"pod {name_of(pod)} uses it: 'ostler explain pod {name_of(pod)} -n {namespace_of(pod)}' also looks at the "
        "pod's node selection and its other claims"
        for pod in users[:3]
    ]
    allocated = is_allocated(claim)
    if allocated and not users:
        holders = [text_at(one, "name") for one in objects_at(claim, "status", "reservedFor")]
        notes.append(
            f"it is reserved for {', '.join(holders[:3])}" if holders else "it is allocated, but no pod uses it"
        )
    return ExplainSubject(
        question,
        to_allocate=() if allocated else (claim,),
        allocated=(claim,) if allocated else (),
        missing=tuple(_going(claim)),
        notes=tuple(notes),
    )


def is_allocated(claim: JsonObject) -> bool:
    """Whether a claim has its devices; an allocation may be empty."""
    return isinstance(object_at(claim, "status").get("allocation"), dict)


def _going(claim: JsonObject) -> list[str]:
    if not text_at(claim, "metadata", "deletionTimestamp"):
        return []
    return [f"claim {name_of(claim)} is being deleted; wait until it is gone, or check its finalizers"]


def _claim_names(pod: JsonObject) -> dict[str, str]:
    """The claims that a pod uses: by its own name for each, the object's name, "" where it needs none."""
    made = {
        text_at(status, "name"): text_at(status, "resourceClaimName")
        for status in objects_at(pod, "status", "resourceClaimStatuses")
    }
    named = {
        text_at(one, "name"): text_at(one, "resourceClaimName")
        for one in objects_at(pod, "spec", "resourceClaims")
        if text_at(one, "resourceClaimName")
    }
    return {**made, **named}


class _Resolution:
    """Follows a pod's references; what is found goes into lists as it comes."""

    def __init__(self, state: State, question: Question, pod: JsonObject) -> None:
        self._state = state
        self._question = question
        self._pod = pod
        self._namespace = namespace_of(pod)
        self._claims: dict[str, JsonObject] = {}
        self._missing: list[str] = []
        self._notes: list[str] = []
        self._classes: dict[str, JsonObject] = {}

    def subject(self) -> ExplainSubject:
        self._look_at_pod()
        for reference in objects_at(self._pod, "spec", "resourceClaims"):
            self._follow(reference)
        self._add_extended()
        if not self._claims and not self._missing:
            self._notes.append(ASKS_FOR_NOTHING)
        claims = tuple(self._claims.values())
        return ExplainSubject(
            self._question,
            self._pod,
            tuple(claim for claim in claims if not is_allocated(claim)),
            tuple(claim for claim in claims if is_allocated(claim)),
            tuple(self._missing),
            tuple(self._notes),
            self._classes,
        )

    def _look_at_pod(self) -> None:
        gates = [text_at(gate, "name") for gate in objects_at(self._pod, "spec", "schedulingGates")]
        if gates:
            self._missing.append(
                f"the pod is held by its scheduling gates ({', '.join(gates)}); whoever set them must remove them"
            )
        if text_at(self._pod, "metadata", "deletionTimestamp"):
            self._missing.append("the pod is being deleted; it will not be scheduled")
        scheduler = text_at(self._pod, "spec", "schedulerName") or DEFAULT_SCHEDULER
        if scheduler != DEFAULT_SCHEDULER:
            self._notes.append(f"the pod uses the scheduler {scheduler}, which may follow other rules")
        if node := text_at(self._pod, "spec", "nodeName"):
            self._notes.append(f"the pod is on node {node}")

    def _follow(self, reference: JsonObject) -> None:
        own = text_at(reference, "name")
        direct, template = text_at(reference, "resourceClaimName"), text_at(reference, "resourceClaimTemplateName")
        if bool(direct) == bool(template):
            many = "both a claim and a template" if direct else "neither a claim nor a template"
            self._missing.append(
                f"spec.resourceClaims {own} names {many}; give one of resourceClaimName and resourceClaimTemplateName"
            )
        elif direct:
            self._existing(own, direct, generated=False)
        else:
            self._generated(own, template)

    def _existing(self, own: str, name: str, *, generated: bool) -> None:
        claim = self._state.find(Kind.CLAIM, name, self._namespace)
        if claim is None:
            fix = "create it"
            if generated:
                fix = "it was made from a template and has been deleted; delete the pod, so that its owner creates both"
            self._missing.append(self._absent(Kind.CLAIM, f"claim {name} ({own} in the pod)", fix))
            return
        self._missing += _going(claim)
        holders = objects_at(claim, "status", "reservedFor")
        if len(holders) >= MOST_PODS and all(text_at(one, "name") != name_of(self._pod) for one in holders):
            self._missing.append(
                f"claim {name} is reserved for {len(holders)} pods, and no more can share it; delete one of them"
            )
        if generated and not _is_for(claim, self._pod):
            self._missing.append(f"claim {name} ({own} in the pod) was created for another pod; delete that claim")
        self._add(claim)

    def _generated(self, own: str, template_name: str) -> None:
        names = _claim_names(self._pod)
        if own in names:
            # An empty name: the controller found that the pod needs no claim.
            if names[own]:
                self._existing(own, names[own], generated=True)
            return
        for claim in self._state.claims:
            made_for = text_at(claim, "metadata", "annotations", POD_CLAIM_NAME)
            if made_for == own and namespace_of(claim) == self._namespace and _is_for(claim, self._pod, strictly=True):
                self._add(claim)
                return
        template = self._state.find(Kind.TEMPLATE, template_name, self._namespace)
        if template is None:
            what = f"claim template {template_name} ({own} in the pod)"
            self._missing.append(self._absent(Kind.TEMPLATE, what, "create it"))
            return
        if uid_of(self._pod):
            self._notes.append(
                f"the claim for {own} has not been created from template {template_name} yet; if this persists, check "
                "whether kube-controller-manager runs its resource claim controller"
            )
        self._add(_from_template(template, own, f"{name_of(self._pod)}-{own}", self._pod))

    def _absent(self, kind: Kind, what: str, fix: str) -> str:
        lack = self._state.lacks(kind)
        if lack is not None:
            return f"cannot look up {what}: {lack}"
        return f"{what} does not exist in namespace {self._namespace}; {fix}"

    def _add(self, claim: JsonObject) -> None:
        self._claims.setdefault(name_of(claim), claim)

    def _add_extended(self) -> None:
        resources = dict.fromkeys(ask.resource for ask in asks_of(self._pod))
        found = {resource: class_of(resource, self._state.classes) for resource in resources}
        self._classes = {resource: one for resource, one in found.items() if one is not None}
        if not self._classes:
            return
        existing = text_at(self._pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        claim = self._state.find(Kind.CLAIM, existing, self._namespace) if existing else self._special()
        if claim is not None and is_allocated(claim):
            self._classes = {}
        else:
            if claim is not None:
                self._notes.append(
                    f"claim {name_of(claim)} is left from an earlier attempt; the scheduler creates it again"
                )
            claim = extended_claim(self._pod, self._classes, None)
        if claim is not None:
            self._add(claim)

    def _special(self) -> JsonObject | None:
        """The claim of an earlier attempt, which the pod's status does not name yet."""
        for claim in self._state.claims:
            marked = text_at(claim, "metadata", "annotations", ANNOTATION) == "true"
            if marked and namespace_of(claim) == self._namespace and _is_for(claim, self._pod, strictly=True):
                return claim
        return None


def _is_for(claim: JsonObject, pod: JsonObject, *, strictly: bool = False) -> bool:
    """Whether a claim belongs to a pod; without ``strictly`` also where either says nothing of it."""
    owners = objects_at(claim, "metadata", "ownerReferences")
    uid = uid_of(pod)
    if not owners or not uid:
        return not strictly
    return any(text_at(owner, "uid") == uid for owner in owners)


def _from_template(template: JsonObject, own: str, name: str, pod: JsonObject | None) -> JsonObject:
    """The claim that the controller makes; its name ends in random letters there, and here in none."""
    given = object_at(template, "spec", "metadata")
    annotations = {**object_at(given, "annotations"), POD_CLAIM_NAME: own}
    metadata: JsonObject = {
        **({"labels": given["labels"]} if "labels" in given else {}),
        "name": name,
        "namespace": namespace_of(template),
        "uid": f"{name}-to-be-made",
        "annotations": annotations,
    }
    if pod is not None:
        metadata["ownerReferences"] = [owner_of(pod)]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": Kind.CLAIM.value,
        "metadata": metadata,
        "spec": object_at(template, "spec", "spec"),
    }
