"""Interfaces in pods on a real node: they arrive, carry traffic and come back, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.dra.conftest import Stage
from tests.cluster.interfaces.moving import Moving, guard, inside
from tests.cluster.interfaces.stand_ins import stand_ins
from tests.cluster.rig.processes import wait_until


@pytest.fixture(params=["veth", "macvlan"])
def moving(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Moving]:
    with stand_ins(stage.node, 2, request.param) as made:
        yield Moving(stage, made)


def test_two_pods_talk_over_their_interfaces_and_the_node_has_them_back(moving: Moving) -> None:
    pods = moving.stage.pods
    seen = moving.run("first")
    mine = moving.interface_of("first")
    link = moving.before[mine]
    assert inside(seen)[mine][0] == link.addresses[0]
    (told,) = guard(seen)["interfaces"]
    assert (told["name"], told["hardwareAddress"], told["mtu"]) == (mine, link.address, link.mtu)
    assert mine not in moving.stand_ins.on_node()

    peer = link.addresses[0].partition("/")[0]
    moving.run("second", f"ping -c 1 -W 20 -I {peer_of(moving, mine)} {peer} && echo reached; sleep 1000")
    wait_until("the pods talk", lambda: "reached" in pods.output("second"))
    assert moving.stand_ins.on_node() == {}

    for name in ("first", "second"):
        pods.delete(name)
    moving.wait_back()


def peer_of(moving: Moving, name: str) -> str:
    """The other one of the two interfaces."""
    (other,) = {*moving.stand_ins.names} - {name}
    return other
