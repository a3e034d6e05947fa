"""The event loop's side of the resource API: blocking calls in a pool of threads, with errors worded for pods' events.

The client library takes a fifth of a second and several megabytes to load, and registration does not wait for it: the
first call makes the ``ResourceApi`` in the pool, once for all; if that fails (a kubeconfig that does not exist yet),
the next call tries again. Every call ends within ``patience`` seconds, long before the kubelet's 45: its claim then has
an error that says why, and the kubelet asks again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from driver.claims.model import ClaimReadForbidden, Unavailable
from kube.bodies import JsonObject
from kube.errors import (
    Closed,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotServed,
    RequestError,
    Unreachable,
    WriteConflict,
)
from node.tasks import report_fault

if TYPE_CHECKING:
    from driver.resource_api.client import ResourceApi

T = TypeVar("T")

_UNRELATED = "no relationship found"
"""The node authorizer's words for a claim that, as far as it knows (yet), no pod of the node uses."""

_ENDING = "this agent is stopping and no longer asks the API server; its successor does"


class AsyncResourceApi:
    """A ``driver.claims.contracts.ClaimReader``, and everything else that the loop asks the API server.

    ``make`` may raise ``KubeError``. ``threads``: requests at a time; a client should keep as many connections.
    """

    def __init__(self, make: Callable[[], ResourceApi], *, threads: int = 32, patience: float = 20.0) -> None:
        self._make = make
        self._patience = patience
        self._pool = ThreadPoolExecutor(threads, "resource api")
        self._lock = threading.Lock()
        self._api: ResourceApi | None = None
        self._closed = False

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """See ``ClaimReader``."""
        what = f"ResourceClaim {namespace}/{name}"
        return await self._explained(lambda api: api.claim(namespace, name), what, "get on resourceclaims")

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        """Replace the status of the claim with that name and resource version.

        Raises ``WriteConflict``, ``NotFound``, ``Invalid`` and ``Forbidden`` of ``kube.errors`` unchanged, because only
        the caller knows what they mean here, and ``Unavailable`` for everything else.
        """
        try:
            return await self.call(lambda api: api.replace_claim_status(claim))
        except (WriteConflict, NotFound, Invalid, Forbidden):
            raise
        except KubeError as error:
            raise Unavailable(explained(error, "the claim's status", "update on resourceclaims/status")) from error

    async def call(self, ask: Callable[[ResourceApi], T], *, patience: float | None = None) -> T:
        """Ask any question in the pool; raises its errors, and ``Unavailable`` if it takes too long.

        ``patience``: seconds, for questions of several requests.
        """
        if self._closed:
            raise Unavailable(_ENDING)
        work = asyncio.get_running_loop().run_in_executor(self._pool, lambda: ask(self.made()))
        seconds = self._patience if patience is None else patience
        try:
            done, _ = await asyncio.wait((work,), timeout=seconds)
        finally:
            if not work.done():
                # A thread cannot be cancelled with its caller; a later answer is dropped, a fault of ours is logged.
                report_fault(work, "a question to the API server that nobody waits for", (KubeError,))
        if not done:
            text = f"the API server has not answered within {seconds:g} s; check its load and the network"
            raise Unavailable(f"{text}; the agent asks again later")
        if work.cancelled():
            raise Unavailable(_ENDING)
        return work.result()

    def close(self) -> None:
        """End pending requests; waiting callers get ``Unavailable``. Safe to repeat."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()

    def made(self) -> ResourceApi:
        """The blocking side, made at the first call; for threads only. Raises what ``make`` raises."""
        with self._lock:
            if self._api is None:
                self._api = self._make()
                if self._closed:
                    self._api.close()
            return self._api

    async def _explained(self, ask: Callable[[ResourceApi], T], what: str, right: str) -> T:
        try:
            return await self.call(ask)
        except Forbidden as error:
            raise ClaimReadForbidden(explained(error, what, right), error.message) from error
        except KubeError as error:
            raise Unavailable(explained(error, what, right)) from error


def explained(error: KubeError, what: str, right: str) -> str:
    """The failure of ``what`` and the fix; ``right`` such as ``get on resourceclaims``."""
    if isinstance(error, Forbidden):
        if _UNRELATED in error.message:
            return (
                f"{what}: the API server does not know yet that a pod of this node uses it ({error.message}); "
                "the agent asks again when the kubelet does"
            )
        group = "resource.k8s.io" if "resource" in right else '""'
        lacking = f"give the agent's account the verb {right} of the API group {group} by a ClusterRole"
        return f"{what}: the API server refuses the agent ({error.message}); {lacking}"
    if isinstance(error, NotServed):
        return f"{what}: {error}"
    if isinstance(error, Closed):
        return f"{what}: {_ENDING}"
    if isinstance(error, Unreachable):
        return f"{what}: {error.message}; the agent asks again when the kubelet does"
    if isinstance(error, RequestError):
        return f"{what}: the API server gives no usable answer ({error})"
    return f"{what}: cannot ask the API server: {error}"
