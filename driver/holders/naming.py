"""Which devices of this node any claim of the cluster names: one list of all claims, for the end of a handover alone.

A device goes from claims to the plugin door only when no allocation names it. A watch on the node's pods cannot tell:
the scheduler allocates before it binds, and a pod may wait between the two for minutes. So this one time all claims are
listed, of which only the results of allocations are decoded, and only the names of our own devices kept: what else
users write into claims, and however much of it, is none of this. A claim whose results cannot be read may name any
device, so nothing is free while there is one; the API server lets nobody but schedulers write these.

The list needs the right to list claims, which a node's own identity does not have: ``Unavailable`` then says how to
give it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from driver.claims.allocation import allocated_devices
from driver.claims.errors import ClaimError, Unavailable
from driver.claims.model import ClaimReference
from kube.bodies import JsonObject, object_at, text_at
from kube.errors import Forbidden, KubeError
from kube.json_stream import Fields
from node.values import Value, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi

_PATIENCE = 120.0
"""Seconds for all pages: a large cluster has some ten thousand claims."""
_FIELDS: Fields = {
    "metadata": {"namespace": True, "name": True, "uid": True},
    "status": {"allocation": {"devices": {"results": True}}},
}
_SHOWN = 3
"""Claims that are named of those that cannot be read."""
_RIGHT = "the verb list on resourceclaims of the API group resource.k8s.io"


@value
class Naming(Value):
    """An allocation names a device of ours; ``admin``: for looking only, which is in nobody's way."""

    device: str
    claim: ClaimReference
    admin: bool = False


class ClaimNames:
    """Asks for names, one list at a time, which may take ``patience`` seconds."""

    def __init__(self, api: AsyncResourceApi, driver: str, pool: str, *, patience: float = _PATIENCE) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._patience = patience
        self._turn = asyncio.Lock()
        self._under_way = threading.Lock()
        """Held by the thread that lists, also when nobody waits for it any more."""

    async def claims_naming(self, devices: Collection[str]) -> tuple[Naming, ...]:
        """Every allocation that names one of the devices, by a list that is begun after this was called.

        Raises ``driver.claims.errors.Unavailable`` where nobody can know: the API server does not answer, refuses us,
        or has an allocation that cannot be read.
        """
        wanted = frozenset(devices)
        async with self._turn:
            try:
                found = await self._api.call(self._listed, patience=self._patience)
            except Forbidden as error:
                raise Unavailable(_refused(error)) from error
            except KubeError as error:
                raise Unavailable(f"the claims of the cluster cannot be listed: {error}") from error
            except ClaimError as error:
                if isinstance(error, Unavailable):
                    raise
                raise Unavailable(f"an allocation cannot be read: {error}") from error
        return tuple(each for each in found if each.device in wanted)

    def _listed(self, api: ResourceApi) -> tuple[Naming, ...]:
        """In a thread."""
        if not self._under_way.acquire(blocking=False):
            raise Unavailable("the list of claims that was begun before this one has not ended yet")
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
        """What is kept of a claim: nothing where no device of our driver is named."""
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

    def _names(self, body: JsonObject) -> Iterator[Naming]:
        claim = ClaimReference(*(text_at(body, "metadata", key) for key in ("namespace", "name", "uid")))
        try:
            devices = allocated_devices(body, self._driver)
        except ClaimError as error:
            raise ClaimError(f"claim {claim}: {error}") from error
        for device in devices:
            if device.pool == self._pool:
                yield Naming(device.device, claim, device.admin_access)


def _refused(error: Forbidden) -> str:
    return (
        f"the API server does not let us list claims ({error.message}); give the agent's account, or with a node's "
        f"identity the group system:nodes, {_RIGHT} by a ClusterRole"
    )
