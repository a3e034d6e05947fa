"""The scheduler extender's JSON, version v1: the requests of kube-scheduler, and the answers that it expects.

The scheduler's types have no JSON tags, so names are capitalised; its decoder ignores case, and so does this reader.
Everything that is read has a type that is checked: whoever can reach the port can send anything. Of a Pod only its
identity is taken. Everything else that decides comes from the API server, so a caller cannot invent it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from kube.bodies import Json, JsonObject, one_line

MOST_NODES = 50_000
"""Nodes of one question; Kubernetes supports a tenth of that."""
MOST_COLLECTIONS, MOST_VALUES = 1_000_000, 4_000_000
"""Of a large body: small values take many times their text. 5,000 whole Nodes have 700,000 objects and lists."""
_LARGE = 1 << 20
"""Bytes of a body from which on its values are counted before they are decoded."""
MOST_NAME = 253
"""Characters of a name or UID."""
MOST_REASON = 1024
"""Characters of the reason for one node; the scheduler joins those of all nodes to one event."""
USER_ERROR, PLATFORM_ERROR = "hivedscheduler: User Error: ", "hivedscheduler: Platform Error: "
"""How error texts begin; clients of HiveD distinguish errors of the caller from errors of the scheduler by them."""
BEST = 10
"""The highest score of a node."""


class ExtenderError(Exception):
    """A question that has no answer. ``code``: the HTTP status; below 500 the caller can fix it."""

    def __init__(self, message: str, code: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = int(code)

    @property
    def text(self) -> str:
        """The message as it is answered."""
        kind = PLATFORM_ERROR if self.code >= HTTPStatus.INTERNAL_SERVER_ERROR else USER_ERROR
        return f"{kind}{self}"

    @property
    def field(self) -> str:
        """The message for an ``Error`` field, whose answer has the status 200."""
        return f"Code: {self.code}, Message: {self.text}"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a question is about; ``uid`` alone decides which one it is."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.uid}({self.namespace}/{self.name})"


@dataclass(frozen=True, slots=True)
class FilterArguments:
    """``nodes``: names in the order of the question. ``objects``: the Nodes themselves, if they were sent instead."""

    pod: PodIdentity
    nodes: tuple[str, ...]
    objects: Mapping[str, JsonObject] | None


@dataclass(frozen=True, slots=True)
class BindArguments:
    """The pod, and the node that the scheduler wants to bind it to."""

    pod: PodIdentity
    node: str


@dataclass(frozen=True, slots=True)
class PreemptArguments:
    """``nodes``: candidates with the number of disruption budgets that the scheduler's own victims violate."""

    pod: PodIdentity
    nodes: Mapping[str, int]


