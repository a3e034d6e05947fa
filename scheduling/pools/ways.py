"""One depth-first search over needs and devices, within a number of pools and of devices for each claim.

Needs are met in their order, each by devices in ascending order. Every step can be taken back, and every need is
followed by the rest before it gets one device more than it must have. Amounts are not fixed while searching: after each
need it is checked that those of all needs so far can be spread over their devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest
from itertools import chain
from typing import Final

from scheduling.pools.capacity import AmountDemand, AmountSupply, DeviceName, PoolLedger, block_of, round_down, spread
from scheduling.pools.claim_documents import DeviceClaimDetail
from scheduling.pools.matching import PooledDevice

MOST_TOGETHER: Final = 700
"""Needs and devices of one way, because each is a level of the recursion. A claim of v1 has at most 32 devices."""


NEEDS_OF_A_STEP: Final = 16
"""Needs whose amounts can be spread in the time of one step."""


class SearchGaveUp(Exception):
    """The search took too many steps: whether the claims can be met is not known."""


class SearchSteps:
    """Counts the steps of one search, which may be `part_of` the steps of several."""

    def __init__(self, most: int, part_of: SearchSteps | None = None) -> None:
        self._most = self._left = most
        self._part_of = part_of

    def spend(self, count: int = 1) -> None:
        """Counts devices and combinations of needs that are tried. Raises SearchGaveUp."""
        if self._part_of is not None:
            self._part_of.spend(count)
        self._left -= count
        if self._left < 0:
            raise SearchGaveUp(
                f"no answer after trying {self._most} ways; search for fewer claims at once, or add constraints"
            )


@dataclass(frozen=True, slots=True)
class NeedAccess:
    """Devices by number, with the class through which a need can have them: all with admin access, or none."""

    admin: bool
    classes: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class SearchNeed:
    """One need, ready to be searched for. `amounts`: all but the count, in billionths."""

    claim: int
    instance: int
    alternative: int | None
    detail: DeviceClaimDetail
    least: int
    most: int
    amounts: Mapping[str, int]
    accesses: tuple[NeedAccess, ...]


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """What does not change during a search.

    kinds: equal for devices that cannot be told apart. matched: the attributes that match across each claim.
    """

    ledger: PoolLedger
    devices: Sequence[PooledDevice]
    kinds: Sequence[int]
    matched: Sequence[tuple[str, ...]]
    steps: SearchSteps


@dataclass(frozen=True, slots=True)
class ClaimLimit:
    """How many pools and devices a claim may have."""

    pools: int
    devices: int


@dataclass(slots=True)
class TakenDevices:
    """The devices chosen for a need so far."""

    need: SearchNeed
    access: NeedAccess
    devices: list[int] = field(default_factory=list)


class DeviceWay:
    """A way to meet all needs, if `search` finds one."""

    def __init__(self, problem: SearchProblem, needs: Sequence[SearchNeed], limits: Sequence[ClaimLimit]) -> None:
        self._problem = problem
        self._needs = needs
        self._limits = tuple(limits)
        self._later = [
            sum(other.least for other in needs[number + 1 :] if other.claim == need.claim)
            for number, need in enumerate(needs)
        ]
        self._taken: list[TakenDevices] = []
        self._users: list[list[int]] = [[] for _ in problem.devices]
        self._pools: list[dict[str, int]] = [{} for _ in limits]
        self._counts = [0] * len(limits)
        self._values: dict[Hashable, Hashable] = {}
        self._whole: set[int] = set()
        self._supplies: dict[tuple[int, str], AmountSupply] = {}

    @property
    def used(self) -> list[ClaimLimit]:
        """The pools and devices that each claim has."""
        return [ClaimLimit(len(pools), count) for pools, count in zip(self._pools, self._counts, strict=True)]

    def search(self) -> bool:
        """True if there is a way; the way is then kept. The ledger is as before, even if the search gives up."""
        try:
            return self._next()
        finally:
            for number, users in enumerate(self._users):
                if users and not self._problem.ledger.uses[self._problem.devices[number].name].users:
                    self._problem.ledger.draw_from_pool(self._problem.devices[number], -1)

    def found(self) -> list[tuple[TakenDevices, Mapping[int, Mapping[str, int]]]]:
        """For each need its devices, and by device the amounts that it gives."""
        numbers = {each.name: number for number, each in enumerate(self._problem.devices)}
        amounts: list[dict[int, dict[str, int]]] = [{} for _ in self._taken]
        names = sorted({name for each in self._taken for name in each.need.amounts})
        for resource, shares in (self._spreads(names) or {}).items():
            for position, given in shares:
                for name, amount in given.items():
                    amounts[position].setdefault(numbers[name], {})[resource] = amount
        return list(zip(self._taken, amounts, strict=True))

    def _next(self) -> bool:
        position = len(self._taken)
        if position == len(self._needs):
            return True
        need = self._needs[position]
        for access in need.accesses:
            taken = TakenDevices(need, access)
            self._taken.append(taken)
            if len(access.classes) >= need.least and self._extend(taken, sorted(access.classes), 0):
                return True
            self._taken.pop()
        return False

    def _extend(self, taken: TakenDevices, candidates: Sequence[int], start: int) -> bool:
        need, have = taken.need, len(taken.devices)
        if len(self._taken) + sum(self._counts) > MOST_TOGETHER:
            raise SearchGaveUp(
                f"no answer: the claims ask for too much at once; needs and their devices must be {MOST_TOGETHER} at "
                "most; ask for fewer devices, or for fewer claims at once"
            )
        if have >= need.least and self._is_met(taken) and self._spreads(need.amounts) is not None and self._next():
            return True
        used = self._counts[need.claim] + self._later[len(self._taken) - 1]
        room = self._limits[need.claim].devices - used
        if have >= need.most or room < max(1, need.least - have) or not self._reaches(taken, candidates[start:], room):
            return False
        tried: set[Hashable] = set()
        for position in range(start, len(candidates) - max(0, need.least - have - 1)):
            device = candidates[position]
            same = (self._problem.kinds[device], tuple(self._users[device]))
            if same in tried:
                continue
            tried.add(same)
            # The more needs have devices, the longer it takes to spread their amounts.
            self._problem.steps.spend(1 + len(self._taken) // NEEDS_OF_A_STEP)
            fixed = self._take(taken, device)
            if fixed is None:
                continue
            if self._extend(taken, candidates, position + 1):
                return True
            self._give_back(taken, device, fixed)
        return False

    def _reaches(self, taken: TakenDevices, candidates: Sequence[int], room: int) -> bool:
        """False if count or amounts cannot be reached with these devices, even if nothing else were in the way."""
        need = taken.need
        room = min(room, need.most - len(taken.devices))
        values: list[tuple[int, Callable[[int], int]]] = [(need.least - len(taken.devices), lambda _: 1)]
        for name, amount in need.amounts.items() if not taken.access.admin else ():
            available = partial(self._available, name)
            values.append((amount - sum(map(available, taken.devices)), available))
        return all(missing <= 0 or self._most_of(value, need, candidates, room) >= missing for missing, value in values)

    def _most_of(self, value: Callable[[int], int], need: SearchNeed, candidates: Sequence[int], room: int) -> int:
        """A bound of what some more devices of the allowed number of pools have together."""
        pools = self._pools[need.claim]
        by_pool: dict[str, list[int]] = {}
        for each in candidates:
            by_pool.setdefault(self._problem.devices[each].pool.metadata.name, []).append(value(each))
        best = {pool: nlargest(room, values) for pool, values in by_pool.items()}
        more = self._limits[need.claim].pools - len(pools)
        ours = [each for pool, values in best.items() if pool in pools for each in values]
        others = nlargest(more, (values for pool, values in best.items() if pool not in pools), key=sum)
        within_pools = sum(ours) + sum(map(sum, others))
        return min(within_pools, sum(nlargest(room, chain.from_iterable(best.values()))))

    def _available(self, name: str, number: int) -> int:
        supply = self._supply(number, name)
        return round_down(supply.left, supply.block)

    def _take(self, taken: TakenDevices, number: int) -> list[Hashable] | None:
        """Takes a device for a need, and gives the attributes that it fixes; None if the need cannot have it."""
        device = self._problem.devices[number]
        pool = device.pool.metadata.name
        pools = self._pools[taken.need.claim]
        if pool not in pools and len(pools) >= self._limits[taken.need.claim].pools:
            return None
        if not taken.access.admin and not self._can_use(taken.need, number):
            return None
        fixed = self._matched(taken.need, device)
        if fixed is None:
            return None
        if not taken.access.admin:
            if self._is_unused(number):
                self._problem.ledger.draw_from_pool(device)
            if not self._shared(taken.need, number):
                self._whole.add(number)
            self._users[number].append(len(self._taken))
        taken.devices.append(number)
        pools[pool] = pools.get(pool, 0) + 1
        self._counts[taken.need.claim] += 1
        return fixed

    def _give_back(self, taken: TakenDevices, number: int, fixed: Sequence[Hashable]) -> None:
        device = self._problem.devices[number]
        pool = device.pool.metadata.name
        for each in fixed:
            del self._values[each]
        if not taken.access.admin:
            self._users[number].pop()
            self._whole.discard(number)
            if self._is_unused(number):
                self._problem.ledger.draw_from_pool(device, -1)
        taken.devices.pop()
        pools = self._pools[taken.need.claim]
        pools[pool] -= 1
        if not pools[pool]:
            del pools[pool]
        self._counts[taken.need.claim] -= 1

    def _is_unused(self, number: int) -> bool:
        return not self._users[number] and not self._problem.ledger.uses[self._problem.devices[number].name].users

    def _can_use(self, need: SearchNeed, number: int) -> bool:
        device = self._problem.devices[number]
        shared = self._shared(need, number)
        if self._is_unused(number):
            if not self._problem.ledger.fits_pool(device):
                return False
        elif not shared or number in self._whole or self._problem.ledger.is_exclusive(device.name):
            return False
        for name in shared:
            supply = self._supply(number, name)
            if need.amounts[name] and round_down(supply.left, supply.block) <= 0:
                return False
        return True

    def _matched(self, need: SearchNeed, device: PooledDevice) -> list[Hashable] | None:
        """The attributes whose values this device fixes; None if it differs from one that is fixed."""
        scopes = [(need.claim, -1, name) for name in self._problem.matched[need.claim]]
        scopes += [(need.claim, len(self._taken), name) for name in need.detail.match_attributes]
        fixed: list[Hashable] = []
        for scope in scopes:
            value = device.attribute(scope[2])
            if value is None or self._values.get(scope, value) != value:
                for each in fixed:
                    del self._values[each]
                return None
            if scope not in self._values:
                self._values[scope] = value
                fixed.append(scope)
        return fixed

    def _shared(self, need: SearchNeed, number: int) -> list[str]:
        """The amounts that a need draws from a device; none: it takes the device whole."""
        return [each.name for each in self._problem.devices[number].device.resources if each.name in need.amounts]

    def _supply(self, number: int, name: str) -> AmountSupply:
        """What a device has of an amount when the search begins; nothing of one that it does not list."""
        known = self._supplies.get((number, name))
        if known is None:
            device = self._problem.devices[number]
            known = AmountSupply(0, 0)
            for each in device.device.resources:
                if each.name == name:
                    left = self._problem.ledger.left_of_device(device.name, each)
                    known = AmountSupply(left.nanos, block_of(each))
            self._supplies[number, name] = known
        return known

    def _is_met(self, taken: TakenDevices) -> bool:
        """True if the devices of a need could give its amounts if nobody else drew from them."""
        for name, amount in taken.need.amounts.items():
            if not taken.access.admin and sum(self._available(name, each) for each in taken.devices) < amount:
                return False
        return True

    def _spreads(self, names: Iterable[str]) -> dict[str, list[tuple[int, dict[DeviceName, int]]]] | None:
        """How these amounts spread over the devices of all needs so far, with the need's position; None: not at all."""
        found: dict[str, list[tuple[int, dict[DeviceName, int]]]] = {}
        for name in names:
            positions, demands = [], []
            supplies: dict[DeviceName, AmountSupply] = {}
            for position, taken in enumerate(self._taken):
                if taken.access.admin or name not in taken.need.amounts:
                    continue
                numbers = [each for each in taken.devices if name in self._shared(taken.need, each)]
                devices = [self._problem.devices[each].name for each in numbers]
                supplies |= {each: self._supply(number, name) for number, each in zip(numbers, devices, strict=True)}
                positions.append(position)
                demands.append(AmountDemand(taken.need.amounts[name], tuple(devices)))
            shares = spread(demands, supplies)
            if shares is None:
                return None
            found[name] = list(zip(positions, shares, strict=True))
        return found
