"""One trouble of one device over time: when it came, whether it is gone, how often it comes, when it is over. Pure.

A trouble is in one of three states: bad (seen at the last look, or an event that nothing has ended), settling (gone,
and held until its quiet time has passed) and over. It is *active* in the first two. Becoming bad takes effect at once,
becoming over takes a quiet time, which doubles each time that the trouble comes back soon after it was over: a device
that comes and goes is held, however regular it is, and causes few changes.

Times are Unix seconds; where the clock jumps, all of them do (``shift``). One that is later than now all the same, as
after a restart, counts as now.
"""

from __future__ import annotations

from node.health.action import Action
from node.health.policy import Pace
from node.health.signal import Trouble
from node.health.state import Recovery
from node.values import Record, record

Instance = tuple[int, int]
"""GPU instance and compute instance."""


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

    def came(self, reason: str, code: int | None, now: float, pace: Pace) -> None:
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

    def went(self, now: float, pace: Pace) -> None:
        """A look finds it gone; only for conditions."""
        if not self.active or self.event:
            return
        if self.clean is None or now < self.clean:
            self.clean, self.looks, self.looked = now, 1, now
        # A look that is a little early is one all the same: pollers are not exact.
        elif now - self.looked >= 0.9 * pace.between(self.kind) or now < self.looked:
            self.looks, self.looked = self.looks + 1, now

    def flapping(self, pace: Pace) -> bool:
        """Whether it comes and goes."""
        return self.episodes >= pace.flaps or self.bounces >= pace.flaps

    def quiet(self, pace: Pace) -> float:
        """How long it must be gone before it is over."""
        level = self.episodes - pace.flaps + 1
        if self.bounces >= pace.flaps:
            level = max(level, 1)
        if level <= 0:
            return self.base
        # Bounded, because a float overflows and some devices flap for years.
        grown: float = max(self.base, pace.settle) * 2.0 ** min(level, 30)
        return max(self.base, min(grown, pace.longest))

    def over_at(self, pace: Pace) -> float | None:
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

    def pass_to(self, now: float, pace: Pace) -> bool:
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

    def forgettable(self, now: float, pace: Pace) -> bool:
        """Whether it is over for so long that it does not even count as coming back."""
        return self.ended is not None and not 0 <= now - self.ended <= pace.window