def decoded(body: bytes) -> JsonObject:
    """The JSON object of a request; raises ``ExtenderError``."""
    if len(body) > _LARGE and (
        body.count(b"{") + body.count(b"[") > MOST_COLLECTIONS or body.count(b",") > MOST_VALUES
    ):
        raise ExtenderError(
            f"the request body has more than {MOST_COLLECTIONS} objects and lists or {MOST_VALUES} values; set "
            "nodeCacheCapable: true in the scheduler's configuration",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    try:
        value = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        problem = "it nests too deeply" if isinstance(error, RecursionError) else one_line(str(error), 200)
        raise ExtenderError(f"the request body is not JSON ({problem}); send the scheduler's arguments") from error
    if not isinstance(value, dict):
        raise ExtenderError(f"the request body is {_kind(value)}; it must be a JSON object")
    return value


def read_filter(body: JsonObject) -> FilterArguments:
    """ExtenderArgs; raises ``ExtenderError``."""
    fields = _folded(body)
    pod = _pod(fields)
    names, listed = fields.get("nodenames"), fields.get("nodes")
    if names is not None:
        return FilterArguments(pod, _names(names), None)
    if listed is None:
        raise ExtenderError("NodeNames and Nodes are both missing; one of them must list the candidate nodes")
    if not isinstance(listed, dict):
        raise ExtenderError(f"Nodes is {_kind(listed)}; it must be a NodeList")
    items = _folded(listed).get("items")
    if items is not None and not isinstance(items, list):
        raise ExtenderError(f"Nodes.items is {_kind(items)}; it must be a list of Nodes")
    objects: dict[str, JsonObject] = {}
    for each in items or []:
        if not isinstance(each, dict):
            raise ExtenderError(f"Nodes.items has {_kind(each)}; each item must be a Node")
        objects[_text(_object(each, "metadata", "Nodes.items"), "name", "Nodes.items.metadata.name")] = each
    return FilterArguments(pod, _names(list(objects)), objects)


def read_bind(body: JsonObject) -> BindArguments:
    """ExtenderBindingArgs; raises ``ExtenderError``."""
    fields = _folded(body)
    name, namespace, uid, node = (
        _text(fields, key.lower(), key) for key in ("PodName", "PodNamespace", "PodUID", "Node")
    )
    return BindArguments(PodIdentity(uid, namespace, name), node)


def read_preempt(body: JsonObject) -> PreemptArguments:
    """ExtenderPreemptionArgs; raises ``ExtenderError``."""
    fields = _folded(body)
    pod = _pod(fields)
    field = "NodeNameToMetaVictims" if fields.get("nodenametometavictims") is not None else "NodeNameToVictims"
    victims = fields.get(field.lower())
    if victims is None:
        raise ExtenderError("NodeNameToMetaVictims and NodeNameToVictims are both missing; send one of them")
    if not isinstance(victims, dict):
        raise ExtenderError(f"{field} is {_kind(victims)}; it must map node names to victims")
    nodes: dict[str, int] = {}
    for name in _names(list(victims)):
        value = victims[name]
        if value is not None and not isinstance(value, dict):
            raise ExtenderError(f"{field}.{name} is {_kind(value)}; it must be an object with Pods")
        count = _folded(value or {}).get("numpdbviolations")
        if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
            raise ExtenderError(f"{field}.{name}.NumPDBViolations is {_kind(count)}; it must be a whole number")
        nodes[name] = count or 0
    return PreemptArguments(pod, nodes)


def filter_answer(
    arguments: FilterArguments,
    chosen: Collection[str] = (),
    *,
    failed: Mapping[str, str] | None = None,
    unresolvable: Mapping[str, str] | None = None,
) -> JsonObject:
    """ExtenderFilterResult with the ``chosen`` nodes of the question, and why others are not.

    ``failed``: preempting pods there may help. ``unresolvable``: it does not, so the scheduler need not try.
    """
    kept = [name for name in arguments.nodes if name in chosen]
    answer: JsonObject = {"Nodes": None, "NodeNames": None, "FailedNodes": None, "Error": ""}
    if arguments.objects is None:
        # An empty list is null for a decoder of Go's; the scheduler then knows no node, as is meant.
        answer["NodeNames"] = list(kept) or None
    else:
        answer["Nodes"] = {"metadata": {}, "items": [arguments.objects[name] for name in kept]}
    for key, reasons in (("FailedNodes", failed), ("FailedAndUnresolvableNodes", unresolvable)):
        said = reasons or {}
        named: JsonObject = {name: one_line(said[name], MOST_REASON) for name in arguments.nodes if name in said}
        if named:
            answer[key] = named
    return answer


def filter_failure(error: ExtenderError) -> JsonObject:
    """ExtenderFilterResult with an error."""
    return {"Nodes": None, "NodeNames": None, "FailedNodes": None, "Error": error.field}


def bind_answer(error: ExtenderError | None = None) -> JsonObject:
    """ExtenderBindingResult."""
    return {"Error": "" if error is None else error.field}


def preempt_answer(arguments: PreemptArguments, node: str = "", victims: Iterable[str] = ()) -> JsonObject:
    """ExtenderPreemptionResult with the ``victims`` (UIDs) on one node of the question, or with none."""
    if not node:
        return {"NodeNameToMetaVictims": None}
    pods: list[Json] = [{"UID": uid} for uid in sorted(victims)]
    return {"NodeNameToMetaVictims": {node: {"Pods": pods, "NumPDBViolations": arguments.nodes[node]}}}


def prioritize_answer(arguments: FilterArguments, best: str) -> Json:
    """HostPriorityList: the best score for the node that the pod is placed on, 0 for every other."""
    return [{"Host": name, "Score": BEST if name == best else 0} for name in arguments.nodes]


def encoded(answer: Json) -> bytes:
    """The answer's bytes."""
    return json.dumps(answer, separators=(",", ":")).encode()


def _pod(fields: JsonObject) -> PodIdentity:
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise ExtenderError(f"Pod is {_kind(pod)}; it must be the Pod to schedule")
    metadata = _object(pod, "metadata", "Pod")
    return PodIdentity(
        _text(metadata, "uid", "Pod.metadata.uid"),
        _text(metadata, "namespace", "Pod.metadata.namespace"),
        _text(metadata, "name", "Pod.metadata.name"),
    )


def _object(body: JsonObject, key: str, place: str) -> JsonObject:
    value = _folded(body).get(key)
    if not isinstance(value, dict):
        raise ExtenderError(f"{place}.{key} is {_kind(value)}; it must be an object")
    return _folded(value)


def _text(body: JsonObject, key: str, place: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise ExtenderError(f"{place} is {_kind(value)}; it must be text that is not empty")
    return _short(value, place)


def _short(value: str, place: str) -> str:
    if len(value) > MOST_NAME:
        raise ExtenderError(f"{place} has {len(value)} characters; the limit is {MOST_NAME}")
    if not value.isprintable():
        raise ExtenderError(f"{place} has characters that cannot be printed; it must be a name")
    return value


def _names(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ExtenderError(f"NodeNames is {_kind(value)}; it must be a list of node names")
    if len(value) > MOST_NODES:
        raise ExtenderError(f"{len(value)} nodes are listed; the limit is {MOST_NODES}")
    for each in value:
        if not isinstance(each, str):
            raise ExtenderError(f"NodeNames has {_kind(each)}; each must be the name of a node")
        _short(each, "the name of a node")
    # A set keeps the order and drops repetitions.
    return tuple(dict.fromkeys(each for each in value if isinstance(each, str)))


def _folded(body: JsonObject) -> JsonObject:
    """Keys in small letters; of keys that differ in case alone the last one counts, as in Go."""
    return {key.lower(): value for key, value in body.items()}


def _kind(value: Json) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return "empty text" if not value else f"the text {one_line(value, 40)!r}"
    if isinstance(value, (bool, int, float)):
        return one_line(json.dumps(value), 40)
    return "a list" if isinstance(value, list) else "an object"


def _no_number(text: str) -> Json:
    raise ValueError(f"{text} is not a JSON number")
