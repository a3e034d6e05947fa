"""Finds out what the API server keeps of a slice: device taints, and counters that devices consume.

A server whose feature gate DRADeviceTaints is off drops taints silently, and reports nowhere which gates are on. So
ostler asks by a dry run: it creates a slice with a tainted device that is never stored. A dry run passes admission like
any other request: the policies that restrict an agent to its own node see this node's name.

ostler asks a server that keeps taints once, whenever its release or API version changes, and when its answer is in
doubt. The answer outlives the process: an agent that restarts asks nothing before the next check is due, so that a
rollout does not put two more questions to the server for each node. If the server was changed meanwhile, the agent
learns that as late as one that runs on: at the next check, or with the first slice that comes back without its taint.
An answer counts only for the address that gave it. ostler asks a server that drops taints at every check and every
start: turning the gate on changes neither release nor version, and nothing written would show it.

If a rule has partitions of GPUs made, ostler asks the same about counters. Kubernetes 1.34 refuses them if their set is
not in the same slice, and counts as a server that drops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from driver.claims.model import Unavailable
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, object_at, one_line
from kube.errors import Closed, Forbidden, Invalid, KubeError, Unreachable
from node.clocks import Clocks
from node.door_policy import KnownDoors, LastLook, Taints, TaintSupport

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi


log = logging.getLogger("ostler.doors")

LOOK_EVERY = 600.0
"""Seconds between two checks of the server's release."""
_GATE: Final = "DRADeviceTaints"
_FIX: Final = (
    "they are on by default since Kubernetes 1.36, and before with "
    f"the feature gate {_GATE} of API server and scheduler"
)
_TEXT: Final = 400


