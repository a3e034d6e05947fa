"""Moves the interfaces of NICs into pods: the claims' part, the container runtime's, and what the doors must know.

A node without a rule that moves interfaces, and without interfaces that an earlier process moved, pays nothing: NRI and
the kernel's means are loaded when they are first needed.

While the runtime does not report sandboxes, no interface can move, so devices whose interface moves are not published.
A runtime restarts in seconds, which must not withdraw slices, so this waits for ``PATIENCE``; after a start the first
slices wait for the runtime instead, as they wait for other answers. Prepared claims keep their devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from driver.claims.contracts import InterfaceReporter
from driver.interfaces.claim_interfaces import ClaimInterfaces
from driver.interfaces.moving import InterfaceMoves
from driver.interfaces.observers import InterfaceObserver, PodLinks
from driver.nri.status import NriChanged, NriState, NriStatus
from node.events import EventRecorder, EventType
from node.interfaces.mover import InterfaceMover
from node.ledger.events import OfferChanged
from node.ledger.ledger import Ledger
from node.opening import boot_id
from node.rules import Door, Rule
from ostler.agent.edges import Edges
from ostler.agent.loading import load
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from driver.nri.plugin import NriPlugin

PATIENCE = 30.0
"""Seconds without the runtime until devices are withdrawn."""
_FIX = "'ostler doctor' says how to switch NRI on"


def guard_folder(settings: Settings) -> Path:
    """The folder of the claims' guards: the driver's own among the kubelet's plugins, whose path is the host's."""
    return settings.dra.plugins_dir / settings.dra.driver_name / "interfaces"


def kernel_mover() -> InterfaceMover:
    """The mover of this node; loads it, so call it in a thread."""
    from node.interfaces.kernel import KernelMover  # Only nodes whose interfaces move need it.

    return KernelMover()


class PodInterfaces:
    """The claims' interfaces (``claims``) and the registration with the runtime; for the event loop only.

    ``links`` follows the links of interfaces in pods; None where nobody judges them. ``make_mover`` is called in a
    worker thread when the first interface moves. Publishes ``OfferChanged`` on the bus of ``ledger`` when ``unmovable``
    changes.
    """

    def __init__(
        self,
        settings: Settings,
        edges: Edges,
        *,
        events: EventRecorder,
        ledger: Ledger,
        reporter: InterfaceReporter,
        observer: InterfaceObserver,
        on_host_network: Callable[[Collection[str]], str] = lambda _: "",
        links: PodLinks | None = None,
        make_mover: Callable[[], InterfaceMover] = kernel_mover,
        patience: float = PATIENCE,
    ) -> None:
        self._socket = settings.dra.nri_socket
        self._edges = edges
        self._events = events
        self._bus = ledger.bus
        self._patience = patience
        self._needed = asyncio.Event()
        self._plugin: NriPlugin | None = None
        self._withdrawing: asyncio.TimerHandle | None = None
        self._was_connected = False
        self._unmovable = "the agent is still connecting to the container runtime"
        self.claims = ClaimInterfaces(
            InterfaceMoves(settings.state_dir, guard_folder(settings), make_mover, boot_id(settings.roots.proc)),
            settings.kubelet.registry_dir.parent,
            ledger,
            events=events,
            reporter=reporter,
            clocks=edges,
            on_host_network=on_host_network,
            observer=observer,
            links=links,
        )
        self._bus.subscribe(NriChanged, self._nri_changed)

    def use(self, rules: Iterable[Rule]) -> None:
        """Connect to the runtime if one of these rules moves interfaces, or a claim still has some."""
        if any(rule.moves_interface and rule.door.has(Door.DRA) for rule in rules) or self.claims.is_needed:
            self._needed.set()

    @property
    def unmovable(self) -> str:
        """Why no interface can move into a pod at present; empty if they can, or if that is about to change."""
        return self._unmovable

    @property
    def is_decided(self) -> bool:
        """Whether ``unmovable`` will not change in a moment: the runtime is there, or nothing needs it."""
        return self._was_connected or not self._needed.is_set()

    @property
    def is_failing(self) -> bool:
        """Whether interfaces should move, but the runtime does not report sandboxes."""
        status = self.status()
        return status is not None and status.state is not NriState.CONNECTED

    def status(self) -> NriStatus | None:
        """The connection to the runtime; None while nothing needs it."""
        return None if self._plugin is None else self._plugin.state()

    async def run(self) -> None:
        """Move interfaces when they are needed, and look for those that were lost, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.claims.keep(), name="interfaces to be tried again")
                group.create_task(self._stay_connected(), name="NRI")
        finally:
            self._cancel()

    async def _stay_connected(self) -> None:
        """Connect to the runtime once that is needed, and stay so."""
        await self._needed.wait()
        await load("driver.nri.plugin")
        from driver.nri.plugin import NriPlugin  # As above.

        self._plugin = NriPlugin(self._socket, self.claims, bus=self._bus, clocks=self._edges)
        await self._plugin.run()

    def _nri_changed(self, changed: NriChanged) -> None:
        status = changed.status
        if status.state is NriState.CONNECTED:
            self._cancel()
            self._was_connected = True
            self._become("")
        elif not self._was_connected:
            self._become(f"{status.reason}; {_FIX}")
        elif not self._unmovable and self._withdrawing is None:
            self._withdrawing = asyncio.get_running_loop().call_later(self._patience, self._withdraw)

    def _withdraw(self) -> None:
        self._withdrawing = None
        status = self.status()
        if status is not None and status.state is not NriState.CONNECTED:
            self._become(f"{status.reason}; {_FIX}")

    def _become(self, unmovable: str) -> None:
        if unmovable == self._unmovable:
            return
        if unmovable:
            self._events.emit(
                EventType.WARNING,
                "InterfacesUnmovable",
                f"NICs of resources with moveInterface are not offered to claims: {unmovable}",
            )
        self._unmovable = unmovable
        self._bus.publish(OfferChanged())

    def _cancel(self) -> None:
        if self._withdrawing is not None:
            self._withdrawing.cancel()
            self._withdrawing = None
