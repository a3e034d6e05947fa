"""Keeps devices from both doors while their hardware is divided: taken in the ledger, scanned, and then free again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from node.inventory.loop import Inventory, InventoryStopped
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState

AGAIN = 10.0
"""Seconds after which hardware that could not be divided is tried again."""
WITHDRAWN = 1.0
"""Seconds for the doors' schedulers to see that a device is taken, before it changes."""
HELD = "held"
"""One cause for any holder of a device: on a busy one the holders change all the time."""


@contextlib.asynccontextmanager
async def withheld(
    books: Bookkeeping, inventory: Inventory, owner: str, devices: Iterable[str], *, why: str, now: float
) -> AsyncIterator[None]:
    """Hold the devices for ``owner``, and scan before they are free again; raises HeldError if somebody has one."""
    taken = [Hold(each, None, why, now, owner, state=HoldState.PENDING_RELEASE) for each in devices]
    books.ledger.take(owner, taken)
    books.bus.publish(HoldsChanged())
    try:
        yield
    finally:
        with contextlib.suppress(InventoryStopped):
            await inventory.rescan()
        books.ledger.release(owner)
        books.bus.publish(HoldsChanged())
