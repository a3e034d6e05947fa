"""An agent's own socket with a second door behind it that says what a test wants it to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.inventory.model import Snapshot
from node.offer import Offer
from ostler.admin import admin_endpoint
from ostler.dra import ClaimView, DraView, SlicesView
from ostler.status import AgentStatus


class Door:
    """Answers with the values it was given."""

    def __init__(self, slices: SlicesView | None = None, claims: tuple[ClaimView, ...] = ()) -> None:
        self._slices = slices or SlicesView("ostler.dev")
        self._claims = claims

    @property
    def offer(self) -> Offer:
        return Offer()

    def slices(self) -> SlicesView:
        return self._slices

    def claims(self) -> tuple[ClaimView, ...]:
        return self._claims


class View:
    """An agent of which nothing but the second door is asked."""

    def __init__(self, door: DraView | None) -> None:
        self._door = door

    def status(self) -> AgentStatus:
        raise NotImplementedError

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


@asynccontextmanager
async def serving(folder: Path, door: DraView | None) -> AsyncIterator[str]:
    """The path of the socket."""
    endpoint = admin_endpoint(folder / "agent.sock", View(door))
    await endpoint.start()
    try:
        yield str(folder / "agent.sock")
    finally:
        await endpoint.stop(0)
