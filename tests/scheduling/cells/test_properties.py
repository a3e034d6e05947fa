"""Random pods, failures and restarts on random clusters: the guarantees hold after every step.

`make judge-cells` runs 50,000 steps.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest

from scheduling.cells.configuration import CellsConfiguration, read_configuration
from scheduling.cells.decision import CellsUserError, Decision, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.pod import AffinityGroupSpec, BindInfo, CellPod, GroupMember, PodSchedulingSpec
from scheduling.cells.scheduler import CellScheduler
from scheduling.cells.tree import FREE_PRIORITY, VirtualCell
from tests.scheduling.cells.invariants import broken, fingerprint

TYPES = """
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    ROW: {childCellType: RACK, childCellNumber: 2}
    H-NODE: {childCellType: H, childCellNumber: 4, isNodeLevel: true}
"""
CLUSTERS = {
    "rows": f"""
physicalCluster:{TYPES}
  physicalCells: [{{cellType: ROW}}, {{cellType: ROW}}]
virtualClusters:
  a: {{virtualCells: [{{cellType: ROW.RACK.NODE, cellNumber: 2}}, {{cellType: ROW.RACK.NODE.PAIR, cellNumber: 2}}]}}
  b: {{virtualCells: [{{cellType: ROW.RACK, cellNumber: 1}}, {{cellType: ROW.RACK.NODE.PAIR.GPU, cellNumber: 3}}]}}
  c: {{virtualCells: [{{cellType: ROW.RACK.NODE, cellNumber: 1}}]}}
  d: {{virtualCells: []}}
""",
    "pinned": f"""
physicalCluster:{TYPES}
  physicalCells:
  - cellType: RACK
  - {{cellType: RACK, pinnedCellId: mine}}
  - cellType: RACK
  - {{cellType: H-NODE, cellAddress: h0}}
  - {{cellType: H-NODE, cellAddress: h1}}
virtualClusters:
  a: {{virtualCells: [{{cellType: RACK, cellNumber: 1}}, {{cellType: H-NODE, cellNumber: 1}}]}}
  b: {{virtualCells: [{{cellType: RACK.NODE, cellNumber: 2}}], pinnedCells: [{{pinnedCellId: mine}}]}}
  c: {{virtualCells: [{{cellType: H-NODE.H, cellNumber: 3}}]}}
