"""The agent's events on a real Node: kubectl shows them, the kubelet's identity suffices, other Nodes get none."""

from __future__ import annotations

import json

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import NodeAgent, configuration
from tests.cluster.rig.api import MERGE, Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import wait_until

EVENTS = "/api/v1/namespaces/default/events"
WORDS = "a driver for kubectl to show"


def posting(kubeconfig: object) -> Object:
    return configuration("l4-2", kubernetes={"events": "on", "kubeconfig": str(kubeconfig)})


def of_ours(api: RigApi, node: str) -> list[Object]:
    found = api.items(f"{EVENTS}?fieldSelector=involvedObject.kind=Node,involvedObject.name={node}")
    return [event for event in found if event["reportingComponent"] == "ostler"]


def counts(api: RigApi, node: str) -> list[int]:
    """How often the event of this file was told; other tests leave events on the Node, too."""
    return [event["count"] for event in of_ours(api, node) if WORDS in event["message"]]


def reasons(agent: NodeAgent) -> list[str]:
    """The reasons of the agent's events, posted or not."""
    return [event["reason"] for event in agent.ask("status").get("events", [])]


def not_posted(agent: NodeAgent) -> list[str]:
    return [reason for reason in agent.ask("status").get("reasons", []) if "not posted" in reason]


def test_kubectl_describe_shows_what_the_agent_posts_as_the_nodes_own_identity(
    cluster: RigCluster, api: RigApi, node: RigNode, run_agent: RunAgent
) -> None:
    agent = run_agent(posting(node.folder / "kubelet.kubeconfig"))
    for _ in range(2):
        agent.command("quiesce", "--reason", WORDS)
    wait_until("the event is counted", lambda: counts(api, node.name) == [2])
    assert not_posted(agent) == []
    shown = cluster.kubectl("describe", "node", node.name)
    line = next(line for line in shown[shown.index("Events:") :].splitlines() if WORDS in line)
    assert line.split()[:2] == ["Normal", "Quiesced"]
    assert "(x2 over" in line
    assert line.split("ostler", 1)[1].strip() == f"ostler leaves the driver alone until it is resumed: {WORDS}"
    agent.command("resume")


def test_a_node_that_is_another_machine_gets_no_event_and_the_status_says_why(
    cluster: RigCluster, api: RigApi, run_agent: RunAgent
) -> None:
    stranger: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}}
    api.create("/api/v1/nodes", stranger)
    try:
        info = {"machineID": "f" * 32, "systemUUID": "f" * 32, **dict.fromkeys(_OTHERS, "")}
        status = json.dumps({"status": {"nodeInfo": info}})
        api.request("PATCH", "/api/v1/nodes/stranger/status", json.loads(status), MERGE)
        agent = run_agent(posting(cluster.place.kubeconfig), arguments=("--node-name", "stranger"))
        wait_until("the agent says so", lambda: any("is not this machine" in line for line in not_posted(agent)))
        agent.command("quiesce")
        wait_until("an event says so", lambda: "NodeNotOurs" in reasons(agent))
        assert of_ours(api, "stranger") == []
        agent.command("resume")
    finally:
        api.delete("/api/v1/nodes/stranger")


_OTHERS = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "operatingSystem",
    "osImage",
)
"""Fields of nodeInfo that the API wants to be there."""