class SliceFeatures:
    """The last answers about taints (``support``) and ``counters``; starts with ``known``.

    Calls ``on_learned`` when either changes, and after every check that found them unchanged (``look``). For the event
    loop only.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        node_name: str,
        known: KnownDoors,
        *,
        clocks: Clocks,
        policy: BackoffPolicy,
        look_every: float,
        on_learned: Callable[[], None],
    ) -> None:
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self.support = known.support
        self.counters = known.counters
        """Whether the server keeps counter sets in slices of their own; None if it was never asked."""
        self.look = known.look
        """The last check that found a server that keeps taints, and counters if rules depend on them."""
        self.unanswered = ""
        """Why the server has not said how it treats taints; empty once it has."""
        self._clock, self._random = clocks.clock, clocks.random
        self._policy = policy
        self._look_every = look_every
        self._on_learned = on_learned
        self._asked_of = ""
        self._doubts = 0
        """How many there were; an answer that was pending at the last one does not settle it."""
        self._asked_to_look = asyncio.Event()
        self._wants_counters = False

    @property
    def counts(self) -> bool:
        """Whether the server is known to keep counters."""
        return self.counters is True

    @property
    def asks_for_counters(self) -> bool:
        """Whether rules depend on counters, and the server has never said whether it keeps them."""
        return self._wants_counters and self.counters is None

    def want_counters(self) -> None:
        """Ask about counters, too, from now on: rules depend on them."""
        if not self._wants_counters:
            self._wants_counters = True
            if not self.counts:
                self._asked_to_look.set()

    def ask_again(self) -> None:
        """Ask soon: the server may be another one."""
        self._asked_to_look.set()

    def doubt(self) -> None:
        """Ask the server again what it keeps: a slice came back without a taint that it was sent with."""
        self._doubts += 1
        self._asked_of = ""
        self._looked(LastLook())
        self._asked_to_look.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        backoff = Backoff(self._policy, self._random)
        await self._wait(await self._remembered())
        while True:
            self._asked_to_look.clear()
            doubts = self._doubts
            support = await self._support()
            answered = support is None or support.taints is not Taints.UNKNOWN
            if answered:
                backoff.reset()
                wait = self._until_next()
            else:
                wait = backoff.delay()
            self._learn(support, doubts)
            asks = self._wants_counters and not (self.counters and support is None)
            if asks and await self._learn_counters() is None:
                answered = False
                wait = min(wait, backoff.delay())
            if answered and doubts == self._doubts:
                self._looked(await self._this_look() if self._keeps_all else LastLook())
            await self._wait(wait)

    @property
    def _keeps_all(self) -> bool:
        return self.support.kept and (self.counts or not self._wants_counters)

    def _until_next(self) -> float:
        return self._look_every * (0.8 + 0.4 * self._random())

    async def _wait(self, seconds: float) -> None:
        """Return when it is time to ask again."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._asked_to_look.wait()

    async def _remembered(self) -> float:
        """Seconds for which the answers to an earlier process count; 0 if the server must be asked now."""
        last, this = self.look, await self._this_look()
        left = last.at + self._until_next() - this.at
        # In the future: the clock was wrong at that time, or is now.
        holds = self._keeps_all and not self._doubts and last.at <= this.at and left > 0
        if not holds or not this.server or this.server != last.server:
            return 0.0
        self._asked_of = self.support.server
        return left

    async def _this_look(self) -> LastLook:
        """A look at the server now; without an address if there is no way to it."""
        try:
            return LastLook(self._clock(), await self._api.call(lambda api: api.server))
        except (KubeError, Unavailable):
            return LastLook(self._clock())

    def _looked(self, look: LastLook) -> None:
        if look != self.look:
            self.look = look
            self._on_learned()

    async def _learn_counters(self) -> bool | None:
        """Ask whether the server keeps counters; None if it did not answer, and the last answer counts."""
        try:
            kept = await self._api.call(lambda api: counters_kept(api, self._driver, self._node_name))
        except (KubeError, Unavailable) as error:
            log.info("cannot tell whether the API server keeps counters", extra={"error": str(error)})
            return None
        if kept is not self.counters:
            log.info("counters of slices", extra={"kept": kept})
            self.counters = kept
            self._on_learned()
        return kept

    def _learn(self, support: TaintSupport | None, doubts: int) -> None:
        """Ask the server; ``doubts``: how many there were when it was asked."""
        if support is None:
            self.unanswered = ""
            return
        if support.taints is Taints.UNKNOWN:
            self.unanswered = support.text
            if self.support.taints is not Taints.UNKNOWN or self.support == support:
                # The last answer counts.
                return
        else:
            self.unanswered = ""
            if doubts == self._doubts:
                self._asked_of = support.server
        if support == self.support:
            return
        log.info("device taints", extra={"answer": support.taints.value, "text": support.text})
        self.support = support
        self._on_learned()

    async def _support(self) -> TaintSupport | None:
        """The server's answer; None if this server has answered before."""
        try:
            return await self._api.call(self._asked_in_thread)
        except (KubeError, Unavailable) as error:
            return TaintSupport(Taints.UNKNOWN, f"cannot tell whether the API server keeps device taints: {error}")

    def _asked_in_thread(self, api: ResourceApi) -> TaintSupport | None:
        release, version = api.release() or "of an unknown release", api.version()
        server = f"{release}, resource.k8s.io/{version}"
        if server == self._asked_of and self.support.kept:
            return None
        found = asked(api, self._driver, self._node_name, server)
        if api.version() == version:
            return found
        # The version was an assumption, or has changed meanwhile.
        return asked(api, self._driver, self._node_name, f"{release}, resource.k8s.io/{api.version()}")


class DryRunApi(Protocol):
    """The calls of a ``driver.resource_api.client.ResourceApi`` that dry runs need."""

    def version(self) -> str:
        """The version of resource.k8s.io that the server serves."""

    def create_slice(self, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create a slice, or by a dry run find out how the server would store it."""


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
    """How the server treats a taint; ``server``: its release and API version, for people and for comparing."""
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
    """Whether the server keeps counters that a device consumes, and accepts them from a set in another slice.

    Raises ``KubeError`` if it does not answer.
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
