"""Would a gang fit now, and what would have to end for it: asks the scheduler of cells about pods that do not exist.

Nothing is bound: the scheduler is built for this question from the configuration and the records of running pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kube.bodies import JsonObject, object_at, text_at
from ostler.cells.drift import configured_nodes
from ostler.cells.placed import nodes_of, placed_cells, smallest_cells
from ostler.cells.source import ScheduledPod
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Decision, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.pod import BindInfo, CellPod
from scheduling.cells.scheduler import CellScheduler


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod of a gang: its node, its GPUs, and whether they lie in a larger cell than they need."""

    node: str
    indices: tuple[int, ...]
    is_broken: bool


@dataclass(frozen=True, slots=True)
class GangPlan:
    """The answer for one gang: ``pods`` if it fits now, ``victims`` by node if others must end, else ``reason``."""

    pod: CellPod
    pods: tuple[PlannedPod, ...] = ()
    victims: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reason: str = ""

    @property
    def title(self) -> str:
        """The gang for people."""
        spec = self.pod.spec
        members = ", ".join(f"{each.pod_number} x {each.leaf_cell_number}" for each in spec.group.members)
        kind = "opportunistic" if spec.priority < 0 else f"priority {spec.priority}"
        return f"{spec.group.name} ({spec.virtual_cluster}, {kind}, {members} GPUs)"

    def lines(self) -> Iterable[str]:
        """The answer for people."""
        if self.pods:
            yield f"{self.title} fits now"
            for each in self.pods:
                broken = ", in a larger cell than it needs" if each.is_broken else ""
                yield f"  {each.node}: GPU {','.join(map(str, each.indices))}{broken}"
        elif self.victims:
            count = sum(len(names) for _, names in self.victims)
            yield f"{self.title} fits once {count} pod{'' if count == 1 else 's'} ended, which it would preempt"
            for node, names in self.victims:
                yield f"  {node}: {', '.join(names)}"
        else:
            yield f"{self.title} waits: {self.reason}"

    def document(self) -> dict[str, object]:
        """The answer as plain data."""
        spec = self.pod.spec
        return {
            "group": spec.group.name,
            "virtualCluster": spec.virtual_cluster,
            "priority": spec.priority,
            "fits": bool(self.pods),
            "pods": [{"node": p.node, "gpus": list(p.indices), "broken": p.is_broken} for p in self.pods],
            "victims": {node: list(names) for node, names in self.victims},
            "reason": self.reason,
        }


def is_usable(node: JsonObject) -> bool:
    """Whether pods can come to a node: it is not cordoned, and not known to be unready."""
    if object_at(node, "spec").get("unschedulable") is True:
        return False
    conditions = object_at(node, "status").get("conditions")
    ready = [each for each in conditions if text_at(each, "type") == "Ready"] if isinstance(conditions, list) else []
    return all(text_at(each, "status") == "True" for each in ready)


class CellPlanner:
    """A scheduler of cells with the running pods; ``bad``: nodes that cannot be used."""

    def __init__(
        self, configuration: CellsConfiguration, running: Iterable[ScheduledPod], bad: Collection[str] = ()
    ) -> None:
        self._scheduler = CellScheduler(configuration)
        every = sorted({each.name for each in configured_nodes(configuration)})
        self._nodes = [node for node in every if node not in bad]
        self._keys: dict[str, str] = {}
        self._islands = {node.name: node for top in placed_cells(configuration).tops for node in nodes_of(top)}
        self.notes: list[str] = []
        """Why pods were left out, one sentence each."""
        # Pods got their places before a node became bad: replayed after that, some would lose their virtual cells.
        for node in every:
            self._scheduler.set_node(node, healthy=True)
        for each in running:
            if each.bind_info is None:
                continue
            try:
                self._scheduler.add_allocated(each.pod, each.bind_info)
                self._keys[each.pod.uid] = each.pod.key
            except CellsUserError as error:
                self.notes.append(f"pod {each.pod.key} is left out: {error.message}")
        for node in set(every).difference(self._nodes):
            self._scheduler.set_node(node, healthy=False)

    def plan(self, pods: Sequence[CellPod]) -> list[GangPlan]:
        """The answers for the gangs of these pods, each after those before it. Raises ``CellsUserError``."""
        found, seen = [], set()
        for pod in pods:
            if pod.spec.group.name not in seen:
                seen.add(pod.spec.group.name)
                found.append(self._answer(pod, self._scheduler.schedule(pod, self._nodes, Phase.FILTERING)))
        return found

    def _answer(self, pod: CellPod, decision: Decision) -> GangPlan:
        if isinstance(decision, PodPlaced):
            self._scheduler.add_allocated(pod, decision.bind_info)
            return GangPlan(pod, tuple(self._pods(decision.bind_info)))
        if isinstance(decision, PodPreempting):
            victims = [
                (node, tuple(sorted(self._keys.get(uid, uid) for uid in uids)))
                for node, uids in sorted(decision.victims.items())
            ]
            return GangPlan(pod, victims=tuple(victims))
        assert isinstance(decision, PodWaiting)
        return GangPlan(pod, reason=decision.reason)

    def _pods(self, info: BindInfo) -> Iterable[PlannedPod]:
        for member in info.members:
            for place in member.pod_placements:
                lowest, smallest = 0, 0
                if place.node in self._islands:
                    lowest, smallest = smallest_cells(self._islands[place.node], frozenset(place.indices))
                yield PlannedPod(place.node, tuple(sorted(place.indices)), lowest > smallest)
