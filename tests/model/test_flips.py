"""Rules that get other doors faster than the kubelet, slices and claims can follow: where they end, and on the way."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.offer import Cause
from node.rules import Doors
from tests.model import hardware
from tests.model.agent import ModelAgent
from tests.model.world import ModelWorld

WHOLE = {gpu.name for gpu in hardware.WHOLE_GPUS}
LAGS = st.tuples(
    st.sampled_from(["listing", "reading", "slices", "watch"]), st.sampled_from([0.01, 0.3, 2.0, 8.0])
).map(lambda lag: ("lag", *lag))
SECONDS = st.sampled_from([0.0, 0.01, 0.05, 0.2, 1.0, 3.0, 15.0]).map(lambda seconds: ("time", seconds))
DEATH = st.just(("die",))
AWAY = st.sampled_from([("api", False), ("api", True)])


def doors(*which: Doors) -> st.SearchStrategy[tuple[str, Doors]]:
    return st.sampled_from(which).map(lambda door: ("door", door))


class Flipping:
    """A world without pods, whose first rule gets other doors."""

    def __init__(self, door: Doors, shown: Callable[[Flipping], None] = lambda _: None) -> None:
        self.root = Path(
            tempfile.mkdtemp(prefix="ostler-flips-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        self.world = ModelWorld(self.root, (door, *[Doors.PLUGIN] * 4))
        if shown is not None:
            told = self.world.shown
            published = self.world.cluster.published

            def and_look(agent: ModelAgent) -> None:
                told(agent)
                shown(self)

            def publish(slice_: object) -> None:
                published(slice_)  # type: ignore[arg-type]
                shown(self)

            self.world.shown = and_look  # type: ignore[method-assign]
            self.world.cluster.published = publish  # type: ignore[method-assign]
        self.world.start_agent()
        self.world.loop.pass_time(30.0)

    def do(self, step: tuple[object, ...]) -> None:
        world = self.world
        if step[0] == "door":
            world.doors = (Doors(str(step[1])), *world.doors[1:])
            if world.agent is not None:
                world.agent.use(hardware.rules_with(world.doors))
        elif step[0] == "time":
            world.loop.pass_time(step[1])  # type: ignore[arg-type]
        elif step[0] == "lag":
            setattr(world.lags, str(step[1]), step[2])
        elif step[0] == "api":
            world.api(up=bool(step[1]))
        else:
            world.kill_agent()
            world.loop.pass_time(0.5)
            world.start_agent()

    def free(self) -> set[str]:
        """Whole GPUs that claims may get by the slices of the API server."""
        return {name for name, effects in self.world.cluster.slice.devices if not effects} & WHOLE

    def given(self) -> set[str]:
        """Whole GPUs that the plugin door says pods may get."""
        agent = self.world.agent
        shown = () if agent is None else agent.offer.resources
        return {item.device.name for resource in shown for item in resource.devices if item.healthy} & WHOLE

    def ends_right(self) -> None:
        left = self.world.settle()
        assert not left, "\n".join(left)
        assert not self.world.broken, self.world.broken
        door = self.world.doors[0]
        assert self.given() == (WHOLE if door is not Doors.DRA else set())
        assert self.free() == (WHOLE if door is not Doors.PLUGIN else set())
        assert self.world.agent is not None
        assert (self.root / "state/dra-door.json").exists() == (door is not Doors.PLUGIN)

    def close(self) -> None:
        self.world.close()
        shutil.rmtree(self.root, ignore_errors=True)


QUICK = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(
    st.sampled_from(list(Doors)),
    st.lists(st.one_of(doors(*Doors), doors(*Doors), SECONDS, SECONDS, LAGS, DEATH, AWAY), max_size=25),
)
def test_a_rule_that_flips_among_all_doors_ends_where_it_was_last(
    first: Doors, steps: list[tuple[object, ...]]
) -> None:
    flipping = Flipping(first)
    try:
        for step in steps:
            flipping.do(step)
        flipping.ends_right()
    finally:
        flipping.close()


@QUICK
@given(
    st.sampled_from([Doors.PLUGIN, Doors.DRA]),
    st.lists(st.one_of(doors(Doors.PLUGIN, Doors.DRA), SECONDS, LAGS, AWAY), max_size=25),
)
def test_a_device_that_moves_is_never_given_by_both_doors_on_the_way(
    first: Doors, steps: list[tuple[object, ...]]
) -> None:
    seen: list[str] = []

    def look(flipping: Flipping) -> None:
        both = flipping.free() & flipping.given()
        if both:
            seen.append(f"{flipping.world.loop.time():.3f}: {sorted(both)}")

    flipping = Flipping(first, look)
    try:
        for step in steps:
            flipping.do(step)
            assert not seen, seen
        flipping.ends_right()
        assert not seen, seen
    finally:
        flipping.close()


def test_a_process_that_is_killed_while_a_device_moves_goes_on_with_it() -> None:
    flipping = Flipping(Doors.DRA)
    try:
        flipping.do(("api", False))
        flipping.do(("door", Doors.PLUGIN))
        flipping.do(("time", 1.0))
        flipping.do(("die",))
        flipping.do(("time", 20.0))
        assert flipping.given() == set(), "a claim may still be given them by the slice that is there"
        agent = flipping.world.agent
        assert agent is not None
        causes = {item.cause for each in agent.offer.resources for item in each.devices if item.device.name in WHOLE}
        assert causes == {Cause.MOVING}
        flipping.ends_right()
    finally:
        flipping.close()


def test_what_pods_could_have_before_they_can_have_while_it_leaves_the_other_door_whatever_is_not_known() -> None:
    flipping = Flipping(Doors.BOTH)
    world = flipping.world
    try:
        flipping.do(("api", False))
        flipping.do(("door", Doors.PLUGIN))
        flipping.do(("time", 20.0))
        assert flipping.given() == WHOLE
        world.kubelet.faults.listed = True
        flipping.do(("time", 100.0))
        assert flipping.given() == WHOLE
        world.kubelet.faults.listed = False
        flipping.do(("time", 60.0))
        assert world.agent is not None
        assert world.agent.publisher.context.known
        assert flipping.given() == WHOLE
        assert flipping.free() == WHOLE, "the slices are as they were"
        flipping.ends_right()
    finally:
        flipping.close()
