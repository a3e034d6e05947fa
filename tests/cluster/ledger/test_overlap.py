"""A GPU and its MIG devices through different doors: holding one is holding what overlaps it."""

from __future__ import annotations

import pytest

from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import MIG_CLASS, allocated, devices, request, template, user
from tests.cluster.dra.conftest import DraStage
from tests.cluster.ledger.looking import untainted, withheld
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.usefixtures("taints_kept")
GPU = "nvidia.com/gpu"
WHOLES: Object = {"name": GPU, "door": "plugin", "devices": {"kind": "gpu"}}
PARTS: Object = {"name": "nvidia.com/mig", "door": "dra", "devices": {"kind": "mig"}}


def test_a_gpu_is_held_with_its_mig_devices_and_they_with_it(stage: DraStage) -> None:
    """Four GPUs for pods, of which two are cut into eleven MIG devices for claims."""
    api, node, pods, claims = stage.cluster.api, stage.node, stage.pods, stage.claims
    agent = stage.run_driver("a100-mig-4", WHOLES, PARTS)
    wait_allocatable(api, node, GPU, 4)
    wait_until("all parts are offered", lambda: len(untainted(claims.slices())) == 11)
    found = agent.ask("devices")["devices"]
    node.make_devices(*sorted({entry["path"] for one in found for entry in one["nodes"]}))
    parents = {one["name"]: one["parent"] for one in found if one["kind"] == "mig"}

    claims.create(template("part", devices(request(MIG_CLASS))))
    (part,) = allocated(claims.of_pod(pods.run(user("part", STAY, own="part"))))
    wait_allocatable(api, node, GPU, 3)
    why = withheld(agent, "plugin")[parents[part]]["why"]
    assert f"its part, {part}, is held through the dra door by default/" in why
    pods.run(simple("wholes", STAY, {GPU: 3}))
    siblings = {name for name in parents if parents[name] == parents[part]}
    wait_until("the other GPU's parts are withdrawn", lambda: untainted(claims.slices()) <= siblings)
    assert untainted(claims.slices()) >= siblings - {part}

    pods.delete("wholes")
    pods.delete("part")
    wait_until("all parts are offered again", lambda: len(untainted(claims.slices())) == 11)
    wait_allocatable(api, node, GPU, 4)
