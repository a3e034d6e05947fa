"""Keeps ostler registered as an NRI plugin of the container runtime."""

from __future__ import annotations

from pathlib import Path

from driver.nri.sandboxes import PodSandboxes
from driver.nri.status import NriState, NriStatus
from node.clocks import Clocks
from node.events import EventBus

SOCKET = Path("/var/run/nri/nri.sock")


class NriPlugin:
    """Connects to the runtime whenever it serves ``socket``, and hands its sandboxes to ``sandboxes``.

    Publishes ``NriChanged`` on ``bus`` when the state or its reason changes.
    """

    def __init__(self, socket: Path, sandboxes: PodSandboxes, *, bus: EventBus, clocks: Clocks) -> None:
        self._socket = socket
        self._sandboxes = sandboxes
        self._bus = bus
        self._status = NriStatus(NriState.ABSENT, clocks.clock(), "not connected yet")

    def state(self) -> NriStatus:
        """The state now."""
        return self._status

    async def run(self) -> None:
        """Stay registered until cancelled, whatever happens to the runtime."""
        raise NotImplementedError
