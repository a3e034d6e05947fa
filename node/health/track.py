"""One trouble of one device over time: when it began, how often it returns, and when it is over. Pure.

A trouble is in one of three states: bad (seen at the last look, or an event that nothing has ended), settling (gone,
but its quiet time has not passed) and over. It is *active* in the first two. It becomes bad at once, and over after a
quiet time, which doubles each time the trouble comes back soon after it was over: a flapping device stays bad, however
regular it is, and causes few changes.

Times are Unix seconds; where the clock jumps, all of them do (``shift``). A time later than now, as after a restart,
counts as now.

Nobody reports a reset of a device, so it is concluded from what can be seen. A device was reset since its trouble came
when, after that, it was away (gone from the bus, lost, without a driver, its driver not loaded or let go of by ``ostler
quiesce``) and a scan finds it usable again; when its driver is another one; or when the driver had named a recovery
action and names none any more. Of an event that comes again only what follows the last one counts: one that comes while
the newest scan still has the device away may come from the driver that is back. Another boot is a reset as well
(``memory``), and another UUID another device. A driver's library or device files that were away for a while, as while a
container that brings them is replaced, prove nothing: the module may have stayed, and if it did not, its functions had
no driver. The agent cannot see a reset that happens while it does not run and leaves no other trace: then a person has
to say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.policy import HealthPace
from node.health.signal import Instance, Trouble
from node.health.state import Action, Recovery
from node.inventory.model import Device, Snapshot, SourceState, is_gone
from node.inventory.vendors import vendor_of
from node.values import Record, record


@record
class Track(Record):
    """See the module. ``reason`` stays as it was when the trouble became bad: numbers in it would change.

    ``event``: no look will find it gone. ``base``: its quiet time while it does not flap. ``needs``: looks in a row
    that must find it gone (0: time alone counts). ``last``: when it was last seen or happened. ``clean``: since when it
    is gone, None while it is bad or an event. ``uuid``: of the device when the trouble began; ``mark``: of its driver
    when it last came; empty if unknown. ``away``: the device has been missing since then, as during a reset. ``freed``:
    when a trouble that waits for a reset got one.
    """

    kind: Trouble
    source: str
    action: Action
    recovery: Recovery
    reason: str
    since: float
    last: float
    event: bool = False
    base: float = 0.0
    needs: int = 0
    code: int | None = None
    instance: Instance | None = None
    uuid: str = ""
    mark: str = ""
    clean: float | None = None
    looks: int = 0
    looked: float = 0.0
    ended: float | None = None
    episodes: int = 1
    bounces: int = 0
    away: bool = False
    freed: float | None = None

    @property
    def active(self) -> bool:
        """Whether the trouble counts: bad or settling."""
        return self.ended is None

    @property
    def waits_for_reset(self) -> bool:
        """Whether it waits for a reset of the device that has not happened yet."""
        return self.active and self.event and self.action is Action.RESET and self.freed is None

    @property
    def waits_for_person(self) -> bool:
        """Whether it stays until a person clears it."""
        return self.active and self.action is Action.REPLACE

    @property
    def waits(self) -> bool:
        """Whether time does not end it: it stays until a reset or a person does."""
        return self.waits_for_reset or self.waits_for_person

    def came(self, reason: str, code: int | None, now: float, pace: HealthPace) -> None:
        """Note that the trouble is there (again)."""
        if self.ended is not None:
            again = 0 <= now - self.ended <= pace.window
            self.episodes = self.episodes + 1 if again else 1
            self.bounces, self.since, self.ended, self.freed, self.away = 0, now, None, None, False
            self.reason, self.code = reason, code
        elif self.clean is not None:
            self.bounces += 1
        if code != self.code and not self.event:
            self.reason, self.code = reason, code
        if self.freed is not None:
            self.freed, self.away = None, False
        self.last, self.clean, self.looks = now, None, 0

    def happened(self, mark: str) -> None:
        """Note an event under this driver: earlier observations of the device are no sign of a reset."""
        self.away, self.mark = False, mark

    def free(self, now: float, mark: str = "") -> None:
        """Note a reset of the device, which has this driver now (empty: as before); a sign of a reset counts once."""
        self.freed, self.away, self.mark = now, False, mark or self.mark

    def went(self, now: float, pace: HealthPace) -> None:
        """Note that a look finds it gone; only for conditions."""
        if not self.active or self.event:
            return
        if self.clean is None or now < self.clean:
            self.clean, self.looks, self.looked = now, 1, now
        # A look that is a little early counts: pollers are not exact.
        elif now - self.looked >= 0.9 * pace.between(self.kind) or now < self.looked:
            self.looks, self.looked = self.looks + 1, now

    def flapping(self, pace: HealthPace) -> bool:
        """Whether it is flapping."""
        return self.episodes >= pace.flaps or self.bounces >= pace.flaps

    def quiet(self, pace: HealthPace) -> float:
        """How long it must be gone before it is over."""
        level = self.episodes - pace.flaps + 1
        if self.bounces >= pace.flaps:
            level = max(level, 1)
        if level <= 0:
            return self.base
        # Bounded, because a float overflows and some devices flap for years.
        grown: float = max(self.base, pace.settle) * 2.0 ** min(level, 30)
        return max(self.base, min(grown, pace.longest))

    def over_at(self, pace: HealthPace) -> float | None:
        """When it is over if no source reports it again; None if time alone does not end it."""
        if not self.active or self.waits_for_person or self.waits_for_reset:
            return None
        if self.freed is not None:
            return self.freed + pace.back
        if self.event:
            return self.last + self.quiet(pace)
        if self.clean is None or self.looks < self.needs:
            return None
        return self.clean + self.quiet(pace)

    def pass_to(self, now: float, pace: HealthPace) -> bool:
        """End it if it is over; returns whether it ended now."""
        # The clock may have been set back.
        self.last = min(self.last, now)
        self.clean = None if self.clean is None else min(self.clean, now)
        self.freed = None if self.freed is None else min(self.freed, now)
        due = self.over_at(pace)
        if due is None or now < due:
            return False
        self.ended = now
        return True

    def shift(self, seconds: float) -> None:
        """Move all times: the clock jumped by that many seconds."""
        self.since += seconds
        self.last += seconds
        self.looked += seconds
        self.clean = None if self.clean is None else self.clean + seconds
        self.ended = None if self.ended is None else self.ended + seconds
        self.freed = None if self.freed is None else self.freed + seconds

    def forgettable(self, now: float, pace: HealthPace) -> bool:
        """Whether it has been over for so long that a return would not count as flapping."""
        return self.ended is not None and not 0 <= now - self.ended <= pace.window


_AWAY = (Trouble.LOST.value, Trouble.UNBOUND.value)
_NO_PROOF = ("(LIBRARY_NOT_FOUND)", "(DRIVER_UNREACHABLE)")
"""How NVML's status ends its first sentence if only the library or the device files are missing."""
ENDS_RESETS = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY})
"""Conditions whose end proves a reset."""


