"""A claim from its creation to the container, and back."""

from __future__ import annotations

from tests.cluster.door.container import STAY, seen
from tests.cluster.dra.claims import (
    Claims,
    allocated,
    claim,
    devices,
    matching,
    published,
    request,
    template,
    user,
)
from tests.cluster.dra.conftest import RunDriver
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until


def test_the_slices_have_every_gpu_and_the_node_owns_them(
    api: RigApi, node: RigNode, claims: Claims, run_driver: RunDriver
) -> None:
    run_driver("h100-sxm-8")
    slices = claims.wait_slices(8)
    uid = api.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"]
    assert [one["metadata"]["ownerReferences"][0]["uid"] for one in slices] == [uid]
    assert {one["spec"]["nodeName"] for one in slices} == {node.name}
    assert all("productName" in device["attributes"] for device in published(slices).values())


def test_a_pod_gets_the_device_that_its_claim_was_given_and_no_other(
    claims: Claims, pods: RigPods, run_driver: RunDriver
) -> None:
    agent = run_driver("h100-sxm-8")
    claims.wait_slices(8)
    claims.create(template("one", devices(request())))
    found = pods.run(user("one", STAY, own="one"))
    (device,) = allocated(claims.of_pod(found))
    (facts,) = [one for one in agent.ask("devices")["devices"] if one["name"] == device]
    nodes = {one["path"] for one in facts["nodes"] if one["role"] == "device"}
    assert {
        path for path in seen(pods, "one").below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal()
    } == nodes


def test_a_device_is_free_again_when_the_pod_has_gone(
    node: RigNode, claims: Claims, pods: RigPods, run_driver: RunDriver
) -> None:
    agent = run_driver("l4-2")
    claims.wait_slices(2)
    claims.create(template("all", devices(request(count=2))))
    pods.run(user("first", own="all"))
    assert len(agent.ask("claims")["claims"]) == 1
    pods.delete("first")
    pods.run(user("second", own="all"))
    wait_until("the first claim is released", lambda: len(agent.ask("claims")["claims"]) == 1)
    pods.delete("second")
    # A pod that is deleted without grace is forgotten before the kubelet has released its claims.
    wait_until("the claim is released", lambda: agent.ask("claims")["claims"] == [])
    wait_until("its CDI spec is gone", lambda: not list((node.folder / "cdi").glob("*claim*")))


def test_four_gpus_of_one_cell_are_an_aligned_island(claims: Claims, pods: RigPods, run_driver: RunDriver) -> None:
    run_driver("dgx1-v100-8")
    shown = published(claims.wait_slices(8))
    spec = devices(request(count=4), constraints=[matching("ostler.dev/cell4")])
    claims.create(template("four", spec))
    cells = set()
    for name in ("one", "two"):
        given = allocated(claims.of_pod(pods.run(user(name, own="four"))))
        assert len(given) == 4
        (cell,) = {shown[device]["attributes"]["cell4"]["string"] for device in given}
        cells.add(cell)
    assert len(cells) == 2


def test_two_pods_that_share_a_claim_and_start_together_see_the_same_device(
    claims: Claims, pods: RigPods, run_driver: RunDriver
) -> None:
    run_driver("h100-sxm-8")
    claims.wait_slices(8)
    claims.create(claim("shared"))
    names = [pods.create(user(name, STAY, of="shared")) for name in ("one", "two")]
    for name in names:
        pods.wait_phase(name, "Running")
    one, two = (seen(pods, name).below("/dev/nvidia") for name in names)
    assert one == two
    assert one
