"""Pools of a node that the scheduler does not use, as obstacles: incomplete, invalid, or replaced elsewhere already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduling.allocator.node_selection import Labels
from scheduling.allocator.pools import Pool
from scheduling.allocator.slices import Device, PoolID
from scheduling.explain.diagnosis.cluster import Cluster
from scheduling.explain.diagnosis.obstacles import Obstacle, PoolIncomplete, PoolInvalid, PoolOutdated


def faulty(pools: Sequence[Pool], name: str, labels: Labels, cluster: Cluster) -> Iterator[tuple[PoolID, Obstacle]]:
    """Every pool of the node that is not used, with the reason. ``pools``: what was gathered for the node."""
    for pool in pools:
        if pool.is_incomplete:
            there = [each for each in cluster.index.of_pool(pool.id) if each.generation == newest(pool.id, cluster)]
            names = tuple(sorted(each.name for each in there))
            generation = newest(pool.id, cluster)
            counts = (generation, pool.present, pool.expected)
            yield pool.id, PoolIncomplete(pool.id.driver, pool.id.pool, *counts, names)
        elif pool.is_invalid:
            yield pool.id, PoolInvalid(pool.id.driver, pool.id.pool, pool.invalid_reason)
    gathered = {pool.id for pool in pools}
    dropped: dict[PoolID, int] = {}
    for each in cluster.index.for_node(name):
        if each.pool not in gathered and each.selects(name, labels):
            dropped[each.pool] = max(each.generation, dropped.get(each.pool, 0))
    for pool_id, generation in dropped.items():
        if newest(pool_id, cluster) > generation:
            yield pool_id, PoolOutdated(pool_id.driver, pool_id.pool, generation, newest(pool_id, cluster))


def newest(pool: PoolID, cluster: Cluster) -> int:
    """The newest generation of a pool."""
    return max((each.generation for each in cluster.index.of_pool(pool)), default=0)


def present(pool: PoolID, name: str, labels: Labels, cluster: Cluster) -> list[Device]:
    """The devices for this node in what is there of a pool's newest generation."""
    generation = newest(pool, cluster)
    slices = [one for one in cluster.index.of_pool(pool) if one.generation == generation and one.selects(name, labels)]
    return [one for each in slices for one in each.devices if each.per_device is not True or one.selects(name, labels)]
