"""Everything the API server knows of who may be using this node's devices, behind one door: pods, claims, names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from driver.holders.following import RETRY
from driver.holders.naming import ClaimNames, Naming
from driver.holders.node_pods import LIST_EVERY, NodePods
from driver.holders.reading import Pace
from driver.holders.reservations import Reservations
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from node.ledger.ledger import Hold

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi


class NodeClaims:
    """Follows while ``run`` runs; for the event loop alone.

    ``within``: names of the devices that a device is a part of. ``changed``: told, on the loop, when reservations or
    what is known of pods are others. ``check`` raises ``KubeError`` for a Node object that is another machine's.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        node_name: str,
        *,
        within: Callable[[str], tuple[str, ...]],
        random: Callable[[], float],
        check: Callable[[JsonObject], None] | None = None,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        policy: BackoffPolicy = RETRY,
        pace: Pace = Pace(),  # noqa: B008 - frozen
        list_every: float = LIST_EVERY,
    ) -> None:
        self._changed = changed
        self._reservations = Reservations(
            api,
            driver,
            node_name,
            within=within,
            random=random,
            changed=changed,
            clock=clock,
            monotonic=monotonic,
            pace=pace,
        )
        self._pods = NodePods(
            api,
            node_name,
            random=random,
            check=check,
            changed=self._pods_changed,
            monotonic=monotonic,
            policy=policy,
            list_every=list_every,
        )
        self._names = ClaimNames(api, driver, node_name)

    @property
    def synced(self) -> bool:
        """Whether the node's pods were known once; before, none is gone and nothing is reserved."""
        return self._pods.synced

    @property
    def unread(self) -> tuple[str, ...]:
        """Claims of the node's pods that could not be read yet, and may have any device."""
        return self._reservations.unread

    @property
    def problems(self) -> tuple[str, ...]:
        """Why something is not known as it is now, one line each; none while all is well."""
        return (*filter(None, (self._pods.failing,)), *self._reservations.problems)

    def gone(self, uid: str) -> bool:
        """Whether the pod of the kubelet's UID is known to be gone; see ``NodePods.gone``."""
        return self._pods.gone(uid)

    def name_of(self, uid: str) -> str:
        """``namespace/name`` of a pod, empty where it is not known."""
        return self._pods.name_of(uid)

    def reservations(self) -> Mapping[str, tuple[Hold, ...]]:
        """By UID the claims of this node's pods, with their devices; a claim stays among them when it is prepared."""
        return self._reservations.holds()

    async def claims_naming(self, devices: Collection[str]) -> tuple[Naming, ...]:
        """Every allocation of the cluster that names one of these devices; raises ``Unavailable``."""
        return await self._names.claims_naming(devices)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="pods of the node")
            group.create_task(self._reservations.run(), name="claims of pods")

    def _pods_changed(self) -> None:
        self._reservations.apply(self._pods.pods)
        self._changed()
