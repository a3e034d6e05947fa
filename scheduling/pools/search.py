"""The search for devices: whether claims can be met from some pools, and the best way to meet them.

The rules, in the words of the documents: a need takes from `requests.count` to `limits.count` devices (both 1 if not
said), no device twice, and no more than it takes to reach its other amounts. A need that names an amount that the
device lists shares it; otherwise it takes the whole, unused device. Every device also takes what it requests of its
pool. Matching attributes exist and are equal on every device of the need, or of the claim. Needs with admin access
ignore all use and add none.

The search is exhaustive and has no clock: the same documents give the same answer. Of all ways it gives the one with
the earlier `oneOf` entries, then, claim by claim, the fewest pools and then the fewest devices, then, need by need, the
first classes by name and the first devices in the order given.
Devices that cannot be told apart are tried once. `MOST_STEPS` bounds it: beyond, it raises SearchGaveUp and never
answers wrongly. The one approximation: amounts of devices with different block sizes are spread in order (`spread`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from scheduling.pools.capacity import PoolLedger, quantity_of
from scheduling.pools.claim_documents import DeviceAllocation, DeviceClaim, DeviceClaimDetail, ResourceAllocation
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.matching import (
    MatchingError,
    PooledDevice,
    candidate_classes,
    devices_of,
    has_admin_access,
    is_eligible,
)
from scheduling.pools.ways import (
    ClaimLimit,
    DeviceWay,
    NeedAccess,
    SearchNeed,
    SearchProblem,
    SearchSteps,
    TakenDevices,
)

MOST_STEPS: Final = 200_000
"""Ways that one search tries before it gives up."""
MOST_STEPS_IN_ALL: Final = 5_000_000
"""The same for the searches on all nodes together."""


Eligibility = Callable[[PooledDevice, PoolDeviceClass, DeviceClaimDetail], bool]
"""Whether a device meets a need through a class; raises MatchingError."""


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device for a need, through which class, and the amounts drawn (none: the whole device, or admin access)."""

    device: PooledDevice
    class_name: str
    admin_access: bool
    amounts: tuple[ResourceAllocation, ...] = ()

    @property
    def allocation(self) -> DeviceAllocation:
        """As `status.allocations` of a claim says it."""
        pool, name = self.device.name
        return DeviceAllocation(pool, name, self.amounts)


@dataclass(frozen=True, slots=True)
class MetNeed:
    """One need and its devices: entry `instance` of the claim, `alternative` of its `oneOf` (None: not from oneOf)."""

    claim: DeviceClaim
    instance: int
    alternative: int | None
    detail: DeviceClaimDetail
    devices: tuple[ChosenDevice, ...]


@dataclass(frozen=True, slots=True)
class PoolSolution:
    """How all claims are met."""

    needs: tuple[MetNeed, ...]

    def allocations(self, claim: DeviceClaim) -> tuple[DeviceAllocation, ...]:
        """What `status.allocations` of a claim says then."""
        return tuple(one.allocation for each in self.needs if each.claim is claim for one in each.devices)


def node_names(pools: Iterable[DevicePool]) -> list[str]:
    """The nodes that have pools, sorted."""
    return sorted({each.spec.node_name for each in pools if each.spec.node_name})


def pools_at(pools: Iterable[DevicePool], node: str | None) -> list[DevicePool]:
    """The pools of a node and those attached to the network, by name; only the latter without a node."""
    found = [each for each in pools if not each.spec.node_name or each.spec.node_name == node]
    return sorted(found, key=lambda each: each.metadata.name)


def occupying(claim: DeviceClaim, classes: Mapping[str, PoolDeviceClass]) -> tuple[DeviceAllocation, ...]:
    """The allocations of a claim that take something away: none if all its needs have admin access."""
    details = [each for instance in claim.spec.claims for each in (*instance.all_of, *instance.one_of)]
    try:
        admin = [has_admin_access(detail, each) for detail in details for each in candidate_classes(detail, classes)]
    except MatchingError:
        admin = [False]
    return () if admin and all(admin) else claim.status.allocations


def search(
    claims: Sequence[DeviceClaim],
    classes: Iterable[PoolDeviceClass],
    pools: Iterable[DevicePool],
    others: Iterable[DeviceClaim] = (),
    *,
    skip_failing: bool = False,
) -> PoolSolution | None:
    """The best way to meet all claims from these pools, or None if there is none.

    pools: those of one node and of the network (`pools_at`); their order decides between equal ways. others: claims
    whose allocations are in use. skip_failing: a device at which a constraint fails does not fit, instead of an error.
    Raises MatchingError and SearchGaveUp.
    """
    by_name = {each.metadata.name: each for each in classes}
    ledger = PoolLedger(device for pool in pools for device in devices_of(pool))
    for each in others:
        ledger.apply(occupying(each, by_name))
    return PoolSearch(ledger, skip_failing=skip_failing).run(claims, by_name)


