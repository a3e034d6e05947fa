"""Our own answers to what the scheduler decided, and where they differ.

Ours are those of Kubernetes 1.37. Where 1.36 only writes an allocation's configuration differently, with an entry once
for each request that it names and with the names of all requests, its answer is read as 1.37 would have written it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError, NodeError
from tests.cluster.rig.api import Object
from tests.cluster.scheduler.live import Laid, LiveDecision
from tests.judge.comparison import allocation_differences

UNSCHEDULABLE, ERROR = "Unschedulable", "SchedulerError"
BY_DEVICES = ("cannot allocate all claims", "invalid resource pools", "invalid resource pool")
"""What the scheduler says about a node where the devices of a pod cannot be had."""


def differences(
    laid: Laid, names: Sequence[str], nodes: Sequence[Object], decision: LiveDecision, features: Features
) -> list[str]:
    """Each difference as a line.

    ``nodes``: where the pod may go. The claims in ``laid`` are as they were before the pod came. ``features``: those
    that the scheduler has.
    """
    claims = [laid.claims[name] for name in names]
    held = AllocatedState.of_claims(each for each in laid.claims.values() if "allocation" in each.get("status", {}))
    classes = {each["metadata"]["name"]: each for each in laid.classes}
    allocator = Allocator(claims, held, classes, laid.slices, features=features)
    ours: dict[str, list[Object]] = {}
    for node in nodes:
        try:
            found = allocator.allocate(node)
        except NodeError:
            continue
        except FatalError as error:
            return _refusal(decision, ERROR, str(error))
        if found is not None:
            ours[node["metadata"]["name"]] = found
    if not ours:
        return _refusal(decision, UNSCHEDULABLE, "fits on none")
    if not decision.node:
        return [f"fits on {', '.join(ours)}, but the scheduler says {decision.reason}: {decision.message}"]
    if decision.node not in ours:
        return [f"fits only on {', '.join(ours)}, but went to {decision.node}"]
    theirs = [_newer(claim, claim["status"]["allocation"]) for claim in decision.claims]
    answer = {"results": ours[decision.node], "errorKind": None}
    return allocation_differences(answer, {"results": theirs, "errorKind": None})


def _refusal(decision: LiveDecision, reason: str, ours: str) -> list[str]:
    if decision.node:
        return [f"{ours}, but it went to {decision.node}"]
    if decision.reason != reason:
        return [f"{ours}, but the scheduler says {decision.reason}: {decision.message}"]
    if reason == UNSCHEDULABLE and not any(words in decision.message for words in BY_DEVICES):
        return [f"{ours}, but the scheduler has another reason: {decision.message}"]
    return []


def _newer(claim: Object, allocation: Object) -> Object:
    """An allocation by 1.36 as 1.37 would have written it, with what cannot be foreseen hidden."""
    results = [
        {**each, **({"shareID": "*"} if "shareID" in each else {})} for each in allocation["devices"].get("results", [])
    ]
    devices: Object = {"results": results} if results else {}
    given = {each["request"] for each in results}
    config = [_unnamed(each, given) for each in _once(allocation["devices"].get("config", []))]
    if config:
        devices["config"] = config
    rest = {key: value for key, value in allocation.items() if key not in {"devices", "allocationTimestamp"}}
    return {"devices": devices, **rest}


def _once(entries: list[Object]) -> Iterator[Object]:
    """Entries without those that 1.36 has written again for the next request."""
    last: Object | None = None
    for each in entries:
        if each != last or each["source"] == "FromClass" or len(each.get("requests", ())) < 2:
            yield each
        last = each


def _unnamed(entry: Object, given: set[str]) -> Object:
    """An entry for every request names none of them."""
    named = entry.get("requests", ())
    if all(request in named or request.partition("/")[0] in named for request in given):
        return {key: value for key, value in entry.items() if key != "requests"}
    return entry
