"""The allocator for tests: over given slices, for one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features
from scheduling.allocator.problem import Problem
from tests.making.claims import CLASSES
from tests.making.slices import Json

NODE: Json = {"metadata": {"name": "node-1"}}


def allocator(
    claims: Sequence[Json],
    given: Sequence[Json],
    *,
    features: Features = Features(),  # noqa: B008 - a frozen value
    allocated: AllocatedState = AllocatedState(),  # noqa: B008 - a frozen value
    classes: Mapping[str, Json] = CLASSES,
) -> Allocator:
    """An allocator of these claims over these slices."""
    return Allocator(claims, allocated, classes, given, features)


def problem(claims: Sequence[Json], given: Sequence[Json], features: Features = Features()) -> Problem:  # noqa: B008
    """What is to be searched on the node."""
    return allocator(claims, given, features=features).problem(NODE)


def devices_of(results: Sequence[Json] | None) -> list[list[str]] | None:
    """The devices of each claim, as `request=device`."""
    if results is None:
        return None
    return [[f"{each['request']}={each['device']}" for each in one["devices"].get("results", ())] for one in results]


def allocate(
    wanted: Json,
    given_slices: list[Json],
    classes: dict[str, Json] | None = None,
    features: Features = Features(),  # noqa: B008 - a frozen value
) -> Json:
    """The allocation of one claim on ``NODE``, which it fits."""
    shares = iter(f"share-{each}" for each in range(9))
    made = Allocator(
        [wanted], AllocatedState(), classes or CLASSES, given_slices, features, new_share=lambda: next(shares)
    )
    results = made.allocate(NODE)
    assert results is not None
    return results[0]
