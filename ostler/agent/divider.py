"""Divides hardware while the configuration asks for it: GPUs into MIG devices, NICs into virtual functions.

It also has the maker of partitions that claims use. Each kind begins when a rule first needs it, and lasts as long as
the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from node.clocks import Clocks
from node.events import EventBus, EventRecorder
from node.inventory.loop import Inventory
from node.inventory.model import Device
from node.inventory.source import Source
from node.ledger.bookkeeping import Bookkeeping
from node.opening import boot_id
from node.partitions import PartitionMaker
from node.rules import rule_for
from ostler.agent.publisher import Publisher
from ostler.agent.sources import has_layouts, partition_maker, vf_maker
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from ostler.agent.mig_layouts import MigLayouts
    from ostler.agent.virtual_functions import VirtualFunctions


class HardwareDivider:
    """For the event loop only. ``bus``: the inventory's. ``publisher`` says what became of virtual functions."""

    def __init__(
        self,
        settings: Settings,
        sources: Sequence[Source],
        books: Bookkeeping,
        inventory: Inventory,
        publisher: Publisher,
        *,
        bus: EventBus,
        events: EventRecorder,
        clocks: Clocks,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._books = books
        self._inventory = inventory
        self._publisher = publisher
        self._bus = bus
        self._events = events
        self._clocks = clocks
        self._layouts: MigLayouts | None = None
        self._functions: VirtualFunctions | None = None

    @cached_property
    def maker(self) -> PartitionMaker | None:
        """The maker that keeps the journal; None if nothing can make partitions."""
        return partition_maker(self._settings, self._sources, self._may_change_mode)

    def use(self, settings: Settings) -> None:
        """Follow another configuration."""
        self._settings = settings
        if self._layouts is not None:
            self._layouts.use(settings)
        if self._functions is not None:
            self._functions.use(settings)

    def run(self, group: asyncio.TaskGroup) -> None:
        """Begin what the configuration asks for and does not run yet, by tasks of ``group``."""
        if self._layouts is None and has_layouts(self._settings):
            self._divide_gpus(group)
        if self._functions is None and self._settings.virtual_functions:
            self._make_functions(group)

    def _may_change_mode(self, gpu: Device) -> bool:
        rule = rule_for(gpu, self._settings.rules)
        return rule is None or rule.changes_mode

    def _divide_gpus(self, group: asyncio.TaskGroup) -> None:
        # Imported here: few nodes have layouts.
        from node.inventory.nvidia.partition_maker import NvidiaPartitionMaker
        from ostler.agent.mig_layouts import MigLayouts

        if not isinstance(self.maker, NvidiaPartitionMaker):
            return
        self._layouts = MigLayouts(
            self._settings,
            self.maker,
            self._books,
            self._inventory,
            self._bus,
            events=self._events,
            clocks=self._clocks,
        )
        group.create_task(self._layouts.run(), name="MIG layouts")

    def _make_functions(self, group: asyncio.TaskGroup) -> None:
        # Imported here: few nodes have virtual functions made.
        from node.inventory.nics.function_maker import VfRecord
        from ostler.agent.virtual_functions import VirtualFunctions

        self._functions = VirtualFunctions(
            self._settings,
            vf_maker(self._settings),
            self._books,
            self._inventory,
            self._bus,
            record=VfRecord(self._settings.state_dir, boot_id(self._settings.roots.proc)),
            events=self._events,
            clocks=self._clocks,
        )
        self._publisher.follow_functions(self._functions)
        group.create_task(self._functions.run(), name="virtual functions")
