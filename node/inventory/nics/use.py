"""How the node itself uses an interface, in words, so that it is not given away by mistake.

An interface is in use where it, or a link above it (a bond or bridge that it is in, a vlan that stands on it, and so on
upwards), carries a default route or has an address, and where it or such a link is a member of another link. Link-local
and loopback addresses do not count; the facts do not list them.

An interface also counts as in use when its use is unknown: while a table was never read, and where the facts do not
know the interface, because sysfs shows another network namespace than the agent's own.

A default route disappears for a moment when an interface is restarted or its lease renewed. A NIC that was offered in
that moment could be given to a pod, and the node would be off the network for good. So a use counts for a minute longer
than it is seen (``LingeringUses``), as long as the device is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from node.inventory.model import Device
from node.inventory.net_facts import HostLink, NetworkFacts
from node.values import replace

_SHOWN = 3
"""Addresses that are named; a host may have hundreds on one interface."""


class HostUses:
    """Answers for every interface of one scan."""

    def __init__(self, network: NetworkFacts | None) -> None:
        facts = network or NetworkFacts()
        self._asked = network is not None
        self._unread = facts.unread or ""
        self._links = {link.name: link for link in facts.links}
        self._standing_on: dict[str, list[str]] = defaultdict(list)
        for link in facts.links:
            if link.lower is not None:
                self._standing_on[link.lower].append(link.name)
        self._families: dict[str, set[int]] = defaultdict(set)
        for route in facts.default_routes:
            self._families[route.interface].add(route.family)
        self._addresses: dict[str, set[str]] = defaultdict(set)
        for address in facts.addresses:
            self._addresses[address.interface].add(address.address)

    def of(self, interface: str) -> str:
        """What the node uses the interface for; empty for nothing, and where no source reads it."""
        stack = self._stack(interface)
        found = (*self._memberships(stack), *self._routes(stack), *self._given(stack))
        return "; ".join(found) or self._doubt(interface)

    def _doubt(self, interface: str) -> str:
        """Says why the interface's use is unknown; empty where it is known."""
        reason = self._unread
        if not reason and self._asked and interface not in self._links:
            reason = "it is not in the agent's network namespace (hostNetwork: true)"
        return f"may be used by the node itself, which ostler cannot find out: {reason}" if reason else ""

    def _stack(self, interface: str) -> list[str]:
        """The interface and all links above it, nearest first; a loop of masters ends where it began."""
        known = {interface}
        reached = [interface]
        for name in reached:
            link = self._links.get(name)
            above = [link.master] if link is not None and link.master is not None else []
            for each in (*above, *sorted(self._standing_on.get(name, ()))):
                if each not in known:
                    known.add(each)
                    reached.append(each)
        return reached

    def _memberships(self, stack: list[str]) -> Iterable[str]:
        for name in stack:
            link = self._links.get(name)
            if link is not None and link.master is not None:
                by = f" by {name}" if name != stack[0] else ""
                yield f"is in {_named(link.master, self._links.get(link.master))}{by}"

    def _routes(self, stack: list[str]) -> Iterable[str]:
        for name in stack:
            families = sorted(self._families.get(name, ()))
            if families:
                versions = " and ".join(f"IPv{family}" for family in families)
                yield f"carries the node's default route ({versions}, by {name})"

    def _given(self, stack: list[str]) -> Iterable[str]:
        for name in stack:
            addresses = sorted(self._addresses.get(name, ()))
            if addresses:
                more = f" and {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
                plural = "es" if len(addresses) > 1 else ""
                by = f" by {name}" if name != stack[0] else ""
                yield f"has the node's address{plural} {', '.join(addresses[:_SHOWN])}{more}{by}"


def _named(name: str, link: HostLink | None) -> str:
    """The link with its kind in front where its name does not say it: ``bridge br0``, ``bond0``."""
    kind = link.kind if link is not None else ""
    return f"{kind} {name}" if kind and not name.startswith(kind) else name


SECONDS = 60.0


class LingeringUses:
    """Remembers uses by device name from scan to scan; one scan at a time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def applied(self, devices: Iterable[Device], now: float) -> tuple[Device, ...]:
        """The devices, those that had a use in the last minute with it; ``now`` in Unix seconds."""
        seen: dict[str, tuple[str, float]] = {}
        found = []
        for device in devices:
            use, at = (device.host_use, now) if device.host_use else self._seen.get(device.name, ("", now))
            # A clock that was set back makes the time negative, and the use is kept a minute from now.
            if use and now - at < SECONDS:
                seen[device.name] = use, min(at, now)
                found.append(device if device.host_use == use else replace(device, host_use=use))
            else:
                found.append(device)
        self._seen = seen
        return tuple(found)
