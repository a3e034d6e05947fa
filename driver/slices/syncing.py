"""Synchronises one pool: plans from what is known, writes, and remembers what the next round needs.

Only the controller's worker calls it, pool by pool, so nothing here is shared except what ``status`` reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from driver.slices.errors import GenerationExhausted, InvalidSlice, NodeWithoutUid
from driver.slices.model import Pool, PoolStatus, Stats
from driver.slices.options import Options
from driver.slices.planning import PoolKnowledge, PoolPlan, plan, removal
from driver.slices.store import SliceStore, StoredSlice
from driver.slices.wanted import WantedPool, slice_faults
from driver.slices.writing import PUBLISHING, SliceWriter
from kube.errors import KubeError, RequestError, Unreachable
from node.values import Record, Value, record, value
from scheduling.api.validation.cause import StatusCause

CHECKING = "checking a pool"
SOON, SPREAD = 5.0, 30.0
"""Within how many seconds a server that cannot be reached is tried again: for the first time, and after that.

All nodes of a cluster lose it at the same moment, and when it is back, their writes come at different times. Other
failures are tried again sooner, because only one node has them.
"""


@value
class SyncOutcome(Value):
    """``retry``: sync again, after at least ``retry_after`` seconds; ``created``, ``wrote``: as in ``WriteResult``."""

    retry: bool = False
    retry_after: float = 0.0
    created: bool = False
    wrote: bool = False


@record
class _Memory(Record):
    """The memory of a pool; see ``PoolKnowledge``.

    ``uncertain``: a write failed, so that it may have taken effect, or our knowledge may be outdated.
    """

    ours: frozenset[str] = frozenset()
    unfinished: int = 0
    uncertain: bool = False
    is_away: bool = False
    """The last attempt did not reach the server."""
    error: str = ""


class PoolSync:
    """``selector``: of the slices that are ours; ``node``: the one they are on, empty for none."""

    def __init__(self, options: Options, store: SliceStore, selector: str, node: str) -> None:
        self._api = options.client
        self._matching = options.matching
        self._handler = options.error_handler
        self._query = {"fieldSelector": selector}
        self._random = options.clocks.random
        self._store = store
        self._writer = SliceWriter(
            options.client,
            store,
            driver=options.driver_name,
            owner=options.owner,
            node=node,
            nodes=options.nodes or options.client,
            matching=options.matching,
            error_handler=options.error_handler,
        )
        self._memory: defaultdict[str, _Memory] = defaultdict(_Memory)
        self._in_order: dict[str, tuple[tuple[tuple[StoredSlice, ...], Pool, PoolKnowledge], bool]] = {}
        """By pool, the last question whether it is in order, and the answer."""

    @property
    def stats(self) -> Stats:
        """The number of writes that succeeded."""
        return self._writer.stats

    def forget_node(self) -> None:
        """Forget the owner's uid: the Node may have been replaced."""
        self._writer.forget_node()

    def sync(self, name: str, wanted: WantedPool | None) -> SyncOutcome:
        """Write one pool as wanted; faults go to the error handler."""
        memory = self._memory[name]
        memory.error = ""
        try:
            if memory.uncertain or self._store.doubtful(name):
                self._refresh()
                memory.uncertain = memory.is_away = False
            if wanted is None or not wanted.asked.slices:
                return self._remove(name)
            return self._publish(name, wanted)
        except (KubeError, NodeWithoutUid) as error:
            memory.uncertain = True
            self._report(name, error, PUBLISHING)
            after = error.retry_after if isinstance(error, RequestError) else None
            if isinstance(error, Unreachable):
                after = (SPREAD if memory.is_away else SOON) * self._random()
            memory.is_away = isinstance(error, Unreachable)
            return SyncOutcome(retry=True, retry_after=after or 0.0)

    def uncertain(self, name: str) -> bool:
        """Whether a write has failed and may have taken effect anyway."""
        memory = self._memory.get(name)
        return memory is not None and memory.uncertain

    def fault(self, name: str) -> str:
        """Why the pool's last write or check failed, empty if it did not."""
        memory = self._memory.get(name)
        return memory.error if memory else ""

    def status(self, name: str, wanted: WantedPool | None) -> PoolStatus:
        """The pool's status."""
        stored = self._store.in_pool(name)
        if wanted is None or wanted.fault() is not None:
            in_order = wanted is None and not stored
        else:
            in_order = self._is_in_order(name, stored, wanted)
        return PoolStatus(
            name=name,
            generation=max([each.generation for each in stored], default=0),
            wanted=tuple([each.names for each in wanted.asked.slices]) if wanted else (),
            stored=self._matching.layout(stored),
            in_order=in_order,
            error=self.fault(name),
            dropped=wanted.dropped_features() if wanted else (),
        )

    def _is_in_order(self, name: str, stored: tuple[StoredSlice, ...], wanted: WantedPool) -> bool:
        """Whether there is nothing to write; planned once for the same slices, since people and metrics ask often."""
        asked = stored, wanted.effective, self._knowledge(name)
        known = self._in_order.get(name)
        if known is None or known[0] != asked:
            known = self._in_order[name] = asked, plan(stored, name, asked[1], self._matching, asked[2]).empty
        return known[1]

    def _remove(self, name: str) -> SyncOutcome:
        written = self._writer.remove(removal(self._store.in_pool(name)))
        self._memory.pop(name, None)
        return SyncOutcome(wrote=written.wrote)

    def _publish(self, name: str, wanted: WantedPool) -> SyncOutcome:
        fault = wanted.fault()
        if fault is not None:
            self._report(name, fault, CHECKING)
            return SyncOutcome()
        for earlier in wanted.take_untold():
            self._handler(earlier, PUBLISHING)
        made, refused = self._planned(name, wanted)
        memory = self._memory[name]
        memory.ours |= {each.uid for each in made.matched.values()}
        if made.exhausted:
            self._report(name, GenerationExhausted(name, made.generation), CHECKING)
        if made.raised:
            memory.unfinished = made.generation
        try:
            written = self._writer.write(
                made,
                wanted,
                complete=not refused and not made.exhausted,
                good=lambda index: not self._faults(wanted, index),
            )
        finally:
            memory.ours |= self._writer.take_written()
        if not written.all_sent:
            self._report_invalid(name, wanted, [index for index in made.creates if self._faults(wanted, index)][:1])
        elif not refused and not written.refused:
            memory.unfinished = 0
        memory.ours &= {each.uid for each in self._store.in_pool(name)}
        for _, error in written.refused:
            self._report(name, error, PUBLISHING)
        return SyncOutcome(retry=bool(written.refused), created=written.created, wrote=written.wrote)

    def _planned(self, name: str, wanted: WantedPool) -> tuple[PoolPlan, frozenset[int]]:
        """The plan without the slices that break a rule, and which slices those are."""
        stored = self._store.in_pool(name)
        refused: frozenset[int] = frozenset()
        while True:
            made = plan(stored, name, wanted.effective, self._matching, self._knowledge(name, refused))
            # New slices are checked one by one as they are sent, except the first, on which the generation depends.
            sent = {index for index, _ in made.updates} | set(made.creates[:1])
            bad = {index for index in sent if self._faults(wanted, index)}
            if not bad:
                break
            refused |= bad
        self._report_invalid(name, wanted, sorted(refused))
        return made, refused

    def _report_invalid(self, name: str, wanted: WantedPool, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._report(name, InvalidSlice(name, index, self._faults(wanted, index)), CHECKING)

    def _faults(self, wanted: WantedPool, index: int) -> tuple[StatusCause, ...]:
        body = self._writer.judged_object
        return wanted.faults(index, lambda: slice_faults(body(wanted.name, wanted.effective, index)))

    def _knowledge(self, name: str, refused: frozenset[int] = frozenset()) -> PoolKnowledge:
        memory = self._memory.get(name) or _Memory()
        return PoolKnowledge(ours=memory.ours, unfinished=memory.unfinished, refused=refused)

    def _refresh(self) -> None:
        """Read all slices again: after that, nothing that we did before is uncertain."""
        before = self._store.versions()
        self._store.refreshed(self._api.list_slices(self._query), before)

    def _report(self, name: str, error: Exception, work: str) -> None:
        self._memory[name].error = str(error)
        self._handler(error, work)
