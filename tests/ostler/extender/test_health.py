"""Health of single devices and drift, from the slices to the cells."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from ostler.extender.drift import CellsDrift
from ostler.extender.health import MISSING, NodeHealth
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.published import PublishedDevices
from scheduling.cells.configuration import CellsConfiguration, read_configuration
from tests.making.cells import CONFIGURATION, Body, gpu, slice_of, tainted
from tests.making.extender import RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, Object, node, pod
from tests.waiting import until

HEALTH = "ostler.dev/health=unhealthy"


class HeardCells:
    """A scheduler of cells that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: dict[str, tuple[bool, tuple[int, ...]]] = {}

    def set_node(self, name: str, *, healthy: bool, bad_devices: tuple[int, ...] = ()) -> None:
        self.heard[name] = (healthy, bad_devices)

    def delete_node(self, name: str) -> None:
        self.heard.pop(name, None)


class _Health:
    """The health of node-1 and node-2 with four GPUs each, and the slices that it is read from."""

    def __init__(self, text: str = CONFIGURATION) -> None:
        self.devices = PublishedDevices()
        self.metrics = ExtenderMetrics()
        self.health = NodeHealth(read_configuration(text), self.devices, self.metrics)
        self.cells = HeardCells()
        for name in ("node-1", "node-2"):
            self.health.set_node(name, is_healthy=True)

    def publish(self, *bodies: Body) -> bool:
        """These are all slices; whether other devices are bad now."""
        changed = [self.health.judge_devices(name) for name in sorted(self.devices.replace(bodies))]
        return any(changed)

    def bad(self, name: str = "node-1") -> tuple[int, ...]:
        self.health.update_cells(self.cells, name)
        return self.cells.heard[name][1]


def gpus(numbers: Iterable[int] = range(4), bad: Sequence[int] = ()) -> list[Body]:
    return [tainted(number) if number in bad else gpu(number) for number in numbers]


def test_a_tainted_device_is_bad_until_the_taint_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ostler.extender")
    made = _Health()
    assert not made.publish(slice_of("node-1", gpus()))
    assert made.bad() == ()
    assert made.publish(slice_of("node-1", gpus(bad=[2])))
    assert (made.bad(), made.bad("node-2")) == ((2,), ())
    assert made.health.counts() == {"nodes": 0, "devices": 1}
    assert made.publish(slice_of("node-1", gpus()))
    assert made.bad() == ()
    assert made.health.counts() == {"nodes": 0, "devices": 0}
    told = [(each.message, vars(each)["node"], vars(each)["devices"]) for each in caplog.records]
    assert told == [("devices are bad", "node-1", "2"), ("devices are healthy again", "node-1", "2")]
    assert vars(caplog.records[0])["reasons"] == HEALTH
    assert made.metrics.device_changes.counts == {("bad",): 1, ("healthy",): 1}


@pytest.mark.parametrize(
    ("key", "effect", "is_bad"),
    [
        ("ostler.dev/health", "NoExecute", True),
        ("ostler.dev/gone", "NoSchedule", True),
        ("example.com/broken", "NoSchedule", True),
        ("ostler.dev/health", "None", False),
        ("ostler.dev/other-door", "NoSchedule", False),
        ("ostler.dev/other-door", "NoExecute", False),
        ("ostler.dev/draining", "NoSchedule", False),
        # Another driver's word for it is not ours.
        ("example.com/draining", "NoSchedule", True),
    ],
)
def test_taints_count_by_effect_and_key(key: str, effect: str, is_bad: bool) -> None:
    made = _Health()
    body = gpu(1, taints=[{"key": key, "value": "x", "effect": effect}])
    made.publish(slice_of("node-1", [gpu(0), body, gpu(2), gpu(3)]))
    assert made.bad() == ((1,) if is_bad else ())


def test_a_device_that_is_no_whole_gpu_now_is_bad_and_the_others_keep_their_numbers() -> None:
    made = _Health()
    partitioned = gpu(0, attributes={"migEnabled": {"bool": True}})
    made.publish(slice_of("node-1", [partitioned, *gpus(range(1, 4), bad=[3])]))
    assert made.bad() == (0, 3)


def test_a_device_that_vanishes_is_the_one_that_is_bad(caplog: pytest.LogCaptureFixture) -> None:
    made = _Health()
    made.publish(slice_of("node-1", gpus()))
    made.publish(slice_of("node-1", gpus([0, 2, 3], bad=[3])))
    assert made.bad() == (1, 3)
    assert MISSING in vars(caplog.records[0])["reasons"]
    # Without a complete count before nobody knows which one is missing.
    unknown = _Health()
    unknown.publish(slice_of("node-1", gpus([0, 2, 3], bad=[3])))
    assert unknown.bad() == ()
    unknown.publish(slice_of("node-1", gpus(bad=[3])))
    assert unknown.bad() == (3,)


