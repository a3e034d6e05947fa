"""Names that stand for other names, so that a snapshot can be shown to strangers and still gives the same answer.

Where order decides (pools and slices are tried by name), it must not change: the names of a group are sorted, numbered
and padded, so that aliases sort as the names did. So all names must be known before the first alias is given: a
``Register`` is taken through all objects first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Group(StrEnum):
    """What is named, by the word that aliases begin with."""

    NAMESPACE = "namespace"
    POD = "pod"
    CLAIM = "claim"
    TEMPLATE = "template"
    USER = "user"
    """Whatever else claims are reserved for."""
    LOCAL = "use"
    """A pod's own name for a claim."""
    CONTAINER = "container"
    GATE = "gate"
    SCHEDULER = "scheduler"
    UID = "uid"
    NODE = "node"
    POOL = "pool"
    SLICE = "slice"
    RULE = "rule"
    LABEL = "label"
    VALUE = "value"


WORKLOADS = frozenset(
    {
        Group.NAMESPACE, Group.POD, Group.CLAIM, Group.TEMPLATE, Group.USER, Group.LOCAL, Group.CONTAINER, Group.GATE,
        Group.SCHEDULER, Group.UID,
    }
)  # fmt: skip
NODES = frozenset({Group.NODE, Group.POOL, Group.SLICE, Group.RULE, Group.LABEL, Group.VALUE})
_UID = "00000000-0000-4000-8000-{:012d}"


class Naming(Protocol):
    """What a name becomes."""

    @property
    def groups(self) -> frozenset[Group]:
        """The groups whose names are replaced."""
        ...

    def name(self, group: Group, text: str) -> str:
        """The name to write for a name."""
        ...


class Unchanged:
    """Every name stays."""

    groups: frozenset[Group] = frozenset()

    def name(self, group: Group, text: str) -> str:
        """The name itself."""
        return text


class Register:
    """Collects the names of ``groups``."""

    def __init__(self, groups: frozenset[Group]) -> None:
        self.groups = groups
        self._known: dict[Group, set[str]] = {group: set() for group in groups}

    def name(self, group: Group, text: str) -> str:
        """The name itself, which is known from now on."""
        if group in self.groups:
            self._known[group].add(text)
        return text

    def aliases(self) -> Aliases:
        """The aliases of all names that are known."""
        return Aliases(
            {
                group: dict(zip(sorted(names), _aliases(group, len(names)), strict=True))
                for group, names in self._known.items()
            }
        )


class Aliases:
    """Names become aliases. ``table``: by group, the alias of every name."""

    def __init__(self, table: Mapping[Group, Mapping[str, str]]) -> None:
        self.groups = frozenset(table)
        self.table = table

    def name(self, group: Group, text: str) -> str:
        """The alias; "" stays, since it names nothing. A KeyError is a name that the register was not shown."""
        return self.table[group][text] if group in self.groups and text else text


def _aliases(group: Group, count: int) -> list[str]:
    if group is Group.UID:
        return [_UID.format(number + 1) for number in range(count)]
    width = max(len(str(count)), 2)
    return [f"{group}-{number + 1:0{width}d}" for number in range(count)]
