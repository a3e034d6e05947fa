"""What whoever quiesces is told where it cannot be done in full."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from node.events import EventBus
from node.inventory.facts import NodeFacts
from node.inventory.identity import IdentityStore
from node.inventory.loop import Inventory
from node.inventory.source import DriverHeld
from node.quiesce import Quiesce
from ostler.agent.edges import Edges
from ostler.agent.quiescence import DriverNotFree, Quiescence
from tests.making.events import RecordedEvents
from tests.waiting import background


class HeldDriver:
    """A source of which another call is in the driver."""

    name = "nvml"
    holds_driver: Literal[True] = True

    def read(self) -> NodeFacts:
        return NodeFacts()

    def close(self) -> None:
        raise DriverHeld("a call is in the driver")


@pytest.mark.parametrize("kept", [True, False])
async def test_that_a_restart_forgets_it_is_said_also_where_the_driver_is_held(tmp_path: Path, *, kept: bool) -> None:
    folder = tmp_path / "state"
    if not kept:
        folder.write_text("no folder")
    quiesce = Quiesce(folder / "quiesce.json")
    inventory = Inventory((HeldDriver(),), IdentityStore(None), EventBus(), clocks=Edges(), quiesce=quiesce)
    async with background(inventory.run()):
        with pytest.raises(DriverNotFree) as refused:
            await Quiescence(quiesce, inventory, RecordedEvents()).begin("a new driver")
    text = str(refused.value)
    assert "this agent has not released it: a call is in the driver" in text
    assert ("; a restart would forget this: " in text) is not kept
    assert quiesce.reason == "a new driver"
