"""Devices that are free by the books and may still be in use: a process can outlive its container.

A device that both doors may offer is given out again only after a look found no compute process on it; until then it is
held as draining, with the process named. Pure, and for the event loop alone: looks are made elsewhere
(``ProcessCheck``) and their results told. Invariants: a device that nobody holds is either draining or was found free
(or released by a person) since it was held last; what a look says counts only if the device was not held since the look
was ordered. Trade-off: where processes cannot be seen, or a driver never tells them, the check is off and says so,
instead of holding devices for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.inventory.model import Device
from node.ledger.daemons import DAEMONS
from node.ledger.ledger import Hold, HoldState, draining_owner
from node.ledger.overlap import wholes_of
from node.ledger.processes import Process, has_processes, ignored
from node.values import Record, Value, record, value

QUICK, SLOW = 0.5, 10.0
"""Seconds between looks at a device with a process: most are only ending, so the first looks follow each other soon."""
NAMED = 3
"""Most processes that are named."""


@value
class Order(Value):
    """A look that has to be made at a device; ``number`` tells it from looks at the same device before it was held."""

    device: Device
    number: int


@record
class _Drain(Record):
    order: Order
    since: float
    due: float
    looks: int = 0
    left: tuple[Process, ...] = ()
    problem: str = ""

    @property
    def words(self) -> str:
        if self.left:
            return _named(self.left)
        return f"being looked at for left-over processes{f', which fails: {self.problem}' if self.problem else ''}"


class PendingRelease:
    """``off``: why nothing is looked for, in words; devices are then free at once. ``ignore``: names of processes."""

    def __init__(self, *, ignore: Iterable[str] = DAEMONS, off: str = "") -> None:
        self.off = off
        self._ignore = tuple(ignore)
        self._numbers = 0
        self._drains: dict[str, _Drain] = {}
        self._free: set[str] = set()
        """Devices that were found free, or nobody can look at, or somebody has released."""

    def update(self, devices: Iterable[Device], holds: Iterable[Hold], now: float, at: float) -> None:
        """Compare the devices that both doors may offer with what is held; ``now`` is monotonic, ``at`` Unix seconds.

        To be called in the same step in which a hold ends: from then on the device is draining.
        """
        if self.off:
            return
        held: set[str] = set()
        places: set[str] = set()
        for hold in holds:
            if hold.door is not None and not hold.admin:
                held.add(hold.device)
                places.update((hold.device, *hold.within))
        seen = set()
        for device in devices:
            name = device.name
            if not has_processes(device) or name in places or not held.isdisjoint(wholes_of(device)):
                continue
            seen.add(name)
            if (drain := self._drains.get(name)) is not None:
                # Made anew under its name (a MIG device), it has another UUID and would be looked for in vain.
                drain.order = Order(device, drain.order.number)
            elif name not in self._free:
                self._numbers += 1
                self._drains[name] = _Drain(Order(device, self._numbers), at, now)
        # Held ones, and those that are not both doors' any more, are looked at anew when that changes.
        self._drains = {name: drain for name, drain in self._drains.items() if name in seen}
        self._free &= seen

    def due(self, now: float) -> tuple[Order, ...]:
        """Looks to be made now."""
        return tuple(drain.order for drain in self._drains.values() if drain.due <= now)

    def next_due(self) -> float | None:
        """When the next look has to be made, by the monotonic clock; None for never."""
        return min((drain.due for drain in self._drains.values()), default=None)

    def looked(self, order: Order, processes: tuple[Process, ...] | None, now: float) -> tuple[Process, ...]:
        """What a look found; None if the driver never tells. Returns the processes that keep the device from use."""
        drain = self._current(order)
        if drain is None:
            return ()
        left = tuple(item for item in processes or () if not ignored(item.name, self._ignore))
        if left:
            self._again(drain, now)
            drain.left, drain.problem = left, ""
        else:
            del self._drains[order.device.name]
            self._free.add(order.device.name)
        return left

    def failed(self, order: Order, problem: str, now: float) -> None:
        """A look could not be made this time; the device goes on draining."""
        drain = self._current(order)
        if drain is not None:
            self._again(drain, now)
            drain.problem = problem

    def release(self, device: str) -> bool:
        """A person says that the device is free, until it is held the next time; False if it is not draining."""
        if self._drains.pop(device, None) is None:
            return False
        self._free.add(device)
        return True

    def found_free(self, device: str) -> bool:
        """Whether nobody has held the device since it was found free, or released by a person."""
        return device in self._free

    def left(self, device: str) -> tuple[Process, ...]:
        """Processes that the last look found on a draining device."""
        drain = self._drains.get(device)
        return () if drain is None else drain.left

    def wanted(self) -> Mapping[str, Hold]:
        """The holds of draining devices, by device."""
        return {
            name: Hold(
                name,
                None,
                drain.words,
                drain.since,
                owner=draining_owner(name),
                within=wholes_of(drain.order.device),
                state=HoldState.DRAINING,
            )
            for name, drain in self._drains.items()
        }

    def _current(self, order: Order) -> _Drain | None:
        drain = self._drains.get(order.device.name)
        return drain if drain is not None and drain.order.number == order.number else None

    @staticmethod
    def _again(drain: _Drain, now: float) -> None:
        drain.due = now + min(QUICK * 2.0 ** min(drain.looks, 16), SLOW)
        drain.looks += 1


def _named(processes: tuple[Process, ...]) -> str:
    more = f" and {len(processes) - NAMED} more" if len(processes) > NAMED else ""
    return f"process{'es' if len(processes) > 1 else ''} {', '.join(map(str, processes[:NAMED]))}{more}"
