"""Our own answers to cases of the allocator, in the judge's format."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features
from scheduling.allocator.problem import Problem
from scheduling.allocator.reading import FatalError, GaveUp, NodeError
from scheduling.allocator.search import Search, SearchOutcome
from scheduling.allocator.slices import DeviceID, SharedDeviceID
from scheduling.api.quantities import of_json

Json = dict[str, Any]

NEVER = 10**9
STEPS_TO_END = 4_000
"""Steps after which a search that is not pruned is given up: the case tells nothing then."""
STEPS_ALLOWED = 20_000


def classes(case: Json) -> dict[str, Json]:
    """The device classes of a case by name; of two with one name the first."""
    return {each["metadata"]["name"]: each for each in reversed(case["classes"])}


def features(case: Json) -> Features:
    """The switches of a case; what the vectors do not know was off."""
    given = case["features"]
    return Features(
        admin_access=given["adminAccess"],
        prioritized_list=given["prioritizedList"],
        partitionable_devices=given["partitionableDevices"],
        device_taints=given["deviceTaints"],
        binding_conditions=given["deviceBindingAndStatus"],
        consumable_capacity=given["consumableCapacity"],
        fractional_capacity_range=given.get("fractionalCapacityRange", False),
        list_attributes=given["listTypeAttributes"],
    )


def allocated(case: Json) -> AllocatedState:
    """What is in use in a case."""
    given = case["allocated"]
    capacity: dict[DeviceID, dict[str, int]] = {}
    for entry in given.get("capacity", ()):
        used = capacity.setdefault(DeviceID(entry["driver"], entry["pool"], entry["device"]), {})
        for name, value in entry["consumed"].items():
            used[name] = used.get(name, 0) + of_json(value).nanos
    return AllocatedState(
        devices=frozenset(DeviceID(*each) for each in given.get("devices", ())),
        shared=frozenset(SharedDeviceID(DeviceID(*each[:3]), each[3]) for each in given.get("shared", ())),
        capacity=capacity,
    )


def allocator(case: Json, give_up: Callable[[], bool] | None = None) -> Allocator:
    """The allocator of a case; it does not share objects with the case."""
    case = copy.deepcopy(case)
    return Allocator(
        case["claims"], allocated(case), classes(case), case["slices"], features=features(case), give_up=give_up
    )


def allocate(case: Json) -> Json:
    """Our answer to a case of the allocator: for its node, and with the same allocator for `moreNodes` after it.

    A search of more than `STEPS_ALLOWED` is given up: that of Kubernetes, which prunes nothing, times out then.
    """
    try:
        asked = allocator(case, _patience(STEPS_ALLOWED))
    except FatalError as error:
        return _failed(error)
    answer = _on_node(asked, case["node"])
    if more := case.get("moreNodes"):
        answer["more"] = [_on_node(asked, node) for node in more]
    return answer


def allocate_three_ways(case: Json) -> Json:
    """The same; raises AssertionError if a search that is pruned from its first step finds something else."""
    try:
        asked = allocator(case)
        problems = [asked.problem(node) for node in (case["node"], *case.get("moreNodes", ()))]
    except FatalError:
        return allocate(case)
    for problem in problems:
        plain = search_outcome(problem, NEVER, STEPS_TO_END)
        if plain is not None:
            pruned = search_outcome(problem, 0, STEPS_TO_END)
            assert pruned is not None, "the pruned search needs more steps than the plain one"
            assert pruned[0] == plain[0], f"pruned: {pruned[0]}, plain: {plain[0]}"
    return allocate(case)


def search_outcome(searched: Problem, prune_after: int | None, most_steps: int) -> tuple[object, int] | None:
    """What a search finds, in words and numbers, and its steps; None if it takes more of them."""
    search = Search(searched, _patience(most_steps), prune_after)
    try:
        found = search.run()
    except GaveUp:
        return None
    except FatalError as error:
        return (type(error).__name__, str(error)), search.steps
    if found is not SearchOutcome.DONE:
        return found, search.steps
    placed = [[(each.plan.request.name, each.position) for each in own] for own in search.placement.placed]
    return (found, placed, search.chosen), search.steps


def _patience(most_steps: int) -> Callable[[], bool]:
    """Gives up a search after so many steps, of which it asks every 256."""
    asked = 0

    def give_up() -> bool:
        nonlocal asked
        asked += 1
        return asked * 256 > most_steps

    return give_up


def _on_node(asked: Allocator, node: Json) -> Json:
    try:
        results = asked.allocate(copy.deepcopy(node))
    except (FatalError, NodeError) as error:
        return _failed(error)
    except GaveUp as error:
        return {"results": None, "error": str(error), "errorKind": "gave up"}
    return {"results": results, "error": None, "errorKind": None}


def _failed(error: FatalError | NodeError) -> Json:
    return {"results": None, "error": str(error), "errorKind": "fatal" if isinstance(error, FatalError) else "node"}
