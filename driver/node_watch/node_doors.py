"""The doors of this node: the Node's label and annotation, and whether the API server keeps device taints.

Invariants: what is known stays until the API server says something else, so an API server that is away, a deleted Node,
and a restart without either change nothing. A Node that is created again counts by its new label and annotation.
Nothing is taken from a Node object that is another machine's. A problem is reported once.
``driver.node_watch.slice_features`` asks the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from driver.devices.partitions import without_partitions
from driver.node_watch.following import RETRY, Following, NodeCheck
from driver.node_watch.slice_features import LOOK_EVERY, SliceFeatures
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject, object_at
from kube.errors import KubeError
from node.clocks import SYSTEM, Clocks
from node.door_policy import (
    ANNOTATION,
    LABEL,
    Acting,
    KnownDoors,
    NodeDoors,
    NodeWords,
    TaintSupport,
    effective,
    load,
    save,
)
from node.events import EventBus, EventRecorder, EventType
from node.files import WriteFailed
from node.ledger.events import OfferChanged
from node.rules import Rule, makes_partitions
from node.values import Value, replace, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi
    from kube.collection import CollectionSource


log = logging.getLogger("ostler.doors")

INVALID = "NodeDoorsInvalid"
NOT_KEPT = "NodeDoorsNotRemembered"
HELD_BACK = "DoorHeldBack"
_UNCOUNTED: Final = {
    None: "no partitions of GPUs are offered yet: the API server has not been asked whether it keeps counters",
    False: "no partitions of GPUs are offered, because the API server drops the counters of slices: they are on since "
    "Kubernetes 1.36, and before with the feature gate DRAPartitionableDevices, but not as 1.34 has them",
}
"""By whether the server keeps counters."""


@value
class SeenNode(Value):
    """``words`` of the Node; ``problem``: why they do not count, empty if they do."""

    words: NodeWords
    problem: str = ""


class NodeDoorsKeeper:
    """Knows the last record of ``state_dir`` at once, and the API server's news while ``run`` runs; for the event loop
    only.

    ``by_node``: the Node's label and annotation count; otherwise only the server's features are read. Publishes
    ``OfferChanged`` if ``acting`` may have changed.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        node_name: str,
        state_dir: Path,
        *,
        events: EventRecorder,
        clocks: Clocks = SYSTEM,
        by_node: bool = True,
        check: NodeCheck | None = None,
        bus: EventBus,
        policy: BackoffPolicy = RETRY,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self._state_dir = state_dir
        self._events = events
        self._random = clocks.random
        self._check = check
        self._bus = bus
        self._policy = policy
        self._known, problem = load(state_dir)
        if problem:
            self._warn(NOT_KEPT, f"the agent reads the doors of this node from the API server again: {problem}")
        self._saved = self._known
        if not by_node:
            self._known = replace(self._known, words=NodeWords())
        self._by_node = by_node
        self._reported: frozenset[str] = frozenset()
        self._announced: frozenset[str] = frozenset()
        self._doors, self._problems = self._known.words.parsed()
        self._not_ours = ""
        self._has_listed = False
        self._dirty = asyncio.Event()
        self.features = SliceFeatures(
            api,
            driver,
            node_name,
            self._known,
            clocks=clocks,
            policy=policy,
            look_every=look_every,
            on_learned=self._learned,
        )
        self._following = Following(api, self, name=f"Node {node_name}", clocks=clocks, policy=policy)

    @property
    def doors(self) -> NodeDoors:
        """The settings that people wrote on the Node, as last read."""
        return self._doors

    @property
    def problems(self) -> tuple[str, ...]:
        """Settings on the Node that have no effect, one line each."""
        return self._problems

    @property
    def failing(self) -> tuple[str, ...]:
        """Why this knowledge may be old, one line each; none if all is well."""
        followed = self._following.failing if self._by_node else ""
        return tuple(filter(None, (followed, self._not_ours, self.features.unanswered)))

    def acting(self, rules: Iterable[Rule]) -> Acting:
        """These rules as they take effect on this node."""
        acting = effective(rules, self._doors, self.features.support)
        if not makes_partitions(acting.rules):
            return acting
        self.features.want_counters()
        counters = self.features.counters
        if counters:
            return acting
        return replace(acting, rules=without_partitions(acting.rules), uncounted=_UNCOUNTED[counters])

    def announce(self, acting: Acting) -> None:
        """Report, once, entries that fit none of these rules, and rules that the server's missing features disable."""
        news = dict.fromkeys(acting.problems, INVALID)
        if self.features.support != TaintSupport():
            news |= {each.reason: HELD_BACK for each in acting.held_back}
        if acting.uncounted and self.features.counters is False:
            news[acting.uncounted] = HELD_BACK
        for text, reason in news.items():
            if text not in self._announced:
                self._warn(reason, text)
        self._announced = frozenset(news)

    async def run(self) -> None:
        """Follow until cancelled."""
        self._report_problems()
        async with asyncio.TaskGroup() as group:
            if self._by_node:
                group.create_task(self._following.run(), name="own Node")
            group.create_task(self.features.run(), name="device taints")
            group.create_task(self._remember(), name="doors of the node")

    def replaced(self, found: Sequence[SeenNode]) -> None:
        """See ``Follower``; a missing Node says nothing."""
        # The watch could not continue, or the server is there by now: it may be another one.
        if self._has_listed or self.features.unanswered:
            self.features.ask_again()
        self._has_listed = True
        for each in found:
            self.applied(each)

    def applied(self, each: SeenNode) -> None:
        """See ``Follower``."""
        self._not_ours = each.problem
        if each.problem or each.words == self._known.words:
            return
        self._doors, self._problems = each.words.parsed()
        self._set(replace(self._known, words=each.words))
        log.info("the doors of the node", extra={"label": each.words.label, "annotation": each.words.annotation})
        self._report_problems()
        self._bus.publish(OfferChanged())

    def deleted(self, each: SeenNode) -> None:
        """See ``Follower``: its words count until there is another Node."""

    def _learned(self) -> None:
        features, before = self.features, self._known
        self._set(replace(before, support=features.support, counters=features.counters, look=features.look))
        if not _are_the_same(before, self._known):
            self._bus.publish(OfferChanged())

    def _set(self, known: KnownDoors) -> None:
        self._known = known
        self._dirty.set()

    def _report_problems(self) -> None:
        problems = frozenset(self._problems)
        for problem in self._problems:
            if problem not in self._reported:
                self._warn(INVALID, problem)
        self._reported = problems

    def _warn(self, reason: str, text: str) -> None:
        self._events.emit(EventType.WARNING, reason, text)

    async def _remember(self) -> None:
        """Save a change; a failed write is reported once, and tried again."""
        backoff = Backoff(self._policy, self._random)
        reported = False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            known = self._known
            if known == self._saved:
                continue
            try:
                await asyncio.to_thread(save, self._state_dir, known)
            except WriteFailed as error:
                if known.look.at and _are_the_same(known, self._saved):
                    # The look on the disk counts until it is old. One that was withdrawn has to be.
                    log.info("the look at the API server is not remembered", extra={"error": str(error)})
                    continue
                if not reported:
                    text = f"a restart without the API server would not know the doors of this node: {error}"
                    self._warn(NOT_KEPT, text)
                reported = True
                self._dirty.set()
                await asyncio.sleep(backoff.delay())
            else:
                self._saved, reported = known, False
                backoff.reset()

    def source(self, api: ResourceApi) -> CollectionSource:
        """See ``Follower``."""
        return api.core("nodes", {"fieldSelector": f"metadata.name={self._node_name}"}, stripped)

    def value_of(self, body: JsonObject) -> SeenNode:
        """See ``Follower``; reads this machine's ids from files."""
        try:
            if self._check is not None:
                self._check(body)
        except KubeError as error:
            return SeenNode(NodeWords(), str(error))
        return SeenNode(words_of(body))


def _are_the_same(one: KnownDoors, other: KnownDoors) -> bool:
    """Whether both say the same, at most of different times."""
    return replace(one, look=other.look) == other


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a Node that matter here: it changes every few seconds, and has 20 kB of images and the like."""
    metadata = object_at(body, "metadata")
    kept: JsonObject = {key: metadata.get(key) for key in ("name", "uid", "resourceVersion")}
    for part, key in (("labels", LABEL), ("annotations", ANNOTATION)):
        text = object_at(metadata, part).get(key)
        kept[part] = {key: text} if isinstance(text, str) else {}
    return {"metadata": kept, "status": {"nodeInfo": object_at(body, "status", "nodeInfo")}}


def words_of(body: JsonObject) -> NodeWords:
    """Label and annotation of a Node, whole or ``stripped``."""
    label = object_at(body, "metadata", "labels").get(LABEL)
    annotation = object_at(body, "metadata", "annotations").get(ANNOTATION)
    return NodeWords(label if isinstance(label, str) else None, annotation if isinstance(annotation, str) else None)