def test_a_node_that_publishes_nothing_or_a_part_keeps_its_last_state() -> None:
    made = _Health()
    made.publish(slice_of("node-1", gpus(bad=[2])))
    made.publish()
    assert made.bad() == (2,)
    half = slice_of("node-1", gpus([0, 1]), generation=2)
    half["spec"]["pool"]["resourceSliceCount"] = 2
    made.publish(half)
    assert made.bad() == (2,)
    other = {**slice_of("node-1", gpus([2, 3]), generation=2), "metadata": {"name": "other"}}
    other["spec"]["pool"]["resourceSliceCount"] = 2
    made.publish(half, other)
    assert made.bad() == ()


def test_slices_come_and_go_one_by_one() -> None:
    devices = PublishedDevices()
    body = slice_of("node-1", gpus(bad=[1]))
    assert devices.put(body) == {"node-1"}
    assert devices.put(body) == frozenset()
    assert [each.bad for each in devices.of_node("node-1").devices] == ["", HEALTH, "", ""]
    assert devices.remove(body["metadata"]["name"]) == {"node-1"}
    assert devices.remove(body["metadata"]["name"]) == frozenset()
    assert (devices.of_node("node-1").devices, devices.nodes()) == ((), {})
    # A slice that moves to another node leaves its first one.
    devices.put(body)
    moved = {**body, "spec": {**body["spec"], "nodeName": "node-2"}}
    assert devices.put(moved) == {"node-1", "node-2"}
    assert set(devices.nodes()) == {"node-2"}
    assert devices.replace([]) == {"node-2"}


def test_another_configuration_is_laid_over_the_known_devices() -> None:
    made = _Health()
    made.publish(slice_of("node-1", gpus(bad=[1])), slice_of("node-2", gpus(bad=[3])))
    smaller = CONFIGURATION.replace("  - {cellType: H100-NODE-4, cellAddress: node-1}\n", "").replace(
        "- {cellType: H100-NODE-4.H100-2, cellNumber: 1}", ""
    )
    made.health = made.health.by(read_configuration(smaller))
    assert made.health.counts() == {"nodes": 0, "devices": 1}
    assert made.bad("node-2") == (3,)
    made.health = made.health.by(read_configuration(CONFIGURATION))
    assert (made.bad(), made.bad("node-2")) == ((1,), (3,))


class Drift:
    """The drift of node-1 and node-2, told after a minute."""

    def __init__(self) -> None:
        self.devices = PublishedDevices()
        self.metrics = ExtenderMetrics()
        self.drift = CellsDrift(configuration(), self.devices, self.metrics, 60.0)

    def publish(self, *bodies: Body) -> None:
        self.drift.devices_changed(self.devices.replace(bodies))

    def told(self, now: float) -> tuple[str, ...]:
        self.drift.look(now)
        assert self.metrics.drift.values == {(): len(self.drift.lines)}
        return self.drift.lines


def configuration() -> CellsConfiguration:
    return read_configuration(CONFIGURATION)


