"""Asks the allocator about one node: the claims as they are, or what it would do if something were different.

Whether something fits is never decided by explain itself: every "fits", "does not fit" and "would fit if" is an answer
of the allocator, which decides as the scheduler does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube.bodies import JsonObject
from scheduling.allocator.allocated import AllocatedState, Availability, CounterKey
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Pool, gather_pools
from scheduling.allocator.reading import AllocationError, FatalError, GaveUp, NodeError, Object
from scheduling.allocator.slices import PoolID
from scheduling.explain.diagnosis.amounts import counter_users
from scheduling.explain.diagnosis.cluster import Cluster
from scheduling.explain.diagnosis.obstacles import Usage
from scheduling.explain.diagnosis.reduction import Claims


@dataclass(frozen=True, slots=True)
class Answer:
    """``results``: an allocation for each claim, None where there is none; ``error`` where the allocator ended so."""

    results: Sequence[Object] | None
    error: AllocationError | None = None

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where that is not known, or not asked for an error of another node's concern."""
        if self.results is not None:
            return True
        return None if isinstance(self.error, FatalError | GaveUp) else False

    @property
    def hopeless(self) -> bool:
        """Whether it is known that nothing is to be had: it does not fit, or ends with an error."""
        return self.results is None and not isinstance(self.error, GaveUp)


class Judge:
    """The allocator for one node."""

    def __init__(self, node: JsonObject, cluster: Cluster) -> None:
        """``node``: a v1 Node."""
        self.node = node
        self._cluster = cluster
        self.calls = 0

    def ask(
        self,
        claims: Claims,
        allocated: AllocatedState | None = None,
        classes: Mapping[str, JsonObject] | None = None,
    ) -> Answer:
        """The allocator's answer for these claims, with other holdings or other classes where they are given."""
        cluster = self._cluster
        give_up = None if cluster.patience is None else cluster.patience(self.calls > 0)
        self.calls += 1
        allocator = Allocator(
            claims,
            cluster.allocated if allocated is None else allocated,
            cluster.classes if classes is None else classes,
            cluster.index,
            cluster.features,
            give_up=give_up,
        )
        try:
            return Answer(allocator.allocate(self.node))
        except (FatalError, NodeError, GaveUp) as error:
            return Answer(None, error)

    def possible(self, claims: Claims) -> bool | None:
        """Whether these claims fit."""
        return self.ask(claims).fits

    def in_use(self) -> bool:
        """Whether others have anything of the node's pools, so that it matters what is in use."""
        used = self._cluster.allocated.anyhow
        parts = (one for pool in self._pools() for one in (*pool.slices, *pool.elsewhere)) if used else ()
        return any(device.id in used for part in parts for device in part.devices)

    def left(self, pool: PoolID) -> Mapping[CounterKey, int]:
        """What is left of a pool's shared counters, in billionths."""
        found = self._pool(pool)
        return {} if found is None else Availability(self._cluster.allocated).counters(found)

    def users(self, pool: PoolID, counter: CounterKey) -> tuple[Usage, ...]:
        """Who draws on a pool's shared counter already."""
        found = self._pool(pool)
        return () if found is None else tuple(counter_users(found, counter, self._cluster))

    def _pool(self, pool: PoolID) -> Pool | None:
        return next((each for each in self._pools() if each.id == pool), None)

    def _pools(self) -> Sequence[Pool]:
        return gather_pools(self.node, self._cluster.index, self._cluster.features)
