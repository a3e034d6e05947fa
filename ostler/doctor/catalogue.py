"""All checks, in the order in which they are shown: from what everything stands on to what stands on it."""

from __future__ import annotations

from collections.abc import Iterable

from ostler.doctor import (
    agent,
    cdi,
    configuration,
    drivers,
    events,
    holds,
    kubelet,
    kubernetes,
    limits,
    machine,
    nics,
    registration,
)
from ostler.doctor.check import Subject

SUBJECTS: tuple[Subject, ...] = (
    configuration.SUBJECT,
    machine.SUBJECT,
    limits.SUBJECT,
    drivers.SUBJECT,
    events.SUBJECT,
    nics.SUBJECT,
    cdi.SUBJECT,
    agent.SUBJECT,
    kubelet.SUBJECT,
    registration.SUBJECT,
    holds.SUBJECT,
    kubernetes.SUBJECT,
)

NAMES = tuple(check.name for subject in SUBJECTS for check in subject.checks)
"""Names of all checks; each is there once."""


def chosen(names: Iterable[str]) -> tuple[Subject, ...]:
    """The subjects with only these checks in them; all of them for no names."""
    wanted = frozenset(names)
    if not wanted:
        return SUBJECTS
    kept = (
        Subject(subject.name, tuple(check for check in subject.checks if check.name in wanted)) for subject in SUBJECTS
    )
    return tuple(subject for subject in kept if subject.checks)
