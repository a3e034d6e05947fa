"""What a reload changes, in sentences for people."""

from __future__ import annotations

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
    "dra",
)
"""Settings that take effect only with a restart."""


def changes(old: Settings, new: Settings) -> tuple[str, ...]:
    """What is in force now that was not before, and what waits for a restart."""
    found = []
    if new.rules != old.rules:
        found.append(f"rules: {len(old.rules)} before, {len(new.rules)} now, in force")
    if new.log != old.log:
        found.append(f"log: {new.log.level} {new.log.format}, in force")
    if new.topology_overrides != old.topology_overrides:
        found.append(f"topology: {len(new.topology_overrides)} devices placed by the file, in force")
    return (*found, *(f"{name}: needs a restart, the old value stays in force" for name in kept(old, new)))


def kept(old: Settings, new: Settings) -> tuple[str, ...]:
    """Names of settings that differ and take effect only with a restart."""
    return tuple(name for name in FIXED if getattr(new, name) != getattr(old, name))
