"""The brake: when so many devices of a kind go bad at once, the fault is likelier to be elsewhere, and no pod pays.

Pure. A brake is on for a kind from the moment at which more than half of its devices, and at least two, have gone bad
within ``Pace.together`` seconds, if one of them might evict; it stays on until a person or the configuration says
otherwise, since only people can tell a dead node from a driver that lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.health.policy import Policy
from node.inventory.model import DeviceKind
from node.values import Value, value

_FEWEST = 2


@value
class Brake(Value):
    """A brake that is on, since a time (Unix seconds), and why."""

    kind: DeviceKind
    since: float
    reason: str


@value
class Sick(Value):
    """A device that is unhealthy; ``evicts``: the policy would let it evict."""

    name: str
    kind: DeviceKind
    evicts: bool


class Brakes:
    """Which brakes are on."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._on: dict[DeviceKind, Brake] = {}
        self._fell: dict[str, float] = {}
        """When a device that is unhealthy became so."""
        self._kinds: dict[str, DeviceKind] = {}

    @property
    def on(self) -> tuple[Brake, ...]:
        """Those that are on, by kind."""
        return tuple(self._on[kind] for kind in sorted(self._on)) if self.policy.brake else ()

    def restore(self, brake: Brake) -> None:
        """Put on again what was on before a restart."""
        self._on[brake.kind] = brake

    def holds(self, kind: DeviceKind) -> bool:
        """Whether devices of a kind may not evict."""
        return self.policy.brake and kind in self._on

    def release(self, kind: DeviceKind) -> Brake | None:
        """Let a brake go; None where it is not on. Devices that are bad now do not put it on again."""
        brake = self._on.pop(kind, None)
        if brake is not None:
            self._fell |= {name: float("-inf") for name, other in self._kinds.items() if other is kind}
        return brake

    def shift(self, seconds: float) -> None:
        """The clock jumped by so many seconds."""
        self._fell = {name: fell + seconds for name, fell in self._fell.items()}

    def see(self, sick: Iterable[Sick], counts: Mapping[DeviceKind, int], now: float) -> tuple[Brake, ...]:
        """These devices are unhealthy now, of so many of each kind; the brakes that this put on."""
        sick = tuple(sick)
        self._fell = {device.name: min(self._fell.get(device.name, now), now) for device in sick}
        self._kinds = {device.name: device.kind for device in sick}
        if not self.policy.brake:
            return ()
        found = []
        for kind in sorted({device.kind for device in sick if device.evicts} - self._on.keys()):
            fallen = [
                device
                for device in sick
                if device.kind is kind and now - self._fell[device.name] <= self.policy.pace.together
            ]
            if len(fallen) >= _FEWEST and 2 * len(fallen) > counts.get(kind, 0):
                seconds = f"{self.policy.pace.together:g} s"
                reason = f"{len(fallen)} of {counts.get(kind, 0)} devices of kind {kind} went bad within {seconds}"
                self._on[kind] = Brake(kind, now, reason)
                found.append(self._on[kind])
        return tuple(found)
