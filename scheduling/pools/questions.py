"""What the search is asked to find out why: one need at a time, with some of its conditions, or what if.

The search decides alone; nothing here knows a rule of it. Every question is bounded in steps and not in time, so that
equal documents give equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from scheduling.api.quantities import Quantity, from_int
from scheduling.pools.capacity import PoolLedger, quantity_of
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail, DeviceClaimInstance
from scheduling.pools.documents import COUNT
from scheduling.pools.matching import MatchingError
from scheduling.pools.published import PooledState, PublishedPool, ledger_of
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.reading import title_of
from scheduling.pools.search import MOST_STEPS, PoolSearch, PoolSolution
from scheduling.pools.ways import SearchGaveUp, SearchSteps

WHAT_IF_STEPS: Final = 20_000
"""Ways that the search tries to find out what would be if something were different."""
WHAT_IF_SEARCHES: Final = 2
"""All questions of that kind about one node share the steps of this many searches; the answer to more is not known."""

Claims = Sequence[DeviceClaim]
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class NeedPlace:
    """One need: claim, entry, number in `allOf` or `oneOf` (then `alternative`), and its path in the claim's spec."""

    claim: int
    instance: int
    position: int
    alternative: bool
    path: str
    title: str
    detail: DeviceClaimDetail

    @property
    def what(self) -> str:
        """What it asks for, in words."""
        return f"class {self.detail.device_class}" if self.detail.device_class else f"type {self.detail.device_type}"


def places_of(claims: Claims) -> list[NeedPlace]:
    """All needs, in the order of the search; entries of one `oneOf` follow each other."""
    found = []
    for number, claim in enumerate(claims):
        for entry, instance in enumerate(claim.spec.claims):
            at, title = f"claims[{entry}]", title_of(claim)
            plain = len(instance.all_of) == 1 and not instance.name
            for position, detail in enumerate(instance.all_of):
                path = at if plain else f"{at}.allOf[{position}]"
                found.append(NeedPlace(number, entry, position, False, path, title, detail))
            for position, detail in enumerate(instance.one_of):
                found.append(NeedPlace(number, entry, position, True, f"{at}.oneOf[{position}]", title, detail))
    return found


class PoolJudge:
    """Asks the search about one node. Two ledgers: what is in use now, and nothing in use."""

    def __init__(
        self,
        pools: Sequence[PublishedPool],
        classes: ClusterClasses,
        most_steps: int = MOST_STEPS,
        part_of: SearchSteps | None = None,
    ) -> None:
        """`part_of`: the steps of all nodes together."""
        self.pools = tuple(pools)
        self.classes = classes
        self.ledger = ledger_of(pools)
        self._most_steps = most_steps
        self._part_of = part_of
        self._what_if = SearchSteps(WHAT_IF_SEARCHES * most_steps, part_of)
        self._unused: PoolLedger | None = None

    def ask(self, claims: Claims) -> PoolSolution | None:
        """The best way now, None if there is none. Raises MatchingError and SearchGaveUp."""
        return self._search(self.ledger, claims, SearchSteps(self._most_steps, self._part_of))

    def possible(self, claims: Claims, *, unused: bool = False) -> bool | None:
        """Whether there is a way, now or with nothing in use.

        None: not known, because the search gives up or refuses the claims, or too many questions were asked.
        """
        if unused and self._unused is None:
            self._unused = ledger_of([_unused(each) for each in self.pools])
        ledger = self._unused if unused and self._unused is not None else self.ledger
        steps = SearchSteps(min(WHAT_IF_STEPS, self._most_steps), self._what_if)
        try:
            steps.spend(len(places_of(claims)))
            return self._search(ledger, claims, steps) is not None
        except (SearchGaveUp, MatchingError):
            return None

    def _search(self, ledger: PoolLedger, claims: Claims, steps: SearchSteps) -> PoolSolution | None:
        return PoolSearch(ledger, eligible=self.classes.is_eligible).run(claims, self.classes.documents, steps)


_USED = (PooledState.TAKEN, PooledState.SHARED, PooledState.BLOCKED)


def _unused(pool: PublishedPool) -> PublishedPool:
    devices = tuple(
        replace(each, users=(), state=PooledState.FREE if each.state in _USED else each.state) for each in pool.devices
    )
    resources = tuple(replace(each, left=each.capacity) for each in pool.resources)
    return replace(pool, devices=devices, resources=resources)


def smallest(parts: Sequence[_Part], possible: Callable[[Sequence[_Part]], bool | None]) -> tuple[list[_Part], bool]:
    """A smallest part of what is impossible, and whether it is proved to be one.

    The last parts are left out first, so that what remains is what a reader of the claim meets first.
    """
    kept, proved = list(parts), True
    for part in reversed(parts):
        rest = [each for each in kept if each is not part]
        answer = possible(rest) if rest else True
        proved = proved and answer is not None
        if answer is False:
            kept = rest
    return kept, proved


@dataclass(frozen=True, slots=True)
class NeedCondition:
    """What a need asks for beyond its count: an attribute that must match, or an amount (`amount`)."""

    name: str
    amount: bool = False
    of_claim: bool = False


class NeedQuestion:
    """One need of one claim, asked about with some of its conditions alone."""

    def __init__(
        self, claim: DeviceClaim, detail: DeviceClaimDetail, possible: Callable[[Claims], bool | None]
    ) -> None:
        self._claim = claim
        self._possible = possible
        self.detail = detail
        self.conditions = (
            *(NeedCondition(name) for name in detail.match_attributes),
            *(NeedCondition(name, of_claim=True) for name in claim.spec.match_attributes),
            *(NeedCondition(name, amount=True) for name in detail.amounts),
        )

    def ask(self, kept: Sequence[NeedCondition], **changed: Quantity) -> bool | None:
        """Whether the need can be met with these conditions. `changed`: other amounts, or another count.

        An amount that is left out becomes zero: then devices are still shared as before.
        """
        amounts = {each.name for each in kept if each.amount}
        zero = from_int(0)
        requests = {
            name: value if name == COUNT or name in amounts else zero for name, value in self.detail.requests.items()
        }
        names = tuple(each.name for each in kept if not each.amount and not each.of_claim)
        detail = replace(self.detail, requests={**requests, **changed}, match_attributes=names)
        across = tuple(each.name for each in kept if each.of_claim)
        spec = replace(self._claim.spec, claims=(DeviceClaimInstance(all_of=(detail,)),), match_attributes=across)
        return self._possible([replace(self._claim, spec=spec)])

    def most(self, kept: Sequence[NeedCondition], name: str) -> Quantity:
        """The most of an amount, or of the count, that can be had with these conditions; 0 if none."""
        wanted = self.detail.requests.get(name, from_int(1))
        unit = 10**9 if wanted.nanos % 10**9 == 0 else 1
        low, high = 0, wanted.nanos // unit
        while high - low > 1:
            middle = (low + high) // 2
            if self.ask(kept, **{name: quantity_of(middle * unit, wanted)}):
                low = middle
            else:
                high = middle
        return quantity_of(low * unit, wanted)
