"""Runs a trace of jobs through the virtual clusters, and through plain quotas on the same GPUs, to compare them.

Time is the trace's own. Whenever a job comes or ends, the waiting jobs are tried in the order of priority and arrival;
those behind one that does not fit are tried as well. A preempted job starts over.

Plain quotas: a virtual cluster may use as many GPUs as its cells have, on any node. A pod goes to the node with the
fewest free GPUs that are enough, and gets those with the lowest numbers. Opportunistic jobs use what is free and give
way. That is kinder than Kubernetes, which spreads pods by default.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ostler.cells.drift import configured_nodes
from ostler.cells.placed import UsedCell, nodes_of, placed_cells, smallest_cells
from ostler.cells.trace import TraceJob
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting
from scheduling.cells.pod import AffinityGroupSpec, CellPod, GroupMember, PodSchedulingSpec
from scheduling.cells.scheduler import CellScheduler

JobPlacement = tuple[tuple[str, frozenset[int]], ...]
"""Node and numbers of GPUs of every pod."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where a job runs, empty if it has to wait, and the jobs that were ended for it."""

    placement: JobPlacement = ()
    victims: tuple[str, ...] = ()


_ROUNDS = 8
"""Most times that one job may preempt others before it waits."""


@dataclass(slots=True)
class JobRun:
    """The course of a job: when it first began, when it ended, and how often it was preempted."""

    job: TraceJob
    began: float | None = None
    ended: float | None = None
    preempted: int = 0
    broken: int = 0
    """Pods of its last run whose GPUs lie in a larger cell than they need."""
    kept_waiting: bool = False
    """It waited although its virtual cluster had enough GPUs left."""


class JobPolicy(Protocol):
    """Decides where jobs run."""

    name: str

    def start(self, job: TraceJob) -> JobStart:
        """Place a job if that is possible now. Raises ``CellsUserError`` for one that never is."""

    def end(self, job: TraceJob) -> None:
        """Take a job's GPUs back."""


class CellsPolicy:
    """The scheduler of cells."""

    name = "cells"

    def __init__(self, configuration: CellsConfiguration) -> None:
        self._scheduler = CellScheduler(configuration)
        self._nodes = sorted({each.name for each in configured_nodes(configuration)})
        self._jobs: dict[str, TraceJob] = {}
        for node in self._nodes:
            self._scheduler.set_node(node, healthy=True)

    def start(self, job: TraceJob) -> JobStart:
        """See ``JobPolicy``."""
        pods = _pods(job)
        victims: list[str] = []
        for _ in range(_ROUNDS):
            decision = self._scheduler.schedule(pods[0], self._nodes, Phase.PREEMPTING)
            if isinstance(decision, PodPlaced):
                self._jobs[job.name] = job
                return JobStart(self._placed(pods), tuple(victims))
            if not isinstance(decision, PodPreempting):
                break
            names = {uid.rpartition("#")[0] for uids in decision.victims.values() for uid in uids}
            for name in sorted(names & self._jobs.keys()):
                victims.append(name)
                self.end(self._jobs[name])
        self._scheduler.delete_unallocated(pods[0])
        return JobStart(victims=tuple(victims))

    def _placed(self, pods: Sequence[CellPod]) -> JobPlacement:
        found = []
        for pod in pods:
            decision = self._scheduler.schedule(pod, self._nodes, Phase.FILTERING)
            assert isinstance(decision, PodPlaced), "the gang has its place"
            self._scheduler.add_allocated(pod, decision.bind_info)
            found.append((decision.bind_info.node, frozenset(decision.bind_info.leaf_cell_isolation)))
        return tuple(found)

    def end(self, job: TraceJob) -> None:
        """See ``JobPolicy``."""
        self._jobs.pop(job.name, None)
        for pod in _pods(job):
            self._scheduler.delete_allocated(pod)


def _pods(job: TraceJob) -> list[CellPod]:
    group = AffinityGroupSpec(job.name, (GroupMember(job.pods, job.gpus),))
    spec = PodSchedulingSpec(job.virtual_cluster, job.priority, "", "", job.gpus, False, True, group)
    return [CellPod(f"{job.name}#{number}", "trace", f"{job.name}-{number}", spec) for number in range(job.pods)]


