"""Pods that got other devices than recorded: the books and the records follow, also over a restart in the middle."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from kube.bodies import Json
from ostler.extender.deciding import Decider
from ostler.extender.mending import RecordMender
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.pods import PodReader, ReadPod
from ostler.extender.published import PublishedDevices
from ostler.extender.states import PodBinding
from ostler.extender.tracking import CellTracker
from ostler.extender.wire import FilterArguments, PodIdentity
from scheduling.cells.configuration import read_configuration
from scheduling.cells.pod import ANNOTATION_BIND_INFO, BindInfo
from scheduling.cells.scheduler import CellScheduler
from tests.making.cells import gpu, slice_of
from tests.making.extender import ALLOCATED, NUMBERS, PAIR, gang, owning
from tests.making.extender_cluster import Object, pod
from tests.scheduling.cells.invariants import broken


class _Cluster:
    """Pods as an API server has them, and a tracker that is told of them; records are written when a test says so."""

    def __init__(self, configuration: Object) -> None:
        self.configuration = read_configuration(json.dumps(configuration))
        self.nodes = sorted(each["cellAddress"] for each in configuration["physicalCluster"]["physicalCells"])
        self.pods: dict[str, Object] = {}
        self.devices = PublishedDevices()
        self.warned: list[tuple[str, str, str]] = []
        self.waiting: dict[str, BindInfo] = {}
        self.metrics = ExtenderMetrics()
        self.start()

    def start(self) -> None:
        """A tracker that knows nothing reads all nodes and pods."""
        self.waiting.clear()
        mender = RecordMender(self, self, self.metrics)
        self.tracker = CellTracker(
            self.configuration, CellScheduler, self.devices, mender, reporter=self, metrics=self.metrics
        )
        self.decider = Decider(self.tracker, self, self.metrics)
        self.reader = PodReader(self.tracker.is_bound)
        self.tracker.replace_nodes(dict.fromkeys(self.nodes, True))
        self.tracker.replace_pods(self.read(each) for each in self.pods.values())

    def read(self, body: Object) -> ReadPod:
        found = self.reader.read(copy.deepcopy(body))
        assert isinstance(found, ReadPod)
        return found

    def tell(self, name: str) -> None:
        self.tracker.set_pod(self.read(self.pods[name]))

    def bind_later(self, binding: PodBinding) -> None:
        """See ``ForceBinder``."""

    def warn(self, pod: PodIdentity, reason: str, message: str) -> None:
        self.warned.append((pod.name, reason, message))

    def write_later(self, pod: PodIdentity, info: BindInfo) -> None:
        self.waiting[pod.name] = info

    def write(self, *names: str) -> None:
        """Write these records, or all."""
        for name in names or tuple(self.waiting):
            info = self.waiting.pop(name)
            self.pods[name]["metadata"]["annotations"][ANNOTATION_BIND_INFO] = info.write()
            self.tell(name)

    def place(self, body: Object) -> bool:
        """Create a pod, place and bind it; whether it found a place."""
        name = body["metadata"]["name"]
        self.pods[name] = body
        self.tell(name)
        identity = PodIdentity(body["metadata"]["uid"], "default", name)
        answer = self.decider.filter(FilterArguments(identity, tuple(self.nodes), None)).answer
        chosen = answer.get("NodeNames")
        if not chosen:
            self.delete(name)
            return False
        with self.tracker.locked() as books:
            info = books.pods[identity.uid].bind_info
        assert info is not None
        body["spec"]["nodeName"] = info.node
        body["metadata"]["annotations"] |= info.annotations()
        self.tell(name)
        return True

    def delete(self, name: str) -> None:
        self.tracker.delete_pod(self.pods.pop(name)["metadata"]["uid"])

    def gives(self, name: str, *numbers: int, ids: Sequence[str] = ()) -> None:
        """The kubelet gives a pod these devices, and the agent says so."""
        notes = {NUMBERS: ",".join(map(str, numbers)), ALLOCATED: ",".join(ids or [f"GPU-{n}" for n in numbers])}
        self.pods[name]["metadata"]["annotations"] |= {key: text for key, text in notes.items() if text}
        self.tell(name)

    def has(self, name: str) -> tuple[int, ...]:
        """The devices of a pod by the books."""
        with self.tracker.locked() as books:
            tracked = books.pods[self.pods[name]["metadata"]["uid"]]
            found = books.cells.devices_of(tracked.cell_pod())
            assert tracked.bind_info is not None
            if found:
                assert set(tracked.bind_info.leaf_cell_isolation) == set(found)
            return tuple(sorted(found))

    def recorded(self, name: str) -> tuple[int, ...]:
        """The devices of a pod by its annotation."""
        info = yaml.safe_load(self.pods[name]["metadata"]["annotations"][ANNOTATION_BIND_INFO])
        return tuple(sorted(info["leafCellIsolation"]))

    def groups(self) -> Json:
        def ask(scheduler: Any) -> Json:
            assert not broken(scheduler.state)
            return [each.as_json() for each in scheduler.groups()]

        return self.tracker.look(ask)

    def placements(self) -> dict[str, Any]:
        """By group its devices, and whether it is guaranteed."""
        found: Any = self.groups()
        status = {each["metadata"]["name"]: each["status"] for each in found}
        return {name: (each["physicalPlacement"], "virtualPlacement" in each) for name, each in status.items()}


@pytest.fixture
def two() -> _Cluster:
    """Pods a and b with a pair each on one node, in two virtual clusters."""
    made = _Cluster(owning(1, A=(PAIR, 2), B=(PAIR, 2)))
    assert made.place(pod("a", 2))
    assert made.place(pod("b", 2, vc="B"))
    assert (made.has("a"), made.has("b")) == ((0, 1), (2, 3))
    return made


def test_pods_with_each_others_devices_exchange_cells_once_both_are_known(two: _Cluster) -> None:
    two.gives("b", 0, 1)
    # The first one's annotations do not say yet that it has the other's: it is not touched.
    assert (two.has("a"), two.has("b"), two.waiting) == ((0, 1), (2, 3), {})
    two.gives("a", 2, 3)
    assert (two.has("a"), two.has("b")) == ((2, 3), (0, 1))
    two.write()
    assert (two.recorded("a"), two.recorded("b")) == ((2, 3), (0, 1))
    assert two.metrics.moves.counts == {("moved",): 2, ("refused",): 0}
    assert two.warned == []
    before = two.groups()
    two.start()
    assert two.groups() == before
    assert two.waiting == {}


@pytest.mark.parametrize("written", [(), ("a",), ("b",)])
def test_a_restart_in_the_middle_of_writing_loses_nothing(two: _Cluster, written: tuple[str, ...]) -> None:
    two.gives("a", 2, 3)
    two.gives("b", 0, 1)
    if written:
        two.write(*written)
    two.start()
    assert two.warned == []
    assert two.placements() == {"default/a": ({"n0": [2, 3]}, True), "default/b": ({"n0": [0, 1]}, True)}
    two.write()
    assert (two.recorded("a"), two.recorded("b")) == ((2, 3), (0, 1))


def test_a_pod_moves_to_free_devices_of_its_virtual_clusters_kind(two: _Cluster) -> None:
    two.gives("a", 6, 7)
    assert two.has("a") == (6, 7)
    two.write()
    assert two.recorded("a") == (6, 7)
    # What it left is free for others.
    assert two.place(pod("next", 2, vc="B"))
    assert two.has("next") in ((0, 1), (4, 5))


def test_what_cannot_follow_is_told_once_and_tried_again(two: _Cluster) -> None:
    assert two.place(pod("c", 2))
    assert two.has("c") == (4, 5)
    two.gives("c", 4, 5)
    two.gives("a", 1, 7)
    two.tell("a")
    expected = (
        "The kubelet gave this pod GPU 1,7 of node n0, and its cells are GPU 0,1. They cannot follow: pod default/a: "
        "its virtual cluster 'A' has no cell of type 'G-PAIR' for GPU 7 of node n0 now; the extender counts GPU 0,1 as "
        "used. Delete the pod if that harms others"
    )
    assert two.warned == [("a", "CellsNotMoved", expected)]
    assert two.has("a") == (0, 1)
    assert two.metrics.moves.counts["refused",] == 1
    # Its devices lie in two pairs. Once its virtual cluster has a second one left, it has both.
    two.delete("c")
    assert two.has("a") == (1, 7)


def test_a_pod_whose_devices_are_a_later_pods_waits_for_that_one(two: _Cluster) -> None:
    two.gives("a", 2, 3)
    assert two.has("a") == (0, 1)
    assert two.warned == []
    two.delete("b")
    assert two.has("a") == (2, 3)


def test_pods_of_a_gang_exchange_and_every_record_of_the_gang_is_written() -> None:
    made = _Cluster(owning(1, A=("G-NODE", 1)))
    for number in range(3):
        assert made.place(pod(f"g-{number}", 2, spec=gang("g", 3, 2)))
    made.gives("g-0", 4, 5)
    made.gives("g-2", 0, 1)
    assert [made.has(f"g-{number}") for number in range(3)] == [(4, 5), (2, 3), (0, 1)]
    assert set(made.waiting) == {"g-0", "g-1", "g-2"}
    # A restart after one of three writes: the others are written then.
    made.write("g-0")
    made.start()
    made.write()
    records = [
        each["metadata"]["annotations"][ANNOTATION_BIND_INFO].partition("affinity")[2] for each in made.pods.values()
    ]
    assert len(set(records)) == 1
    assert [made.recorded(f"g-{number}") for number in range(3)] == [(4, 5), (2, 3), (0, 1)]
    before = made.placements()
    made.delete("g-0")
    made.start()
    assert made.placements() == before


def test_pods_that_share_a_cell_leave_it_together() -> None:
    made = _Cluster(owning(1, B=("G-NODE.G-QUAD", 1)))
    assert made.place(pod("a", 2, vc="B"))
    assert made.place(pod("b", 2, vc="B"))
    made.gives("a", 5, 7)
    assert made.has("a") == (0, 1)
    made.gives("b", 4, 6)
    assert (made.has("a"), made.has("b")) == ((5, 7), (4, 6))


def test_ids_count_before_numbers_once_the_node_publishes_them(two: _Cluster) -> None:
    two.gives("a", 0, 1, ids=["GPU-6", "GPU-7"])
    assert two.has("a") == (0, 1)
    changed = two.devices.replace([slice_of("n0", [gpu(number) for number in range(8)])])
    two.tracker.devices_changed(changed)
    assert two.has("a") == (6, 7)


@pytest.mark.parametrize("notes", ["2,x", "2", "2,2", "8,9", "x" * 5000])
def test_annotations_that_say_nothing_move_nobody(two: _Cluster, notes: str) -> None:
    before = two.groups()
    two.pods["a"]["metadata"]["annotations"] |= {NUMBERS: notes, ALLOCATED: notes}
    two.tell("a")
    assert two.groups() == before
    assert two.waiting == {}


def test_a_pod_that_is_not_bound_yet_gets_the_gangs_new_places() -> None:
    made = _Cluster(owning(1, A=("G-NODE", 1)))
    assert made.place(pod("g-0", 2, spec=gang("g", 2, 2)))
    made.gives("g-0", 6, 7)
    assert made.place(pod("g-1", 2, spec=gang("g", 2, 2)))
    made.write()
    places = yaml.safe_load(made.pods["g-1"]["metadata"]["annotations"][ANNOTATION_BIND_INFO])
    found = [each["physicalLeafCellIndices"] for each in places["affinityGroupBindInfo"][0]["podPlacements"]]
    assert found == [[6, 7], [2, 3]]


class ChanceCluster(_Cluster):
    """Pods come, get any devices of their node that no other pod has, and go; the process ends in the middle."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.real: dict[str, tuple[int, ...]] = {}
        self.number = 0
        super().__init__(owning(2, A=(PAIR, 3), B=("G-NODE.G-QUAD", 1), C=("G-NODE", 0)))

    def step(self) -> None:
        pick = self.random.random()
        if pick < 0.4:
            self.arrive()
        elif pick < 0.55 and self.pods:
            name = self.random.choice(sorted(self.pods))
            self.real.pop(name, None)
            self.waiting.pop(name, None)
            self.delete(name)
        elif pick < 0.85:
            self.start_pods()
        elif self.waiting:
            self.write(self.random.choice(sorted(self.waiting)))
        if self.random.random() < 0.15:
            self.restart()
        self.groups()

    def arrive(self) -> None:
        self.number += 1
        vc, size = self.random.choice((("A", 2), ("A", 1), ("B", 2), ("B", 4), ("A", 2)))
        count = self.random.choice((1, 1, 2))
        spec = gang(f"g{self.number}", count, size)
        priority = self.random.choice((0, 0, -1))
        for each in range(count):
            self.place(pod(f"p{self.number}-{each}", size, vc=vc, priority=priority, spec=spec))

    def start_pods(self) -> None:
        """The kubelet of a node starts pods, each with its recorded devices or with any others that are free."""
        where = self.random.choice(self.nodes)
        here = [name for name, each in self.pods.items() if each["spec"]["nodeName"] == where and name not in self.real]
        self.random.shuffle(here)
        for name in here[: self.random.randint(0, 4)]:
            taken = {n for other, numbers in self.real.items() if self.is_on(other, where) for n in numbers}
            wanted = self.recorded(name)
            free = [number for number in range(8) if number not in taken]
            if self.random.random() < 0.5 or not set(wanted).issubset(free):
                wanted = tuple(self.random.sample(free, len(wanted)))
            self.real[name] = tuple(sorted(wanted))
            self.gives(name, *self.real[name])

    def is_on(self, name: str, where: str) -> bool:
        return bool(self.pods[name]["spec"]["nodeName"] == where)

    def restart(self) -> None:
        """Every pod has the devices that it had by the books, or those that it really has if it can have them now.

        A pod whose record was not written yet may have those of its old record, if its gang's places are in the way.
        """
        held, unwritten = {name: self.has(name) for name in self.pods}, set(self.waiting)
        recorded = {name: self.recorded(name) for name in self.pods}
        self.start()
        lost = [each for each in self.warned if each[1] == "CellsNotRecovered"]
        assert not lost, lost
        moved = {name for name, devices in held.items() if self.has(name) != devices}
        for name in moved:
            is_old = name in unwritten and self.has(name) == recorded[name]
            assert self.has(name) == self.real.get(name) or is_old, name


def check_chance(seed: int, steps: int = 60) -> None:
    made = ChanceCluster(seed)
    for _ in range(steps):
        made.step()


@pytest.mark.parametrize("seed", range(6))
def test_books_follow_by_chance_and_a_restart_finds_the_same(seed: int) -> None:
    check_chance(seed)
