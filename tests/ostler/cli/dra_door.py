"""An agent's own socket with a DRA door behind it that says what a test wants it to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from node.inventory.model import Snapshot
from node.offer import Offer
from ostler.admin.dra import DraView
from ostler.admin.health import HealthView
from ostler.admin.holds import HoldsView
from ostler.admin.serving import admin_endpoint
from protos.agent.v1alpha1 import agent_pb2
from protos.agent.v1alpha1.agent_pb2 import ListClaimsResponse, ListSlicesResponse

_served = count()


class ServedDraDoor:
    """Answers with the values it was given."""

    def __init__(self, slices: ListSlicesResponse | None = None, claims: ListClaimsResponse | None = None) -> None:
        self._slices = slices or ListSlicesResponse(driver="ostler.dev")
        self._claims = claims or ListClaimsResponse()

    @property
    def offer(self) -> Offer:
        return Offer()

    def interfaces(self) -> Mapping[str, agent_pb2.PodInterface]:
        return {}

    def slices(self) -> ListSlicesResponse:
        return self._slices

    def claims(self) -> ListClaimsResponse:
        return self._claims


class View:
    """An agent of which nothing but the DRA door, holds and health are asked."""

    def __init__(self, door: DraView | None, holds: HoldsView | None = None, health: HealthView | None = None) -> None:
        self._door = door
        self._holds = holds
        self._health = health

    def status(self) -> agent_pb2.GetStatusResponse:
        return agent_pb2.GetStatusResponse(
            version="1.0",
            node_name="worker-1",
            pid=7,
            role="active",
            ready=True,
            snapshot_generation=1,
            holds=None if self._holds is None else self._holds.report().status,
            health=None if self._health is None else self._health.summary(),
        )

    def devices(self) -> tuple[Snapshot, Offer]:
        raise NotImplementedError

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        raise NotImplementedError

    async def reload(self) -> tuple[str, ...]:
        raise NotImplementedError

    async def quiesce(self, reason: str) -> tuple[int, tuple[str, ...]]:
        raise NotImplementedError

    async def resume(self) -> tuple[int, tuple[str, ...]]:
        raise NotImplementedError

    def dra(self) -> DraView | None:
        return self._door

    def holds_view(self) -> HoldsView | None:
        return self._holds

    def health_view(self) -> HealthView | None:
        return self._health


@asynccontextmanager
async def serving(
    folder: Path, door: DraView | None = None, *, holds: HoldsView | None = None, health: HealthView | None = None
) -> AsyncIterator[str]:
    """The path of the socket."""
    # A name of its own: gRPC keeps the connection of a process to an address, also after another server is there.
    path = folder / f"agent-{next(_served)}.sock"
    endpoint = admin_endpoint(path, View(door, holds, health))
    await endpoint.start()
    try:
        yield str(path)
    finally:
        await endpoint.stop(0)