class QuotaPolicy:
    """Quotas that count GPUs."""

    name = "quotas"

    def __init__(self, configuration: CellsConfiguration) -> None:
        self.quotas = quotas(configuration)
        self.used = dict.fromkeys(self.quotas, 0)
        self._free: dict[str, list[int]] = {}
        for node in configured_nodes(configuration):
            self._free.setdefault(node.name, []).extend(sorted(node.indices))
        self._running: dict[str, tuple[TraceJob, JobPlacement]] = {}

    def start(self, job: TraceJob) -> JobStart:
        """See ``JobPolicy``."""
        if job.virtual_cluster not in self.quotas:
            raise CellsUserError(f"virtual cluster {job.virtual_cluster!r} does not exist")
        guaranteed = job.priority >= 0
        if guaranteed and self.used[job.virtual_cluster] + job.total > self.quotas[job.virtual_cluster]:
            return JobStart()
        weak = [name for name, (other, _) in self._running.items() if guaranteed and other.priority < 0][::-1]
        if not _fit(job, self._free_without(weak)):
            return JobStart()
        count, placement = 0, _fit(job, self._free_without(()))
        while not placement:
            count += 1
            placement = _fit(job, self._free_without(weak[:count]))
        for name in weak[:count]:
            self.end(self._running[name][0])
        self._running[job.name] = job, placement
        for node, indices in placement:
            self._free[node] = [index for index in self._free[node] if index not in indices]
        self.used[job.virtual_cluster] += job.total if guaranteed else 0
        return JobStart(placement, tuple(weak[:count]))

    def _free_without(self, names: Iterable[str]) -> dict[str, list[int]]:
        """The free GPUs of every node if these jobs were not there."""
        free = dict(self._free)
        for name in names:
            for node, indices in self._running[name][1]:
                free[node] = sorted({*free[node], *indices})
        return free

    def end(self, job: TraceJob) -> None:
        """See ``JobPolicy``."""
        _, placement = self._running.pop(job.name)
        for node, indices in placement:
            self._free[node] = sorted({*self._free[node], *indices})
        if job.priority >= 0:
            self.used[job.virtual_cluster] -= job.total


def _fit(job: TraceJob, free: dict[str, list[int]]) -> JobPlacement:
    """Where the pods of a job go; empty if they do not fit."""
    found = []
    for _ in range(job.pods):
        node = min((name for name in free if len(free[name]) >= job.gpus), key=lambda n: len(free[n]), default=None)
        if node is None:
            return ()
        found.append((node, frozenset(free[node][: job.gpus])))
        free[node] = free[node][job.gpus :]
    return tuple(found)


def quotas(configuration: CellsConfiguration) -> dict[str, int]:
    """How many GPUs the cells of each virtual cluster have, without pinned ones, which no job of a trace asks for."""
    found = dict.fromkeys(configuration.virtual_clusters, 0)
    for name, spec in configuration.virtual_clusters.items():
        for each in spec.cells:
            found[name] += each.number * leaves_of(configuration, each.preassigned_type)
    return found


def leaves_of(configuration: CellsConfiguration, kind: str) -> int:
    """How many GPUs a cell of this type has."""
    leaves = 1
    while (cell := configuration.cell_types.get(kind)) is not None:
        leaves, kind = leaves * cell.child_number, cell.child_type
    return leaves


