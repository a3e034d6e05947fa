"""The eviction limit: where many devices of a kind go bad at once, the fault is likelier elsewhere, and no pod pays.

Pure. The limit holds for a kind from the moment at which more than half of its devices, and at least two, have gone bad
within ``HealthPace.together`` seconds, if one of them might evict; it stays on until a person or the configuration says
otherwise, since only people can tell a dead node from a driver that lies. A device goes bad when it becomes unhealthy,
and once more when its trouble becomes one that evicts. One that was unhealthy when its kind's limit was released is
excused: until it was well it starts no limit, also after a restart.

A restart sees everything for the first time, and what was bad for weeks did not go bad with it. So one that began to
evict longer than ``HealthPace.together`` before a restart is excused after it, and one that was only unhealthy so long
is ``ailing``: it goes bad when it begins to evict, and not before. Who was never seen before the start is neither,
since a driver may lie at the start as well.
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
    """Knows for which kinds the limit holds."""

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
        """Those that were unhealthy for long before a restart."""
        self._recovered: set[str] = set()
        """Those that are excused or ailing and were well when looked at last."""
        self._stale: frozenset[str] = frozenset()
        """Those that are unhealthy and became so too long ago to start a limit."""
        self._spent: frozenset[str] = frozenset()
        """Those that evict by the policy and went bad for the last time as long ago."""
        self._told = -math.inf
        """When everybody who sees a device's trouble has told it after a restart."""

    @property
    def on(self) -> tuple[EvictionLimit, ...]:
        """Those that are on, by kind; may be asked by any thread."""
        on = dict(self._on)
        return tuple(on[kind] for kind in sorted(on)) if self.policy.limits_evictions else ()

    @property
    def excused(self) -> tuple[str, ...]:
        """Devices that start no limit until they were well, or will start none after a restart."""
        return tuple(sorted(self._excused | self._spent))

    @property
    def ailing(self) -> tuple[str, ...]:
        """Other devices, that start no limit after a restart until they were well or begin to evict."""
        return tuple(sorted((self._ailing | self._stale) - self._excused - self._spent))

    def use(self, policy: Policy) -> None:
        """Follow another policy; one without eviction limits releases all of them."""
        self.policy = policy
        # What evicts only by the new policy went bad when it did by the former one.
        self._struck = dict.fromkeys(self._kinds, -math.inf) | self._struck
        if not policy.limits_evictions:
            self._on.clear()
            self._excused |= self._kinds.keys()

    def restore(
        self, eviction_limits: Iterable[EvictionLimit], excused: Iterable[str], ailing: Iterable[str], now: float
    ) -> None:
        """Put on again what was on before a restart, and excuse who was excused."""
        if self.policy.limits_evictions:
            self._on |= {limit.kind: limit for limit in eviction_limits}
        self._excused.update(excused)
        self._ailing.update(ailing)
        self._told = now + self.policy.pace.together

    def holds(self, kind: DeviceKind) -> bool:
        """Whether devices of a kind may not evict."""
        return self.policy.limits_evictions and kind in self._on

    def release(self, kind: DeviceKind) -> EvictionLimit | None:
        """Release the limit of a kind; None where none holds. Devices that are bad now do not start it again."""
        limit = self._on.pop(kind, None)
        if limit is not None:
            # Without those that are in no scan any more, so that they do not add up.
            self._excused = {name for name, other in self._kinds.items() if other is kind or name in self._excused}
            self._ailing &= self._kinds.keys()
        return limit

    def shift(self, seconds: float) -> None:
        """The clock jumped by so many seconds."""
        self._fell = {name: fell + seconds for name, fell in self._fell.items()}
        self._struck = {name: struck + seconds for name, struck in self._struck.items()}
        self._told += seconds

    def see(
        self, sick: Iterable[Sick], known: Collection[str], counts: Mapping[DeviceKind, int], now: float
    ) -> tuple[EvictionLimit, ...]:
        """These devices are unhealthy now, of those known and of so many of each kind; the limits that this starts."""
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
        """When one that is unhealthy is so for too long to start a limit, which is to be remembered."""
        together = self.policy.pace.together
        young = [self._last(name) for name in self._struck.keys() - self._spent]
        young += [self._fell[name] for name in self._fell.keys() - self._stale]
        return min(young) + together if young else None

    def _excuse(self, known: Collection[str], now: float) -> None:
        """Excuse nobody any more who is well, or was at the last look; a device that no scan knows is neither."""
        remembered = self._excused | self._ailing
        if now >= self._told:
            remembered -= self._recovered
        self._recovered = {name for name in remembered if name in known and name not in self._kinds}
        if now >= self._told:
            remembered -= self._recovered
        self._excused &= remembered
        self._ailing &= remembered

    def _first(self, name: str, now: float) -> float:
        """When one that was not unhealthy at the last look became so."""
        return -math.inf if name in self._ailing else now

    def _last(self, name: str) -> float:
        """When one that is unhealthy went bad for the last time."""
        return max(self._fell[name], self._struck.get(name, -math.inf))

    def _past(self, at: float, now: float) -> bool:
        """Whether that is too long ago to be at once with anything that is still to come."""
        return now - at >= self.policy.pace.together

    def _went_bad(self, name: str, now: float) -> bool:
        """Whether it did so just now."""
        return name not in self._excused and now - self._last(name) <= self.policy.pace.together
