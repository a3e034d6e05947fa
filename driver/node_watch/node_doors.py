"""What the Node and the API server say of this node's doors: label, annotation, and whether device taints are kept.

Invariants: what is known stays until something else is known, so an API server that is away, a Node that is deleted,
and a restart without either change nothing. A Node that is made anew counts by what is written on it then. Nothing is
believed of a Node that is another machine's. A problem is reported once.

A server whose feature gate DRADeviceTaints is off drops taints without a word, and says nowhere which gates are on. So
it is asked by a dry run: a slice with a tainted device is created and never stored. A dry run passes admission like any
other request: the policies that keep an agent to its own node see this node's name.

A server that keeps taints is asked once in each process, whenever it is of another release or speaks another version of
the API, and when its answer is in doubt. A server that drops them is asked at every look: turning the gate on changes
neither, and nothing that is written would show it.

Where a rule has partitions of GPUs made, the server is asked the same of counters. One of Kubernetes 1.34 refuses them
if their set is not in the same slice, and counts as one that drops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from driver.claims.model import Unavailable
from driver.devices.partitions import without_partitions
from driver.node_watch.following import RETRY, Following, NodeCheck
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, object_at, one_line
from kube.errors import Closed, Forbidden, Invalid, KubeError, Unreachable
from node.clocks import SYSTEM, Clocks
from node.door_policy import (
    ANNOTATION,
    LABEL,
    Acting,
    KnownDoors,
    NodeDoors,
    NodeWords,
    Taints,
    TaintSupport,
    effective,
    load,
    save,
)
from node.events import EventBus, EventSink, EventType
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
LOOK_EVERY = 600.0
"""Seconds between two looks at the server's release."""


@value
class SeenNode(Value):
    """``words`` of the Node; ``problem``: why they do not count, empty where they do."""

    words: NodeWords
    problem: str = ""


