"""The first allocation, found by trying everything: every assignment in order, every rule on the assignment as a whole.

It shares nothing with the allocator: no partial assignments, no turning back, no objects. The order is what makes it
the same answer: requests one after the other, the devices of a request as combinations in the order of the devices, and
the alternatives of a request in their order.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.scheduling.allocator.worlds import ALL, AllocatorWorld, Alternative, Value, WorldConstraint, WorldDevice


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request of a claim. `main` is the request's name without that of the alternative."""

    claim: int
    main: str
    request: str
    wish: Alternative
    device: WorldDevice


def first_allocation(world: AllocatorWorld) -> tuple[Pick, ...] | None:
    """The picks of the first assignment that keeps all rules, in order; None if there is none."""
    options = [
        list(_options(world, index, number, request))
        for index, claim in enumerate(world.claims)
        for number, request in enumerate(claim.requests)
    ]
    for chosen in itertools.product(*options):
        picks = tuple(pick for group in chosen for pick in group)
        if _allowed(world, picks):
            return picks
    return None


def assignments(world: AllocatorWorld) -> int:
    """How many assignments there are to try."""
    return math.prod(
        sum(1 for _ in _options(world, index, number, request))
        for index, claim in enumerate(world.claims)
        for number, request in enumerate(claim.requests)
    )


def consumed(wish: Alternative, device: WorldDevice) -> int:
    """What a pick takes of `mem`: what is asked for, rounded up by the policy; the default or all without a wish."""
    if not wish.amount:
        return device.default or device.mem
    return math.ceil(wish.amount / device.step) * device.step if device.step else wish.amount


def _options(
    world: AllocatorWorld, claim: int, number: int, request: tuple[Alternative, ...]
) -> Iterator[tuple[Pick, ...]]:
    """The ways to satisfy one request, each for itself, in order."""
    for sub, wish in enumerate(request):
        name = f"r{number}/s{sub}" if len(request) > 1 else f"r{number}"
        fitting = [
            Pick(claim, f"r{number}", name, wish, device)
            for device in _ordered(world)
            if _selected(wish, device) and _spacious(wish, device)
        ]
        if wish.count != ALL:
            yield from itertools.combinations(fitting, wish.count)
        elif fitting:
            yield tuple(fitting)


def _ordered(world: AllocatorWorld) -> list[WorldDevice]:
    """Pools without binding conditions first; then by pool, slice, and as the slice lists them."""
    late = {device.pool for device in world.devices if device.binding}
    return sorted(world.devices, key=lambda device: (device.pool in late, device.pool, device.slice))


def _selected(wish: Alternative, device: WorldDevice) -> bool:
    match wish.selector:
        case "large":
            return device.attributes.get("size", 0) == 2
        case "shared":
            return device.shared
        case "model-a":
            return device.attributes.get("model") == "a"
        case _:
            return True


def _spacious(wish: Alternative, device: WorldDevice) -> bool:
    """Whether the device, were it empty, has what is asked for, in an amount its policy allows."""
    if not device.mem:
        return not wish.amount
    taken = consumed(wish, device)
    by_rule = not device.step or taken % device.step == 0 or taken == device.default
    return by_rule and taken <= device.mem


def _allowed(world: AllocatorWorld, picks: tuple[Pick, ...]) -> bool:
    return (
        all(not pick.device.tainted or pick.wish.tolerates for pick in picks)
        and _undisputed(picks)
        and _room(picks)
        and _counted(world, picks)
        and all(_kept(each, index, picks) for index, claim in enumerate(world.claims) for each in claim.constraints)
    )


def _undisputed(picks: tuple[Pick, ...]) -> bool:
    """Dedicated devices: one holder. Admin access joins earlier holders, and keeps later ones out."""
    if any(pick.device.held and not pick.device.shared and not pick.wish.admin for pick in picks):
        return False
    for earlier, later in itertools.combinations(picks, 2):
        if earlier.device is not later.device or earlier.device.shared:
            continue
        if not later.wish.admin or earlier.claim == later.claim:
            return False
    return True


def _room(picks: tuple[Pick, ...]) -> bool:
    taken: Counter[str] = Counter()
    for pick in picks:
        if pick.device.shared:
            taken[pick.device.name] += consumed(pick.wish, pick.device)
    return all(taken[pick.device.name] + pick.device.held <= pick.device.mem for pick in picks if pick.device.shared)


def _counted(world: AllocatorWorld, picks: tuple[Pick, ...]) -> bool:
    """Counters of each pool: shares of a device count once, admin access counts like any other."""
    for pool in {device.pool for device in world.devices}:
        holders = [device for device in world.devices if device.pool == pool and device.held]
        new = [pick.device for pick in picks if pick.device.pool == pool and not pick.device.shared]
        shared = {pick.device.name: pick.device for pick in picks if pick.device.pool == pool and pick.device.shared}
        new += [device for device in shared.values() if not device.held]
        if not any(device.counters for device in new):
            continue
        for counter, budget in world.budget.items():
            if sum(device.counters.get(counter, 0) for device in (*holders, *new)) > budget:
                return False
    return True


def _kept(constraint: WorldConstraint, claim: int, picks: tuple[Pick, ...]) -> bool:
    values = [
        pick.device.attributes.get(constraint.attribute)
        for pick in picks
        if pick.claim == claim
        and (not constraint.requests or pick.main in constraint.requests or pick.request in constraint.requests)
    ]
    if any(value is None for value in values):
        return False
    sets = [_set(value) for value in values if value is not None]
    if not sets:
        return True
    if constraint.match:
        return bool(frozenset.intersection(*sets))
    return all(one.isdisjoint(other) for one, other in itertools.combinations(sets, 2))


def _set(value: Value) -> frozenset[tuple[str, int | str]]:
    """A value as the set of its elements, which differ by type too."""
    elements = value if isinstance(value, tuple) else (value,)
    return frozenset((type(each).__name__, each) for each in elements)
