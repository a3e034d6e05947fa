"""The answer for all nodes: each situation examined once, equal findings shown as one group, the nearest first.

A pod whose claims have their devices may still wait, for conditions that a device's driver has yet to report. The
scheduler binds the pod when every binding condition of every device is True; it takes the devices back when a failure
condition is True, or after a timeout (KEP-5007).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from kube.bodies import JsonObject, object_at, one_line, text_at
from scheduling.allocator.claims import Claim
from scheduling.allocator.node_selection import SelectorFault, selector_matcher
from scheduling.allocator.pools import node_identity
from scheduling.allocator.reading import FatalError
from scheduling.explain.cluster import Cluster, Patience, cluster_of, note_of
from scheduling.explain.diagnosis import Cures, class_missing, examine, limit_of, obstacle_of
from scheduling.explain.nodes import Hindrance, hindrances
from scheduling.explain.obstacles import NodeOutside, NodeRefused, Obstacle, Waiting
from scheduling.explain.placing import title_of
from scheduling.explain.situations import Situations
from scheduling.explain.state import BadQuestion, Kind, State, name_of, objects_at, texts_at
from scheduling.explain.subject import ExplainSubject
from scheduling.explain.verdict import (
    MANY,
    Explanation,
    FindingGroup,
    NodeFinding,
    NodeOutcome,
    PlacedDevice,
    SeenFinding,
    gist,
    grouped,
)

Progress = Callable[[int, int], None]
"""Nodes done, nodes in all."""
_WORD = 120
SHOWN = 8
"""Claims that a title names."""


class ParameterCheck(Protocol):
    """Judges opaque parameters as the driver on the node will: the scheduler does not look at them."""

    def __call__(self, state: State, claim: JsonObject, given: Sequence[PlacedDevice], /) -> Iterable[str]:
        """Return a sentence for each of the claim's parameters that would be refused, were these its devices."""


RoomCheck = Callable[[JsonObject, JsonObject], Sequence[Hindrance]]
"""What a node (the second) has too little of for a pod, beside devices for claims."""


def unchecked(_state: State, _claim: JsonObject, _given: Sequence[PlacedDevice], /) -> Iterable[str]:
    """Say nothing of parameters: the check for callers that know no driver."""
    return ()


def survey(
    state: State,
    subject: ExplainSubject,
    names: Sequence[str] = (),
    progress: Progress = lambda _done, _all: None,
    patience: Patience | None = None,
    *,
    parameters: ParameterCheck = unchecked,
    room: RoomCheck | None = None,
) -> Explanation:
    """The answer about the nodes of these names, or about all; ``room``: asked about every node as well.

    Raises ``BadQuestion`` for a node that is not known.
    """
    nodes, notes = nodes_of(state, names)
    notes += _notes(state, subject, parameters)
    title, claims = title_of_subject(subject), tuple(title_of(claim) for claim in subject.to_allocate)
    asks_for_nothing = not subject.to_allocate and not subject.missing and room is None
    if asks_for_nothing and (subject.pod is None or not subject.allocated):
        settled = "already has its devices" if subject.allocated else "asks for no devices"
        return Explanation(title, settled=settled, notes=tuple(notes))
    stops: list[Obstacle] = [Waiting(sentence) for sentence in subject.missing]
    try:
        cluster = cluster_of(state, patience)
        before = [*_missing_classes(state, subject, cluster), *limit_of(subject.to_allocate)]
        if before or (stops and not subject.to_allocate):
            return Explanation(title, stops=(*stops, *before), notes=tuple(notes), claims=claims)
        cures: dict[str, Cures] = {}
        groups = grouped(list(_findings(nodes, subject, cluster, progress, cures, room=room)))
        groups = tuple(_with_remedies(groups, cures))
    except FatalError as error:
        unreadable = obstacle_of(error, subject.to_allocate)
        return Explanation(title, stops=(*stops, unreadable), notes=tuple(notes), claims=claims)
    stops += _stops(groups)
    notes += _refusals(state, subject, groups, parameters)
    return Explanation(title, groups, tuple(stops), notes=tuple(notes), claims=claims)


def title_of_subject(subject: ExplainSubject) -> str:
    """``claim team/gpu``, ``pod team/train-0 (claims team/gpu, team/nic)``."""
    claims = [title_of(claim) for claim in subject.to_allocate if not name_of(claim).startswith("<")]
    if subject.pod is None or not claims:
        return subject.title
    more = f" … {len(claims) - SHOWN} more" if len(claims) > SHOWN else ""
    return f"{subject.title} ({'claim' if len(claims) == 1 else 'claims'} {', '.join(claims[:SHOWN])}{more})"


