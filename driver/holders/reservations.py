"""What claims of this node's pods were allocated here, before the kubelet asks for it: one GET for each named claim.

A pod that is bound to the node has its devices, whether the kubelet has come to it or not; until its claims are
prepared, their reservations keep the plugin door from giving the same devices out. Nothing here lists or watches
claims: a claim is read when a pod first names it, when other pods name it than before, and again, more and more seldom,
as long as it cannot be read or no pod of the node may use it yet. What was read stays until it is read anew or no pod
names the claim any more, so that a silent API server gives no device free.

That a node's identity may not read a claim passes: the Node authorizer hears of the pod a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from driver.claims.errors import ClaimError, Unavailable
from driver.holders.pods import NodePod
from driver.holders.reserved import Reservation, reservation_of
from kube.backoff import Backoff, BackoffPolicy
from kube.errors import KubeError, RequestError
from node.ledger import Hold, HoldState
from node.rules import Door
from node.values import Record, record

if TYPE_CHECKING:
    from driver.async_api import AsyncResourceApi

log = logging.getLogger("ostler.claims")

READS = 4
"""Claims that are read at a time: preparation needs the other connections."""
AGAIN = BackoffPolicy(first=0.5, most=60.0)

Key = tuple[str, str]
"""Namespace and name of a claim."""


@record
class _Named(Record):
    """A claim that pods name. ``due``: when it is read, in monotonic seconds; infinite: not again."""

    key: Key
    users: frozenset[str]
    backoff: Backoff
    due: float
    found: Reservation | None = None
    since: float = 0.0
    """When its devices were first seen reserved, Unix seconds."""
    read: bool = False
    reading: bool = False
    again: bool = False
    """Other pods name it than when it was asked for."""
    problem: str = ""


class Reservations:
    """Reads what pods name while ``run`` runs; for the event loop alone.

    ``driver``, ``pool``: whose devices count. ``within``: names of the devices that a device is a part of. ``changed``:
    told, on the loop, when ``holds`` are others.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        pool: str,
        *,
        within: Callable[[str], tuple[str, ...]],
        random: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        policy: BackoffPolicy = AGAIN,
    ) -> None:
        self._api = api
        self._driver = driver
        self._pool = pool
        self._within = within
        self._random = random
        self._changed = changed
        self._clock = clock
        self._monotonic = monotonic
        self._policy = policy
        self._named: dict[Key, _Named] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()

    def holds(self) -> dict[str, tuple[Hold, ...]]:
        """What is reserved, by the claim's UID, in the order in which pods came to name them."""
        found = ((named, self._holds_of(named)) for named in self._named.values())
        return {named.found.uid: holds for named, holds in found if named.found is not None and holds}

    @property
    def unread(self) -> tuple[str, ...]:
        """Claims (``namespace/name``) that pods of the node name and that could not be read yet."""
        return tuple("/".join(key) for key, named in self._named.items() if not named.read)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why claims are not known as they are now, one line each."""
        return tuple(named.problem for named in tuple(self._named.values()) if named.problem)

    def apply(self, pods: Iterable[NodePod]) -> None:
        """These are the pods of the node that are not over."""
        users: dict[Key, set[str]] = {}
        for pod in pods:
            for name in pod.claims:
                users.setdefault((pod.namespace, name), set()).add(pod.uid)
        ended = [self._named.pop(key) for key in list(self._named) if key not in users]
        now = self._monotonic()
        for key, wanted in users.items():
            named = self._named.get(key)
            if named is None:
                backoff = Backoff(self._policy, self._random)
                self._named[key] = _Named(key, frozenset(wanted), backoff, now)
            elif named.users != wanted:
                named.users = frozenset(wanted)
                named.again = named.reading
                named.due = now
                named.backoff.reset()
        self._woken.set()
        if any(self._holds_of(each) for each in ended):
            self._changed()

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                self._woken.clear()
                due = self._begin()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - self._monotonic())):
                        await self._woken.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    def _begin(self) -> float | None:
        """Begin with what is due; when the next one is, None: when something changes."""
        now = self._monotonic()
        for named in sorted(self._named.values(), key=lambda each: each.due):
            if named.reading:
                continue
            if named.due > now:
                return named.due if named.due < math.inf else None
            if len(self._tasks) >= READS:
                return None
            named.reading = True
            task = asyncio.create_task(self._read(named), name="claim of a pod")
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._woken.set()

    async def _read(self, named: _Named) -> None:
        namespace, name = named.key
        before = self._holds_of(named)
        wait = math.inf
        retry_after = None
        try:
            body = await self._api.call(lambda api: api.claim(namespace, name))
            found = reservation_of(body, self._driver, self._pool)
        except (KubeError, Unavailable, ClaimError) as error:
            self._failed(named, error)
            wait = 0.0
            retry_after = error.retry_after if isinstance(error, RequestError) else None
        except Exception as error:
            # A mistake of ours: log and status tell of it, what was read stays, and it is read again.
            log.exception("a claim of a pod cannot be read")
            self._failed(named, error)
            wait = 0.0
        else:
            named.problem = ""
            named.read = True
            if found is None or named.found is None or found.uid != named.found.uid:
                named.since = self._clock()
            named.found = found
            if found is None or not found.usable_by(named.users):
                wait = 0.0
        finally:
            named.reading = False
        if named.again:
            named.again = False
            named.due = self._monotonic()
        else:
            named.due = self._monotonic() + (wait or named.backoff.delay(retry_after))
        if self._named.get(named.key) is named and self._holds_of(named) != before:
            self._changed()

    def _failed(self, named: _Named, error: Exception) -> None:
        problem = f"claim {'/'.join(named.key)} cannot be read: {error}"
        if problem != named.problem:
            named.problem = problem
            log.info("a claim of a pod is read later", extra={"claim": "/".join(named.key), "error": str(error)})

    def _holds_of(self, named: _Named) -> tuple[Hold, ...]:
        if named.found is None:
            return ()
        return tuple(
            Hold(
                device.device,
                Door.DRA,
                "/".join(named.key),
                named.since,
                owner=named.found.uid,
                share=device.share_id or "",
                admin=device.admin_access,
                within=self._within(device.device),
                state=HoldState.RESERVED,
            )
            for device in named.found.devices
        )