""",
}


class CellsWorld:
    """A scheduler, and the pods that were given places."""

    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.configuration: CellsConfiguration = read_configuration(CLUSTERS[name])
        self.scheduler = CellScheduler(self.configuration)
        self.nodes = sorted(self.scheduler.state.leaves_by_node)
        self.down: set[str] = set()
        self.broken: dict[str, set[int]] = {}
        self.bound: dict[str, tuple[CellPod, BindInfo]] = {}
        self.waiting: dict[str, CellPod] = {}
        self.holds: dict[str, tuple[CellPod, BindInfo | None]] = {}
        self.number = 0
        for node in self.nodes:
            self.scheduler.set_node(node, healthy=True)

    def step(self) -> None:
        """One random event, and the rules that hold after it."""
        event = self.random.choices(
            (self.arrive, self.retry, self.leave, self.end_hold, self.flip, self.restart, self.ask_wrongly),
            (40, 20, 25, 8, 5, 1, 9),
        )[0]
        event()
        for uid in [each for each, (pod, _) in self.holds.items() if self.scheduler.hold_problem(pod)]:
            self.scheduler.end_hold(self.holds.pop(uid)[0])
        found = broken(self.scheduler.state)
        assert not found, (event.__name__, self.number, found)
        assert not self.leaked(), (event.__name__, self.number, self.leaked())

    def leaked(self) -> list[str]:
        """Groups that neither a pod nor a hold needs."""
        return [
            name
            for name, group in self.scheduler.state.groups.items()
            if not any(group.allocated()) and not group.preempting and group.holder not in self.holds
        ]

    def arrive(self) -> None:
        """A new group, whose pods are scheduled one after the other."""
        self.number += 1
        pick = self.random.choice
        size = pick((1, 1, 2, 2, 3, 4))
        members = [GroupMember(pick((1, 1, 2, 3)), size)]
        if pick((True, False, False)):
            members.append(GroupMember(1, size + 1))
        cluster = pick(sorted(self.configuration.virtual_clusters))
        priority = pick((-1, 0, 0, 1, 5))
        pinned = self.configuration.virtual_clusters[cluster].pinned
        spec = PodSchedulingSpec(
            virtual_cluster=cluster,
            priority=priority,
            pinned_cell_id=pick(pinned) if pinned and priority >= 0 and pick((True, False)) else "",
            leaf_cell_type=pick(("", "GPU")),
            leaf_cell_number=size,
            lazy_preemption=pick((True, False)),
            ignore_suggested_nodes=pick((True, False)),
            group=AffinityGroupSpec(f"g{self.number}", tuple(members)),
        )
        for member in members:
            for index in range(member.pod_number):
                name = f"g{self.number}-{member.leaf_cell_number}-{index}"
                own = replace(spec, leaf_cell_number=member.leaf_cell_number)
                self.waiting[name] = CellPod(name, "default", name, own)
        if pick((True, False, False)):
            self.hold(CellPod(f"hold-{self.number}", "default", f"hold-{self.number}", spec))
        self.retry()

    def hold(self, pod: CellPod) -> None:
        """A group's cells are held before any of its pods is scheduled."""
        may_wait = not self.has_room(pod, self.nodes)
        free = {name: group for name, group in self.scheduler.state.groups.items() if group.is_idle_hold}
        try:
            decision = self.scheduler.hold(pod, self.nodes)
        except CellsUserError:
            return
        assert may_wait or not isinstance(decision, PodWaiting), (pod, decision)
        self.check(pod, decision, is_new=True)
        for name in free.keys() - self.scheduler.state.groups.keys():
            assert free[name].priority < pod.spec.priority or free[name].virtual is None, (pod, name)
        if not isinstance(decision, PodWaiting):
            assert not self.scheduler.hold_problem(pod)
            self.holds[pod.uid] = (pod, decision.bind_info if isinstance(decision, PodPlaced) else None)

    def end_hold(self) -> None:
        """A holder ends its hold."""
        if self.holds:
            pod, _ = self.holds.pop(self.random.choice(sorted(self.holds)))
            self.scheduler.end_hold(pod)

    def retry(self) -> None:
        """Some waiting pods are scheduled, in either phase."""
        for name in self.random.sample(sorted(self.waiting), min(3, len(self.waiting))):
            phase = self.random.choice((Phase.FILTERING, Phase.FILTERING, Phase.PREEMPTING))
            self.schedule(self.waiting[name], phase)

    def schedule(self, pod: CellPod, phase: Phase) -> None:
        """Schedule a pod, and check the decision."""
        nodes = self.nodes if self.random.random() < 0.7 else self.random.sample(self.nodes, 3)
        is_new = pod.spec.group.name not in self.scheduler.state.groups
        may_wait = not is_new or not self.has_room(pod, nodes)
        try:
            decision = self.scheduler.schedule(pod, nodes, phase)
        except CellsUserError:
            return
        assert may_wait or not isinstance(decision, PodWaiting), (pod, decision)
        self.check(pod, decision, is_new=is_new)
        if isinstance(decision, PodPlaced) and phase is Phase.FILTERING:
            free = {name: group for name, group in self.scheduler.state.groups.items() if group.is_idle_hold}
            self.scheduler.add_allocated(pod, decision.bind_info)
            for name in free.keys() - self.scheduler.state.groups.keys():
                assert free[name].priority < pod.spec.priority or free[name].virtual is None, (pod, name)
            self.bound[pod.uid] = (pod, decision.bind_info)
            del self.waiting[pod.uid]

    def has_room(self, pod: CellPod, nodes: list[str]) -> bool:
        """True if the pod's own cluster has a free cell of its size, and nothing else stands in the way."""
        spec = pod.spec
        if (
            self.down
            or any(self.broken.values())
            or spec.priority < 0
            or len(spec.group.members) > 1
            or spec.group.members[0].pod_number > 1
        ):
            return False
        if not spec.ignore_suggested_nodes and len(nodes) < len(self.nodes):
            return False
        cluster = self.scheduler.state.clusters[spec.virtual_cluster]
        return any(
            self._has_free_part(root, spec.leaf_cell_number)
            for root in cluster.roots
            if root.pinned_id == spec.pinned_cell_id
            and spec.leaf_cell_type in {"", self.scheduler.state.chains[root.chain].leaf_type}
        )

    def _has_free_part(self, cell: VirtualCell, size: int) -> bool:
        if cell.level <= cell.node_level and cell.priority == FREE_PRIORITY and cell.leaf_count >= size:
            return True
        return any(self._has_free_part(each, size) for each in cell.children)

    def check(self, pod: CellPod, decision: Decision, *, is_new: bool) -> None:
        """No victim is as strong as the pod; a place that is given is free, and healthy if the group is new."""
        groups = self.scheduler.state.groups
        if isinstance(decision, PodPreempting):
            for uid in (each for victims in decision.victims.values() for each in victims):
                victim = groups[self.bound[uid][0].spec.group.name]
                assert victim.priority < pod.spec.priority or victim.virtual is None, (pod, uid)
        if isinstance(decision, PodPlaced):
            place = (decision.bind_info.node, set(decision.bind_info.leaf_cell_isolation))
            bad = place[0] in self.down or bool(place[1] & self.broken.get(place[0], set()))
            assert not (is_new and bad), (pod, decision)
            for other, info in self.bound.values():
                same = info.node == place[0] and place[1] & set(info.leaf_cell_isolation)
                assert not same, (pod, other)

    def leave(self) -> None:
        """A pod goes."""
        if self.bound and self.random.random() < 0.7:
            pod, _ = self.bound.pop(self.random.choice(sorted(self.bound)))
            self.scheduler.delete_allocated(pod)
        elif self.waiting:
            self.scheduler.delete_unallocated(self.waiting.pop(self.random.choice(sorted(self.waiting))))

    def flip(self) -> None:
        """A node or one of its devices fails or comes back."""
        node = self.random.choice(self.nodes)
        if self.random.random() < 0.5:
            self.down ^= {node}
        else:
            self.broken[node] = self.broken.get(node, set()) ^ {self.random.randrange(4)}
        self.tell(node)

    def tell(self, node: str) -> None:
        """Tell the scheduler the health of a node."""
        self.scheduler.set_node(node, healthy=node not in self.down, bad_devices=self.broken.get(node, ()))

    def restart(self) -> None:
        """Everything is restored from the records, in any order, and nothing is lost."""
        before = {
            name: group.physical for name, group in ((g.name, g) for g in self.scheduler.groups()) if group.allocated
        }
        held = {pod.spec.group.name: pod for pod, info in self.holds.values() if info is not None}
        before |= {each.name: each.physical for each in self.scheduler.groups() if each.name in held}
        self.scheduler = CellScheduler(self.configuration)
        pods_first = self.random.random() < 0.3
        records = self.random.sample(sorted(self.bound), len(self.bound))
        for is_pods in (pods_first, not pods_first):
            for name in records if is_pods else ():
                self.scheduler.add_allocated(*self.bound[name])
            for node in () if is_pods else self.nodes:
                self.tell(node)
        for uid, (pod, info) in list(self.holds.items()):
            if info is None and pod.spec.group.name not in before:
                del self.holds[uid]
            else:
                self.scheduler.restore_hold(pod, info, self.nodes)
        assert {each.name: each.physical for each in self.scheduler.groups()} == before

    def ask_wrongly(self) -> None:
        """A request that is refused changes nothing."""
        if not self.bound:
            return
        pod, info = self.bound[self.random.choice(sorted(self.bound))]
        stranger = CellPod(
            "stranger", "default", "stranger", replace(pod.spec, group=AffinityGroupSpec("s", pod.spec.group.members))
        )
        wrong = [
            replace(stranger.spec, virtual_cluster="nobody"),
            replace(stranger.spec, priority=0, pinned_cell_id="nothing"),
            replace(stranger.spec, pinned_cell_id="", leaf_cell_type="nothing"),
        ]
        before = fingerprint(self.scheduler)
        for spec in wrong:
            with pytest.raises(CellsUserError):
                self.scheduler.schedule(replace(stranger, spec=spec), self.nodes, Phase.PREEMPTING)
        with pytest.raises(CellsUserError, match="which is used by"):
            self.scheduler.add_allocated(stranger, info)
        with pytest.raises(CellsUserError, match="does not exist"):
            self.scheduler.group("s")
        assert fingerprint(self.scheduler) == before


def run(name: str, seed: int, steps: int) -> None:
    """So many steps of one world."""
    world = CellsWorld(name, seed)
    for _ in range(steps):
        world.step()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CLUSTERS)
def test_guarantees_hold_after_every_step(name: str, seed: int) -> None:
    run(name, seed, 60)


def soak(steps: int) -> None:
    """So many steps in worlds of 500 each; a world that breaks a rule is named."""
    for number in range(steps // 500):
        name = sorted(CLUSTERS)[number % len(CLUSTERS)]
        try:
            run(name, number, 500)
        except BaseException:
            print(f"world {name!r}, seed {number}")
            raise
    print(f"{steps} steps, every guarantee held")


if __name__ == "__main__":
    soak(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
