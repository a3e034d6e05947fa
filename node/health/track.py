"""One trouble of one device over time: when it came, how often it comes, and when it is over. Pure.

A trouble is in one of three states: bad (seen at the last look, or an event that nothing has ended), settling (gone,
and held until its quiet time has passed) and over. It is *active* in the first two. Becoming bad takes effect at once,
becoming over takes a quiet time, which doubles each time that the trouble comes back soon after it was over: a device
that comes and goes is held, however regular it is, and causes few changes.

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
    """See the module. ``reason`` is that of the moment at which it became bad and stays: numbers in it would change.

    ``event``: it happened, and no look will find it gone. ``base``: its quiet time while it does not flap. ``needs``:
    looks in a row that must find it gone (0: time alone counts). ``last``: when it was last seen or happened.
    ``clean``: since when it is gone, None while it is bad or an event. ``uuid``, ``mark``: of the device when it came
    and of its driver when it came last, empty where that is not known. ``away``: the device was away since then, as it
    is while it is reset. ``freed``: for one that waits for a reset, when there was one.
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
        """Whether it counts: bad or settling."""
        return self.ended is None

    @property
    def waits_for_reset(self) -> bool:
        """Whether it stays until the device was reset, and it was not yet."""
        return self.active and self.event and self.action is Action.RESET and self.freed is None

    @property
    def waits_for_person(self) -> bool:
        """Whether it stays until a person says so."""
        return self.active and self.action is Action.REPLACE

    @property
    def waits(self) -> bool:
        """Whether time does not end it: it stays until a reset or a person does."""
        return self.waits_for_reset or self.waits_for_person

    def came(self, reason: str, code: int | None, now: float, pace: HealthPace) -> None:
        """It is bad (again)."""
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
        """It came as an event, under this driver: what was seen of the device before that is no sign of a reset."""
        self.away, self.mark = False, mark

    def free(self, now: float, mark: str = "") -> None:
        """The device was reset, and has this driver now (empty: as before); a sign of a reset counts once."""
        self.freed, self.away, self.mark = now, False, mark or self.mark

    def went(self, now: float, pace: HealthPace) -> None:
        """A look finds it gone; only for conditions."""
        if not self.active or self.event:
            return
        if self.clean is None or now < self.clean:
            self.clean, self.looks, self.looked = now, 1, now
        # A look that is a little early is one all the same: pollers are not exact.
        elif now - self.looked >= 0.9 * pace.between(self.kind) or now < self.looked:
            self.looks, self.looked = self.looks + 1, now

    def flapping(self, pace: HealthPace) -> bool:
        """Whether it comes and goes."""
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
        """When it is over if nothing more is heard of it; None where time alone does not end it."""
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
        """End it if it is over; whether it ended now."""
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
        """The clock jumped by so many seconds; what happened did so as long ago as before."""
        self.since += seconds
        self.last += seconds
        self.looked += seconds
        self.clean = None if self.clean is None else self.clean + seconds
        self.ended = None if self.ended is None else self.ended + seconds
        self.freed = None if self.freed is None else self.freed + seconds

    def forgettable(self, now: float, pace: HealthPace) -> bool:
        """Whether it is over for so long that it does not even count as coming back."""
        return self.ended is not None and not 0 <= now - self.ended <= pace.window


_AWAY = (Trouble.LOST.value, Trouble.UNBOUND.value)
_NO_PROOF = ("(LIBRARY_NOT_FOUND)", "(DRIVER_UNREACHABLE)")
"""How the status of NVML ends its first sentence where only the library, or the device files, are missing."""
ENDS_RESETS = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY})
"""Conditions whose end says that there was a reset."""


def is_away(device: Device, snapshot: Snapshot) -> bool:
    """Whether nothing of the device's former state can last."""
    if is_gone(device) or device.health.cause in _AWAY:
        return True
    vendor = vendor_of(device)
    # Waiting: its module is not there, or somebody had it let go of.
    return vendor is not None and any(
        source.name == vendor.source
        and source.state is SourceState.WAITING
        and not any(each in source.detail for each in _NO_PROOF)
        for source in snapshot.sources
    )


def mark_of(device: Device | None, snapshot: Snapshot) -> str:
    """What tells the device's driver from the next one; empty while it is away, since the next one is not known yet."""
    return "" if device is None or is_away(device, snapshot) else str(device.attribute("driverVersion") or "")


def note_resets(tracks: Iterable[Track], device: Device, snapshot: Snapshot, now: float) -> bool:
    """Take down what a scan says about resets since each of the tracks came; whether one was freed."""
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
    """Free the tracks that came before these conditions were gone, where that says that there was a reset."""
    tracks = tuple(tracks)
    # That a GPU is unavailable asks for nothing: it has no code.
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
