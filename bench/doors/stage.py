"""A node of eight GPUs at both doors: by one agent with one ledger, or by two that know nothing of each other.

Every node may read every claim, as the account of the chart may; see ``bench.cluster.stage`` on what it costs
otherwise.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.cluster.stage import let_nodes_read_claims
from bench.doors.alone import DEVICE_PLUGINS, REGISTRY
from tests.cluster.dra.claims import Claims
from tests.cluster.dra.classes import apply_classes
from tests.cluster.ledger.conftest import BOTH
from tests.cluster.ledger.storm import GPU
from tests.cluster.rig.agent import OSTLER, NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.processes import Inside, wait_until

RECORDED, GPUS = "h100-sxm-8", 8
ALONE = "/run/ostler/alone"
"""Folder of the instance that knows nothing of the other, inside the node."""
STATUS_PERIOD = "nodeStatusUpdateFrequency"


@dataclass(slots=True)
class DoorsStage:
    """What is measured on; ``agent`` serves the plugin door, and the other one too unless the two are ``alone``."""

    cluster: RigCluster
    agent: NodeAgent
    others: list[Inside] = field(default_factory=list)

    @property
    def node(self) -> RigNode:
        """The one node."""
        return self.cluster.nodes[0]

    def counted(self) -> dict[str, float]:
        """The agent's metrics about holds, by name and labels."""
        with urllib.request.urlopen(f"http://{self.node.address}:9410/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(ostler_hold\S*) (\S+)$", text, re.MULTILINE)}


@contextlib.contextmanager
def stage(
    recorded: str = RECORDED,
    gpus: int = GPUS,
    *,
    alone: bool = False,
    shared_name: bool = False,
    patch_allocatable: bool = False,
) -> Iterator[DoorsStage]:
    """A new cluster with its agent or agents; ``shared_name``: a class serves the plugin's name as well.

    ``patch_allocatable``: the agent writes the Node's allocatable itself.
    """
    name = name_of_run()
    try:
        cluster = up(name)
        node = cluster.nodes[0]
        let_nodes_read_claims(cluster.api)
        apply_classes(cluster, *([f"dra.extendedResources={{{GPU}}}"] if shared_name else []))
        rule = {**BOTH, "door": "plugin"} if alone else BOTH
        made = DoorsStage(cluster, NodeAgent(node, _document(node, recorded, rule, patch_allocatable)).start())
        if alone:
            _start_alone(made, recorded)
        wait_allocatable(cluster.api, node, GPU, gpus)
        Claims(cluster.api).wait_slices(gpus)
        yield made
    finally:
        down(name)


def use_default_period(made: DoorsStage) -> None:
    """Have the kubelet tell the node's status as rarely as it does by default; the rig's does it more often."""
    path = made.node.folder / "kubelet.json"
    document = json.loads(path.read_text())
    document.pop(STATUS_PERIOD, None)
    made.node.stop_kubelet()
    path.write_text(json.dumps(document))
    made.node.start_kubelet()
    made.node.wait_ready(made.cluster.api)


def _document(node: RigNode, recorded: str, rule: Object, patch: bool = False, **sections: object) -> Object:
    kubernetes = {
        "kubeconfig": str(node.folder / "kubelet.kubeconfig"),
        "events": "off",
        "patchAllocatable": "on" if patch else "off",
    }
    return configuration(recorded, rule, kubernetes=kubernetes, **sections)


def _start_alone(made: DoorsStage, recorded: str) -> None:
    """The instance of the DRA door; to it no pod has any device."""
    node = made.node
    nothing = node.spawn("nothing", sys.executable, "-m", "bench.doors.alone", ALONE)
    socket = node.folder / "run-ostler" / "alone" / "pod-resources" / "kubelet.sock"
    wait_until("the kubelet that knows nothing is there", socket.exists, alive=nothing.died)
    document = _document(
        node,
        recorded,
        {**BOTH, "door": "dra"},
        socket=f"{ALONE}/ostler.sock",
        state={"directory": f"{ALONE}/state"},
        http={"address": f"{node.address}:9411"},
        kubelet={"pluginsRegistryDir": f"{ALONE}/{REGISTRY}", "devicePluginDir": f"{ALONE}/{DEVICE_PLUGINS}"},
        dra={"pluginsDirectory": "/var/lib/kubelet/plugins"},
    )
    path = node.folder / "etc-ostler" / "alone.yaml"
    path.write_text(json.dumps(document))
    command = [*OSTLER, "run", "--config", f"/etc/ostler/{path.name}", "--node-name", node.name]
    made.others += [nothing, node.spawn("alone", *command)]
