"""What a reload changes, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterable

from node.rules import Doors, Rule
from ostler.config.settings import Settings

FIXED = (
    "node_name",
    "kubelet",
    "roots",
    "nvidia",
    "cdi",
    "inventory",
    "state_dir",
    "socket",
    "http",
    "instance",
    "kubernetes",
    "holds",
    "dra",
)
"""Settings that take effect only with a restart."""


def changes(old: Settings, new: Settings) -> tuple[str, ...]:
    """What is in force now that was not before, and what waits for a restart."""
    found = []
    if new.rules != old.rules:
        found.append(f"rules: {len(old.rules)} before, {len(new.rules)} now, in force")
        found.extend(_moved(_doors(old.rules), _doors(new.rules)))
    if new.health != old.health:
        found.append("health: judged by the new configuration from now on, in force")
    if new.log != old.log:
        found.append(f"log: {new.log.level} {new.log.format}, in force")
    if new.topology_overrides != old.topology_overrides:
        found.append(f"topology: {len(new.topology_overrides)} devices placed by the file, in force")
    return (*found, *(f"{name}: needs a restart, the old value stays in force" for name in kept(old, new)))


def kept(old: Settings, new: Settings) -> tuple[str, ...]:
    """Names of settings that differ and take effect only with a restart."""
    return tuple(name for name in FIXED if getattr(new, name) != getattr(old, name))


def _doors(rules: Iterable[Rule]) -> dict[str, frozenset[Doors]]:
    found: dict[str, frozenset[Doors]] = {}
    for rule in rules:
        found[rule.resource] = found.get(rule.resource, frozenset()) | {rule.door}
    return found


def _moved(old: dict[str, frozenset[Doors]], new: dict[str, frozenset[Doors]]) -> list[str]:
    """A sentence for each resource that is at other doors now; what is in use moves later."""
    return [
        f"{name}: door {_words(old[name])} before, {_words(doors)} now; a device that is in use moves when it is free"
        for name, doors in new.items()
        if name in old and old[name] != doors
    ]


def _words(doors: frozenset[Doors]) -> str:
    return " and ".join(sorted(doors))
