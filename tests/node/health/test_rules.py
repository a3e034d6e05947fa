"""Rules that hold whatever happens, in whatever order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.health.policy import Policy
from node.health.signal import Condition, HealthEvent, Trouble
from node.health.state import Health, Recovery
from node.values import replace
from tests.node.health.rig import DEGRADED, HEALTHY, UNHEALTHY, UNKNOWN, A, B, C, HealthRig, gpu, mig, nic

WHOLE = gpu(0x2A, mig=True)
ONE, TWO = mig(WHOLE, (1, 0)), mig(WHOLE, (2, 0))
PORT = nic(0x86)
FUNCTION = nic(0x87, part_of=PORT)
DEVICES = (A, B, C, WHOLE, ONE, TWO, PORT, FUNCTION)
FAMILY = {
    WHOLE.name: {WHOLE.name, ONE.name, TWO.name},
    PORT.name: {PORT.name, FUNCTION.name},
    ONE.name: {ONE.name, WHOLE.name},
    TWO.name: {TWO.name, WHOLE.name},
}
"""Who may be hit by what is told of a device; others only themselves."""
SCANS = (
    Health(),
    Health(UNHEALTHY, "the GPU is lost", cause="lost"),
    Health(UNKNOWN, "nothing is known of it", cause="silent"),
    Health(DEGRADED, "the call failed"),
)

names = st.sampled_from([device.name for device in DEVICES])
kinds = st.sampled_from([kind for kind in Trouble if kind not in (Trouble.SCAN, Trouble.PERSON, Trouble.XID)])
conditions = st.builds(Condition, kinds, st.text(max_size=3), st.none() | st.integers(0, 8))
looks = st.tuples(
    st.just("look"), names, st.sampled_from(["nvml", "kernel", "sysfs"]), st.lists(conditions, max_size=2)
)
xids = st.tuples(st.just("xid"), names, st.integers(1, 180), st.none() | st.tuples(st.integers(0, 3), st.just(0)))
events = st.tuples(st.just("event"), names, kinds, st.none())
scans = st.tuples(st.just("scan"), names, st.sampled_from(SCANS), st.none())
pauses = st.tuples(st.just("wait"), names, st.floats(0, 1000), st.none())
steps = st.lists(looks | xids | events | scans | pauses, max_size=40)


def act(rig: HealthRig, step: tuple[object, ...]) -> None:
    match step:
        case ("look", str(name), str(source), list(found)):
            rig.look(name, *found, source=source)
        case ("xid", str(name), int(code), instance):
            rig.xid(name, code, instance)  # type: ignore[arg-type]  # matched by the strategy
        case ("event", str(name), Trouble() as kind, _):
            rig.keeper.event(HealthEvent(name, kind, rig.time.now))
        case ("scan", str(name), Health() as health, _):
            rig.scan_health(name, health)
        case ("wait", _, float(seconds), _):
            rig.time.forward(seconds)


@given(steps)
def test_what_is_unknown_never_evicts(found: list[tuple[object, ...]]) -> None:
    rig = HealthRig(DEVICES, Policy(evicting=frozenset(Trouble), limits_evictions=False))
    for step in found:
        act(rig, step)
        for device in rig.keeper.judged.devices:
            assert not device.health.evicts or device.health.state is UNHEALTHY


@given(steps)
def test_what_is_told_of_a_device_touches_none_but_its_family(found: list[tuple[object, ...]]) -> None:
    rig = HealthRig(DEVICES)
    hit: set[str] = set()
    for step in found:
        act(rig, step)
        if step[0] != "wait":
            hit |= FAMILY.get(str(step[1]), {str(step[1])})
        assert {name for name, state in rig.states().items() if state is not HEALTHY} <= hit


@given(steps)
def test_generations_and_snapshots_change_together(found: list[tuple[object, ...]]) -> None:
    rig = HealthRig(DEVICES)
    for step in found:
        before = rig.keeper.judged
        published = len(rig.shown)
        act(rig, step)
        after = rig.keeper.judged
        assert (after is before) == (len(rig.shown) == published)
        assert after is before or after.generation > before.generation
        assert len({snapshot.generation for snapshot in rig.shown}) == len(rig.shown)
        assert [device.name for device in after.devices] == sorted(rig.devices)


@settings(max_examples=30)
@given(steps)
def test_every_trouble_that_passes_ends_healthy(found: list[tuple[object, ...]]) -> None:
    rig = HealthRig(DEVICES)
    for step in found:
        act(rig, step)
    for device in DEVICES:
        rig.scan_health(device.name, Health())
    for device in DEVICES:
        for source in ("nvml", "kernel", "sysfs"):
            rig.poll(device.name, times=3, source=source)
    rig.time.forward(1300)
    for device in DEVICES:
        found_health = rig.health(device.name)
        waits = found_health.recovery in (Recovery.RESET, Recovery.REPLACE)
        assert found_health.state is HEALTHY or waits, found_health
    for device in DEVICES:
        if rig.keeper._tracker.findings.clearable(device.name):
            rig.keeper.clear(device.name)
    assert set(rig.states().values()) == {HEALTHY}


@given(st.lists(st.tuples(names, conditions), max_size=8), st.randoms())
def test_the_order_in_which_sources_speak_changes_nothing(told: list[tuple[str, Condition]], random: object) -> None:
    speaking = [(f"source-{number}", name, condition) for number, (name, condition) in enumerate(told)]
    shuffled = list(speaking)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random
    rigs = []
    for order in (speaking, shuffled):
        rig = HealthRig(DEVICES, Policy(limits_evictions=False))
        for source, name, condition in order:
            rig.look(name, condition, source=source)
        rig.time.forward(60)
        rigs.append(rig)
    one, other = rigs
    assert [replace(entry, verdict=replace(entry.verdict, source="")) for entry in one.keeper.entries()] == [
        replace(entry, verdict=replace(entry.verdict, source="")) for entry in other.keeper.entries()
    ]


@given(names, conditions)
def test_going_bad_is_immediate(name: str, condition: Condition) -> None:
    rig = HealthRig(DEVICES)
    rig.look(name, condition)
    action = rig.keeper.policy.action(condition.kind, condition.code)
    expected = UNKNOWN if condition.kind is Trouble.SILENT else action.state
    assert rig.state(name) is expected
