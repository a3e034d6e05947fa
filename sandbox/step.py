"""One step of the tour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TourStep:
    """A step of the tour: a key for programs, a title for people, and what was seen."""

    key: str
    title: str
    seen: object
