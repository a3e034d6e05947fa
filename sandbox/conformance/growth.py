"""Judges whether a program grows without end, by its size after rounds of the same work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sandbox.conformance.subject import ProcessSize

MEASURED_ROUNDS: Final = 3
"""Rounds of work after the first, which fills caches and pools and does not count."""
MOST_ROUNDS: Final = 6
"""Rounds after which a program that grew in each of them counts as growing: some caches fill late."""
MEMORY_KIB: Final = 1024
"""How much a program may grow in a round; allocators take memory in steps."""
DESCRIPTORS: Final = 3
"""How many descriptors a program may gain in a round."""


def is_judged(sizes: Sequence[ProcessSize]) -> bool:
    """Whether no further round of work is needed for a verdict about these sizes."""
    return len(sizes) > MEASURED_ROUNDS and not growth(sizes, "work")


def growth(sizes: Sequence[ProcessSize], work: str) -> str:
    """Say what grew by more than it may in every round of ``work``, all but the first size; empty for nothing."""
    steps = list(pairwise(sizes))
    for name, grown, allowed, unit in (
        ("memory", [after.memory - before.memory for before, after in steps], MEMORY_KIB, " KiB"),
        ("descriptors", [after.descriptors - before.descriptors for before, after in steps], DESCRIPTORS, ""),
    ):
        if min(grown) > allowed:
            return f"{name} grew in every round of {work}: by {', '.join(f'{each}{unit}' for each in grown)}"
    return ""
