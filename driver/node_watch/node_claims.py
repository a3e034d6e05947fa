"""The users of this node's devices, as the API server knows them: pods, their claims, and claims that name a device.

A device may move from claims to the plugin door only when no allocation names it. The watch on the node's pods does not
show that: the scheduler allocates before it binds, and a pod may wait between the two for minutes. So at the end of a
withdrawal, and only then, all claims of the cluster are listed (``ClaimNames``). Only the results of allocations are
decoded, and only the names of our own devices kept, so it does not matter what else users write into claims, and how
much. A claim whose results cannot be read may name any device, so no device is free while there is one; the API server
lets only schedulers write these. The list needs the right to list claims, which a node's own identity lacks:
``Unavailable`` then says how to give it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from driver.claims.allocation import allocated_devices
from driver.claims.model import ClaimError, ClaimReference, Unavailable
from driver.node_watch.following import RETRY, NodeCheck
from driver.node_watch.node_pods import LIST_EVERY, NodePods, PodsChanged
from driver.node_watch.pods import NodePod
from driver.node_watch.reading import ReadPace
from driver.node_watch.reservations import PreparedClaims, Reservations, nothing_prepared
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject, object_at, text_at
from kube.errors import Forbidden, KubeError
from kube.json_stream import Fields
from node.clocks import SYSTEM, Clocks
from node.events import EventBus
from node.inventory.model import Device
from node.ledger.holds import Hold
from node.rules import Rule
from node.values import Value, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi


class NodeClaims:
    """Follows pods and claims while ``run`` runs; for the event loop only.

    ``bus``: gets ``PodsChanged`` and ``ReservationsChanged``. A subscriber to the first, added after this object was
    made, finds the reservations of the new pods.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        node_name: str,
        *,
        clocks: Clocks = SYSTEM,
        check: NodeCheck | None = None,
        bus: EventBus,
        policy: BackoffPolicy = RETRY,
        pace: ReadPace = ReadPace(),  # noqa: B008 - frozen
        list_every: float = LIST_EVERY,
        prepared: PreparedClaims = nothing_prepared,
    ) -> None:
        """``prepared``: finds claims that need no read."""
        self._reservations = Reservations(
            api,
            driver,
            node_name,
            clocks=clocks,
            bus=bus,
            pace=pace,
            prepared=prepared,
        )
        self._pods = NodePods(
            api,
            node_name,
            clocks=clocks,
            check=check,
            bus=bus,
            policy=policy,
            list_every=list_every,
        )
        self._names = ClaimNames(api, driver, node_name)
        bus.subscribe(PodsChanged, self._pods_changed)

    @property
    def synced(self) -> bool:
        """Whether the node's pods are known; before, no pod is gone and nothing is reserved."""
        return self._pods.synced

    @property
    def unread(self) -> tuple[str, ...]:
        """Claims of the node's pods that could not be read yet; they may have any device."""
        return self._reservations.unread

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some knowledge may be outdated, one line each; empty if all is well."""
        return (*filter(None, (self._pods.failing,)), *self._reservations.problems)

    def gone(self, uid: str) -> bool:
        """Whether the pod with the kubelet's UID is known to be gone; see ``NodePods.gone``."""
        return self._pods.gone(uid)

    def name_of(self, uid: str) -> str:
        """``namespace/name`` of a pod, empty if it is unknown."""
        return self._pods.name_of(uid)

    def uid_of(self, name: str) -> str:
        """The kubelet's UID of a pod by its ``namespace/name``, empty if it is unknown."""
        return self._pods.uid_of(name)

    def on_host_network(self, uids: Collection[str]) -> str:
        """``namespace/name`` of a pod among these that is known to use the node's network; empty if none is."""
        return next((str(pod) for pod in self._pods.pods if pod.host_network and pod.uid in uids), "")

    @property
    def pods(self) -> tuple[NodePod, ...]:
        """The node's pods that have not ended."""
        return self._pods.pods

    def reservations(self) -> Mapping[str, tuple[Hold, ...]]:
        """By UID, the claims of this node's pods with their devices; prepared claims stay among them."""
        return self._reservations.holds()

    def read_at_once(self, *, at_once: bool) -> None:
        """See ``Reservations.read_at_once``."""
        self._reservations.read_at_once(at_once=at_once)

    def place(self, devices: Iterable[Device], rules: Collection[Rule] = ()) -> bool:
        """See ``Reservations.place``."""
        return self._reservations.place(devices, rules)

    async def claims_naming(self, devices: Collection[str]) -> tuple[NamedDevice, ...]:
        """Every allocation of the cluster that names one of these devices; raises ``Unavailable``."""
        return await self._names.claims_naming(devices)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="pods of the node")
            group.create_task(self._reservations.run(), name="claims of pods")

    def _pods_changed(self, _: PodsChanged) -> None:
        self._reservations.apply(self._pods.pods)


