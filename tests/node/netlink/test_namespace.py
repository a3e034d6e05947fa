"""Real rtnetlink in a network namespace: every change is seen, pods' links wake nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.node.netlink.conftest import Namespace

Make = Callable[..., AbstractAsyncContextManager[Namespace]]

pytestmark = pytest.mark.needs_root


async def test_a_links_whole_life_is_seen(namespace: Make) -> None:
    async with namespace("--pods") as here:
        await here.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        await here.shows(lambda shown: shown["links"] == {"v0": "down ", "v1": "down "})
        await here.ip("link", "set", "v0", "up")
        await here.shows(lambda shown: shown["links"].get("v0") == "up ")
        await here.ip("link", "set", "v0", "down")
        await here.shows(lambda shown: shown["links"].get("v0") == "down ")
        await here.ip("link", "set", "v0", "name", "odd.@#!&=+näme")
        await here.shows(lambda shown: shown["links"] == {"odd.@#!&=+näme": "down ", "v1": "down "})
        await here.ip("link", "delete", "v1")
        await here.shows(lambda shown: shown["links"] == {})


async def test_a_link_that_is_moved_to_another_namespace_is_gone(namespace: Make) -> None:
    async with namespace("--pods") as here, namespace("--pods") as pod:
        await here.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        await here.shows(lambda shown: set(shown["links"]) == {"v0", "v1"})
        await here.ip("link", "set", "v1", "netns", str(pod._process.pid))
        await here.shows(lambda shown: set(shown["links"]) == {"v0"})
        await pod.shows(lambda shown: set(shown["links"]) == {"v1"})
        # It comes back under the name that it had in the pod.
        await pod.ip("link", "set", "v1", "name", "eth0")
        await pod.ip("link", "set", "eth0", "netns", str(here._process.pid))
        await here.shows(lambda shown: set(shown["links"]) == {"v0", "eth0"})


async def test_addresses_and_default_routes_are_seen(namespace: Make) -> None:
    async with namespace("--pods") as here:
        for name in ("v0", "w0"):
            await here.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
            await here.ip("link", "set", name, "up")
            await here.ip("link", "set", f"{name}p", "up")
        await here.ip("address", "add", "10.7.0.2/24", "dev", "v0")
        await here.ip("address", "add", "10.8.0.2/24", "dev", "w0")
        await here.ip("address", "add", "fd00::2/64", "dev", "v0", "nodad")
        await here.shows(lambda shown: shown["addresses"] == ["v0 10.7.0.2/24", "v0 fd00::2/64", "w0 10.8.0.2/24"])
        await here.ip("route", "add", "default", "via", "10.7.0.1", "table", "77")
        await here.shows(lambda shown: shown["routes"] == ["v0 4 0"])
        both = ("nexthop", "via", "10.7.0.1", "nexthop", "via", "10.8.0.1")
        await here.ip("route", "add", "default", "metric", "50", *both)
        await here.ip("-6", "route", "add", "default", "via", "fd00::1", "metric", "9")
        await here.shows(lambda shown: shown["routes"] == ["v0 4 0", "v0 4 50", "v0 6 9", "w0 4 50"])
        await here.ip("route", "del", "default", "metric", "50")
        await here.ip("address", "del", "10.8.0.2/24", "dev", "w0")
        wanted = ["v0 10.7.0.2/24", "v0 fd00::2/64"]
        await here.shows(lambda shown: shown["routes"] == ["v0 4 0", "v0 6 9"] and shown["addresses"] == wanted)


async def test_default_routes_through_next_hop_objects_are_seen(namespace: Make) -> None:
    async with namespace("--pods") as here:
        await here.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/nexthop_compat_mode")
        await here.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        for name in ("v0", "v1"):
            await here.ip("link", "set", name, "up")
        await here.ip("address", "add", "10.7.0.2/24", "dev", "v0")
        await here.ip("nexthop", "add", "id", "7", "via", "10.7.0.1", "dev", "v0")
        await here.ip("nexthop", "add", "id", "9", "group", "7")
        await here.ip("route", "add", "default", "nhid", "7", "metric", "5")
        await here.shows(lambda shown: shown["routes"] == ["v0 4 5"])
        await here.ip("route", "add", "default", "nhid", "9", "metric", "6")
        await here.shows(lambda shown: shown["routes"] == ["v0 4 5", "v0 4 6"])


async def test_a_bridge_and_its_ports_are_seen(namespace: Make) -> None:
    async with namespace() as here:
        await here.ip("link", "add", "br0", "type", "bridge")
        await here.ip("tuntap", "add", "dev", "tap0", "mode", "tap")
        await here.shows(lambda shown: shown["links"] == {"br0": "down ", "tap0": "down "})
        await here.ip("link", "set", "tap0", "master", "br0")
        await here.shows(lambda shown: shown["links"] == {"br0": "down ", "tap0": "down br0"})
        await here.ip("link", "set", "tap0", "nomaster")
        await here.shows(lambda shown: shown["links"] == {"br0": "down ", "tap0": "down "})


async def test_pods_links_wake_nobody(namespace: Make) -> None:
    async with namespace() as here:
        before = here.latest["wakeups"]
        for number in range(5):
            await here.ip("link", "add", f"v{number}", "type", "veth", "peer", "name", f"w{number}")
            await here.ip("link", "set", f"v{number}", "up")
            await here.ip("address", "add", f"10.1.{number}.1/32", "dev", f"v{number}")
            await here.ip("route", "add", f"10.2.{number}.0/24", "dev", f"v{number}", "scope", "link")
            await here.ip("link", "delete", f"v{number}")
        # The next wake-up is the first one since.
        await here.ip("link", "add", "br0", "type", "bridge")
        shown = await here.shows(lambda shown: "br0" in shown["links"])
        assert shown["wakeups"] == before + 1
        assert shown["messages"] >= 20


async def test_lost_notifications_end_in_the_right_picture(namespace: Make) -> None:
    async with namespace("--pods", "--buffer", "1") as here:
        names = [f"b{number}" for number in range(100)]
        make = "\n".join(f"link add {name} type bridge" for name in names)
        with here.held():
            await here.run("sh", "-c", f"printf '%s\\n' '{make}' | ip -batch -")
        shown = await here.shows(lambda shown: set(shown["links"]) == set(names))
        assert shown["overflows"] >= 1
        assert shown["wakeups"] <= 20
