"""Whether a pod may run on a node at all, apart from its devices: what the scheduler's other filters look at.

Only what an object of the pod and one of the node decide together: its node's name, labels, taints, and whether the
node takes pods. Processors, memory, volumes and other pods are ignored: a device that is free on a full node is said to
be free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kube.bodies import JsonObject, object_at, one_line, text_at
from scheduling.allocator.claims import TOLERATION_PARTS, Toleration, tolerates
from scheduling.allocator.node_selection import SelectorFault, selector_matcher
from scheduling.allocator.pools import node_identity
from scheduling.allocator.slices import Taint
from scheduling.explain.extended import asks_of, offered
from scheduling.explain.state import name_of, objects_at, texts_at

ENDED = ("Succeeded", "Failed")
"""Phases of pods that have nothing of their node any more."""
_STOPPING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_WORD = 80


class HindranceKind(StrEnum):
    """What keeps a pod from a node."""

    NODE_NAME = "nodeName"
    NODE_SELECTOR = "nodeSelector"
    NODE_AFFINITY = "nodeAffinity"
    TAINT = "taint"
    UNSCHEDULABLE = "unschedulable"
    NOT_READY = "notReady"
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class Hindrance:
    """One reason. ``text`` names no node, so that equal reasons of many nodes are equal; ``fix`` may be empty.

    ``blocking`` False: the scheduler does not look at it, but the pod would not start.
    """

    ground: HindranceKind
    text: str
    fix: str = ""
    blocking: bool = True

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}" if self.fix else self.text


def hindrances(
    pod: JsonObject | None, node: JsonObject, classes: Mapping[str, JsonObject] | None = None
) -> tuple[Hindrance, ...]:
    """Everything that keeps a pod from a node, none where it may run there; without a pod only the node's own state.

    ``classes``: the classes behind the pod's extended resources (``Subject.extended``).
    """
    own = pod or {}
    found = [*_place(own, node), *_labels(own, node), *_taints(own, node), *_resources(own, node, classes or {})]
    return tuple(dict.fromkeys((*found, *_readiness(node))))


def _place(pod: JsonObject, node: JsonObject) -> Iterator[Hindrance]:
    wanted = text_at(pod, "spec", "nodeName")
    if wanted and wanted != name_of(node):
        yield Hindrance(HindranceKind.NODE_NAME, f"the pod is bound to node {wanted}", "remove spec.nodeName")


def _labels(pod: JsonObject, node: JsonObject) -> Iterator[Hindrance]:
    labels = object_at(node, "metadata", "labels")
    for key, value in object_at(pod, "spec", "nodeSelector").items():
        if labels.get(key) != value:
            text = f"spec.nodeSelector wants {key}={value}, the node has {_has(labels, key)}"
            yield Hindrance(HindranceKind.NODE_SELECTOR, text)
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    selector = object_at(pod, "spec", *path)
    if not selector:
        return
    reasons = []
    for term in objects_at(selector, "nodeSelectorTerms"):
        reason = _unmet(term, node)
        if not reason:
            return
        reasons.append(reason)
    text = ", or ".join(dict.fromkeys(reasons)) if reasons else "it has no term, so that no node fits"
    yield Hindrance(HindranceKind.NODE_AFFINITY, f"required node affinity: {text}")


def _unmet(term: JsonObject, node: JsonObject) -> str:
    """What of a term the node lacks, empty where it has all; a term without requirements fits no node."""
    labels = object_at(node, "metadata", "labels")
    expressions, fields = objects_at(term, "matchExpressions"), objects_at(term, "matchFields")
    if not expressions and not fields:
        return "a term without requirements fits no node"
    for part, requirements in (("matchExpressions", expressions), ("matchFields", fields)):
        for one in requirements:
            try:
                met = selector_matcher({"nodeSelectorTerms": [{part: [one]}]})(*node_identity(node))
            except SelectorFault as fault:
                return f"{_written(one)}: {fault.message}"
            if not met:
                has = f", the node has {_has(labels, text_at(one, 'key'))}" if part == "matchExpressions" else ""
                return f"wants {_written(one)}{has}"
    return ""


def _written(requirement: JsonObject) -> str:
    key, operator, values = (
        text_at(requirement, "key"),
        text_at(requirement, "operator"),
        texts_at(requirement, "values"),
    )
    listed = one_line(", ".join(values), _WORD)
    words = {"In": f"in ({listed})", "NotIn": f"not in ({listed})", "Gt": f"> {listed}", "Lt": f"< {listed}"}
    words |= {"Exists": "to exist", "DoesNotExist": "not to exist"}
    return f"{key} {words.get(operator, f'{operator} ({listed}), which is not an operator')}"


def _has(labels: Mapping[str, object], key: str) -> str:
    return one_line(f"{key}={labels[key]}", _WORD) if key in labels else f"no {key}"


def _taints(pod: JsonObject, node: JsonObject) -> Iterator[Hindrance]:
    tolerations = objects_at(pod, "spec", "tolerations")
    for taint in objects_at(node, "spec", "taints"):
        effect = text_at(taint, "effect")
        if effect in _STOPPING and not _tolerated(taint, tolerations):
            shown = _taint(taint)
            if text_at(taint, "key") == _UNSCHEDULABLE["key"]:
                continue  # The same as spec.unschedulable, which says it in one word.
            yield Hindrance(
                HindranceKind.TAINT, f"the node has the taint {shown}", f"let the pod tolerate it: {_toleration(taint)}"
            )
    cordoned: JsonObject = {**_UNSCHEDULABLE}
    tainted = any(text_at(one, "key") == _UNSCHEDULABLE["key"] for one in objects_at(node, "spec", "taints"))
    if (object_at(node, "spec").get("unschedulable") is True or tainted) and not _tolerated(cordoned, tolerations):
        yield Hindrance(HindranceKind.UNSCHEDULABLE, "the node is cordoned", "run 'kubectl uncordon'")


def _tolerated(taint: JsonObject, tolerations: Sequence[JsonObject]) -> bool:
    mine = Taint(*(text_at(taint, part) for part in ("key", "value", "effect")))
    return any(tolerates(Toleration(*(text_at(one, part) for part in TOLERATION_PARTS)), mine) for one in tolerations)


def _taint(taint: JsonObject) -> str:
    value = text_at(taint, "value")
    return one_line(f"{text_at(taint, 'key')}{'=' + value if value else ''}:{text_at(taint, 'effect')}", _WORD)


def _toleration(taint: JsonObject) -> str:
    return one_line(
        f"{{key: {text_at(taint, 'key')}, operator: Exists, effect: {text_at(taint, 'effect')}}}", 2 * _WORD
    )


def _resources(pod: JsonObject, node: JsonObject, classes: Mapping[str, JsonObject]) -> Iterator[Hindrance]:
    """Extended resources that neither a device plugin of the node nor a class serves; needs the node's status."""
    if not object_at(node, "status", "allocatable"):
        return
    totals: dict[str, int] = {}
    for ask in asks_of(pod):
        if not ask.short:
            totals[ask.resource] = totals.get(ask.resource, 0) + ask.count
    for resource, count in totals.items():
        has = offered(node, resource) or 0
        if count > has and (has or resource not in classes):
            fix = (
                ""
                if has
                else "check whether a device plugin runs there, or set this extendedResourceName on a device class"
            )
            yield Hindrance(
                HindranceKind.RESOURCE, f"the pod asks for {count} {resource}, the node has {has or 'none'}", fix
            )


def _readiness(node: JsonObject) -> Iterator[Hindrance]:
    for condition in objects_at(node, "status", "conditions"):
        if text_at(condition, "type") == "Ready" and text_at(condition, "status") != "True":
            reason = one_line(text_at(condition, "reason"), _WORD)
            text = f"the node is not Ready{f' ({reason})' if reason else ''}"
            yield Hindrance(HindranceKind.NOT_READY, text, "check its kubelet", blocking=False)