_PATIENCE = 120.0
"""Seconds for all pages: a large cluster has some ten thousand claims."""
_FIELDS: Fields = {
    "metadata": {"namespace": True, "name": True, "uid": True},
    "status": {"allocation": {"devices": {"results": True}}},
}
_SHOWN = 3
"""Most unreadable claims that a message names."""
_RIGHT = "the verb list on resourceclaims of the API group resource.k8s.io"


@value
class NamedDevice(Value):
    """A device of ours that an allocation names; ``admin``: for monitoring only, which excludes nobody."""

    device: str
    claim: ClaimReference
    admin: bool = False


class ClaimNames:
    """Lists claims for the devices that they name, one list at a time; each may take ``patience`` seconds."""

    def __init__(self, api: AsyncResourceApi, driver: str, pool: str, *, patience: float = _PATIENCE) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._patience = patience
        self._turn = asyncio.Lock()
        self._under_way = threading.Lock()
        """Held by the thread that lists, even if nobody waits for it any more."""

    async def claims_naming(self, devices: Collection[str]) -> tuple[NamedDevice, ...]:
        """Every allocation that names one of the devices, by a list that begins after this call.

        Raises ``driver.claims.model.Unavailable`` if that is unknowable: the API server does not answer, refuses us, or
        has an allocation that cannot be read.
        """
        wanted = frozenset(devices)
        async with self._turn:
            try:
                found = await self._api.call(self._listed, patience=self._patience)
            except Forbidden as error:
                raise Unavailable(_refused(error)) from error
            except KubeError as error:
                raise Unavailable(f"cannot list the claims of the cluster: {error}") from error
            except ClaimError as error:
                if isinstance(error, Unavailable):
                    raise
                raise Unavailable(f"cannot read an allocation: {error}") from error
        return tuple(each for each in found if each.device in wanted)

    def _listed(self, api: ResourceApi) -> tuple[NamedDevice, ...]:
        """List and search the claims; for a thread."""
        if not self._under_way.acquire(blocking=False):
            raise Unavailable("an earlier list of claims has not ended yet")
        try:
            listing = api.claims(self._stripped, _FIELDS).read_whole()
        finally:
            self._under_way.release()
        if listing.unread:
            first = "; ".join(f"claim {each}" for each in listing.unread[:_SHOWN])
            more = f"; and {len(listing.unread) - _SHOWN} more" if len(listing.unread) > _SHOWN else ""
            fix = "delete them, or find out who writes them"
            raise Unavailable(f"claims that cannot be read may have any device: {first}{more}; {fix}")
        return tuple(name for body in listing.objects if body for name in self._names(body))

    def _stripped(self, body: JsonObject) -> JsonObject:
        """The part of a claim to keep: nothing if no device of our driver is named."""
        results = object_at(body, "status", "allocation", "devices").get("results")
        if results is None:
            return {}
        if isinstance(results, list) and not any(text_at(each, "driver") == self._driver for each in results):
            return {}
        metadata = object_at(body, "metadata")
        return {
            "metadata": {key: metadata.get(key) for key in ("namespace", "name", "uid")},
            "status": {"allocation": {"devices": {"results": results}}},
        }

    def _names(self, body: JsonObject) -> Iterator[NamedDevice]:
        claim = ClaimReference(*(text_at(body, "metadata", key) for key in ("namespace", "name", "uid")))
        try:
            devices = allocated_devices(body, self._driver)
        except ClaimError as error:
            raise ClaimError(f"claim {claim}: {error}") from error
        for device in devices:
            if device.pool == self._pool:
                yield NamedDevice(device.device, claim, device.admin_access)


def _refused(error: Forbidden) -> str:
    return (
        f"the API server does not let the agent list claims ({error.message}); give the agent's account, or with a "
        f"node's identity the group system:nodes, {_RIGHT} by a ClusterRole"
    )
