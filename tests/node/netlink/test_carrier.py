"""A real link that goes down is told as the trouble of the NIC whose interface it is, and told again when it is up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.node.netlink.conftest import Namespace

Make = Callable[..., AbstractAsyncContextManager[Namespace]]

pytestmark = pytest.mark.needs_root

WATCHER = "tests.node.netlink.carrier_watcher"
FLAPS = 1000


async def pair(here: Namespace) -> None:
    """``v0`` with a carrier: its other end is up, too."""
    await here.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for name in ("v1", "v0"):
        await here.ip("link", "set", name, "up")


async def test_a_link_that_goes_down_is_a_trouble_until_it_is_up(namespace: Make) -> None:
    async with namespace(module=WATCHER) as here:
        await pair(here)
        await here.ip("link", "set", "v1", "down")
        await here.shows(lambda shown: shown["down"])
        await here.ip("link", "set", "v1", "up")
        await here.shows(lambda shown: not shown["down"])


async def test_an_interface_that_is_set_down_says_nothing_of_its_cable(namespace: Make) -> None:
    async with namespace(module=WATCHER) as here:
        await pair(here)
        await here.ip("link", "set", "v0", "down")
        await here.ip("link", "set", "v0", "up")
        await here.ip("link", "set", "v1", "down")
        shown = await here.shows(lambda shown: shown["down"])
        assert shown["looks"] == 1


async def test_the_link_of_a_nic_that_a_pod_was_given_is_that_pods_matter(namespace: Make) -> None:
    async with namespace("--moved", module=WATCHER) as here:
        await pair(here)
        await here.ip("link", "set", "v1", "down")
        await here.ip("link", "add", "br0", "type", "bridge")
        shown = await here.shows(lambda shown: shown["messages"] >= 3)
        assert shown["looks"] == 0


async def flap(here: Namespace) -> None:
    batch = "link set v1 down\\nlink set v1 up\\n" * FLAPS
    await here.run("sh", "-c", f"printf '{batch}' | ip -batch -")


async def test_a_thousand_flaps_are_told_in_turn_and_end_as_it_is(namespace: Make) -> None:
    async with namespace(module=WATCHER) as here:
        await pair(here)
        await flap(here)
        await here.ip("link", "set", "v1", "down")
        shown = await here.shows(lambda shown: shown["down"] and shown["messages"] >= FLAPS)
        # Each flap is told twice at most; reads of the socket take many messages at a time.
        assert shown["looks"] <= 2 * FLAPS + 2


async def test_a_thousand_flaps_that_nobody_could_hear_are_one_look(namespace: Make) -> None:
    async with namespace("--buffer", "1", module=WATCHER) as here:
        await pair(here)
        with here.held():
            await flap(here)
            await here.ip("link", "set", "v1", "down")
        shown = await here.shows(lambda shown: shown["down"] and shown["overflows"] >= 1)
        assert shown["looks"] <= 5