class NodeDoorsKeeper:
    """Knows the last record of ``state_dir`` at once, and what is new while ``run`` runs; for the event loop alone.

    ``by_node``: the Node's label and annotation count; otherwise the Node is not asked for, and only the server is.
    Publishes ``OfferChanged`` when ``acting`` may have another answer.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        node_name: str,
        state_dir: Path,
        *,
        events: EventSink,
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
        self._look_every = look_every
        self._known, problem = load(state_dir)
        if problem:
            self._warn(NOT_KEPT, f"the agent reads the doors of this node from the API server again: {problem}")
        self._saved = self._known
        if not by_node:
            self._known = replace(self._known, words=NodeWords())
        self._by_node = by_node
        self._told: frozenset[str] = frozenset()
        self._announced: frozenset[str] = frozenset()
        self._doors, self._problems = self._known.words.parsed()
        self._not_ours = ""
        self._asked_of = ""
        self._doubts = 0
        """How many there were; an answer that was under way at the last one does not settle it."""
        self._unanswered = ""
        self._dirty = asyncio.Event()
        self._look = asyncio.Event()
        self._wants_counters = False
        self._following = Following(api, self, name=f"Node {node_name}", random=clocks.random, policy=policy)

    @property
    def doors(self) -> NodeDoors:
        """What people wrote on the node, as it was last known."""
        return self._doors

    @property
    def support(self) -> TaintSupport:
        """Whether the server keeps device taints, as it was last known."""
        return self._known.support

    @property
    def problems(self) -> tuple[str, ...]:
        """What on the node means nothing, one line each."""
        return self._problems

    @property
    def failing(self) -> tuple[str, ...]:
        """Why what is known may be old, one line each; none while all is well."""
        followed = self._following.failing if self._by_node else ""
        return tuple(filter(None, (followed, self._not_ours, self._unanswered)))

    def acting(self, rules: Iterable[Rule]) -> Acting:
        """These rules as they act here."""
        acting = effective(rules, self._doors, self.support)
        if not makes_partitions(acting.rules):
            return acting
        if not self._wants_counters:
            self._wants_counters = True
            self._look.set()
        if self._known.counters:
            return acting
        return replace(acting, rules=without_partitions(acting.rules), uncounted=_UNCOUNTED[self._known.counters])

    @property
    def counts(self) -> bool:
        """Whether the server is known to keep counters."""
        return self._known.counters is True

    @property
    def asks_for_counters(self) -> bool:
        """Whether rules depend on counters, and the server has never said whether it keeps them."""
        return self._wants_counters and self._known.counters is None

    def announce(self, acting: Acting) -> None:
        """Tell people, once, of entries that fit none of these rules, and of rules that the server holds back."""
        news = dict.fromkeys(acting.problems, INVALID)
        if self.support != TaintSupport():
            news |= {each.reason: HELD_BACK for each in acting.held_back}
        if acting.uncounted and self._known.counters is False:
            news[acting.uncounted] = HELD_BACK
        for text, reason in news.items():
            if text not in self._announced:
                self._warn(reason, text)
        self._announced = frozenset(news)

    def doubt(self) -> None:
        """Ask the server anew what it keeps: a slice came back without a taint that it was sent with."""
        self._doubts += 1
        self._asked_of = ""
        self._look.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        self._tell_problems()
        async with asyncio.TaskGroup() as group:
            if self._by_node:
                group.create_task(self._following.run(), name="own Node")
            group.create_task(self._look_at_server(), name="device taints")
            group.create_task(self._remember(), name="doors of the node")

    def replaced(self, found: Sequence[SeenNode]) -> None:
        """See ``Follower``; nothing is known of a Node that is not there (yet)."""
        # The list was not continued from before: the server may be another one.
        self._look.set()
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
        self._tell_problems()
        self._bus.publish(OfferChanged())

    def deleted(self, each: SeenNode) -> None:
        """See ``Follower``: what it said counts until there is another one."""

    def _set(self, known: KnownDoors) -> None:
        self._known = known
        self._dirty.set()

    def _tell_problems(self) -> None:
        problems = frozenset(self._problems)
        for problem in self._problems:
            if problem not in self._told:
                self._warn(INVALID, problem)
        self._told = problems

    def _warn(self, reason: str, text: str) -> None:
        self._events.emit(EventType.WARNING, reason, text)

    async def _remember(self) -> None:
        """Write what is new; a failed write is reported once, and tried again."""
        backoff = Backoff(self._policy, self._random)
        told = False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            known = self._known
            if known == self._saved:
                continue
            try:
                await asyncio.to_thread(save, self._state_dir, known)
            except WriteFailed as error:
                if not told:
                    text = f"a restart without the API server would not know the doors of this node: {error}"
                    self._warn(NOT_KEPT, text)
                told = True
                self._dirty.set()
                await asyncio.sleep(backoff.delay())
            else:
                self._saved, told = known, False
                backoff.reset()

    async def _look_at_server(self) -> None:
        backoff = Backoff(self._policy, self._random)
        while True:
            self._look.clear()
            doubts = self._doubts
            support = await self._support()
            if support is not None and support.taints is Taints.UNKNOWN:
                wait = backoff.delay()
            else:
                backoff.reset()
                wait = self._look_every * (0.8 + 0.4 * self._random())
            self._learn(support, doubts)
            asks = self._wants_counters and not (self._known.counters and support is None)
            if asks and await self._learn_counters() is None:
                wait = min(wait, backoff.delay())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._look.wait()

    async def _learn_counters(self) -> bool | None:
        """Ask whether the server keeps counters; None where it did not answer, and the last answer counts."""
        try:
            kept = await self._api.call(lambda api: counters_kept(api, self._driver, self._node_name))
        except (KubeError, Unavailable) as error:
            log.info("cannot tell whether the API server keeps counters", extra={"error": str(error)})
            return None
        if kept is not self._known.counters:
            log.info("counters of slices", extra={"kept": kept})
            self._set(replace(self._known, counters=kept))
            self._bus.publish(OfferChanged())
        return kept

    def _learn(self, support: TaintSupport | None, doubts: int) -> None:
        """``doubts``: how many there were when the server was asked."""
        if support is None:
            self._unanswered = ""
            return
        if support.taints is Taints.UNKNOWN:
            self._unanswered = support.text
            if self.support.taints is not Taints.UNKNOWN or self.support == support:
                # The last answer counts.
                return
        else:
            self._unanswered = ""
            if doubts == self._doubts:
                self._asked_of = support.server
        if support == self.support:
            return
        log.info("device taints", extra={"answer": support.taints.value, "text": support.text})
        self._set(replace(self._known, support=support))
        self._bus.publish(OfferChanged())

    async def _support(self) -> TaintSupport | None:
        """What the server says; None: it is the one that has said it already."""
        try:
            return await self._api.call(self._asked_in_thread)
        except (KubeError, Unavailable) as error:
            return TaintSupport(Taints.UNKNOWN, f"cannot tell whether the API server keeps device taints: {error}")

    def _asked_in_thread(self, api: ResourceApi) -> TaintSupport | None:
        server = f"{api.release() or 'of an unknown release'}, resource.k8s.io/{api.version()}"
        if server == self._asked_of and self.support.kept:
            return None
        return asked(api, self._driver, self._node_name, server)

    def source(self, api: ResourceApi) -> CollectionSource:
        """See ``Follower``."""
        return api.core("nodes", {"fieldSelector": f"metadata.name={self._node_name}"}, stripped)

    def value_of(self, body: JsonObject) -> SeenNode:
        """See ``Follower``; the machine's ids are read from files."""
        try:
            if self._check is not None:
                self._check(body)
        except KubeError as error:
            return SeenNode(NodeWords(), str(error))
        return SeenNode(words_of(body))


