"""The links of interfaces are followed while they are in pods, by whichever agent runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nri.sandboxes import SandboxRefused
from tests.making.moved_interfaces import NIC1, NIC2, InterfaceNode


@pytest.fixture
async def place(tmp_path: Path) -> InterfaceNode:
    """A node with a prepared claim for two NICs."""
    made = InterfaceNode(tmp_path)
    await made.prepared(NIC1, NIC2)
    return made


async def test_the_links_of_a_claim_are_followed_from_its_move_to_its_return(place: InterfaceNode) -> None:
    sandbox = place.sandbox()
    assert place.followed == {}
    await place.interfaces.run(sandbox)
    assert place.followed == {NIC1: Path(sandbox.netns), NIC2: Path(sandbox.netns)}
    await place.interfaces.stop(sandbox)
    assert place.followed == {}


async def test_the_next_agent_follows_the_links_that_are_in_pods(place: InterfaceNode) -> None:
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.followed.clear()
    await place.agent()
    assert place.followed == {NIC1: Path(sandbox.netns), NIC2: Path(sandbox.netns)}


async def test_no_link_is_followed_of_a_claim_whose_move_failed(place: InterfaceNode) -> None:
    place.mover.faults[NIC2, "attach"] = "interface eth2: the kernel said: No such device"
    with pytest.raises(SandboxRefused):
        await place.interfaces.run(place.sandbox())
    assert place.followed == {}
