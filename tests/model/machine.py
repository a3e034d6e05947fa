"""What can happen to a node, in any order; each rule is one thing from outside, and everything else follows by itself.

After every step no device has two holders, and what is shown contradicts nothing that is known. At the end everything
comes to rest: what is free is offered, and who lost has ended.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node.rules import Doors
from tests.model import hardware
from tests.model.objects import ModelAsk, ModelPod
from tests.model.world import ModelWorld

KINDS = st.integers(0, len(hardware.WANTED) - 1)
CLAIMED = st.sampled_from(
    [number for number in range(len(hardware.WANTED)) if hardware.WANTED[number] != "nvidia.com/divided"]
)
ASKS = st.builds(ModelAsk, KINDS, st.integers(1, 2), st.booleans())
_APART = ({1, 2}, {3, 4})
"""Kinds that are parts of each other: a pod that wants both may never fit, and is its author's mistake."""
DOORS = st.sampled_from([Doors.BOTH, Doors.PLUGIN, Doors.DRA])
SECONDS = st.sampled_from([0.02, 0.1, 0.3, 1.0, 3.0, 12.0, 30.0])
THEN = st.sampled_from([0.0, 0.3, 2.0, 12.0])
"""Seconds that a step takes: in short ones things meet, in long ones they come to something."""
LIVES = st.sampled_from([(math.inf, False), (1.0, False), (6.0, True), (20.0, False)])
"""Seconds after which a pod's containers end, and whether they leave processes behind."""
Life = tuple[float, bool]
WHICH = st.integers(0, 9)
_SHM = Path("/dev/shm")


def _fits(asks: tuple[ModelAsk, ...]) -> bool:
    return {ask.kind for ask in asks} not in _APART


