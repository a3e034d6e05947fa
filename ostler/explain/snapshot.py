"""A cluster's objects as one file: what is kept, names replaced on demand, and the text.

The file begins with a document that says what it is and what could not be read; every object follows as a document of
its own, so that a reader goes through it piece by piece and its errors have accurate lines. In JSON all are items of
the one object.

Aliases let a snapshot be shown to strangers and still give the same answer. If order decides (pools and slices are
tried by name), it must not change: the names of a group are sorted, numbered and padded, so that aliases sort as the
names did. All names must be known before the first alias is given: a ``NameRegister`` sees all objects first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kube.bodies import JsonObject
from ostler.explain.collection import SNAPSHOT_KIND, SNAPSHOT_VERSION
from ostler.explain.kept import (
    NODES,
    WORKLOADS,
    AliasNaming,
    NameGroup,
    kept,
)
from ostler.explain.yaml_objects import plain_value
from scheduling.explain.state import FACTS, Kind, MissingKind, State

if TYPE_CHECKING:
    import yaml


_UID = "00000000-0000-4000-8000-{:012d}"


class NamesUnchanged:
    """Every name stays."""

    groups: frozenset[NameGroup] = frozenset()

    def name(self, group: NameGroup, text: str) -> str:
        """The name itself."""
        return text


class NameRegister:
    """Collects the names of ``groups``."""

    def __init__(self, groups: frozenset[NameGroup]) -> None:
        self.groups = groups
        self._known: dict[NameGroup, set[str]] = {group: set() for group in groups}

    def name(self, group: NameGroup, text: str) -> str:
        """The name itself; the register knows it from now on."""
        if group in self.groups:
            self._known[group].add(text)
        return text

    def aliases(self) -> NameAliases:
        """The aliases of all known names."""
        return NameAliases(
            {
                group: dict(zip(sorted(names), _aliases(group, len(names)), strict=True))
                for group, names in self._known.items()
            }
        )


class NameAliases:
    """Names become aliases. ``table``: by group, the alias of every name."""

    def __init__(self, table: Mapping[NameGroup, Mapping[str, str]]) -> None:
        self.groups = frozenset(table)
        self.table = table

    def name(self, group: NameGroup, text: str) -> str:
        """The alias; "" stays, because it names nothing. Raises KeyError for a name that the register has not seen."""
        return self.table[group][text] if group in self.groups and text else text


def _aliases(group: NameGroup, count: int) -> list[str]:
    if group is NameGroup.UID:
        return [_UID.format(number + 1) for number in range(count)]
    width = max(len(str(count)), 2)
    return [f"{group}-{number + 1:0{width}d}" for number in range(count)]


ORDER = (Kind.NODE, Kind.CLASS, Kind.SLICE, Kind.TAINT_RULE, Kind.TEMPLATE, Kind.CLAIM, Kind.POD)
_PARTLY = "not everything could be read when this was taken"
_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
"""Texts that are texts without quotes, unless they are words such as yes."""


@dataclass(frozen=True, slots=True)
class AnonymousState:
    """A state with other names, and the alias of each name."""

    state: State
    names: Mapping[NameGroup, Mapping[str, str]]


def reduced(state: State) -> State:
    """The parts of a state that a snapshot keeps."""
    return _written(state, NamesUnchanged())


def anonymous(state: State, *, nodes: bool = False) -> AnonymousState:
    """A state with the names of workloads replaced, with ``nodes`` those of nodes, pools and slices and labels too.

    Aliases sort as the names do, so that devices are tried in the same order.
    """
    register = NameRegister(WORKLOADS | NODES if nodes else WORKLOADS)
    _written(state, register)
    aliases: NameAliases = register.aliases()
    plain = replace(
        _written(state, aliases),
        # Sentences of the API server name accounts and namespaces.
        truncated=(_PARTLY,) if state.truncated else (),
        missing=tuple(MissingKind(one.kind, f"{FACTS[one.kind].plural} could not be read") for one in state.missing),
    )
    return AnonymousState(plain, aliases.table)


def _written(state: State, naming: AliasNaming) -> State:
    for kind in Kind:
        state = state.with_objects(kind, tuple(kept(kind, body, naming) for body in state.of(kind)))
    return state


def as_yaml(state: State, *, taken_at: str = "", names_replaced: bool = False) -> str:
    """The text of a snapshot in YAML."""
    import yaml

    return yaml.dump_all(
        [_head(state, taken_at, names_replaced), *_objects(state)],
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=True,
        width=1 << 16,
    )


def as_json(state: State, *, taken_at: str = "", names_replaced: bool = False) -> str:
    """The text of a snapshot in JSON."""
    whole = {**_head(state, taken_at, names_replaced), "items": _objects(state)}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _head(state: State, taken_at: str, names_replaced: bool) -> dict[str, object]:
    head: dict[str, object] = {"apiVersion": SNAPSHOT_VERSION, "kind": SNAPSHOT_KIND}
    missing = [{"kind": one.kind.value, "problem": one.problem, "fix": one.fix} for one in state.missing]
    optional = {
        "takenAt": taken_at,
        "serverVersion": state.server_version,
        "namesReplaced": names_replaced,
        "whole": sorted(kind.value for kind in state.whole),
        "truncated": list(state.truncated),
        "missing": missing,
    }
    return head | {key: value for key, value in optional.items() if value}


def _objects(state: State) -> list[JsonObject]:
    return [body for kind in ORDER for body in state.of(kind)]


def _dumper() -> type[yaml.SafeDumper]:
    import yaml

    base: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[valid-type, misc]  # which of the two is there is known only here
        """Texts that a reader could take for something else in quotes; no aliases."""

        def ignore_aliases(self, data: object) -> bool:
            return True

        def text(self, data: str) -> yaml.ScalarNode:
            style = None if _SAFE.fullmatch(data) and plain_value(data) == data else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)  # type: ignore[no-any-return]

    Dumper.add_representer(str, Dumper.text)
    return Dumper
