"""The node loses power: the kubelet's state is on disk, sockets and CDI specs are gone, device files are new."""

from __future__ import annotations

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"
SPECS = {"name": GPU, "devices": {"kind": "gpu"}, "deviceListStrategy": ["cdi-cri"]}


def restarts(found: dict[str, object]) -> int:
    """How often the pod's container was started again."""
    statuses = found["status"].get("containerStatuses", [])  # type: ignore[attr-defined]
    return sum(status["restartCount"] for status in statuses if "running" in status["state"])


def registrations(agent: NodeAgent) -> list[str]:
    """How far the registration of each resource is."""
    return [resource["registration"] for resource in agent.ask("status").get("resources", [])]


def test_after_a_reboot_pods_run_again_on_their_devices_when_the_agent_is_there_first(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("h100-sxm-8", SPECS))
    wait_allocatable(api, node, GPU, 8)
    pods.run(simple("user", resources={GPU: 3}, restartPolicy="Always"))
    held = devices_of(node, "user")

    node.power_off()
    node.power_on()
    # As the unit does it: before the kubelet, which then finds the resource registered when it looks at its pods.
    process = agent.spawn()
    wait_until("the agent waits for the kubelet", lambda: registrations(agent) == ["waiting"], alive=process.died)
    node.start_kubelet()
    node.wait_ready(api)

    found = pods.wait("user", "runs again", lambda one: restarts(one) == 1)
    assert found["status"]["phase"] == "Running"
    assert devices_of(node, "user") == held
    # Its CDI spec lay in memory: without a new one the container could not have started.
    assert list((node.folder / "cdi").glob("*.json"))
    wait_allocatable(api, node, GPU, 8)
    pods.run(simple("next", resources={GPU: 5}))
    assert not set(devices_of(node, "next")) & set(held)
