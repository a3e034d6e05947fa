"""What is wanted of one pool, beside what the API server makes of it.

A server whose features are off stores less than it was sent. Comparing with what was asked for would then find a
difference for ever, so what was stored becomes what is wanted, until the caller asks for something else. Asking for
the same again changes nothing, and is told again; times that the server gave to taints count only until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from driver.slices.errors import DroppedFieldsError, InvalidPool
from driver.slices.limits import pool_fault
from driver.slices.model import Pool, Slice
from node.values import replace
from scheduling.api.validation.cause import Cause


class WantedPool:
    """One pool as it was asked for once; the controller's worker alone changes it."""

    def __init__(self, name: str, asked: Pool, before: WantedPool | None = None) -> None:
        self.name = name
        self.asked = asked
        self.effective = asked
        self.untold: list[DroppedFieldsError] = []
        """Faults of earlier times that concern what is asked for again."""
        self.drops: dict[int, tuple[Slice, Slice, DroppedFieldsError]] = {}
        self._faults: dict[int, tuple[Cause, ...]] = {}
        self._checked: tuple[InvalidPool | None] | None = None
        if before is not None and _alike(before.asked, asked):
            old = before.asked.slices
            self._faults = {
                index: faults for index, faults in before.judged.items() if asked.slices[index] is old[index]
            }
        for index, (slice_, stored, error) in (before.drops if before else {}).items():
            if index < len(asked.slices) and asked.slices[index] == slice_:
                self.drops[index] = (slice_, stored, error)
                self._accept(index, stored)
                self.untold.append(error)

    def fault(self) -> InvalidPool | None:
        """What contradicts itself in the pool, looked for once."""
        if self._checked is None:
            self._checked = (pool_fault(self.name, self.asked),)
        return self._checked[0]

    def faults(self, index: int, judge: Callable[[], Sequence[Cause]]) -> tuple[Cause, ...]:
        """What is wrong with a slice, asked of ``judge`` once."""
        if index not in self._faults:
            self._faults[index] = tuple(judge())
        return self._faults[index]

    def dropped(self, index: int, stored: Slice, error: DroppedFieldsError) -> None:
        """The server stored a slice with less than was sent."""
        self.drops[index] = (self.asked.slices[index], stored, error)
        self._accept(index, stored)

    def dated(self, index: int, stored: Slice) -> None:
        """The server gave times to taints that had none."""
        self._accept(index, replace(self.effective.slices[index], devices=stored.devices))

    @property
    def judged(self) -> Mapping[int, tuple[Cause, ...]]:
        """What is known to be wrong, or right, with slices."""
        return self._faults

    def dropped_features(self) -> tuple[str, ...]:
        """The gates without which something was not stored, "unknown" where none explains it."""
        gates = {gate for _, _, error in [*self.drops.values()] for gate in error.disabled_features() or ("unknown",)}
        return tuple(sorted(gates))

    def _accept(self, index: int, stored: Slice) -> None:
        slices = list(self.effective.slices)
        slices[index] = stored
        self.effective = replace(self.effective, slices=tuple(slices))


def _alike(one: Pool, other: Pool) -> bool:
    """Whether slices that are the same in both are judged the same."""
    return replace(one, slices=()) == replace(other, slices=()) and len(one.slices) == len(other.slices)