class Doorways(RuleBasedStateMachine):
    """Both doors of one node."""

    shared = False
    """Whether the whole GPUs are shared by pods and claims."""

    def __init__(self) -> None:
        super().__init__()
        # Records of claims are made durable, which costs nothing in memory.
        self.root = Path(tempfile.mkdtemp(prefix="ostler-model-", dir=_SHM if _SHM.is_dir() else None))
        self.world: ModelWorld

    @initialize(doors=st.just((Doors.BOTH,) * 5) | st.tuples(*[DOORS] * 5), seconds=st.sampled_from([0.0, 0.3, 20.0]))
    def begin(self, doors: tuple[Doors, ...], seconds: float) -> None:
        self.world = ModelWorld(self.root, doors, shared=self.shared)
        self.world.start_agent()
        self.world.loop.pass_time(seconds)

    # Pods and claims

    @rule(
        asks=st.lists(ASKS, min_size=1, max_size=2).map(tuple).filter(_fits),
        controlled=st.booleans(),
        life=LIVES,
        then=THEN,
    )
    def pod_by_the_plugin_door(self, asks: tuple[ModelAsk, ...], controlled: bool, life: Life, then: float) -> None:
        self.world.live(self.world.cluster.new_pod(asks, (), controlled=controlled), life[0], processes=life[1])
        self.world.loop.pass_time(then)

    @rule(kind=CLAIMED, count=st.integers(1, 2), controlled=st.booleans(), life=LIVES, then=THEN)
    def pod_with_a_claim(self, kind: int, count: int, *, controlled: bool, life: Life, then: float) -> None:
        claim = self.world.cluster.new_claim(kind, count)
        self.world.live(self.world.cluster.new_pod((), (claim,), controlled=controlled), life[0], processes=life[1])
        self.world.loop.pass_time(then)

    @rule(kind=CLAIMED, ask=ASKS)
    def pod_by_both_doors(self, kind: int, ask: ModelAsk) -> None:
        """Nobody makes it anew: one that needs two devices where one is left loses it to itself again and again."""
        enough = kind != ask.kind or ask.count < hardware.number_of(kind)
        if enough and {kind, ask.kind} not in _APART:
            claim = self.world.cluster.new_claim(kind)
            self.world.cluster.new_pod((ask,), (claim,), controlled=False)

    @rule(kind=CLAIMED, pods=st.integers(2, 3), then=THEN)
    def pods_that_share_a_claim(self, kind: int, pods: int, then: float) -> None:
        claim = self.world.cluster.new_claim(kind, template=False)
        for number in range(pods):
            self.world.live(self.world.cluster.new_pod((), (claim,), controlled=False), 3.0 * number)
        self.world.loop.pass_time(then)

    @rule(kind=CLAIMED)
    def pods_with_shares_of_a_device(self, kind: int) -> None:
        for _ in range(2):
            claim = self.world.cluster.new_claim(kind, shares=True)
            self.world.cluster.new_pod((), (claim,), controlled=False)

    @rule(kind=CLAIMED, count=st.integers(1, 4))
    def pod_that_looks_on(self, kind: int, count: int) -> None:
        claim = self.world.cluster.new_claim(kind, count, admin=True)
        self.world.cluster.new_pod((), (claim,), controlled=False)

    @precondition(lambda self: any(pod.alive for pod in self.world.cluster.pods.values()))
    @rule(which=WHICH, processes=st.booleans(), then=THEN)
    def pod_ends(self, which: int, processes: bool, then: float) -> None:
        if pod := self._pod(which, running=True):
            self.world.end(pod, processes=processes)
        self.world.loop.pass_time(then)

    @rule(which=WHICH)
    def pod_is_deleted(self, which: int) -> None:
        if pod := self._pod(which):
            self.world.cluster.delete(pod)

    @rule(
        which=WHICH,
        heard=st.sampled_from([0.0, 0.1, 1.0]),
        seconds=st.sampled_from([0.5, 2.0, 9.0]),
        running=st.booleans(),
        then=THEN,
    )
    def pod_is_deleted_by_force(self, *, which: int, heard: float, seconds: float, running: bool, then: float) -> None:
        """Its containers run on for a while, or even begin."""
        self.world.lags.forgetting, self.world.lags.lingering = heard, seconds
        if pod := self._pod(which, running=running):
            self.world.cluster.delete_by_force(pod)
        self.world.loop.pass_time(then)

    @rule(
        which=WHICH,
        by_claim=st.booleans(),
        seconds=st.sampled_from([0.5, 2.0, 9.0]),
        late=st.sampled_from([0.0, 0.2, 1.0]),
        dies=st.booleans(),
        restarts=st.booleans(),
        then=THEN,
    )
    def one_is_deleted_by_force_and_others_want_what_it_has(
        self, *, which: int, by_claim: bool, seconds: float, late: float, dies: bool, restarts: bool, then: float
    ) -> None:
        """All of its kind, so that its device is allocated as soon as anybody takes it for free."""
        self.world.lags.lingering = seconds
        pod = self._pod(which, running=True)
        if pod is None:
            return
        kind = pod.asks[0].kind if pod.asks else pod.wants[0].kind
        self.world.cluster.delete_by_force(pod)
        self.world.loop.pass_time(late)
        if dies:
            self.world.kill_agent()
        if restarts:
            self.world.restart_kubelet()
        self.world.start_agent()
        if by_claim and kind != 1:
            self.world.cluster.new_pod((), (self.world.cluster.new_claim(kind),), controlled=True)
        else:
            self.world.cluster.new_pod((ModelAsk(kind, hardware.number_of(kind)),), (), controlled=False)
        self.world.loop.pass_time(then)

    @rule(which=WHICH, doors=st.booleans(), kind=KINDS, then=THEN)
    def one_goes_another_comes(self, which: int, doors: bool, kind: int, then: float) -> None:
        if pod := self._pod(which):
            self.world.kubelet.end(pod)
        if doors and kind != 1:
            claim = self.world.cluster.new_claim(kind)
            self.world.cluster.new_pod((), (claim,), controlled=True)
        else:
            self.world.cluster.new_pod((ModelAsk(kind),), (), controlled=True)
        self.world.loop.pass_time(then)

    @rule(
        kind=CLAIMED,
        seconds=st.sampled_from([0.2, 0.5, 0.7, 1.0, 2.0]),
        claim_first=st.booleans(),
        ordinary=st.booleans(),
        dies=st.booleans(),
        deaf=st.booleans(),
        then=st.sampled_from([0.0, 5.0, 25.0]),
    )
    def both_doors_are_asked_for_all_of_a_kind(
        self, *, kind: int, seconds: float, claim_first: bool, ordinary: bool, dies: bool, deaf: bool, then: float
    ) -> None:
        """At one time; and our process may die in the middle of it and not hear what has happened."""
        cluster, count = self.world.cluster, hardware.number_of(kind)
        for by_claim in (claim_first, not claim_first):
            if by_claim:
                cluster.new_pod((), (cluster.new_claim(kind, count),), controlled=True)
            else:
                self.world.live(cluster.new_pod((ModelAsk(kind, count, ordinary),), (), controlled=False), 30.0)
        self.world.loop.pass_time(seconds)
        if dies:
            self.world.kubelet.faults.recorded = deaf
            self.world.kill_agent()
            self.world.start_agent()
        self.world.loop.pass_time(then)

    # Time, and how slow everything is

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.loop.pass_time(seconds)

    @rule(
        name=st.sampled_from(
            ["listing", "answering", "reading", "slices", "scheduler", "binding", "watch", "starting"]
        ),
        seconds=st.sampled_from([0.01, 0.2, 2.0, 8.0]),
    )
    def something_is_slow(self, name: str, seconds: float) -> None:
        setattr(self.world.lags, name, seconds)

    # People

    @rule(kind=KINDS, door=DOORS, then=THEN)
    def rule_gets_another_door(self, kind: int, door: Doors, then: float) -> None:
        self._use(kind, door)
        self.world.loop.pass_time(then)

    @precondition(lambda self: self.world.processes.left)
    @rule(which=WHICH)
    def person_releases(self, which: int) -> None:
        names = sorted(self.world.processes.left)
        name = names[which % len(names)]
        self.world.release(name)

    # Faults

    @rule(seconds=st.sampled_from([0.0, 0.5, 5.0]), kind=KINDS, door=st.none() | DOORS)
    def our_process_dies_and_begins_again(self, seconds: float, kind: int, door: Doors | None) -> None:
        """With another configuration, perhaps."""
        self.world.kill_agent()
        self.world.loop.pass_time(seconds)
        if door is not None:
            self._use(kind, door)
        self.world.start_agent()

    @rule()
    def kubelet_restarts(self) -> None:
        self.world.restart_kubelet()

    @rule(up=st.booleans())
    def way_to_the_api_server(self, up: bool) -> None:
        self.world.api(up=up)

    @rule(
        listed=st.booleans(),
        recorded=st.booleans(),
        allocatable=st.booleans(),
        late=st.booleans(),
        asked=st.booleans(),
        all_well=st.booleans(),
    )
    def kubelet_tells(
        self, *, listed: bool, recorded: bool, allocatable: bool, late: bool, asked: bool, all_well: bool
    ) -> None:
        faults = self.world.kubelet.faults
        faults.late, faults.asked = late, asked
        faults.listed = listed and not all_well
        faults.recorded = recorded and not all_well
        faults.allocatable = allocatable and not all_well

    @rule()
    def admission_refuses_after_allocate(self) -> None:
        self.world.kubelet.refuse_admissions += 1

    @precondition(lambda self: self.world.processes.left)
    @rule()
    def left_over_processes_end(self) -> None:
        self.world.processes.left.clear()

    @rule(silent=st.booleans())
    def driver_tells_of_processes(self, silent: bool) -> None:
        self.world.processes.silent = not silent

    # What has to hold

    @invariant()
    def nothing_is_wrong(self) -> None:
        world = self.world
        assert not world.broken, "\n".join(world.broken)
        assert not world.loop.faults, world.loop.faults

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        try:
            if world is not None and not world.broken and not world.loop.faults:
                left = world.settle()
                assert not left, "\n".join(left)
                self.nothing_is_wrong()
        finally:
            if world is not None:
                world.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def _use(self, kind: int, door: Doors) -> None:
        doors = list(self.world.doors)
        doors[kind] = door
        self.world.use(tuple(doors))

    def _pod(self, which: int, *, running: bool = False) -> ModelPod | None:
        pods = [
            pod for pod in self.world.cluster.pods.values() if not pod.deleted and not pod.over and pod.alive >= running
        ]
        return pods[which % len(pods)] if pods else None


class SharedDoorways(Doorways):
    """The same node with shared GPUs, of which pods and claims have more and other shares than one each."""

    shared = True

    @rule(count=st.integers(1, 6), ordinary=st.booleans(), life=LIVES, then=THEN)
    def pod_with_replicas(self, *, count: int, ordinary: bool, life: Life, then: float) -> None:
        pod = self.world.cluster.new_pod((ModelAsk(0, count, ordinary),), (), controlled=False)
        self.world.live(pod, life[0], processes=life[1])
        self.world.loop.pass_time(then)

    @rule(percent=st.sampled_from([10, 33, 50, 67, 100]), count=st.integers(1, 2), life=LIVES, then=THEN)
    def pod_with_a_share_of_a_gpu(self, *, percent: int, count: int, life: Life, then: float) -> None:
        claim = self.world.cluster.new_claim(0, count)
        claim.percent = percent
        self.world.live(self.world.cluster.new_pod((), (claim,), controlled=False), life[0], processes=life[1])
        self.world.loop.pass_time(then)
