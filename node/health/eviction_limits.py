"""The eviction limit: if many devices of a kind go bad at once, the fault is probably elsewhere, and none evicts pods.

Pure. The limit holds for a kind from the moment at which more than half of its devices, and at least two, have gone bad
within ``HealthPace.together`` seconds, if one of them might evict; it stays on until a person or the configuration says
otherwise, because only people can distinguish a dead node from a driver that lies. A device goes bad when it becomes
unhealthy, and once more when its trouble becomes one that evicts. A device that is unhealthy when its kind's limit is
released is excused: it starts no limit until it has been healthy again, even after a restart.

After a restart every fault is new to the agent, though some have lasted for weeks. So a device that began to evict
longer than ``HealthPace.together`` before the restart is excused, and one that was only unhealthy for so long is
``ailing``: it goes bad when it begins to evict, not before. A device that the agent has never seen before is neither,
because a driver may lie at the start as well.

Its earlier name is ``brake``. The configuration key ``health.brake``, the metric ``ostler_health_brake``, the calls and
fields of the agent's API, ``health.json`` and the command ``release-brake`` keep that name for the sake of users.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from node.health.policy import Policy
from node.inventory.model import DeviceKind
from node.values import Value, value

_FEWEST = 2


@value
class EvictionLimit(Value):
    """The limit of one kind of device: since when it holds (Unix seconds), and why."""

    kind: DeviceKind
    since: float
    reason: str


@value
class Sick(Value):
    """A device that is unhealthy; ``evicts``: the policy would let it evict."""

    name: str
    kind: DeviceKind
    evicts: bool


class EvictionLimits:
    """Decides for which kinds the limit holds."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._on: dict[DeviceKind, EvictionLimit] = {}
        self._fell: dict[str, float] = {}
        """When a device that is unhealthy became so."""
        self._struck: dict[str, float] = {}
        """When a device that would evict by the policy began to."""
        self._kinds: dict[str, DeviceKind] = {}
        """Of those that are unhealthy."""
        self._excused: set[str] = set()
        self._ailing: set[str] = set()
        """Devices that were unhealthy long before a restart."""
        self._recovered: set[str] = set()
        """Excused or ailing devices that were healthy at the last look."""
        self._stale: frozenset[str] = frozenset()
        """Unhealthy devices that became unhealthy too long ago to start a limit."""
        self._spent: frozenset[str] = frozenset()
        """Devices that evict by the policy and last went bad as long ago."""
        self._complete_at = -math.inf
        """When every source has reported its devices' troubles after a restart."""

    @property
    def on(self) -> tuple[EvictionLimit, ...]:
        """The limits that hold, by kind; safe from any thread."""
        on = dict(self._on)
        return tuple(on[kind] for kind in sorted(on)) if self.policy.limits_evictions else ()

    @property
    def is_idle(self) -> bool:
        """Whether no limit holds and no device is, or was a moment ago, unhealthy or excused."""
        return not (self._on or self._kinds or self._excused or self._ailing or self._recovered)

    @property
    def excused(self) -> tuple[str, ...]:
        """Devices that start no limit until they have been healthy, or will start none after a restart."""
        return tuple(sorted(self._excused | self._spent))

    @property
    def ailing(self) -> tuple[str, ...]:
        """Other devices that start no limit after a restart until they have been healthy or begin to evict."""
        return tuple(sorted((self._ailing | self._stale) - self._excused - self._spent))

    def use(self, policy: Policy) -> None:
        """Follow another policy; one without eviction limits releases all of them."""
        self.policy = policy
        # A device that evicts only under the new policy went bad when it did under the former one.
        self._struck = dict.fromkeys(self._kinds, -math.inf) | self._struck
        if not policy.limits_evictions:
            self._on.clear()
            self._excused |= self._kinds.keys()

    def restore(
        self, eviction_limits: Iterable[EvictionLimit], excused: Iterable[str], ailing: Iterable[str], now: float
    ) -> None:
        """Restore the limits and the excused devices from before a restart."""
        if self.policy.limits_evictions:
            self._on |= {limit.kind: limit for limit in eviction_limits}
        self._excused.update(excused)
        self._ailing.update(ailing)
        self._complete_at = now + self.policy.pace.together

    def holds(self, kind: DeviceKind) -> bool:
        """Whether devices of a kind may not evict."""
        return self.policy.limits_evictions and kind in self._on

    def release(self, kind: DeviceKind) -> EvictionLimit | None:
        """Release the limit of a kind; None if none holds. Devices that are bad now do not start it again."""
        limit = self._on.pop(kind, None)
        if limit is not None:
            # Without devices that no scan has any more, so that they do not accumulate.
            self._excused = {name for name, other in self._kinds.items() if other is kind or name in self._excused}
            self._ailing &= self._kinds.keys()
        return limit

    def shift(self, seconds: float) -> None:
        """Move all times: the clock jumped by that many seconds."""
        self._fell = {name: fell + seconds for name, fell in self._fell.items()}
        self._struck = {name: struck + seconds for name, struck in self._struck.items()}
        self._complete_at += seconds

    def see(
        self, sick: Iterable[Sick], known: Collection[str], counts: Mapping[DeviceKind, int], now: float
    ) -> tuple[EvictionLimit, ...]:
        """Take the devices that are unhealthy, of those known and of that many of each kind; returns new limits."""
        sick = tuple(sick)
        self._kinds = {device.name: device.kind for device in sick}
        self._excuse(known, now)
        self._fell = {name: min(self._fell.get(name, self._first(name, now)), now) for name in self._kinds}
        self._struck = {device.name: min(self._struck.get(device.name, now), now) for device in sick if device.evicts}
        self._stale = frozenset(name for name, fell in self._fell.items() if self._past(fell, now))
        self._spent = frozenset(name for name in self._struck if self._past(self._last(name), now))
        if not self.policy.limits_evictions:
            return ()
        found = []
        for kind in sorted({device.kind for device in sick if device.evicts} - self._on.keys()):
            fallen = [device for device in sick if device.kind is kind and self._went_bad(device.name, now)]
            if len(fallen) >= _FEWEST and 2 * len(fallen) > counts.get(kind, 0):
                seconds = f"{self.policy.pace.together:g} s"
                reason = f"{len(fallen)} of {counts.get(kind, 0)} devices of kind {kind} went bad within {seconds}"
                self._on[kind] = EvictionLimit(kind, now, reason)
                found.append(self._on[kind])
        return tuple(found)

    def next_due(self) -> float | None:
        """When the next unhealthy device has been so for too long to start a limit, which must be remembered."""
        together = self.policy.pace.together
        young = [self._last(name) for name in self._struck.keys() - self._spent]
        young += [self._fell[name] for name in self._fell.keys() - self._stale]
        return min(young) + together if young else None

    def _excuse(self, known: Collection[str], now: float) -> None:
        """End the excuse of devices that are healthy or were at the last look, but not of those that no scan has."""
        remembered = self._excused | self._ailing
        if now >= self._complete_at:
            remembered -= self._recovered
        self._recovered = {name for name in remembered if name in known and name not in self._kinds}
        if now >= self._complete_at:
            remembered -= self._recovered
        self._excused &= remembered
        self._ailing &= remembered

    def _first(self, name: str, now: float) -> float:
        """When a device that was not unhealthy at the last look became so."""
        return -math.inf if name in self._ailing else now

    def _last(self, name: str) -> float:
        """When an unhealthy device last went bad."""
        return max(self._fell[name], self._struck.get(name, -math.inf))

    def _past(self, at: float, now: float) -> bool:
        """Whether that is too long ago to count as at once with anything still to come."""
        return now - at >= self.policy.pace.together

    def _went_bad(self, name: str, now: float) -> bool:
        """Whether it went bad just now."""
        return name not in self._excused and now - self._last(name) <= self.policy.pace.together