def test_differences_are_told_once_they_last(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ostler.extender")
    made = Drift()
    assert made.told(0) == ()
    made.publish(slice_of("node-1", gpus()))
    absent = "node node-2 is configured and publishes no GPUs; remove its cell, or look at the node's agent"
    assert made.told(10) == made.told(69) == ()
    assert made.told(70) == (absent,)
    made.publish(slice_of("node-1", gpus()), slice_of("node-2", gpus(range(5))))
    assert made.told(80) == ()
    assert made.told(141) == ("node node-2 publishes GPU 4, which no cell has; add it",)
    made.publish(slice_of("node-1", gpus()), slice_of("node-2", gpus()))
    assert made.told(142) == ()
    texts = [vars(each).get("difference", each.message) for each in caplog.records]
    ended = "differences from the cluster ended"
    assert texts == [absent, ended, "node node-2 publishes GPU 4, which no cell has; add it", ended]


def test_a_cluster_that_publishes_no_gpu_at_all_cannot_differ() -> None:
    made = Drift()
    assert made.told(0) == made.told(1000) == ()
    made.publish(slice_of("node-1", gpus()))
    assert made.told(1001) == ()
    made.publish()
    assert made.told(2000) == ()


def test_many_differences_are_counted_and_a_few_shown(caplog: pytest.LogCaptureFixture) -> None:
    made = Drift()
    made.publish(*(slice_of(f"more-{number:02}", gpus()) for number in range(30)))
    made.drift.look(0)
    made.drift.look(60)
    assert made.metrics.drift.values == {(): 32}
    assert made.drift.lines[0] == "node more-00 publishes 4 GPUs and is not configured; add its cell"
    assert made.drift.lines[5:] == ("and 27 more differences: run ostler cells check FILE --cluster",)
    assert len(caplog.records) == 21
    assert vars(caplog.records[-1])["more"] == 12


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi([node("n0"), node("n1")]) as made:
        for name in ("n0", "n1"):
            made.put(slice_of(name, eight()))
        yield made


def eight(*bad: int) -> list[Body]:
    return gpus(range(8), bad)


def leaves(running: RunningExtender, name: str) -> list[str]:
    """The health of a node's devices, by the inspect API."""
    _, tops = running.ask("GET", "/v1/inspect/clusterstatus/physicalcluster")
    (top,) = [each for each in tops if each["cellAddress"] == name]
    found: list[str] = []

    def walk(cell: Object) -> None:
        for child in cell.get("cellChildren", ()):
            walk(child)
        if not cell.get("cellChildren"):
            found.append(cell["cellHealthiness"])

    walk(top)
    return found


def test_no_pod_comes_to_a_bad_device_and_it_heals(api: ClusterApi, tmp_path: Path) -> None:
    api.put(slice_of("n0", eight(5)))
    with extender(tmp_path, api, cells(2)) as running:
        # It is known before the first answer.
        assert leaves(running, "n0") == ["Healthy"] * 5 + ["Bad"] + ["Healthy"] * 2
        assert running.place(pod("whole"), "n0", "n1") == "n1"
        assert running.place(pod("half", 4), "n0", "n1") == "n0"
        placed = running.groups()
        assert placed["default/half"]["physicalPlacement"] == {"n0": [0, 1, 2, 3]}
        waits = pod("next", 4)
        running.add(waits)
        assert running.filter(waits, "n0", "n1")["NodeNames"] is None
        api.put(slice_of("n0", eight()))
        until(lambda: leaves(running, "n0") == ["Healthy"] * 8, "it heals")
        assert running.filter(waits, "n0", "n1")["NodeNames"] == ["n0"]
        assert {name: status for name, status in running.groups().items() if name in placed} == placed


def test_a_gang_preempts_elsewhere_rather_than_use_a_bad_device(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2)) as running:
        assert running.place(pod("weak"), "n0", "n1") == "n0"
        api.put(slice_of("n1", eight(7)))
        until(lambda: leaves(running, "n1")[7] == "Bad", "it is bad")
        strong = pod("strong", priority=5)
        running.add(strong)
        assert running.filter(strong, "n0", "n1")["FailedNodes"] == {"n0": "has pods that this pod can preempt"}


def test_a_running_pod_keeps_a_device_that_becomes_bad_also_over_a_restart(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2, A=1, B=1)) as first:
        first.place(pod("web", 2), "n0", "n1")
        before = first.groups()
        api.put(slice_of("n0", eight(1)))
        until(lambda: leaves(first, "n0")[1] == "Bad", "it is bad")
        assert first.groups() == before
    with extender(tmp_path, api, cells(2, A=1, B=1)) as second:
        assert leaves(second, "n0")[1] == "Bad"
        assert second.groups() == before


def test_without_the_right_to_read_slices_pods_are_placed(api: ClusterApi, tmp_path: Path) -> None:
    for name in ("n0", "n1"):
        api.delete("ResourceSlice", f"{name}-ostler.dev-1")
    # The server has no such API now.
    with extender(tmp_path, api, cells(2)) as running:
        assert running.place(pod("p"), "n0", "n1") == "n0"


def test_drift_is_shown_to_probes_which_stay_ready(api: ClusterApi, tmp_path: Path) -> None:
    api.put(slice_of("n1", gpus(range(7))))
    with extender(tmp_path, api, cells(2), http="127.0.0.1:0", drift_after=0.0) as running:
        from tests.ostler.extender.test_process import page

        running.process.reload()
        expected = "ready\nnode n1 has no GPU 7, which the configuration names; remove it\n"
        until(lambda: page(running.process.pages_port, "/readyz") == (200, expected), "the difference is shown")
        assert "ostler_extender_drift 1.0" in page(running.process.pages_port, "/metrics")[1]
