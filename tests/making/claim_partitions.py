"""A node whose GPUs claims get in parts, and one driver process after the other that prepares them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from driver.claims.contracts import ClaimObserver
from driver.claims.model import RecordState
from driver.claims.partitions import ClaimPartitions
from driver.claims.service import ClaimService
from driver.devices.partitions import partitioned
from driver.devices.view import DoorView, door_offer, view_of
from node.clocks import SystemClocks
from node.inventory.model import Device, Snapshot
from node.ledger.ledger import Ledger
from node.ledger.offer_context import OfferContext, by_place
from node.partitions import partition_name
from tests.making.claim_service import ClaimNode, claim, result
from tests.making.partitions import H100, RULE, FakeHardware, parted

GPU = parted(0)
SMALL, OTHER = H100[0], H100[3]
LARGE = next(shape for shape in H100 if shape.profile == "4g.40gb")
PART, BESIDE, BIG = (partition_name(GPU.name, shape) for shape in (SMALL, OTHER, LARGE))


class _Counted(ClaimObserver):
    """Counts partitions."""

    def __init__(self) -> None:
        self.made = self.removed = self.pending = self.failed = 0

    def partition_made(self, seconds: float) -> None:
        self.made += 1

    def partitions_removed(self, count: int) -> None:
        self.removed += count

    def partition_failed(self, *, pending: bool) -> None:
        self.pending += pending
        self.failed += not pending


class Parts:
    """A node whose GPUs are given in parts, and one driver process after the other on it."""

    def __init__(self, root: Path, *gpus: Device) -> None:
        self.node = ClaimNode(root)
        self.node.with_options(partition_wait=2.0)
        self.hardware = FakeHardware(root, gpus or (GPU, parted(1)))
        self.observer = _Counted()
        self.looked_at: list[frozenset[str]] = []
        """The GPUs of each scan, empty for all."""
        self.patience = 40.0
        self.blind = False
        """Whether the inventory sees nothing new."""
        self.service: ClaimService
        self.partitions: ClaimPartitions

    def view(self) -> DoorView:
        snapshot = Snapshot(devices=self.hardware.devices())
        parts = partitioned(snapshot, (RULE,), self.partitions.names())
        context = OfferContext(by_place(self.service.ledger.all))
        return view_of(parts, door_offer(parts, (RULE,), context), context, (RULE,))

    def apply(self) -> None:
        self.service.apply(self.view())

    async def started(self, **more: Any) -> ClaimService:
        ledger = Ledger()

        async def rescan(gpus: frozenset[str]) -> None:
            self.looked_at.append(gpus)
            await asyncio.sleep(0)
            if not self.blind and self.service.ledger is ledger:
                self.apply()

        self.partitions = ClaimPartitions(
            self.hardware,
            rescan,
            self.observer,
            SystemClocks(monotonic=lambda: 0.0),
            ledger.bus,
            patience=self.patience,
        )
        self.service = self.node.service(ledger=ledger, partitions=self.partitions, observer=self.observer, **more)
        await self.service.recover()
        self.apply()
        return self.service

    def put(self, number: int, *devices: str, **fields: Any) -> None:
        self.node.reader.put(claim(number, *(result(device, **fields) for device in devices)))

    def check_empty(self) -> None:
        assert self.hardware.instances == []
        assert self.hardware.made() == ()
        assert self.service.records() == ()
        assert self.service.ledger.all == ()
        assert [*(self.node.root / "state" / "claims").glob("*")] == []
        assert [*(self.node.root / "cdi").glob("*")] == []

    def check_whole(self, *partitions: str) -> None:
        """Exactly these partitions exist, each for a claim that is prepared with it."""
        made = self.hardware.made()
        assert sorted(each.device for each in made) == sorted(partitions)
        assert sorted(each.uuid for each in made) == sorted(self.hardware.instances)
        records = {record.claim.uid: record for record in self.service.records()}
        for each in made:
            assert records[each.owner].state is RecordState.COMPLETED
        assert {hold.owner for hold in self.service.ledger.all} == records.keys()
