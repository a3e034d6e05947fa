"""Who has what, for people: the ledger, what the doors make of it, and what is not known, asked at one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from node.ledger.bookkeeping import Bookkeeping
from node.rules import Door, Rule
from ostler.admin.holds import HoldsReport, HoldsStatus, NotReleasable, UnknownDevice
from ostler.admin.holds_view import holds_report
from ostler.agent.publisher import Publisher
from ostler.metrics.figures import HoldsFigures

if TYPE_CHECKING:
    from ostler.agent.dra_service import DraService


class HoldsDesk:
    """A ``HoldsView`` of ``books``; ``rules`` gives those of the configuration."""

    def __init__(
        self,
        books: Bookkeeping,
        publisher: Publisher,
        second: Callable[[], DraService | None],
        rules: Callable[[], Iterable[Rule]],
    ) -> None:
        self._books = books
        self._publisher = publisher
        self._second = second
        self._rules = rules

    def holds(self) -> HoldsReport:
        """See ``HoldsView``."""
        second = self._second()
        snapshot, offer = self._publisher.shown
        context, kubelet = self._publisher.context, self._books.unknown_because()
        containers = self._books.releases.off
        if second is None:
            # Without claims there is nobody to ask of them, and no door that would wait for left-over processes.
            faults = HoldsStatus(kubelet=kubelet, containers=containers)
            return holds_report(snapshot, self._rules(), context, {Door.PLUGIN: offer}, losers={}, faults=faults)
        faults = HoldsStatus(
            kubelet=kubelet,
            api_server="; ".join(second.problems()),
            both=second.held_back(),
            doors="; ".join(second.problems_of_doors()),
            processes=self._books.draining.off,
            containers=containers,
        )
        return holds_report(
            snapshot,
            second.rules_of_plugin_door(tuple(self._rules())),
            context,
            {Door.PLUGIN: offer, Door.DRA: second.offer},
            losers=second.losers(),
            leaving=second.leaving(),
            faults=faults,
        )

    def release(self, device: str) -> tuple[str, ...]:
        """See ``HoldsView``."""
        snapshot = self._publisher.shown[0]
        found = next((each for each in snapshot.devices if device in (each.name, each.uuid)), None)
        if found is None:
            raise UnknownDevice(device)
        left, pods = self._books.draining.left(found.name), self._books.tenants.named(found.name)
        if not self._books.release(found.name):
            raise NotReleasable(found.name, self._books.ledger.by_device().get(found.name))
        processes = ", ".join(str(process) for process in left) or "none was found yet"
        containers = f"; containers still run of {pods}" if pods else ""
        return (f"{found.name} is free; processes on it: {processes}{containers}",)

    def figures(self) -> HoldsFigures:
        """For metrics."""
        return HoldsFigures(self.holds(), self._books.pending())
