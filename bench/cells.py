"""The cell scheduler on a thousand nodes with eight GPUs each: how long a decision takes, and a start with 5,000 pods.

Four virtual clusters own all nodes, one at a time or four together. Gangs of one to four pods with one to eight GPUs
arrive and leave, a sixth of them opportunistic. ``python -m bench.cells`` measures this alone.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bench.figures import percentile, significant
from scheduling.cells.configuration import CellsConfiguration, read_configuration
from scheduling.cells.decision import Phase, PodPlaced
from scheduling.cells.pod import (
    AffinityGroupSpec,
    BindInfo,
    CellPod,
    GroupMember,
    PodSchedulingSpec,
    read_bind_info,
)
from scheduling.cells.scheduler import CellScheduler

NODES = 1000
CLUSTERS = 4
ARRIVALS = 6000
LIVE_GANGS = 2500
REPLAYED = 5000

T = TypeVar("T")
Gang = list[tuple[CellPod, BindInfo]]


def figures() -> dict[str, float]:
    """Each figure in seconds."""
    read_s, configuration = timed(lambda: read_configuration(text(), "cells.yaml"))
    start_s, scheduler = timed(lambda: started(configuration))
    records = placed(started(configuration))
    times: list[float] = []
    gc.collect()
    gc.freeze()  # as the extender does
    try:
        fill(scheduler, times)
        replay_s, _ = timed(lambda: replay(started(configuration), records))
    finally:
        gc.unfreeze()
    return {
        "cells_read_1000_nodes_s": read_s,
        "cells_start_1000_nodes_s": start_s,
        "cells_schedule_1000_nodes_p50_s": percentile(times, 50),
        "cells_schedule_1000_nodes_p99_s": percentile(times, 99),
        "cells_schedule_1000_nodes_worst_s": max(times),
        "cells_replay_5000_pods_s": replay_s,
    }


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The seconds that a piece of work takes, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def text() -> str:
    """The configuration: racks of four nodes."""
    racks = [", ".join(f"{{cellAddress: node-{rack * 4 + each}}}" for each in range(4)) for rack in range(NODES // 4)]
    cells = "\n".join(f"  - {{cellType: RACK, cellChildren: [{nodes}]}}" for nodes in racks)
    clusters = "\n".join(
        f"  vc{each}: {{virtualCells: [{{cellType: RACK.NODE, cellNumber: {NODES // 8}}},"
        f" {{cellType: RACK, cellNumber: {NODES // 32}}}]}}"
        for each in range(CLUSTERS)
    )
    return f"""physicalCluster:
  cellTypes:
    PAIR: {{childCellType: GPU, childCellNumber: 2}}
    QUAD: {{childCellType: PAIR, childCellNumber: 2}}
    NODE: {{childCellType: QUAD, childCellNumber: 2, isNodeLevel: true}}
    RACK: {{childCellType: NODE, childCellNumber: 4}}
  physicalCells:
{cells}
virtualClusters:
{clusters}
"""


def started(configuration: CellsConfiguration) -> CellScheduler:
    """A scheduler that knows all nodes as healthy."""
    scheduler = CellScheduler(configuration)
    for number in range(NODES):
        scheduler.set_node(f"node-{number}", healthy=True)
    return scheduler


def fill(scheduler: CellScheduler, times: list[float]) -> None:
    """Let gangs arrive and leave; the seconds of each decision are added to `times`."""
    chance = random.Random(1)
    nodes = [f"node-{number}" for number in range(NODES)]
    live: list[Gang] = []
    for number in range(ARRIVALS):
        if len(live) > LIVE_GANGS or (live and chance.random() < 0.25):
            for pod, _ in live.pop(chance.randrange(len(live))):
                scheduler.delete_allocated(pod)
            continue
        spec = asked(number, chance)
        gang: Gang = []
        for index in range(spec.group.members[0].pod_number):
            name = f"{spec.group.name}-{index}"
            pod = CellPod(name, "team", name, spec)
            seconds, decision = timed(partial(scheduler.schedule, pod, nodes, Phase.FILTERING))
            times.append(seconds)
            if not isinstance(decision, PodPlaced):
                break
            scheduler.add_allocated(pod, decision.bind_info)
            gang.append((pod, decision.bind_info))
        if gang:
            live.append(gang)


def asked(number: int, chance: random.Random) -> PodSchedulingSpec:
    """What the pods of a gang ask for."""
    size = chance.choice((1, 1, 1, 1, 2, 2, 4, 8))
    return PodSchedulingSpec(
        virtual_cluster=f"vc{chance.randrange(CLUSTERS)}",
        priority=chance.choice((-1, 0, 0, 0, 1, 5)),
        pinned_cell_id="",
        leaf_cell_type="GPU",
        leaf_cell_number=size,
        lazy_preemption=False,
        ignore_suggested_nodes=chance.random() < 0.5,
        group=AffinityGroupSpec(f"g{number}", (GroupMember(chance.choice((1, 1, 1, 2, 4)), size),)),
    )


def placed(scheduler: CellScheduler) -> list[tuple[CellPod, dict[str, str]]]:
    """Pods with one GPU each, and the annotations that they got. Raises ``ValueError`` if one has no place."""
    nodes = [f"node-{number}" for number in range(NODES)]
    records: list[tuple[CellPod, dict[str, str]]] = []
    for number in range(REPLAYED):
        spec = PodSchedulingSpec(
            virtual_cluster=f"vc{number % CLUSTERS}",
            priority=0,
            pinned_cell_id="",
            leaf_cell_type="GPU",
            leaf_cell_number=1,
            lazy_preemption=False,
            ignore_suggested_nodes=True,
            group=AffinityGroupSpec(f"g{number}", (GroupMember(1, 1),)),
        )
        pod = CellPod(spec.group.name, "team", spec.group.name, spec)
        decision = scheduler.schedule(pod, nodes, Phase.FILTERING)
        if isinstance(decision, PodPlaced):
            scheduler.add_allocated(pod, decision.bind_info)
            records.append((pod, decision.bind_info.annotations()))
    if len(records) != REPLAYED:
        raise ValueError(f"{len(records)} of {REPLAYED} pods found a place")
    return records


def replay(scheduler: CellScheduler, records: list[tuple[CellPod, dict[str, str]]]) -> None:
    """Restore all pods from their annotations."""
    for pod, texts in records:
        scheduler.add_allocated(pod, read_bind_info(texts))


def main() -> None:
    """Measure, and show each figure."""
    for name, value in figures().items():
        print(f"{name}: {significant(value)}")


if __name__ == "__main__":
    main()
