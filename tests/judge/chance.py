"""A seeded source of choices for the generators of cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Json = dict[str, Any]


class Chance:
    """Choices that repeat with the seed.

    `bend` is how much rare things are wanted in this case: 0 for none of the marked oddities, 1 for the usual share.
    """

    def __init__(self, seed: str) -> None:
        """`seed`: any text."""
        self._random = random.Random(seed)
        self.bend = 1.0

    def maybe(self, share: float) -> bool:
        """True in this share of the calls."""
        return self._random.random() < share

    def oddly(self, share: float) -> bool:
        """True in this share of the calls, times `bend`."""
        return self._random.random() < share * self.bend

    def one(self, choices: Sequence[T]) -> T:
        """One of them; naming one twice makes it twice as likely."""
        return self._random.choice(choices)

    def some(self, choices: Sequence[T], most: int | None = None) -> list[T]:
        """At least one of them, in their order."""
        count = self._random.randint(1, min(len(choices), most or len(choices)))
        chosen = set(self._random.sample(range(len(choices)), count))
        return [choice for index, choice in enumerate(choices) if index in chosen]

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """All of them in another order."""
        return self._random.sample(list(choices), len(choices))

    def number(self, low: int, high: int) -> int:
        """Both ends included."""
        return self._random.randint(low, high)
