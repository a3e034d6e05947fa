"""Pods that have other devices than they were told: the books follow, and every guarantee holds."""

from __future__ import annotations

import json

import pytest

from scheduling.cells.configuration import read_configuration
from scheduling.cells.decision import CellsUserError
from scheduling.cells.moving import PodMove
from scheduling.cells.pod import BindInfo, CellPod
from scheduling.cells.scheduler import CellScheduler
from tests.making.extender import cells
from tests.scheduling.cells.invariants import broken
from tests.scheduling.cells.test_bad_devices import unordered
from tests.scheduling.cells.test_holds import NODES, place, pod
from tests.scheduling.cells.test_properties import CLUSTERS, CellsWorld


def scheduler(nodes: int = 1, /, **owned: str) -> CellScheduler:
    """So many healthy nodes of eight devices; each virtual cluster owns one cell of the given type."""
    body = cells(nodes)
    body["virtualClusters"] = {
        name: {"virtualCells": [{"cellType": kind, "cellNumber": 1}]} for name, kind in owned.items()
    }
    made = CellScheduler(read_configuration(json.dumps(body)))
    for name in NODES[:nodes]:
        made.set_node(name, healthy=True)
    return made


def moved(made: CellScheduler, *moves: tuple[CellPod, tuple[int, ...]]) -> dict[str, BindInfo]:
    records = made.move_allocated([PodMove(each, indices) for each, indices in moves])
    assert not broken(made.state)
    for each, indices in moves:
        assert set(made.devices_of(each)) == set(indices)
    return records


def refused(made: CellScheduler, *moves: tuple[CellPod, tuple[int, ...]]) -> str:
    """What is said; nothing has changed."""
    before = unordered(made)
    with pytest.raises(CellsUserError) as caught:
        made.move_allocated([PodMove(each, indices) for each, indices in moves])
    assert unordered(made) == before
    assert not broken(made.state)
    return caught.value.message


PAIR = "G-NODE.G-QUAD.G-PAIR"
OWNERS = {
    "one virtual cluster": ({"A": "G-NODE"}, "A"),
    "two virtual clusters": ({"A": PAIR, "B": PAIR}, "B"),
}


@pytest.mark.parametrize("case", OWNERS)
def test_pods_that_have_each_others_devices_exchange_them(case: str) -> None:
    owned, other = OWNERS[case]
    made = scheduler(**owned)
    first, second = pod("a", leaves=2), pod("b", leaves=2, vc=other)
    assert place(made, first) == ("n0", (0, 1))
    assert place(made, second) == ("n0", (2, 3))
    records = moved(made, (first, (2, 3)), (second, (0, 1)))
    assert {name: each.isolation for name, each in records.items()} == {"a": "2,3", "b": "0,1"}
    assert [each.state for each in made.groups()] == ["Allocated"] * 2
    assert all(each.virtual for each in made.groups())
    assert "belongs to the group 'b'" in refused(made, (first, (0, 1)))
    assert "belongs to another of these pods" in refused(made, (first, (4, 5)), (second, (4, 5)))
    assert "is named twice" in refused(made, (first, (4, 5)), (first, (6, 7)))


def test_pods_of_one_gang_exchange_their_places_in_every_record() -> None:
    made = scheduler(A="G-NODE")
    pods = [pod("g", f"g-{number}", leaves=2, pods=3) for number in range(3)]
    assert [place(made, each) for each in pods] == [("n0", (0, 1)), ("n0", (2, 3)), ("n0", (4, 5))]
    records = moved(made, (pods[0], (4, 5)), (pods[2], (0, 1)))
    places = {tuple(each.indices for each in info.members[0].pod_placements) for info in records.values()}
    assert places == {((4, 5), (2, 3), (0, 1))}
    assert [records[each.uid].isolation for each in pods] == ["4,5", "2,3", "0,1"]
    again = scheduler(A="G-NODE")
    again.add_allocated(pods[1], records["g-1"])
    assert again.groups()[0].physical == made.groups()[0].physical


def test_a_place_of_the_gang_without_a_pod_gives_way() -> None:
    made = scheduler(A="G-NODE")
    first, second = (pod("g", f"g-{number}", leaves=2, pods=2) for number in range(2))
    assert place(made, first) == ("n0", (0, 1))
    records = moved(made, (first, (1, 2)))
    assert [each.indices for each in records["g-0"].members[0].pod_placements] == [(2, 1), (0, 3)]
    assert place(made, second) == ("n0", (0, 3))
    # A place of another gang does not.
    other = pod("h", "h-0", leaves=2, pods=2)
    assert place(made, other) == ("n0", (4, 5))
    assert refused(made, (first, (6, 7))) == "pod default/g-0: GPU 6 of node n0 belongs to the group 'h'"


