"""Carries out the writes of a plan at the API server.

A change that the server refuses (422) does not stop those of other slices; any other failure ends the plan, because the
next request would fail as well. Nothing is retried here: the next plan starts from what is stored by then.

A pool of thousands of devices needs dozens of writes, each of which waits for the API server's disk. A few writes are
made one after another, so that nothing is sent after a fault; many are made by several threads, and those under way are
waited for. Answers come in the order of the requests, which are built while earlier ones are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from driver.slices import content
from driver.slices.content import served
from driver.slices.errors import DroppedFieldsError, NodeWithoutUid
from driver.slices.model import Owner, Pool, Stats
from driver.slices.options import ErrorHandler, NodeReader, SliceApi
from driver.slices.planning import Matching, PoolPlan
from driver.slices.store import SliceStore, StoredSlice, objects_in
from driver.slices.wanted import WantedPool
from kube.bodies import JsonObject, object_at, text_at
from kube.errors import Invalid, KubeError, NotFound
from node.values import Value, replace, value

PUBLISHING = "publishing slices"

Send = Callable[[JsonObject], JsonObject]
Numbered = tuple[int, JsonObject]


@value
class WriteResult(Value):
    """The result of a plan: ``refused`` by the server, by index; ``created``, ``wrote``: whether anything was."""

    refused: tuple[tuple[int, Invalid], ...] = ()
    created: bool = False
    wrote: bool = False
    all_sent: bool = True
    """Whether no new slice turned out to be invalid on the way."""


@value
class _Exchanged(Value):
    """How many were stored; which were refused, by index; and the fault that ended it."""

    done: int
    refused: tuple[tuple[int, Invalid], ...]
    failure: KubeError | None


def _raise(exchanged: _Exchanged) -> None:
    if exchanged.failure is not None:
        raise exchanged.failure


def _before(refused: Sequence[tuple[int, Invalid]], creates: Sequence[int]) -> tuple[int, ...]:
    """The new slices before the first whose change was refused; see ``driver.slices.planning``."""
    first = min([index for index, _ in refused], default=None)
    return tuple([index for index in creates if first is None or index < first])


def _obsolete(plan: PoolPlan, refused: Collection[int], *, finished: bool, stored: bool) -> tuple[StoredSlice, ...]:
    """The slices that are of no use once the rest of a plan is done; ``stored``: something was written.

    If the plan could not be finished, the old slices stay until something of its generation is stored: until then they
    are all there is, and after that they are either older and ignored, or stand beside what should be there.
    """
    if finished:
        return plan.superseded
    behind = dict([*plan.left_behind, *[(index, each) for index, each in plan.updates if index in refused]])
    there = any(each.generation == plan.generation for index, each in plan.matched.items() if index not in behind)
    if not (stored or there):
        return ()
    return (*(behind.values() if plan.incomplete else ()), *plan.superseded)


class SliceWriter:
    """Writes for one driver and owner; calls ``error_handler`` with fields that the server drops."""

    def __init__(
        self,
        api: SliceApi,
        store: SliceStore,
        *,
        driver: str,
        owner: Owner | None,
        node: str,
        nodes: NodeReader,
        matching: Matching,
        error_handler: ErrorHandler,
    ) -> None:
        self._api = api
        self._store = store
        self._driver = driver
        self._owner = owner
        self._node = node
        self._nodes = nodes
        self._matching = matching
        self._handler = error_handler
        self._looked_up = ""
        self._written: set[str] = set()
        self.stats = Stats()

    def take_written(self) -> set[str]:
        """The uids of slices written since the last call."""
        written, self._written = self._written, set()
        return written

    def forget_node(self) -> None:
        """Look the Node's uid up again when it is next needed: the Node may have been replaced."""
        self._looked_up = ""

    def new_object(self, name: str, pool: Pool, index: int, generation: int, owner: Owner | None) -> JsonObject:
        """The object to create for a new slice."""
        return content.new_object(
            driver=self._driver,
            owner=owner,
            node=self._node,
            generate_name=self._matching.generate_name(index, len(pool.slices), self._driver, owner),
            name=name,
            pool=pool,
            index=index,
            generation=generation,
        )

    def judged_object(self, name: str, pool: Pool, index: int) -> JsonObject:
        """The same object for checking alone, without asking for the Node's uid."""
        owner = self._owner
        if owner is not None and owner.is_node and not owner.uid:
            owner = replace(owner, uid="not-yet-known")
        return self.new_object(name, pool, index, max(pool.generation, 1), owner)

    def remove(self, plan: PoolPlan) -> WriteResult:
        """Carry out the plan for a pool that nobody wants. Raises ``RequestError``."""
        before = self.stats
        self._delete_all(plan.excess)
        return WriteResult(wrote=self.stats != before)

    def write(self, plan: PoolPlan, wanted: WantedPool, *, complete: bool, good: Callable[[int], bool]) -> WriteResult:
        """Carry out a plan. ``complete``: it leaves no slice out; ``good``: whether new slice number so may be sent.

        Raises ``KubeError``, ``NodeWithoutUid``.
        """
        before = self.stats
        self._delete_all(plan.excess)
        updates = self._exchange(wanted, self._changed(plan, wanted), self._api.replace_slice, len(plan.updates))
        refused = list(updates.refused)
        self.stats = replace(self.stats, updates=self.stats.updates + updates.done)
        _raise(updates)
        creatable = _before(updates.refused, plan.creates)
        bodies = self._new(creatable, plan.generation, wanted, good) if creatable else iter(())
        creates = self._exchange(wanted, bodies, self._api.create_slice, len(creatable), stop_at_refusal=True)
        refused += creates.refused
        self.stats = replace(self.stats, creates=self.stats.creates + creates.done)
        _raise(creates)
        all_sent = creates.done + len(creates.refused) == len(plan.creates)
        finished = complete and all_sent and not refused
        self._delete_all(_obsolete(plan, dict(refused), finished=finished, stored=bool(creates.done or updates.done)))
        return WriteResult(tuple(refused), bool(creates.done), wrote=self.stats != before, all_sent=all_sent)

    def _exchange(
        self, wanted: WantedPool, bodies: Iterator[Numbered], send: Send, count: int, *, stop_at_refusal: bool = False
    ) -> _Exchanged:
        """Send, and process the answers. Nothing more is sent after a fault that is not a refusal."""
        exchange = RequestBatch(send)
        done, refused, failure = 0, [], None
        for index, sent, answer in exchange.answers(bodies, count):
            if not isinstance(answer, KubeError):
                done += 1
                self._stored(wanted, index, sent, answer)
            elif isinstance(answer, Invalid):
                refused.append((index, answer))
                if stop_at_refusal:
                    exchange.stop()
            else:
                failure = failure or answer
                exchange.stop()
        return _Exchanged(done, tuple(refused), failure)

    def _known_owner(self) -> Owner | None:
        owner = self._owner
        if owner is None or not owner.is_node or owner.uid:
            return owner
        if not self._looked_up:
            self._looked_up = text_at(self._nodes.node(owner.name), "metadata", "uid")
            if not self._looked_up:
                raise NodeWithoutUid(owner.name)
        return replace(owner, uid=self._looked_up)

    def _changed(self, plan: PoolPlan, wanted: WantedPool) -> Iterator[Numbered]:
        for index, stored in plan.updates:
            yield (
                index,
                content.changed_object(
                    stored, name=wanted.name, pool=wanted.effective, index=index, generation=plan.generation
                ),
            )

    def _new(
        self, indexes: Sequence[int], generation: int, wanted: WantedPool, good: Callable[[int], bool]
    ) -> Iterator[Numbered]:
        owner = self._known_owner()
        for index in indexes:
            if not good(index):
                return
            yield index, self.new_object(wanted.name, wanted.effective, index, generation, owner)

    def _stored(self, wanted: WantedPool, index: int, sent: JsonObject, answer: JsonObject) -> None:
        """Remember the stored slice, and report if it has less than was sent."""
        self._written.add(self._store.wrote(answer).uid)
        ours, theirs = object_at(sent, "spec"), object_at(answer, "spec")
        devices = objects_in(ours, "devices")
        dated = served(devices, objects_in(theirs, "devices"))
        expected: JsonObject = {**ours, "devices": [*dated]} if dated else ours
        if not content.same_content(expected, theirs):
            error = DroppedFieldsError(wanted.name, index, sent, answer)
            wanted.dropped(index, content.slice_of(theirs), error)
            self._handler(error, PUBLISHING)
        elif dated != devices:
            wanted.dated(index, content.slice_of(theirs))

    def _delete_all(self, slices: tuple[StoredSlice, ...]) -> None:
        """Delete in any order; the first fault ends it and is raised."""
        exchange = RequestBatch(self._delete)
        failure: KubeError | None = None
        for _, each, answer in exchange.answers(enumerate(slices), len(slices)):
            if isinstance(answer, NotFound):
                # Somebody else was faster, and the watch has not reported it yet.
                self._store.lost(each)
            elif isinstance(answer, KubeError):
                failure = failure or answer
                exchange.stop()
            else:
                self.stats = replace(self.stats, deletes=self.stats.deletes + 1)
                self._store.removed(each)
        if failure is not None:
            raise failure

    def _delete(self, each: StoredSlice) -> None:
        self._api.delete_slice(each.name, uid=each.uid, resource_version=each.resource_version)


