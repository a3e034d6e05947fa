"""A kubelet with all its delays, against what is concluded from it: nothing in use is free, nothing free stays held.

The model's kubelet enters a device some time after Allocate's answer (less than ten seconds, or never), writes its file
later than its memory, keeps pods in it that have ended, lists none while it starts, and may die at any moment. Readings
begin, ask one source and then the other, and arrive, with anything in between; the API server knows of ends late.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.ledger.allocations import APART, KubeletAllocations
from node.ledger.reader import Holding, Reading
from tests.making.grants import GPU, GrantedPods, grant
from tests.making.offered_devices import gpu, snapshot

DEVICES = tuple(gpu(number) for number in range(2))
IDS = tuple(device.uuid or "" for device in DEVICES)
STRANGER = "stranger.example/gpu"
SLOWEST = APART - 0.1
"""Seconds in which a kubelet that lives enters and writes a device."""


@dataclass
class Entry:
    """A device of a pod in the kubelet; ``granted`` is None where another plugin gave it."""

    uid: str
    device: int
    init: bool
    granted: float | None
    resource: str = GPU
    entered: bool = False
    written: bool = False
    alive: bool = True


@dataclass
class _Look:
    """A reading on its way."""

    began: float
    listed: tuple[Holding, ...] | None = None
    recorded: tuple[Holding, ...] | None = None
    shows: set[str] = field(default_factory=set)


class KubeletWithDelays(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.holds = KubeletAllocations()
        self.holds.barrier(self.now)
        self.pods = GrantedPods()
        self.entries: list[Entry] = []
        """The kubelet's memory, and what is on its way there."""
        self.file: tuple[tuple[str, str, str], ...] = ()
        self.ready = True
        self.look: _Look | None = None
        self.must_be_seen: set[str] = set()
        """Strangers' pods that a reading has shown."""
        self.count = 0
        self.holds.place(snapshot(*DEVICES), (GPU,))

    # The kubelet.

    def _collect(self) -> None:
        if self.ready:
            self.entries = [entry for entry in self.entries if entry.alive]

    def _write(self) -> None:
        self.file = tuple((e.resource, IDS[e.device], e.uid) for e in self.entries if e.entered)
        for entry in self.entries:
            entry.written |= entry.entered

    @rule(device=st.integers(0, 1), init=st.booleans(), ours=st.booleans())
    def allocate(self, device: int, init: bool, ours: bool) -> None:
        self._collect()
        if any(entry.device == device for entry in self.entries):
            return
        self.count += 1
        entry = Entry(f"u{self.count}", device, init, self.now if ours else None, GPU if ours else STRANGER)
        self.entries.append(entry)
        if ours:
            self.holds.granted([grant(DEVICES[device])], self.now, self.now)
        else:
            entry.entered = True
            self._write()

    @precondition(lambda self: any(not entry.entered for entry in self.entries))
    @rule(which=st.integers(0, 9), refused=st.booleans(), write=st.booleans())
    def enter(self, which: int, refused: bool, write: bool) -> None:
        waiting = [entry for entry in self.entries if not entry.entered]
        entry = waiting[which % len(waiting)]
        if refused:
            self.entries.remove(entry)
        else:
            entry.entered = True
        if write:
            self._write()

    @rule()
    def write(self) -> None:
        """A device list came, or the write after an allocation."""
        self._write()

    @rule(which=st.integers(0, 9), told=st.booleans())
    def end(self, which: int, told: bool) -> None:
        alive = [entry for entry in self.entries if entry.alive and entry.entered]
        if alive:
            entry = alive[which % len(alive)]
            entry.alive = False
            self.must_be_seen.discard(entry.uid)
            if told:
                self.pods.dead.add(entry.uid)

    @precondition(lambda self: any(entry.alive and entry.entered for entry in self.entries))
    @rule(which=st.integers(0, 9), init=st.booleans(), told=st.booleans())
    def pod_after_pod(self, which: int, init: bool, told: bool) -> None:
        """One ends, and the next one gets its device at once."""
        alive = [entry for entry in self.entries if entry.alive and entry.entered]
        device = alive[which % len(alive)].device
        self.end(which, told)
        self.allocate(device, init, True)

    @rule()
    def api_server_catches_up(self) -> None:
        alive = {entry.uid for entry in self.entries if entry.alive}
        self.pods.dead |= {f"u{number}" for number in range(1, self.count + 1)} - alive

    @rule()
    def kubelet_restarts(self) -> None:
        """Its memory is what the file says; what was not written is lost, and its pods are admitted again."""
        written = {(resource, id_, uid) for resource, id_, uid in self.file}
        kept = [e for e in self.entries if e.written and (e.resource, IDS[e.device], e.uid) in written]
        known = {entry.uid for entry in kept}
        back = [
            Entry(uid, IDS.index(id_), False, None, resource, entered=True, written=True, alive=False)
            for resource, id_, uid in sorted(written)
            if uid not in known
        ]
        self.must_be_seen &= known
        self.entries = kept + back
        self.ready = False

    @rule()
    def kubelet_knows_its_pods(self) -> None:
        self.ready = True

    # Readings.

    @precondition(lambda self: self.look is None)
    @rule()
    def begin(self) -> None:
        self.pass_time(0.001)
        self.look = _Look(self.now)
        self.look.shows = {entry.uid for entry in self.entries if entry.written and entry.granted is None}

    def _list(self) -> tuple[Holding, ...]:
        self._collect()
        if not self.ready:
            return ()
        return tuple(
            Holding(entry.resource, IDS[entry.device], "c", pod=f"ns/{entry.uid}")
            for entry in self.entries
            if entry.entered and entry.alive and not entry.init
        )

    @precondition(lambda self: self.look is not None)
    @rule()
    def ask_list(self) -> None:
        assert self.look is not None
        if self.look.listed is None:
            self.look.listed = self._list()

    @precondition(lambda self: self.look is not None)
    @rule()
    def ask_file(self) -> None:
        assert self.look is not None
        if self.look.recorded is None:
            self.look.recorded = tuple(Holding(r, id_, "c", uid=uid) for r, id_, uid in self.file)

    @precondition(lambda self: self.look is not None)
    @rule()
    def arrive(self) -> None:
        """As far as it got: what was not asked could not be read."""
        look, self.look = self.look, None
        assert look is not None
        self.holds.read(Reading(look.began, look.listed, look.recorded, frozenset()), self.pods, self.now)
        if look.listed is not None and look.recorded is not None:
            alive = {entry.uid for entry in self.entries if entry.alive}
            self.must_be_seen |= look.shows & alive

    @rule()
    def whole_reading(self) -> None:
        self.look = None
        self.begin()
        self.ask_list()
        self.ask_file()
        self.arrive()

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 3.0, 9.0, 10.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        """The kubelet has done with a device before ten seconds are over."""
        self.now += seconds
        for entry in self.entries:
            if entry.granted is not None and not entry.written and self.now - entry.granted >= SLOWEST:
                entry.entered = True
                self._write()

    @invariant()
    def nothing_in_use_is_free(self) -> None:
        held = self.holds.wanted()
        for entry in self.entries:
            if entry.alive and (entry.granted is not None or entry.uid in self.must_be_seen):
                assert DEVICES[entry.device].name in held, entry

    def teardown(self) -> None:
        """Left alone, it comes to what is true."""
        self.ready = True
        self.look = None
        for entry in self.entries:
            entry.entered = True
        self._write()
        self.api_server_catches_up()
        for _ in range(4):
            self.pass_time(APART)
            self.whole_reading()
        in_use = {DEVICES[entry.device].name for entry in self.entries if entry.alive}
        assert set(self.holds.wanted()) == in_use
        assert self.holds.known(self.now)
        assert self.holds.unseen == 0
        super().teardown()


KubeletWithDelays.TestCase.settings = settings(max_examples=125, stateful_step_count=40, deadline=None)
TestKubeletWithDelays = KubeletWithDelays.TestCase
