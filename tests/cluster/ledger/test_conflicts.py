"""A scheduler that is late gives a device to somebody while another one has it: who loses, and how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from bench.doors.conflicts import Conflicts
from bench.doors.figures import PATCHED
from bench.doors.stage import DoorsStage
from bench.recording import gpu_uuid, many_gpus
from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import allocated, claim, devices, request, template, user
from tests.cluster.dra.conftest import DraStage
from tests.cluster.dra.test_faults import runs_untouched
from tests.cluster.ledger.by_hand import EVICTED_IS_NO_FAILURE, GATE, ByHand
from tests.cluster.ledger.conftest import BOTH
from tests.cluster.ledger.looking import OTHER_DOOR, had_by, held, holders, taints, untainted, withheld
from tests.cluster.ledger.storm import GPU
from tests.cluster.rig.agent import NodeAgent, wait_allocatable
from tests.cluster.rig.api import MERGE, Object
from tests.cluster.rig.pods import PODS, container, phase, pod, simple
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.usefixtures("taints_kept")
TOLERANT: list[Object] = [
    {"key": OTHER_DOOR, "operator": "Exists", **effect} for effect in ({}, {"effect": "NoExecute"})
]
TRIES = 30
CONFLICTS = 3
MANY = 500
"""GPUs of a node on which what is held is shown at the other door only after 0.1 seconds."""


@pytest.fixture
def both(stage: DraStage) -> NodeAgent:
    """An agent whose two GPUs are at both doors."""
    agent = stage.run_driver("l4-2", BOTH)
    wait_until("both are offered", lambda: len(untainted(stage.claims.slices())) == 2)
    wait_allocatable(stage.cluster.api, stage.node, GPU, 2)
    stage.claims.create(template("one"))
    return agent


@pytest.fixture
def looking_on(stage: DraStage) -> Iterator[None]:
    """The namespace of the tests is one in which claims may look at what others have."""
    path, label = "/api/v1/namespaces/default", "resource.kubernetes.io/admin-access"
    stage.cluster.api.request("PATCH", path, {"metadata": {"labels": {label: "true"}}}, MERGE)
    yield
    stage.cluster.api.request("PATCH", path, {"metadata": {"labels": {label: None}}}, MERGE)


@pytest.mark.usefixtures("looking_on")
def test_a_claim_that_lost_its_device_is_evicted_and_the_next_pod_of_its_controller_runs(
    stage: DraStage, both: NodeAgent, by_hand: ByHand
) -> None:
    api, pods, claims = stage.cluster.api, stage.pods, stage.claims
    holder = pods.run(simple("holder", STAY, {GPU: 1}))
    wait_until("its hold is known", lambda: holders(both, "plugin") == {"default/holder"})
    (device,) = held(both, "plugin")
    everything = request(adminAccess=True, tolerations=TOLERANT, allocationMode="All")
    del everything["exactly"]["count"]
    claims.create(claim("looks-on", devices(everything)))
    looker = pods.run(user("looks-on", STAY, of="looks-on"))
    assert had_by(pods, both, "looks-on") == set(taints(claims.slices()))

    by_hand.job("loser", user("loser", own="one", **GATE), **EVICTED_IS_NO_FAILURE)
    first = by_hand.next_pod("loser")
    by_hand.allocate(first, device)
    name = by_hand.let_go(first)
    found = pods.wait_event(name, "FailedPrepareDynamicResources", "held through the plugin door by default/holder")
    assert device in found["message"], found
    api.wait_gone(f"{PODS}/{name}")
    second = by_hand.next_pod("loser", first)
    name = by_hand.let_go(second)
    pods.wait_phase(name, "Running")

    (other,) = allocated(claims.of_pod(pods.get(name)))
    assert other != device
    runs_untouched(pods, "holder", holder["metadata"]["uid"])
    runs_untouched(pods, "looks-on", looker["metadata"]["uid"])
    shown = {OTHER_DOOR: "NoSchedule"}
    wait_until("nobody else is evicted", lambda: taints(claims.slices()).get(device) == shown)
    reasons = [event["reason"] for event in both.ask("status")["events"]]
    assert reasons.count("ClaimLostDevice") == 1, reasons
    waits = "default/holder ends"
    wait_until("it waits for the holder", lambda: withheld(both, "dra").get(device, {}).get("waits_for") == waits)


@pytest.mark.timeout(900)
def test_a_pod_that_lost_its_device_fails_with_the_claim_named_and_the_next_one_runs(
    stage: DraStage, by_hand: ByHand
) -> None:
    api, node, pods, claims = stage.cluster.api, stage.node, stage.pods, stage.claims
    agent = stage.run_driver("l4-2", *two_of_many(stage), inventory={"recorded": "/etc/ostler/gpus.yaml"})
    wait_until("both are offered", lambda: len(untainted(claims.slices())) == 2)
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("holder", STAY, {GPU: 1}))
    wait_until("one is free", lambda: len(untainted(claims.slices())) == 1)
    (device,) = untainted(claims.slices())
    claims.create(template("one"))

    winner, first, claim_name = lost_by_the_pod(stage, by_hand, device)
    failed = pods.get(first["metadata"]["name"])
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert f"device {device} is held through the dra door by default/{claim_name}" in failed["status"]["message"]
    pods.wait_phase(winner["metadata"]["name"], "Running")

    def lost() -> list[str]:
        return [one["message"] for one in agent.ask("status").get("events", []) if one["reason"] == "PodLostDevice"]

    wait_until("an event tells of the pod", lambda: bool(lost()))
    assert [f"default/{claim_name}" in message for message in lost()] == [True], lost()

    job = first["metadata"]["labels"]["job"]
    wait_allocatable(api, node, GPU, 1)
    name = waiting_pod(stage, by_hand, job, first)
    pods.wait_event(name, "FailedScheduling", f"Insufficient {GPU}")
    by_hand.delete(winner["metadata"]["labels"]["job"])
    pods.wait_phase(name, "Running")
    assert had_by(pods, agent, name) == {device}


@pytest.mark.timeout(900)
def test_a_replica_set_that_lost_its_device_has_few_failed_pods_where_the_agent_writes_the_allocatable(
    stage: DraStage,
) -> None:
    kubernetes = {"kubeconfig": str(stage.node.folder / "kubelet.kubeconfig"), "patchAllocatable": "on"}
    agent = stage.run_driver("l4-2", BOTH, kubernetes={**kubernetes, "events": "off"})
    wait_allocatable(stage.cluster.api, stage.node, GPU, 2)
    # Its first request comes a second after its start, and takes longer than those that conflicts wait for.
    wait_until("the agent has a connection", lambda: "allocatable is written on the Node" in agent.process.output)
    conflicts = Conflicts(DoorsStage(stage.cluster, agent), Random(0), period=0.0)
    failed: list[int] = []
    try:
        conflicts.prepare()
        # Each time a claim has taken a device, unless the kubelet happens to report in that very moment.
        while _lowered(agent) < CONFLICTS:
            assert len(failed) < 2 * CONFLICTS, "the agent leaves it to the kubelet"
            failed.append(conflicts.pod_loses(PATCHED)[0])
            conflicts.clean()
    finally:
        conflicts.remove()

    assert sum(failed) <= 2 * len(failed), failed
    assert stage.cluster.api.get(f"/api/v1/nodes/{stage.node.name}")["status"]["capacity"][GPU] == "2"


def _lowered(agent: NodeAgent) -> int:
    """How often the agent wrote that one device is left."""
    lines = agent.process.output.splitlines()
    return sum("allocatable written on the Node" in line and r"\": \"1\"" in line for line in lines)


def lost_by_the_pod(stage: DraStage, by_hand: ByHand, device: str) -> tuple[Object, Object, str]:
    """A pod with a claim that has the device, one that was refused it, and the claim's name.

    The kubelet hears in a fraction of a second that a claim has it, and until the API server has told the agent of that
    pod the device is free: both are bound at once again and again until the second one comes in between.
    """
    pods = stage.pods
    for attempt in range(TRIES):
        by_hand.job(f"claims-{attempt}", user("claims", STAY, own="one", **GATE))
        by_hand.job(f"asks-{attempt}", simple("asks", STAY, {GPU: 1}, **GATE))
        winner, loser = by_hand.next_pod(f"claims-{attempt}"), by_hand.next_pod(f"asks-{attempt}")
        claim_name = by_hand.allocate(winner, device)
        pods.wait(by_hand.let_go(winner), "is bound", lambda one: "nodeName" in one["spec"])
        name = by_hand.let_go(loser)
        found = pods.wait(name, "was judged", lambda one: phase(one) in {"Running", "Failed"} or came_too_late(one))
        if "is held through the dra door" in found["status"].get("message", ""):
            return winner, loser, claim_name
        for job in (f"claims-{attempt}", f"asks-{attempt}"):
            by_hand.delete(job)
        wait_until("it is free again", lambda: untainted(stage.claims.slices()) == {device})
        wait_allocatable(stage.cluster.api, stage.node, GPU, 2)
    pytest.fail(f"in none of {TRIES} tries the claim was before the pod")


def waiting_pod(stage: DraStage, by_hand: ByHand, job: str, *before: Object) -> str:
    """The first pod of a Job after those ``before`` that waits, by its name.

    A scheduler that has not heard of the Node's latest numbers binds it, and then it fails as those before.
    """
    while True:
        made = by_hand.next_pod(job, *before)
        name = by_hand.let_go(made)
        if came_too_late(stage.pods.wait(name, "was judged", lambda one: phase(one) == "Failed" or came_too_late(one))):
            return name
        before = (*before, made)


def came_too_late(pod: Object) -> bool:
    """Whether the scheduler knew already that the device is taken."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def two_of_many(stage: DraStage) -> tuple[Object, ...]:
    """Two GPUs at both doors, on a node that has so many that the other door learns late of what one has allocated."""
    many_gpus(stage.node.folder / "etc-ostler" / "gpus.yaml", MANY)
    two: Object = {"kind": "gpu", "uuid": [gpu_uuid(0), gpu_uuid(1)]}
    return {**BOTH, "devices": two}, {"name": "ostler.dev/rest", "devices": {"kind": "gpu"}}


def test_what_an_init_container_had_is_held_as_long_as_its_pod(stage: DraStage, both: NodeAgent) -> None:
    """The kubelet lists it no more, and would not give it to anybody else: its checkpoint alone knows."""
    pods, claims = stage.pods, stage.claims
    begins = container("begins", "true", {GPU: 1})
    pods.run(pod("early", container("main", STAY), initContainers=[begins]))
    known = [("recorded", "plugin", "default/early")]

    def told() -> list[tuple[str, str, str]]:
        return [(one["state"], one["door"], one.get("holder", "")) for one in held(both).values()]

    wait_until("the checkpoint tells whose it is", lambda: told() == known)
    (device,) = held(both)
    wait_until("it is withdrawn from claims", lambda: device not in untainted(claims.slices()))
    (other,) = untainted(claims.slices())
    found = pods.run(user("claims", STAY, own="one"))
    assert allocated(claims.of_pod(found)) == [other]
    pods.create(user("waits", STAY, own="one"))
    pods.wait_event("waits", "FailedScheduling")
    pods.delete("early")
    assert allocated(claims.of_pod(pods.wait_phase("waits", "Running"))) == [device]
