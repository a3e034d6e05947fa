"""A collection that the event loop follows: a reflector's thread behind it, started as soon as possible.

The client library is loaded when this runs, and not before. The reflector's thread turns objects into small values,
which reach the loop by ``call_soon_threadsafe`` in the same order; after the end of ``run`` no more news arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from driver.claims.model import Unavailable
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject
from kube.errors import KubeError, RequestError
from node.clocks import Clocks

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi
    from kube.collection import CollectionSource
    from kube.reflector import Reflector

log = logging.getLogger("ostler.kube")

T = TypeVar("T")
News = TypeVar("News")

RETRY = BackoffPolicy(first=0.5, most=30.0)
PAGE = 100
"""Objects in a page: a whole pod is large, and most nodes have no more pods."""


NodeCheck = Callable[[JsonObject], None]
"""Raises ``KubeError`` if the Node object is another machine's."""


class Follower(Protocol[T]):
    """Says what to follow, and takes the news on the loop; see ``kube.reflector.Handler``."""

    def source(self, api: ResourceApi) -> CollectionSource:
        """The collection to follow; called in a thread. May ask the API server; a ``KubeError`` is retried."""

    def value_of(self, body: JsonObject) -> T:
        """Reduces an object to what the loop needs; runs in the reflector's thread."""

    def replaced(self, found: Sequence[T]) -> None:
        """Take the complete list."""

    def applied(self, each: T) -> None:
        """Take a new or changed object."""

    def deleted(self, each: T) -> None:
        """Take the last state of an object that is gone."""


class Following(Generic[T]):
    """Informs ``follower`` about its source, from the start of ``run`` to its end; the reflector's ``Handler``."""

    def __init__(
        self,
        api: AsyncResourceApi,
        follower: Follower[T],
        *,
        name: str,
        clocks: Clocks,
        policy: BackoffPolicy = RETRY,
    ) -> None:
        self._api = api
        self._follower = follower
        self._name = name
        self._random = clocks.random
        self._policy = policy
        self._reflector: Reflector | None = None
        self._waiting_for = f"{name}: the API server has not been asked yet"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    @property
    def failing(self) -> str:
        """Why there is no news at the moment, empty if all is well."""
        if self._reflector is None:
            return self._waiting_for
        status = self._reflector.status()
        if status.failing:
            return f"{self._name}: {status.failing}"
        return "" if status.synced else f"{self._name}: waiting for the API server's list"

    async def run(self) -> None:
        """Follow until cancelled."""
        source = await self._agreed()
        # Not at the agent's start, when the kubelet comes first.
        from kube.pace import AGENTS
        from kube.reflector import Reflector, ReflectorLimits

        self._loop = asyncio.get_running_loop()
        reflector = self._reflector = Reflector(
            source,
            self,
            random=self._random,
            policy=self._policy,
            limits=ReflectorLimits(page_size=PAGE, herd=AGENTS, streams_lists=True),
            name=self._name,
        )
        reflector.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._ended = True
            await asyncio.to_thread(reflector.stop)

    async def _agreed(self) -> CollectionSource:
        backoff = Backoff(self._policy, self._random)
        while True:
            try:
                return await self._api.call(self._follower.source)
            except (KubeError, Unavailable) as error:
                if self._waiting_for != f"{self._name}: {error}":
                    self._waiting_for = f"{self._name}: {error}"
                    log.info("cannot follow yet", extra={"what": self._name, "error": str(error)})
                await asyncio.sleep(backoff.delay(error.retry_after if isinstance(error, RequestError) else None))

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        """See ``Handler``."""
        self._notify(self._follower.replaced, [self._follower.value_of(each) for each in objects])

    def applied(self, body: JsonObject) -> None:
        """See ``Handler``."""
        self._notify(self._follower.applied, self._follower.value_of(body))

    def deleted(self, body: JsonObject) -> None:
        """See ``Handler``."""
        self._notify(self._follower.deleted, self._follower.value_of(body))

    def bookmark(self, resource_version: str) -> None:
        """See ``Handler``: nobody here resumes from a version."""

    def _notify(self, handler: Callable[[News], None], news: News) -> None:
        def on_loop() -> None:
            if not self._ended:
                handler(news)

        assert self._loop is not None, "the reflector is started by run"
        with contextlib.suppress(RuntimeError):
            # If the loop is closed by now, nobody needs the news.
            self._loop.call_soon_threadsafe(on_loop)