def waits_of(claim: JsonObject) -> Iterator[str]:
    """A sentence (without its end) for every device of an allocated claim whose conditions keep its pod waiting."""
    for result in objects_at(claim, "status", "allocation", "devices", "results"):
        said = {text_at(one, "type"): one for one in _conditions(claim, result)}
        true = {name for name, one in said.items() if text_at(one, "status") == "True"}
        device = f"{text_at(result, 'device')} of {text_at(result, 'driver')}"
        failed = [name for name in texts_at(result, "bindingFailureConditions") if name in true]
        awaited = [name for name in texts_at(result, "bindingConditions") if name not in true]
        if failed:
            reasons = ", ".join(_worded(name, said[name]) for name in failed)
            yield f"{device} cannot be made ready: {reasons}; the scheduler takes the devices back and tries again"
        elif awaited:
            names = ", ".join(_worded(name, said.get(name, {})) for name in awaited)
            yield (
                f"the pod waits until {device} has the condition {names}; its driver's controller sets it in the "
                "claim's status.devices"
            )


def _conditions(claim: JsonObject, result: JsonObject) -> tuple[JsonObject, ...]:
    parts = ("driver", "pool", "device", "shareID")
    named = [text_at(result, part) for part in parts]
    found = (one for one in objects_at(claim, "status", "devices") if [text_at(one, part) for part in parts] == named)
    return tuple(condition for one in found for condition in objects_at(one, "conditions"))


def _worded(name: str, condition: JsonObject) -> str:
    """A condition with its driver's words."""
    words = one_line(": ".join(filter(None, (text_at(condition, "reason"), text_at(condition, "message")))), _WORD)
    return f"{name} ({words})" if words else name


def nodes_of(state: State, names: Sequence[str] = ()) -> tuple[list[JsonObject], list[str]]:
    """The nodes to look at; without any in the state, those that slices name."""
    notes: list[str] = []
    nodes = list(state.nodes)
    if not nodes:
        found = dict.fromkeys(name for body in state.slices for name in _named(body))
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in found]
        if nodes:
            notes.append(
                "no Node objects were read: the nodes are those that slices name, and their labels are unknown"
            )
    if not names:
        return nodes, notes
    by_name = {name_of(node): node for node in nodes}
    if unknown := [name for name in names if name not in by_name]:
        near = ", ".join(sorted(by_name)[:5]) or "none"
        raise BadQuestion(f"there is no node {', '.join(unknown)}; known nodes: {near}")
    return [by_name[name] for name in dict.fromkeys(names)], notes


def _named(body: JsonObject) -> Iterator[str]:
    for part in (object_at(body, "spec"), *objects_at(body, "spec", "devices")):
        name = part.get("nodeName")
        if isinstance(name, str) and name:
            yield name


def _notes(state: State, subject: ExplainSubject, parameters: ParameterCheck) -> list[str]:
    found = [*subject.notes]
    for claim in subject.allocated:
        results = objects_at(claim, "status", "allocation", "devices", "results")
        devices = ", ".join(
            f"{each.get('device')} of {each.get('driver')}, pool {each.get('pool')}" for each in results
        )
        found.append(f"claim {title_of(claim)} already has its devices: {devices or 'none were needed'}")
        if not text_at(subject.pod, "spec", "nodeName"):
            found += waits_of(claim)
        found += parameters(state, claim, _given_of(claim))
    found += [str(missing) for missing in state.missing if missing.kind is not Kind.TEMPLATE]
    found += state.truncated
    if version := note_of(state.server_version):
        found.append(version)
    return found


def _given_of(claim: JsonObject) -> tuple[PlacedDevice, ...]:
    """The devices of an allocated claim."""
    return tuple(
        PlacedDevice(
            title_of(claim),
            text_at(one, "request"),
            text_at(one, "driver"),
            text_at(one, "pool"),
            text_at(one, "device"),
        )
        for one in objects_at(claim, "status", "allocation", "devices", "results")
    )


def _refusals(
    state: State, subject: ExplainSubject, groups: Sequence[FindingGroup], parameters: ParameterCheck
) -> Iterator[str]:
    """Parameters that would be refused where the claims fit, each once and with the nodes."""
    found: dict[str, list[str]] = {}
    for group in groups:
        for claim in subject.to_allocate if group.finding.outcome is NodeOutcome.FITS else ():
            given = [each for each in group.finding.placements if each.claim == title_of(claim)]
            for sentence in parameters(state, claim, given):
                found.setdefault(sentence, []).extend(group.nodes)
    for sentence, nodes in found.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield f"on {nodes[0]}{more} {sentence}"