@dataclass(slots=True)
class SimulationRun:
    """A whole trace under one policy. ``used``: GPUs in use over time, by (time, count) whenever that changes."""

    policy: str
    runs: dict[str, JobRun]
    used: list[tuple[float, int]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Jobs that can never run, and why."""


def simulate(configuration: CellsConfiguration, jobs: Sequence[TraceJob]) -> list[SimulationRun]:
    """The trace under both policies."""
    islands = {node.name: node for top in placed_cells(configuration).tops for node in nodes_of(top)}
    limits = quotas(configuration)
    policies: tuple[JobPolicy, ...] = (CellsPolicy(configuration), QuotaPolicy(configuration))
    return [_Simulation(policy, jobs, limits).run(islands) for policy in policies]


class _Simulation:
    """One trace under one policy."""

    def __init__(self, policy: JobPolicy, jobs: Sequence[TraceJob], limits: dict[str, int]) -> None:
        self._policy = policy
        self._limits = limits
        self.found = SimulationRun(policy.name, {job.name: JobRun(job) for job in jobs})
        self._events = [(job.at, 1, number, job.name) for number, job in enumerate(jobs)]
        """Time, 0 for an end and 1 for an arrival, a number, and the job."""
        heapq.heapify(self._events)
        self._number = len(jobs)
        self._waiting: list[str] = []
        self._ends: dict[str, int] = {}
        """The number of the event that ends each running job; one that was preempted has none."""
        self._held = dict.fromkeys(limits, 0)
        self._in_use = 0

    def run(self, islands: dict[str, UsedCell]) -> SimulationRun:
        """All events; ``islands``: the cells of every node."""
        while self._events:
            now, kind, number, name = heapq.heappop(self._events)
            if kind == 1:
                self._waiting.append(name)
            elif self._ends.get(name) == number:
                job = self.found.runs[name].job
                self._policy.end(job)
                self.found.runs[name].ended = now
                self._stopped(job)
            if not self._events or self._events[0][0] > now:
                self._try_all(now, islands)
                self.found.used.append((now, self._in_use))
        return self.found

    def _try_all(self, now: float, islands: dict[str, UsedCell]) -> None:
        runs = self.found.runs
        queue = sorted(self._waiting, key=lambda each: (-runs[each].job.priority, runs[each].job.at))
        self._waiting = []
        waits: set[tuple[object, ...]] = set()
        """Shapes of jobs that do not fit now; others have only started since."""
        for name in queue:
            run = runs[name]
            shape = run.job.shape
            try:
                started = JobStart() if shape in waits else self._policy.start(run.job)
            except CellsUserError as error:
                self.found.refused[name] = error.message
                continue
            if started.victims:
                waits.clear()
            for victim in started.victims:
                runs[victim].preempted += 1
                self._stopped(runs[victim].job)
                self._waiting.append(victim)
            if started.placement:
                self._started(run, now)
                run.broken = sum(_is_broken(islands, node, indices) for node, indices in started.placement)
            else:
                waits.add(shape)
                self._waiting.append(name)
                job = run.job
                within = self._held[job.virtual_cluster] + job.total <= self._limits[job.virtual_cluster]
                run.kept_waiting |= job.priority >= 0 and within

    def _started(self, run: JobRun, now: float) -> None:
        job = run.job
        run.began = now if run.began is None else run.began
        self._number += 1
        self._ends[job.name] = self._number
        heapq.heappush(self._events, (now + job.duration, 0, self._number, job.name))
        self._in_use += job.total
        self._held[job.virtual_cluster] += job.total if job.priority >= 0 else 0

    def _stopped(self, job: TraceJob) -> None:
        del self._ends[job.name]
        self._in_use -= job.total
        self._held[job.virtual_cluster] -= job.total if job.priority >= 0 else 0


def _is_broken(islands: dict[str, UsedCell], node: str, indices: frozenset[int]) -> bool:
    lowest, smallest = smallest_cells(islands[node], indices)
    return lowest > smallest


@dataclass(frozen=True, slots=True)
class SimulationFigures:
    """The figures of one policy; times in seconds, of guaranteed jobs alone where they are about waiting."""

    policy: str
    ran: int
    never: int
    mean_wait: float
    median_wait: float
    worst_wait: float
    kept_waiting: int
    preemptions: int
    broken: int
    pods: int

    def rows(self) -> tuple[str, ...]:
        """A column for people."""
        return (
            str(self.ran),
            str(self.never),
            f"{self.mean_wait:.0f} s",
            f"{self.median_wait:.0f} s",
            f"{self.worst_wait:.0f} s",
            str(self.kept_waiting),
            str(self.preemptions),
            f"{self.broken} of {self.pods}",
        )


ROWS = (
    "jobs that ran",
    "jobs that never ran",
    "mean wait",
    "median wait",
    "longest wait",
    "jobs that waited with enough GPUs left",
    "preemptions",
    "pods with a broken island",
)


def figures(run: SimulationRun) -> SimulationFigures:
    """The figures of a run."""
    ran = [each for each in run.runs.values() if each.began is not None]
    waits = sorted(_waits(ran))
    return SimulationFigures(
        run.policy,
        len(ran),
        len(run.runs) - len(ran),
        sum(waits) / len(waits) if waits else 0.0,
        waits[len(waits) // 2] if waits else 0.0,
        waits[-1] if waits else 0.0,
        sum(each.kept_waiting for each in run.runs.values()),
        sum(each.preempted for each in run.runs.values()),
        sum(each.broken for each in ran),
        sum(each.job.pods for each in ran),
    )


def _waits(runs: Iterable[JobRun]) -> Iterator[float]:
    for each in runs:
        if each.began is not None and each.job.priority >= 0:
            yield each.began - each.job.at