def test_a_pod_moves_to_free_devices_where_its_virtual_cluster_has_a_cell_of_the_kind() -> None:
    made = scheduler(2, A=PAIR, B="G-NODE")
    first = pod("a", leaves=2)
    node, _ = place(made, first)
    records = moved(made, (first, (6, 7)))
    assert (records["a"].node, records["a"].isolation) == (node, "6,7")
    assert records["a"].members[0].pod_placements[0].preassigned_types == ("G-PAIR", "G-PAIR")
    # Half of it and half of another pair is no pair; the whole node could not be given to B any more.
    assert refused(made, (first, (5, 6))) == (
        f"pod default/a: its virtual cluster 'A' has no cell of type 'G-PAIR' for GPU 5 of node {node} now"
    )


def test_a_move_that_costs_others_their_guarantee_is_refused() -> None:
    made = scheduler(A=PAIR, B="G-NODE.G-QUAD", C=PAIR)
    first, second = pod("a", leaves=2), pod("c", leaves=2, vc="C")
    assert place(made, first) == ("n0", (0, 1))
    assert place(made, second) == ("n0", (2, 3))
    assert refused(made, (first, (4, 5))) == "pod default/a: other virtual clusters need the cell of its devices"


def test_opportunistic_pods_move_to_any_free_device() -> None:
    made = scheduler(A="G-NODE")
    first = pod("a", leaves=2, priority=-1)
    assert place(made, first) == ("n0", (0, 1))
    records = moved(made, (first, (3, 6)))
    assert records["a"].members[0].pod_placements[0].preassigned_types == ("", "")
    assert set(made.groups()[0].physical["n0"]) == {3, 6}


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((0, 8), "GPU 0,8 of node n0 are not 2 devices of the cells 'G-NODE'"),
        ((0,), "GPU 0 of node n0 are not 2 devices of the cells 'G-NODE'"),
        ((3, 3), "GPU 3,3 of node n0 are not 2 devices of the cells 'G-NODE'"),
    ],
)
def test_devices_that_cannot_be_are_refused(indices: tuple[int, ...], text: str) -> None:
    made = scheduler(A="G-NODE")
    first = pod("a", leaves=2)
    place(made, first)
    assert refused(made, (first, indices)) == text
    assert refused(made) == "no pod is named"
    stranger = pod("stranger", leaves=2)
    assert refused(made, (stranger, (0, 1))) == "pod default/stranger has no cells that the configuration still has"


class MovingWorld(CellsWorld):
    """Now and then the pods of a node have each other's devices, or free ones."""

    def step(self) -> None:
        super().step()
        if self.random.random() < 0.3:
            self.shuffle()
            found = broken(self.scheduler.state)
            assert not found, found

    def held(self) -> object:
        """The devices of all groups, and how many of them are guaranteed."""
        groups = self.scheduler.groups()
        return [(each.name, each.state, each.physical, sum(map(len, each.virtual.values()))) for each in groups]

    def shuffle(self) -> None:
        node = self.random.choice(self.nodes)
        pods = [each for each, info in self.bound.values() if info.node == node and self.scheduler.devices_of(each)]
        pods = self.random.sample(pods, self.random.randint(0, len(pods)))
        free = [leaf.index for leaf in self.scheduler.state.leaves_by_node[node] if leaf.used_by is None]
        pool = [index for each in pods for index in self.scheduler.devices_of(each)]
        pool += self.random.sample(free, self.random.randint(0, len(free)))
        self.random.shuffle(pool)
        moves = []
        for each in pods:
            size = each.spec.leaf_cell_number
            moves.append(PodMove(each, tuple(pool[:size])))
            pool = pool[size:]
        before, held = unordered(self.scheduler), self.held()
        try:
            records = self.scheduler.move_allocated(moves)
        except CellsUserError:
            # Bad parts of a cell may be bound to other parts of its virtual cell after that.
            is_whole = not self.down and not any(self.broken.values())
            assert unordered(self.scheduler) == before or not is_whole, moves
            assert self.held() == held, moves
            return
        for move in moves:
            assert set(self.scheduler.devices_of(move.pod)) == set(move.indices)
        for uid, info in records.items():
            self.bound[uid] = (self.bound[uid][0], info)


def check_moves(name: str, seed: int, steps: int = 60) -> None:
    world = MovingWorld(name, seed)
    for _ in range(steps):
        world.step()
    world.restart()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CLUSTERS)
def test_moves_keep_every_guarantee_and_survive_a_restart(name: str, seed: int) -> None:
    check_moves(name, seed)