_GATE: Final = "DRADeviceTaints"
_FIX: Final = (
    "they are on by default since Kubernetes 1.36, and before with "
    f"the feature gate {_GATE} of API server and scheduler"
)
_TEXT: Final = 400
_UNCOUNTED: Final = {
    None: "no partitions of GPUs are offered yet: the API server has not been asked whether it keeps counters",
    False: "no partitions of GPUs are offered, because the API server drops the counters of slices: they are on since "
    "Kubernetes 1.36, and before with the feature gate DRAPartitionableDevices, but not as 1.34 has them",
}
"""By whether the server keeps counters."""


class DryRunApi(Protocol):
    """What is needed of a ``driver.resource_api.client.ResourceApi``."""

    def version(self) -> str:
        """The version of resource.k8s.io that is spoken."""

    def create_slice(self, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create a slice, or find out what would become of it."""


def probe(driver: str, node_name: str) -> JsonObject:
    """A small slice of this node with a tainted device."""
    taint: JsonObject = {"key": f"{driver}/dry-run", "effect": "NoSchedule"}
    device: JsonObject = {"name": "dry-run", "taints": [taint]}
    pool: JsonObject = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "ostler-dry-run-"},
        "spec": {"driver": driver, "nodeName": node_name, "pool": pool, "devices": [device]},
    }


def asked(api: DryRunApi, driver: str, node_name: str, server: str) -> TaintSupport:
    """What the server does with a taint; ``server``: its release and version of the API, for people and to compare."""
    try:
        stored = api.create_slice(probe(driver, node_name), dry_run=True)
    except KubeError as error:
        return TaintSupport(Taints.UNKNOWN, _unknown(error), "")
    devices = object_at(stored, "spec").get("devices")
    if not isinstance(devices, list) or len(devices) != 1:
        text = "the API server answers the dry run of a slice with a different object; check its admission webhooks"
        return TaintSupport(Taints.UNKNOWN, text, "")
    if _has_taint(devices[0]):
        return TaintSupport(Taints.KEPT, f"the API server ({server}) keeps device taints", server)
    return TaintSupport(Taints.DROPPED, f"the API server ({server}) drops device taints: {_FIX}", server)


def counters_kept(api: DryRunApi, driver: str, node_name: str) -> bool:
    """Whether the server keeps counters that a device consumes, and takes them from a set in another slice.

    Raises ``KubeError`` where it gives no answer.
    """
    body = probe(driver, node_name)
    used: JsonObject = {"counterSet": "dry-run", "counters": {"dry-run": {"value": "1"}}}
    object_at(body, "spec")["devices"] = [{"name": "dry-run", "consumesCounters": [used]}]
    try:
        stored = object_at(api.create_slice(body, dry_run=True), "spec").get("devices")
    except Invalid:
        return False
    return isinstance(stored, list) and any(object_at(device).get("consumesCounters") for device in stored)


def _has_taint(device: Json) -> bool:
    taints = object_at(device).get("taints")
    return isinstance(taints, list) and bool(taints)


def _unknown(error: KubeError) -> str:
    begin = "cannot tell whether the API server keeps device taints"
    if isinstance(error, Forbidden):
        fix = "give the agent's account the verb create on resourceslices of the API group resource.k8s.io"
        return f"{begin}: it refuses the dry run of a slice ({one_line(error.message, _TEXT)}); {fix}"
    again = "; the agent asks again" if isinstance(error, Unreachable) and not isinstance(error, Closed) else ""
    return f"{begin}: {one_line(str(error), _TEXT)}{again}"


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a Node that are read here: it changes every few seconds, and has 20 kB of images and the like."""
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