def _missing_classes(state: State, subject: ExplainSubject, cluster: Cluster) -> Iterator[Obstacle]:
    """Classes that requests name and that do not exist or could not be read: no node can be judged without them."""
    names = dict.fromkeys(
        request.class_name
        for claim in subject.to_allocate
        for choice in Claim(claim).requests
        for request in choice.alternatives
    )
    for name in names:
        if not name or name in cluster.classes:
            continue
        if state.lacks(Kind.CLASS) is not None:
            yield Waiting(f"could not read whether DeviceClass {name} exists, and what it selects")
        else:
            yield class_missing(name, cluster)


def _findings(
    nodes: Sequence[JsonObject],
    subject: ExplainSubject,
    cluster: Cluster,
    progress: Progress,
    cures: dict[str, Cures],
    *,
    room: RoomCheck | None,
) -> Iterator[SeenFinding]:
    """Every node; ``cures`` gets what finds the remedies of those that were looked at."""
    situations = Situations(subject.to_allocate, cluster)
    known: dict[Hashable, NodeFinding] = {}
    outside = [(title_of(claim), reach_of(claim)) for claim in subject.allocated]
    for number, node in enumerate(nodes):
        progress(number, len(nodes))
        name = name_of(node)
        # Without a pod there is no node selection to check.
        found = hindrances(subject.pod, node, subject.extended) if subject.pod is not None else ()
        if room is not None and subject.pod is not None:
            found = (*found, *room(subject.pod, node))
        remarks = tuple(str(each) for each in found if not each.blocking)
        elsewhere = tuple(NodeOutside(claim, names) for claim, (inside, names) in outside if not inside(node))
        blocking = tuple(str(each) for each in found if each.blocking)
        if blocking or elsewhere:
            refused = (NodeRefused(blocking),) if blocking else elsewhere
            yield SeenFinding(name, NodeFinding(name, NodeOutcome.REFUSED, obstacles=refused, remarks=remarks))
            continue
        claims = subject.claims_on(node)
        key = (_asked(claims) if subject.extended else (), _situation(situations, node))
        finding = known.get(key)
        if finding is None:
            finding, cures[name] = examine(claims, node, cluster)
            known[key] = finding
        lumped = situations.lumps and finding.node != name
        yield SeenFinding(name, replace(finding, remarks=remarks) if remarks else finding, lumped)
    progress(len(nodes), len(nodes))


def _situation(situations: Situations, node: JsonObject) -> Hashable:
    try:
        return situations.of(node)
    except FatalError:
        # A device that cannot be read: the scheduler need not look at it, so only the node's own finding tells.
        return name_of(node)


def _asked(claims: Sequence[JsonObject]) -> Hashable:
    """The requests on a node, if they differ from node to node."""
    return repr([object_at(claim, "spec") for claim in claims])


def reach_of(claim: JsonObject) -> tuple[Callable[[JsonObject], bool], tuple[str, ...]]:
    """On which nodes the devices of an allocated claim can be used: a test, and the names if they are named."""
    selector = object_at(claim, "status", "allocation", "nodeSelector")
    if not selector:
        return (lambda _node: True), ()
    try:
        matcher = selector_matcher(selector)
    except SelectorFault:
        # The scheduler cannot read it either: no node is in reach.
        return (lambda _node: False), ()
    fields = [one for term in objects_at(selector, "nodeSelectorTerms") for one in objects_at(term, "matchFields")]
    values = [one.get("values") for one in fields]
    names = tuple(str(name) for each in values if isinstance(each, list) for name in each)
    return (lambda node: matcher(*node_identity(node))), names


def _with_remedies(groups: Sequence[FindingGroup], cures: Mapping[str, Cures]) -> Iterator[FindingGroup]:
    """The groups that are shown, with changes that would help on their first node."""
    for number, group in enumerate(groups):
        if group.finding.outcome is not NodeOutcome.BLOCKED or number >= MANY:
            yield group
            continue
        yield replace(group, finding=replace(group.finding, remedies=cures[group.finding.node]()))


def _stops(groups: Sequence[FindingGroup]) -> list[Obstacle]:
    """Errors that end the scheduling of the pod on all nodes, each once."""
    found: dict[Hashable, Obstacle] = {}
    for group in groups:
        if group.finding.outcome is NodeOutcome.ERROR:
            for obstacle in group.finding.obstacles:
                found.setdefault(gist(obstacle), obstacle)
    return list(found.values())
