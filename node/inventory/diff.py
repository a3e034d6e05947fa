"""What changed between two snapshots, as a value and in words.

Pure. Devices are matched by name: one that keeps its name and differs has changed, in the fields named.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.state import Health
from node.inventory.model import AttributeValue, Device, PeerLink, Snapshot, SourceStatus
from node.values import Value, value

_FIELDS = (
    "kind",
    "vendor",
    "uuid",
    "index",
    "pci_address",
    "numa_node",
    "parent",
    "health",
    "attributes",
    "capacity",
    "nodes",
    "location",
    "direct",
    "links",
    "host_use",
)


@value
class DeviceChange(Value):
    """A device before and after, and the names of the fields that differ."""

    old: Device
    new: Device
    fields: tuple[str, ...]


@value
class Diff(Value):
    """Devices added, removed and changed, each by name; sources whose status is new; whether the host changed."""

    added: tuple[Device, ...] = ()
    removed: tuple[Device, ...] = ()
    changed: tuple[DeviceChange, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    removed_sources: tuple[SourceStatus, ...] = ()
    host: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return self == Diff()

    def lines(self) -> tuple[str, ...]:
        """One line of text per change."""
        return (
            *(f"{device.name} added: {_described(device)}" for device in self.added),
            *(f"{device.name} removed: {_described(device)}" for device in self.removed),
            *(f"{change.new.name} changed: {_change_text(change)}" for change in self.changed),
            *(_source_text(status) for status in self.sources),
            *(f"source {status.name} is gone" for status in self.removed_sources),
            *(("driver files or CDI specs of the node changed",) if self.host else ()),
        )


def diff(old: Snapshot, new: Snapshot) -> Diff:
    """The changes from ``old`` to ``new``; generations are not compared."""
    before = {device.name: device for device in old.devices}
    after = {device.name: device for device in new.devices}
    known = set(old.sources)
    names = {status.name for status in new.sources}
    return Diff(
        added=tuple(device for device in new.devices if device.name not in before),
        removed=tuple(device for device in old.devices if device.name not in after),
        changed=tuple(
            DeviceChange(before[device.name], device, _different(before[device.name], device))
            for device in new.devices
            if device.name in before and before[device.name] != device
        ),
        sources=tuple(status for status in new.sources if status not in known),
        removed_sources=tuple(status for status in old.sources if status.name not in names),
        host=old.host != new.host,
    )


def _different(old: Device, new: Device) -> tuple[str, ...]:
    return tuple(name for name in _FIELDS if getattr(old, name) != getattr(new, name))


def _described(device: Device) -> str:
    interface = device.text("ifName")
    what = device.text("productName") or (f"{device.kind.value} {interface}" if interface else device.kind.value)
    profile = device.text("profile")
    return ", ".join(part for part in (what, profile, device.uuid, _health_text(device.health)) if part)


def _health_text(health: Health) -> str:
    return f"{health.state.value} ({health.reason})" if health.reason else health.state.value


def _change_text(change: DeviceChange) -> str:
    return "; ".join(_field_text(name, change.old, change.new) for name in change.fields)


def _field_text(name: str, old: Device, new: Device) -> str:
    if name == "health":
        return f"health {old.health.state.value} -> {_health_text(new.health)}"
    if name == "attributes":
        before = {each.name: _value_text(each.value) for each in old.attributes}
        after = {each.name: _value_text(each.value) for each in new.attributes}
        return _pairs_text(before, after) or "types of attributes"
    if name == "capacity":
        before = {each.name: str(each.value) for each in old.capacity}
        after = {each.name: str(each.value) for each in new.capacity}
        return f"capacity {_pairs_text(before, after)}"
    if name == "links":
        return f"links {_links_text(old.links)} -> {_links_text(new.links)}"
    if name == "host_use":
        return f"the node itself uses it: {new.host_use}" if new.host_use else "the node itself no longer uses it"
    if name == "nodes":
        return f"device nodes {_paths_text(old, new)}"
    return f"{name} {getattr(old, name)} -> {getattr(new, name)}"


def _pairs_text(before: dict[str, str], after: dict[str, str]) -> str:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    # Values with equal texts differ only in type; they give no line.
    return ", ".join(f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}" for name in names)


def _value_text(value: AttributeValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _links_text(links: Iterable[PeerLink]) -> str:
    return ", ".join(f"{link.count} to {link.peer or 'switches'}" for link in links) or "none"


def _paths_text(old: Device, new: Device) -> str:
    before, after = set(old.nodes), set(new.nodes)
    appeared, gone = _paths(after - before), _paths(before - after)
    return (
        " ".join(text for text in (f"+{appeared}" if appeared else "", f"-{gone}" if gone else "") if text) or "order"
    )


def _paths(nodes: Iterable[object]) -> str:
    return ",".join(sorted({str(getattr(node, "path", node)) for node in nodes}))


def _source_text(status: SourceStatus) -> str:
    return f"source {status.name} is {status.state.value}{': ' if status.detail else ''}{status.detail}"
