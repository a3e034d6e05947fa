"""NICs: the agents are in the node's network, where an old and a new one share one address and port."""

from __future__ import annotations

import pytest

from tests.cluster.chart.release import NEXT, Release
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image

NICS = {
    "nics": {"enabled": True, "udev": False},
    "config": {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "resources": [{"name": "example.com/nic", "devices": {"kind": "nic"}}],
    },
}


def test_agents_in_the_nodes_network_are_replaced_through_their_standby_on_one_port(
    release: Release, node: RigNode
) -> None:
    release.install(values=NICS)
    first = release.agent()
    assert first["status"]["podIP"] == first["status"]["hostIP"] == node.address
    wait_until("events of interfaces are heard", lambda: source(release, "events") == "ok")

    def checks() -> set[str]:
        verdicts = {result["name"]: result["verdict"] for result in release.ask("doctor")["checks"]}
        return {verdicts[name] for name in ("network-namespace", "nic-host-use", "uevents", "agent-http")}

    wait_until("the doctor is content", lambda: checks() == {"ok"})

    release.upgrade(values={**NICS, "image": {"tag": NEXT.rpartition(":")[2]}})
    second = release.agent()
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert second["status"]["containerStatuses"][0]["restartCount"] == 0
    wait_until("the next agent is active", lambda: release.ask("status")["role"] == "active")


def source(release: Release, name: str) -> str:
    """The state of a source of the agent's, empty while there is none."""
    return next((source["state"] for source in release.ask("status")["sources"] if source["name"] == name), "")
