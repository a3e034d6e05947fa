"""One check: its name, what it looks at, and the function that looks.

``examine`` only reads: it changes nothing on the node, takes no lock, and dials sockets with deadlines. It may raise;
the examination turns that into the verdict ``error`` and goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding

DEADLINE = 12.0
"""Seconds for one check; all of them run at the same time."""


@dataclass(frozen=True, slots=True)
class Check:
    """``meaning``: what is looked at; ``remedy``: what to do in general. Both are the columns of the documentation."""

    name: str
    meaning: str
    remedy: str
    examine: Callable[[NodeView], Finding]
    deadline: float = DEADLINE


@dataclass(frozen=True, slots=True)
class Subject:
    """Checks that belong together, in the order in which they are shown."""

    name: str
    checks: tuple[Check, ...]
