"""What the pages say; loaded only where they are served.

``/livez`` (``/healthz`` is its older name), ``/readyz`` and ``/metrics``; an instance with a name answers the first two
also with that name behind them, so that whoever asks knows which of two agents on one address has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.inventory.loop import Inventory
from ostler.admin.http import Page
from ostler.admin.service import AgentView
from ostler.agent.eventlog import EventLog
from ostler.metrics.counters import AgentMetrics
from ostler.metrics.figures import Figures, HealthFigures, HoldsFigures

if TYPE_CHECKING:
    from node.inventory.live.hardware import LiveHardware
    from ostler.agent.node_events import NodeEvents
    from ostler.metrics.dra import DraFigures
    from ostler.metrics.exposition import Exposition


def pages(
    agent: AgentView,
    counted: AgentMetrics,
    inventory: Inventory,
    events: EventLog,
    alive: Callable[[], bool],
    *,
    instance: str = "",
    live: Callable[[], LiveHardware | None],
    node_events: Callable[[], NodeEvents | None],
    dra: Callable[[], DraFigures | None] = lambda: None,
    holds: Callable[[], HoldsFigures | None] = lambda: None,
    health: Callable[[], HealthFigures | None] = lambda: None,
) -> dict[str, Callable[[], Page]]:
    """The pages by their path; each is made anew for every request."""

    def figures() -> Figures:
        status = agent.status()
        shown, offer = agent.devices()
        return Figures(
            role=status.role,
            ready=status.ready,
            quiesced=status.quiesced,
            snapshot=inventory.snapshot,
            offer=offer,
            cdi_fault=shown.host.cdi_fault,
            scan_interval=inventory.max_interval,
            resources=status.resources,
            events=dict(events.counts),
            live=live(),
            node_events=node_events(),
            dra=dra(),
            holds=holds(),
            health=health(),
        )

    def livez() -> Page:
        return Page.lines(True, "ok") if alive() else Page.lines(False, "the event loop hangs")

    def readyz() -> Page:
        status = agent.status()
        return Page.lines(status.ready, "ready" if status.ready else "not ready", *status.reasons)

    made: list[Exposition] = []

    def metrics() -> Page:
        # Here and not above: 2 MB that only nodes pay whose metrics somebody scrapes.
        from ostler.metrics.exposition import CONTENT_TYPE, Exposition

        if not made:
            made.append(Exposition(counted, figures))
        return Page(200, CONTENT_TYPE, made[0].text())

    shared = {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/metrics": metrics}
    own = {f"/livez/{instance}": livez, f"/readyz/{instance}": readyz} if instance else {}
    return {**shared, **own}
