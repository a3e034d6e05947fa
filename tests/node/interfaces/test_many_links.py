"""A pod may fill its namespace with links, addresses and routes: what the agent keeps of them does not grow."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from node.interfaces.addressing import LinkAddress, addresses, neighbors, routes
from node.interfaces.links import find_link, link_at, link_named, links
from node.interfaces.model import InterfaceSettings, MovableInterface, Neighbor, Route
from node.interfaces.move import KernelSockets
from node.interfaces.namespace import NetworkNamespace
from node.netlink import NetlinkError, NetlinkSocket, attribute
from node.values import replace
from tests.node.interfaces.conftest import DEVICE, PodsNode
from tests.node.interfaces.nic_hardware import PlayedNetlink

LIMIT = 768 << 10
"""Bytes, a third of them for the buffer of one read; a link takes 2 KiB with its message."""
MANY = 4_000


class Flood(PlayedNetlink):
    """A namespace with very many links, each with our alias, and addresses of all of them."""

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        for index in range(1, MANY + 1):
            if kind == 18:
                name = attribute(3, b"dummy%d\0" % index)
                yield struct.pack("=BxHiII", 0, 1, index, 1, 0) + name + attribute(20, f"ostler:{DEVICE}".encode())
            else:
                yield struct.pack("=BBBBI", 2, 24, 0, 0, index) + attribute(2, struct.pack("!I", 0x0A000000 + index))


def peak(work: Callable[[], object]) -> int:
    """Most bytes that the work had at a time beyond those of before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_links_of_a_flood_with_our_mark_cost_no_memory(tmp_path: object) -> None:
    interface = MovableInterface(DEVICE, "v0", InterfaceSettings())
    marks = [f"ostler:{DEVICE}".encode()]
    found = []
    netlink = Flood()
    sample = (each for number, each in enumerate(links(netlink, marks)) if number % 50 == 0)
    assert peak(lambda: found.append(find_link(sample, interface, tmp_path))) < LIMIT  # type: ignore[arg-type]
    assert found[0] is not None


def test_addresses_of_a_flood_cost_no_memory() -> None:
    found: list[LinkAddress] = []
    assert peak(lambda: found.extend(addresses(Flood(), MANY))) < LIMIT
    assert found == [LinkAddress(MANY, "10.0.15.160/24")]


@pytest.mark.needs_root
def test_a_move_beside_many_links_and_addresses_reads_them_one_by_one(
    node: PodsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = range(300)
    node.pod.ip(
        *(f"link add d{each} type veth peer name e{each}" for each in several),
        *(f"link set d{each} alias ostler:another" for each in several),
        *(f"address add 10.3.{each // 250}.{each % 250 + 1}/32 dev d{each}" for each in several),
    )
    interface = node.interface(name="rail0", addresses=("10.7.0.9/24",))
    before = node.look(interface)

    def there_and_back() -> None:
        setup = node.look(interface)
        node.attach(interface, setup)
        assert node.detach(interface, setup)

    there_and_back()
    assert peak(there_and_back) < LIMIT
    # The pod has links with most indices, so the kernel chooses others.
    assert replace(node.look(interface), index=before.index) == before


@pytest.mark.needs_root
def test_the_kernel_leaves_out_what_belongs_to_other_links(node: PodsNode) -> None:
    node.host.ip(
        "address add 10.7.0.2/24 dev v0",
        "address add fd07::2/64 dev v0",
        "address add 10.8.0.2/24 dev v1",
        "link set v0 up",
        "route add 10.9.0.0/16 via 10.7.0.1",
        "route add 10.10.0.0/16 via 10.8.0.1",
        "route add fd09::/64 via fd07::1 dev v0",
        "neighbor add 10.7.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent",
        "neighbor add 10.8.0.9 lladdr 02:00:00:00:00:08 dev v1 nud permanent",
    )
    seen: set[int] = set()
    """Indices in what the kernel says of addresses and neighbours."""

    class Noting(NetlinkSocket):
        def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
            for payload in super().stream(kind, request, asked):
                if kind in {22, 30}:
                    seen.add(struct.unpack_from("=I", payload, 4)[0])
                yield payload

    with NetworkNamespace(node.host.path) as namespace:
        netlink = namespace.run(lambda: Noting(strict=True))
    with netlink:
        [index] = [each.index for each in links(netlink) if each.name == "v0"]
        assert {each.address for each in addresses(netlink, index)} == {"10.7.0.2/24", "fd07::2/64"}
        assert set(routes(netlink, index)) >= {Route("10.9.0.0/16", gateway="10.7.0.1", protocol=3)}
        assert neighbors(netlink, index) == (Neighbor("10.7.0.9", "02:00:00:00:00:09"),)
        assert seen == {index}


@pytest.mark.needs_root
def test_one_link_is_asked_for_by_index_name_and_alternative_name(node: PodsNode) -> None:
    long = "a-name-that-is-longer-than-15-bytes"
    node.host.ip(f"link property add dev v0 altname {long}", "link property add dev v0 altname short0")
    with KernelSockets().route(NetworkNamespace(node.host.path)) as netlink:
        found = link_named(netlink, "v0")
        assert found is not None
        assert [link_named(netlink, name) for name in ("short0", long)] == [found, found]
        assert link_at(netlink, found.index) == found
        assert link_named(netlink, "v7") is None
        assert link_at(netlink, 99999) is None
        assert link_named(netlink, "n" * 200) is None


@pytest.mark.needs_root
def test_a_dump_that_its_reader_left_does_not_keep_the_socket(node: PodsNode) -> None:
    node.host.ip(*(f"link add d{each} type veth peer name e{each}" for each in range(100)))
    with NetworkNamespace(node.host.path) as namespace, namespace.netlink() as netlink:
        with pytest.raises(NetlinkError, match="left"):
            _fail_at_the_first(netlink)
        assert link_named(netlink, "v0") is not None
        reader = links(netlink)
        next(reader)
        assert len({each.name for each in links(netlink)}) == 203


def _fail_at_the_first(netlink: NetlinkSocket) -> None:
    for _ in links(netlink):
        raise NetlinkError("reading", "left")
