"""The API server is away: pods get devices as before, none that a claim has, and the account is true."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import allocated, template, user
from tests.cluster.dra.conftest import DraStage
from tests.cluster.ledger.by_hand import ByHand
from tests.cluster.ledger.conftest import BOTH
from tests.cluster.ledger.looking import had_by, held, holders, taints, untainted
from tests.cluster.ledger.storm import GPU
from tests.cluster.rig.agent import NodeAgent, wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import phase, simple
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.usefixtures("taints_kept")


@contextmanager
def away(stage: DraStage) -> Iterator[None]:
    """No API server."""
    stage.cluster.control_plane.stop_api_server()
    try:
        yield
    finally:
        stage.cluster.control_plane.start_api_server()


@contextmanager
def static(stage: DraStage, manifest: Object) -> Iterator[str]:
    """A pod that the kubelet runs by itself, by its name in the API; it ends with the file."""
    name = manifest["metadata"]["name"]
    path = stage.node.static_pods / f"{name}.json"
    path.write_text(json.dumps(manifest))
    try:
        yield f"{name}-{stage.node.name}"
    finally:
        path.unlink()


def states(agent: NodeAgent) -> dict[str, tuple[str, str]]:
    """Door and state of every hold."""
    return {name: (hold["door"], hold["state"]) for name, hold in held(agent).items()}


def missed(agent: NodeAgent) -> tuple[bool, bool]:
    """Whether the account lacks what the API server says, and what the kubelet says."""
    status = agent.ask("holds").get("status", {})
    return bool(status.get("api_server", "nobody answers")), bool(status.get("kubelet", "nobody answers"))


@pytest.mark.timeout(600)
def test_a_killed_agent_serves_pods_from_its_records_and_gives_no_claims_device_away(
    stage: DraStage, by_hand: ByHand
) -> None:
    api, node, pods, claims = stage.cluster.api, stage.node, stage.pods, stage.claims
    agent = stage.run_driver("h100-sxm-8", BOTH)
    wait_until("all are offered", lambda: len(untainted(claims.slices())) == 8)
    wait_allocatable(api, node, GPU, 8)
    claims.create(template("one"))
    (by_claim,) = allocated(claims.of_pod(pods.run(user("claims", STAY, own="one"))))
    pods.run(simple("plugin", STAY, {GPU: 1}))
    (by_plugin,) = had_by(pods, agent, "plugin")
    expected = {by_claim: ("dra", "prepared"), by_plugin: ("plugin", "listed")}
    wait_until("both are known", lambda: states(agent) == expected)

    greedy = simple("greedy", STAY, {GPU: 6})
    greedy["metadata"]["namespace"] = "default"
    with ExitStack() as ended:
        with away(stage):
            agent.stop(signal.SIGKILL)
            agent.spawn()
            # The kubelet may not have noticed yet that the agent before has ended.
            wait_until("the next agent is registered", lambda: "msg=registered" in agent.process.output)
            wait_until("all but the claim's are allocatable", lambda: len(allocatable_ids(node, GPU)) == 7)
            mirror = ended.enter_context(static(stage, greedy))
            wait_until("the pod has what is left", lambda: len(devices_of(node, mirror)) == 6)
            wait_until(
                "their holders are known",
                lambda: [hold.get("holder") for hold in held(agent, "plugin").values()].count(f"default/{mirror}") == 6,
            )
            wait_until("those of before are known", lambda: expected.items() <= states(agent).items())
            names = {"default/plugin", f"default/{mirror}"}
            wait_until("no other holder is known", lambda: holders(agent, "plugin") == names)
            wait_until("the API server alone is missed", lambda: missed(agent) == (True, False))
        wait_until(
            "claims get none", lambda: untainted(claims.slices()) <= {by_claim} and len(taints(claims.slices())) == 8
        )
        # The scheduler may need half a minute to see slices again, and decides by those of before until then.
        job = by_hand.job("waits", user("waits", STAY, own="one"))
        by_hand.next_pod(job)
        wait_until("nothing is missed", lambda: missed(agent) == (False, False))
    wait_until("the kubelet has ended it", lambda: not devices_of(node, mirror))
    # Nobody but the kubelet can say that a static pod is gone, and its checkpoint says so with the next pod.
    pods.finish(simple("next", "true", {GPU: 1}))
    wait_until("a claim has what was freed", lambda: any(phase(one) == "Running" for one in by_hand.pods_of(job)), 240)
