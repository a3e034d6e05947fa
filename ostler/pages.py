"""What /healthz, /readyz and /metrics say; loaded only where they are served."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.inventory.loop import Inventory
from ostler.admin import AgentView
from ostler.counters import Counters
from ostler.eventlog import EventLog
from ostler.figures import Figures
from ostler.http import Page

if TYPE_CHECKING:
    from node.inventory.live.hardware import LiveHardware
    from ostler.metrics import Metrics


def pages(
    agent: AgentView,
    counters: Counters,
    inventory: Inventory,
    events: EventLog,
    alive: Callable[[], bool],
    *,
    live: Callable[[], LiveHardware | None],
) -> dict[str, Callable[[], Page]]:
    """The pages by their path; each is made anew for every request."""

    def figures() -> Figures:
        status = agent.status()
        return Figures(
            role=status.role,
            ready=status.ready,
            snapshot=inventory.snapshot,
            scans=inventory.scans,
            last_scan_seconds=inventory.last_scan_seconds,
            resources=status.resources,
            events=dict(events.counts),
            quiesced=status.quiesced,
            live=live(),
        )

    def healthz() -> Page:
        return Page.lines(True, "ok") if alive() else Page.lines(False, "the event loop hangs")

    def readyz() -> Page:
        status = agent.status()
        return Page.lines(status.ready, "ready" if status.ready else "not ready", *status.reasons)

    made: list[Metrics] = []

    def metrics() -> Page:
        # Here and not above: 2 MB that only nodes pay whose metrics somebody scrapes.
        from ostler.metrics import CONTENT_TYPE, Metrics

        if not made:
            made.append(Metrics(counters, figures))
        return Page(200, CONTENT_TYPE, made[0].text())

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
