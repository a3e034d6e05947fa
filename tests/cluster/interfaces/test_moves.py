"""Interfaces in pods on a real node: they arrive, carry traffic and come back, whoever dies meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.dra.claims import DRIVER, allocated
from tests.cluster.dra.conftest import DraStage
from tests.cluster.interfaces.moving import Moving, guard, inside
from tests.cluster.interfaces.stand_ins import stand_ins
from tests.cluster.rig.pods import FOREVER
from tests.cluster.rig.processes import wait_until

METADATA = "cat /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/devices/*/ostler.dev-metadata.json"


@pytest.fixture(params=["veth", "macvlan"])
def moving(request: pytest.FixtureRequest, stage: DraStage) -> Iterator[Moving]:
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
    moving.run("second", f"until ping -c 1 -W 5 -I {peer_of(moving, mine)} {peer}; do :; done; echo reached; {FOREVER}")
    wait_until("the pods talk", lambda: "reached" in pods.output("second"))
    assert moving.stand_ins.on_node() == {}

    for name in ("first", "second"):
        pods.delete(name)
    moving.wait_back()


def test_beside_a_gpu_an_interface_is_what_the_claim_says_the_container_reads_it_and_the_node_has_it_back(
    stage: DraStage,
) -> None:
    interface = {
        "name": "net1",
        "addresses": ["10.98.0.7/24", "fd00:98::7/64"],
        "mtu": 1400,
        "routes": [{"destination": "10.97.250.0/24", "gateway": "10.98.0.1"}],
        "neighbors": [{"destination": "10.98.0.1", "hardwareAddress": "02:00:00:00:98:01"}],
    }
    parameters = {"apiVersion": "ostler.dev/v1alpha1", "kind": "NicConfig", "interface": interface, "nccl": True}
    with stand_ins(stage.node, 2, with_gpus=True) as made:
        moving = Moving(stage, made, {"requests": ["nic"], "opaque": {"driver": DRIVER, "parameters": parameters}})
        moving.create("first", f"ip -4 route; ip neigh; ip link show net1; {METADATA}; env; echo done; {FOREVER}")
        stage.pods.wait_phase("first", "Running")
        wait_until("it has looked", lambda: "done" in stage.pods.output("first"))
        seen = stage.pods.output("first")
        assert {"10.98.0.7/24", "fd00:98::7/64"} <= {*inside(seen)["net1"]}
        for text in (
            "10.97.250.0/24 via 10.98.0.1 dev net1",
            "10.98.0.1 dev net1 lladdr 02:00:00:00:98:01",
            "mtu 1400",
        ):
            assert text in seen
        (told,) = guard(seen)["interfaces"]
        assert (told["name"], told["mtu"]) == ("net1", 1400)
        described = [json.loads(line) for line in seen.splitlines() if '"DeviceMetadata"' in line]
        (gpu, nic) = (each["requests"][0] for each in described)
        assert (gpu["name"], nic["name"]) == ("gpu", "nic")
        has = [each["devices"][0]["name"] for each in (nic, gpu)]
        assert has == allocated(stage.claims.of_pod(stage.pods.get("first")))
        assert nic["devices"][0]["networkData"] == {
            "interfaceName": "net1",
            "ips": told["addresses"],
            "hardwareAddress": told["hardwareAddress"],
        }
        assert "NCCL_SOCKET_IFNAME==net1" in seen.splitlines()
        stage.pods.delete("first")
        moving.wait_back()


def peer_of(moving: Moving, name: str) -> str:
    """The other one of the two interfaces."""
    (other,) = {*moving.stand_ins.names} - {name}
    return other