Sent = TypeVar("Sent")
Given = TypeVar("Given")

_FEW: Final = 8
_THREADS: Final = 4


class RequestBatch(Generic[Sent, Given]):
    """One set of requests, made by ``send``; ``stop`` ends it early, between two answers."""

    def __init__(self, send: Callable[[Sent], Given]) -> None:
        self._send = send
        self._stopped = False

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def answers(
        self, numbered: Iterable[tuple[int, Sent]], count: int
    ) -> Iterator[tuple[int, Sent, Given | KubeError]]:
        """Every request with its answer, or why there is none. ``count``: how many there will be."""
        source = iter(numbered)
        if count <= _FEW:
            for index, sent in self._until_stopped(source):
                yield index, sent, self._answer(sent)
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="slices") as threads:
            under_way: deque[tuple[int, Sent, Future[Given | KubeError]]] = deque()
            for index, sent in self._until_stopped(source):
                under_way.append((index, sent, threads.submit(self._answer, sent)))
                if len(under_way) > _THREADS:
                    yield self._first(under_way)
            while under_way:
                yield self._first(under_way)

    def _until_stopped(self, source: Iterator[tuple[int, Sent]]) -> Iterator[tuple[int, Sent]]:
        while not self._stopped:
            try:
                yield next(source)
            except StopIteration:
                return

    def _answer(self, sent: Sent) -> Given | KubeError:
        try:
            return self._send(sent)
        except KubeError as error:
            return error

    @staticmethod
    def _first(
        under_way: deque[tuple[int, Sent, Future[Given | KubeError]]],
    ) -> tuple[int, Sent, Given | KubeError]:
        index, sent, future = under_way.popleft()
        return index, sent, future.result()
