"""The pods of this node, followed: one list and one watch with ``spec.nodeName``, never the pods of others.

The Node is checked first: with a wrong node name, ostler would read another node's pods and take all of this node's for
gone. A question about a pod that the watch has not shown is answered by a list of its own, which answers every question
asked before it; there is at most one in ``LIST_EVERY`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from driver.claims.model import Unavailable
from driver.node_watch.following import PAGE, RETRY, Following, NodeCheck
from driver.node_watch.pods import FIELDS, NodePod, Presence, pod_of, stripped
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from kube.errors import KubeError
from node.clocks import SYSTEM, Clocks
from node.events import EventBus
from node.values import Value, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi
    from kube.collection import CollectionSource

log = logging.getLogger("ostler.kube")

LIST_EVERY = 10.0
"""Seconds between two lists that answer questions."""


@value
class PodsChanged(Value):
    """The known pods of this node, or an answer of ``gone``, changed."""


class NodePods:
    """Knows the node's pods while ``run`` runs; for the event loop only.

    Publishes ``PodsChanged`` once for all news of one step of the loop: subscribers go through all pods, of which there
    may be any number.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        node_name: str,
        *,
        clocks: Clocks = SYSTEM,
        check: NodeCheck | None = None,
        bus: EventBus,
        policy: BackoffPolicy = RETRY,
        list_every: float = LIST_EVERY,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._check = check
        self._bus = bus
        self._monotonic = clocks.monotonic
        self._list_every = list_every
        self._presence = Presence(clocks)
        self._asked = asyncio.Event()
        self._is_to_publish = False
        self._following = Following(api, self, name="pods of the node", clocks=clocks, policy=policy)

    @property
    def synced(self) -> bool:
        """Whether the pods are known; before, no pod is gone."""
        return self._presence.synced

    @property
    def failing(self) -> str:
        """Why there is no news of pods at the moment, empty if all is well."""
        return self._following.failing

    @property
    def pods(self) -> tuple[NodePod, ...]:
        """The pods that have not ended."""
        return self._presence.pods

    def gone(self, uid: str) -> bool:
        """Whether the pod with the kubelet's UID is known to be gone from this node; an unknown one is looked up, and
        is False.

        A pod that the kubelet lists is not gone, whatever this says: a pod that was deleted by force may still run.
        """
        gone = self._presence.gone(uid)
        if self._presence.list_at() is not None:
            self._asked.set()
        return gone

    def name_of(self, uid: str) -> str:
        """``namespace/name``, empty if it is unknown."""
        return self._presence.name_of(uid)

    def uid_of(self, name: str) -> str:
        """The kubelet's UID of a pod by its ``namespace/name``, empty if it is unknown."""
        return self._presence.uid_of(name)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._following.run(), name="pods of the node")
            group.create_task(self._answer(), name="questions about pods")

    def value_of(self, body: JsonObject) -> NodePod:
        """See ``Follower``."""
        return pod_of(body)

    def replaced(self, found: Sequence[NodePod]) -> None:
        """See ``Follower``."""
        self._presence.replaced(found)
        self._publish_soon()

    def applied(self, each: NodePod) -> None:
        """See ``Follower``; most pods and most of their changes do not matter here."""
        if self._presence.applied(each):
            self._publish_soon()

    def deleted(self, each: NodePod) -> None:
        """See ``Follower``."""
        self._presence.deleted(each)
        self._publish_soon()

    def _publish_soon(self) -> None:
        if self._presence.list_at() is not None:
            self._asked.set()
        if not self._is_to_publish:
            self._is_to_publish = True
            asyncio.get_running_loop().call_soon(self._publish_once)

    def _publish_once(self) -> None:
        self._is_to_publish = False
        self._bus.publish(PodsChanged())

    async def _answer(self) -> None:
        """List the pods when a question waits for it."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            due = self._presence.list_at()
            if due is None:
                continue
            wait = due - self._monotonic()
            if wait > 0:
                # Of a mirror pod; another question may come first.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._asked.wait()
                self._asked.set()
                continue
            await self._listed()
            if self._presence.list_at() is not None:
                self._asked.set()
            await asyncio.sleep(self._list_every)

    async def _listed(self) -> None:
        from kube.collection import read_whole

        began = self._monotonic()
        try:
            listing = await self._api.call(lambda api: read_whole(self._of_node(api), PAGE))
        except (KubeError, Unavailable) as error:
            log.info("pods will be looked up later", extra={"error": str(error)})
            return
        # The name of a pod that cannot be read is enough: the pod exists.
        unread = [pod_of({"metadata": each.metadata}) for each in listing.unread]
        if self._presence.listed(began, [*map(pod_of, listing.objects), *unread]):
            self._bus.publish(PodsChanged())

    def source(self, api: ResourceApi) -> CollectionSource:
        """See ``Follower``; checks the Node first, because a wrong node name would follow other pods."""
        if self._check is not None:
            api.own_node(self._node_name, self._check)
        return self._of_node(api)

    def _of_node(self, api: ResourceApi) -> CollectionSource:
        return api.core("pods", {"fieldSelector": f"spec.nodeName={self._node_name}"}, stripped, FIELDS)