class PoolSearch:
    """Searches on the devices of one ledger."""

    def __init__(
        self,
        ledger: PoolLedger,
        *,
        skip_failing: bool = False,
        eligible: Eligibility = is_eligible,
    ) -> None:
        """`eligible` says which devices of the ledger meet a need through a class."""
        self._ledger = ledger
        self._eligible = eligible
        self._devices = list(ledger.devices.values())
        self._skip_failing = skip_failing

    def run(
        self,
        claims: Sequence[DeviceClaim],
        classes: Mapping[str, PoolDeviceClass],
        steps: SearchSteps | None = None,
    ) -> PoolSolution | None:
        """The best way to meet all claims. Raises MatchingError, and SearchGaveUp after `steps` (`MOST_STEPS`)."""
        steps = SearchSteps(MOST_STEPS) if steps is None else steps
        slots = [
            slot
            for number, claim in enumerate(claims)
            for position in range(len(claim.spec.claims))
            for slot in self._slots(claim, number, position, classes)
        ]
        kinds = self._kinds(claims, [need for slot in slots for need in slot])
        matched = tuple(claim.spec.match_attributes for claim in claims)
        problem = SearchProblem(self._ledger, self._devices, kinds, matched, steps)
        for needs in product(*map(_with_enough_devices, slots)):
            steps.spend()
            found = self._best(needs, problem)
            if found is not None:
                return self._solution(claims, needs, found)
        return None

    def _slots(
        self, claim: DeviceClaim, number: int, position: int, classes: Mapping[str, PoolDeviceClass]
    ) -> Iterator[list[SearchNeed]]:
        """The needs of one entry of a claim: of each list one must be met."""
        instance = claim.spec.claims[position]
        for each in instance.all_of:
            yield [self._need(number, position, None, each, classes)]
        if instance.one_of:
            yield [self._need(number, position, one, each, classes) for one, each in enumerate(instance.one_of)]

    def _need(
        self,
        claim: int,
        instance: int,
        alternative: int | None,
        detail: DeviceClaimDetail,
        classes: Mapping[str, PoolDeviceClass],
    ) -> SearchNeed:
        grouped: dict[bool, dict[int, str]] = {}
        for class_ in candidate_classes(detail, classes):
            group = grouped.setdefault(has_admin_access(detail, class_), {})
            for number, device in enumerate(self._devices):
                if number not in group and self._fits(device, class_, detail):
                    group[number] = class_.metadata.name
        accesses = tuple(NeedAccess(admin, group) for admin, group in grouped.items())
        amounts = {name: amount.nanos for name, amount in detail.amounts.items()}
        return SearchNeed(claim, instance, alternative, detail, detail.least, detail.most, amounts, accesses)

    def _fits(self, device: PooledDevice, class_: PoolDeviceClass, detail: DeviceClaimDetail) -> bool:
        try:
            return self._eligible(device, class_, detail)
        except MatchingError:
            if self._skip_failing:
                return False
            raise

    def _kinds(self, claims: Sequence[DeviceClaim], needs: Sequence[SearchNeed]) -> list[int]:
        """A number for each device, equal for devices that cannot be told apart by these needs."""
        names = sorted({name for claim in claims for name in claim.spec.match_attributes})
        names += sorted({name for need in needs for name in need.detail.match_attributes})
        numbers: dict[Hashable, int] = {}
        return [numbers.setdefault(self._kind(each, names, needs), len(numbers)) for each in range(len(self._devices))]

    def _kind(self, number: int, names: Sequence[str], needs: Sequence[SearchNeed]) -> Hashable:
        device = self._devices[number]
        use = self._ledger.uses[device.name]
        return (
            device.pool.metadata.name,
            frozenset(device.device.requests.items()),
            device.device.resources,
            (use.users > 0, use.whole, frozenset(use.drawn.items())),
            tuple(device.attribute(name) for name in names),
            tuple(access.classes.get(number) for need in needs for access in need.accesses),
        )

    def _best(self, needs: tuple[SearchNeed, ...], problem: SearchProblem) -> DeviceWay | None:
        """The way with the fewest pools, then the fewest devices, of each claim in turn; one more at a time."""
        claims = range(len(problem.matched))
        least = [sum(need.least for need in needs if need.claim == claim) for claim in claims]
        most = [sum(need.most for need in needs if need.claim == claim) for claim in claims]
        limits = [ClaimLimit(len(self._devices), each) for each in most]
        found = DeviceWay(problem, needs, limits)
        if not found.search():
            return None
        for claim in claims:
            for pools in range(1, found.used[claim].pools + 1):
                limits[claim] = ClaimLimit(pools, most[claim])
                way = DeviceWay(problem, needs, limits)
                found = way if way.search() else found
                if found.used[claim].pools <= pools:
                    break
            for devices in range(least[claim], found.used[claim].devices + 1):
                limits[claim] = ClaimLimit(limits[claim].pools, devices)
                way = DeviceWay(problem, needs, limits)
                found = way if way.search() else found
                if found.used[claim].devices <= devices:
                    break
        return found

    def _solution(self, claims: Sequence[DeviceClaim], needs: Sequence[SearchNeed], way: DeviceWay) -> PoolSolution:
        return PoolSolution(
            tuple(
                MetNeed(claims[need.claim], need.instance, need.alternative, need.detail, self._chosen(taken, amounts))
                for need, (taken, amounts) in zip(needs, way.found(), strict=True)
            )
        )

    def _chosen(self, taken: TakenDevices, amounts: Mapping[int, Mapping[str, int]]) -> tuple[ChosenDevice, ...]:
        found = []
        for number in taken.devices:
            device = self._devices[number]
            given = amounts.get(number, {})
            listed = tuple(
                ResourceAllocation(each.name, quantity_of(given[each.name], each.capacity))
                for each in device.device.resources
                if each.name in given
            )
            found.append(ChosenDevice(device, taken.access.classes[number], taken.access.admin, listed))
        return tuple(found)


def _with_enough_devices(slot: Iterable[SearchNeed]) -> list[SearchNeed]:
    """The needs that enough devices suit, whatever is in use of them; the others have no way in any combination."""
    return [need for need in slot if any(len(access.classes) >= need.least for access in need.accesses)]
