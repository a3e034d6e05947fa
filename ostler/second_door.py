"""The DRA door with everything behind it, wired together: sockets, claims, slices, claim status, one API client.

Loaded only where a rule offers devices through DRA, or where claims are still held from a time when one did. The
kubelet comes first: the client library is not loaded before the sockets are there, and then in threads of its own.

Order at the start: the sockets, then what an earlier process left (calls wait for that), then the slices. Order at the
end: the slices' writer, then claims (what was begun is finished), then, once the instance lock is free, the sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from driver.async_api import AsyncResourceApi
from driver.claim_status import ClaimStatus
from driver.claims.options import ClaimOptions
from driver.claims.service import ClaimService
from driver.devices.offered import DoorView
from driver.devices.view import door_offer, view_of
from driver.door import DraDoor
from driver.parameters.doubled import pairs
from driver.publishing import SlicePublisher, controller_maker
from driver.registration import DoorOptions, DoorStatus
from kube.bodies import JsonObject
from node.boot import boot_id
from node.events import EventSink
from node.inventory.model import Snapshot
from node.ledger import Hold
from node.offer import Cause, Offer
from node.rules import Rule
from ostler import __version__
from ostler.config.settings import Settings
from ostler.dra import ClaimView, DraStatus, SlicesView
from ostler.dra_counters import DraCounters
from ostler.dra_views import claim_views, door_summary, slices_view
from ostler.eventlog import FromThreads
from ostler.figures import DraFigures

if TYPE_CHECKING:
    from driver.api import ResourceApi

log = logging.getLogger("ostler.dra")

CALLS = 32
"""Questions to the API server at once; the slices' writer and its watch have a connection each besides."""
CONNECT, WHOLE = 3.0, 10.0
"""Seconds to a connection, and for one attempt: two of them fit into what the kubelet gives a call."""

_NOT_ITS_OWN = (Cause.NO_RULE, Cause.OTHER_DOOR)
"""Why a device is none of this door's: nobody has to be told why it is not published."""


class SecondDoor:
    """Serves claims of this node's devices for as long as ``run`` runs.

    ``alive``: whether the inventory still looks at its devices. ``changed``: told when readiness may have changed.
    ``held``: told when other devices are held than before.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        events: EventSink,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        random: Callable[[], float],
        alive: Callable[[], bool],
        changed: Callable[[], None],
        held: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._random = random
        self._began = False
        self._view = DoorView()
        self.offer = Offer()
        """What the door makes of the snapshot that is shown."""
        self.counters = DraCounters(clock)
        self._api = AsyncResourceApi(self._made_api, threads=CALLS)
        name, kubelet = settings.dra.driver_name, settings.kubelet
        self._status = ClaimStatus(name, self._api, events=events, clock=clock, random=random)
        self._claims = ClaimService(
            ClaimOptions(
                name,
                settings.node_name,
                settings.state_dir,
                settings.cdi.directory,
                kubelet.registry_dir.parent,
            ),
            self._api,
            events=events,
            observer=self.counters,
            boot=boot_id(settings.roots.proc),
            clock=clock,
            monotonic=monotonic,
            random=random,
            changed=held,
        )
        self._door = DraDoor(
            DoorOptions(name, settings.node_name, settings.dra.plugins_dir, kubelet.registry_dir),
            self._claims,
            events=events,
            observer=self.counters,
            clock=clock,
            monotonic=monotonic,
            random=random,
            changed=changed,
            alive=alive,
            reporter=self._status,
        )
        self._slices = SlicePublisher(
            settings.node_name,
            controller_maker(self._api.made, name, settings.node_name, random, check=self._node_check()),
            events=FromThreads(events, asyncio.get_running_loop()),
            peers=settings.dra.peers,
            effect=settings.dra.taint_effect,
            monotonic=monotonic,
            random=random,
        )

    @property
    def holds(self) -> Mapping[str, Hold]:
        """Who holds which device by a claim, by the device's name."""
        return self._claims.ledger.by_device()

    def apply(self, snapshot: Snapshot, rules: Iterable[Rule]) -> None:
        """Offer what the rules say of this snapshot."""
        self.offer = door_offer(snapshot, rules, self.holds)
        self._view = view = view_of(snapshot, self.offer)
        self._claims.apply(view)
        self._door.apply(view)
        self._status.apply(view)
        self._slices.apply(view)

    async def run(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Serve until cancelled; the sockets are gone afterwards, unless handed over.

        ``settled``: returns when the kubelet has been served, so that the client library may be loaded.
        """
        self._began = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._door.run(), name="DRA door")
                await self._claims.recover()
                for record in self._claims.records():
                    # Whoever prepared it may have ended before it had written the claim's status.
                    self._status.prepared(record.claim, record.answer)
                group.create_task(self._claims.run(), name="claims")
                await settled()
                group.create_task(self._status.run(), name="claim status")
                self._slices.start()
        finally:
            # Its thread ends with what it has under way; the loop serves what is left meanwhile.
            await asyncio.to_thread(self._slices.stop)
            await self._claims.close()
            self._api.close()

    def hand_over(self) -> None:
        """Have the end of ``run`` leave the kubelet what a successor can take over; ``leave`` is to follow it."""
        self._door.hand_over()

    async def leave(self, seconds: float) -> bool:
        """Whether a successor has taken over within ``seconds``; no socket is left afterwards."""
        return not self._began or await self._door.leave(seconds)

    def status(self) -> DoorStatus:
        """How the registration stands."""
        return self._door.status()

    def summary(self) -> DraStatus:
        """How the door is, in one line."""
        return door_summary(self._door.status(), self.slices(), self.claims())

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready."""
        return self._door.waiting_for()

    def slices(self) -> SlicesView:
        """What is published, and what would be."""
        reasons = {offered.device.name: offered.reason for offered in self._view.devices if offered.reason}
        withheld = [each for each in self.offer.withheld if each.cause not in _NOT_ITS_OWN]
        return slices_view(self._settings.dra.driver_name, self._slices.publication(), reasons, withheld)

    def claims(self) -> tuple[ClaimView, ...]:
        """Every claim with a record."""
        return claim_views(self._claims.statuses())

    def figures(self) -> DraFigures:
        """For metrics."""
        return DraFigures(self.counters, self.status().state.value, self.slices(), self.claims())

    def _node_check(self) -> Callable[[JsonObject], None] | None:
        """What proves that the Node is this machine; a recorded node is nobody's."""
        if self._settings.inventory.recorded is not None:
            return None

        def check(node: JsonObject) -> None:
            from kube.node_identity import check_node, read_machine

            check_node(node, self._settings.node_name, read_machine(sys=self._settings.roots.sys))

        return check

    def _made_api(self) -> ResourceApi:
        """In a thread: the client library is loaded here. Raises ``kube.errors.KubeError``."""
        from driver.api import ResourceApi
        from kube.client import Client, Limits
        from ostler.api_server import api_access

        access = api_access(self._settings.kubernetes.kubeconfig, os.environ)
        log.info("the API server is asked for claims", extra={"server": access.server, "by": access.origin})
        client = Client(
            access,
            random=self._random,
            user_agent=f"ostler/{__version__}",
            limits=Limits(connect=CONNECT, whole=WHOLE, attempts=2),
            connections=CALLS + 2,
            pairs=pairs,
        )
        return ResourceApi(client)