def is_away(device: Device, snapshot: Snapshot) -> bool:
    """Whether no part of the device's former state can have survived."""
    if is_gone(device) or device.health.cause in _AWAY:
        return True
    vendor = vendor_of(device)
    # Waiting: its module is not loaded, or somebody quiesced it.
    return vendor is not None and any(
        source.name == vendor.source
        and source.state is SourceState.WAITING
        and not any(each in source.detail for each in _NO_PROOF)
        for source in snapshot.sources
    )


def mark_of(device: Device | None, snapshot: Snapshot) -> str:
    """Identifies the device's driver; empty while it is missing, because the next one is unknown."""
    return "" if device is None or is_away(device, snapshot) else str(device.attribute("driverVersion") or "")


def note_resets(tracks: Iterable[Track], device: Device, snapshot: Snapshot, now: float) -> bool:
    """Note what a scan says about resets since each track began; returns whether one was freed."""
    away, mark, freed = is_away(device, snapshot), mark_of(device, snapshot), False
    for track in tracks:
        if not track.waits_for_reset:
            continue
        track.away = track.away or away
        track.mark = track.mark or mark
        if (track.away or track.mark != (mark or track.mark)) and not away and device.health.usable:
            track.free(now, mark)
            freed = True
    return freed


def end_by_reset(tracks: Iterable[Track], ended: Iterable[Track]) -> bool:
    """Free the tracks that began before these conditions ended, if their end proves a reset."""
    tracks = tuple(tracks)
    # An unavailable GPU asks for no action: it has no code.
    asked = any(track.active and track.kind is Trouble.RECOVERY and track.code is not None for track in tracks)
    gone = [
        track.clean
        for track in ended
        if track.kind in ENDS_RESETS and track.clean is not None and not (asked and track.kind is Trouble.RECOVERY)
    ]
    freed = False
    for track in tracks:
        if gone and track.waits_for_reset and track.last <= max(gone):
            track.free(max(gone))
            freed = True
    return freed
