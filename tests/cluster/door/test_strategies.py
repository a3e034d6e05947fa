"""Every way in which a container can be told its devices, seen from inside the container.

One agent offers a GPU for each, under names of their own, and their pods run side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.door.container import STAY, Seen, seen
from tests.cluster.rig.agent import NodeAgent, configuration, forget, wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of, listed
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
FOLDER = "/var/run/nvidia-container-devices"
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

OPTIONS: dict[str, tuple[str, Object]] = {
    "env": ("0000:1b:00.0", {"passDeviceSpecs": False}),
    "index": ("0000:43:00.0", {"deviceIDStrategy": "index", "passDeviceSpecs": False}),
    "mounts": ("0000:52:00.0", {"deviceListStrategy": ["volume-mounts"], "passDeviceSpecs": False}),
    "nodes": ("0000:61:00.0", {}),
    "field": ("0000:9d:00.0", {"deviceListStrategy": ["cdi-cri"]}),
    "annotation": ("0000:c3:00.0", {"deviceListStrategy": ["cdi-annotations"]}),
    "guarded": ("0000:d1:00.0", {}),
    "foreign": ("0000:df:00.0", {}),
}
"""PCI address of the GPU and options of the rule, by the name behind ``example.com/``."""
SCRIPTS = {
    # The image has no /var, so what is there has been mounted.
    "mounts": f"find {FOLDER} -type c",
    "nodes": "for file in /dev/nvidia[0-9]; do head -c 4 $file | od -An -tx1; echo x > $file && echo written; done",
    "guarded": "for minor in 0 1; do mknod /tmp/$minor c 60 $minor; (: < /tmp/$minor) 2>&1; done",
}
"""What containers say before they tell what they see."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The id of a pod's device ("" for none), the agent's account of it, and what the container saw."""

    id: str
    device: Object
    inside: Seen

    @property
    def nodes(self) -> set[str]:
        """The device nodes that are the device's own and the driver's."""
        return CONTROL | nodes_of(self.device)


@pytest.fixture(scope="module")
def given(cluster: RigCluster) -> Iterator[dict[str, _Given]]:
    """What the pod of every strategy was given; that of "plain" nothing, and "foreign" has none."""
    node, pods = cluster.nodes[0], RigPods(cluster.api)
    rules = [
        {"name": resource(name), "devices": {"pciAddress": address}, **options}
        for name, (address, options) in OPTIONS.items()
    ]
    agent = NodeAgent(node, configuration("h100-sxm-8", *rules))
    renumbered: set[str] = set()
    try:
        agent.start()
        devices = {id_: device for name in OPTIONS for id_, device in agent.offered(resource(name)).items()}
        renumbered = _own(agent, "guarded") | _own(agent, "foreign")
        # Numbers for experiments: who may open such a file learns that it has no driver, others that they may not.
        for name, minor in (("guarded", 0), ("foreign", 1)):
            for path in _own(agent, name):
                node.run("sh", "-c", f"rm -f {path} && mknod -m 666 {path} c 60 {minor}")
        wait_allocatable(cluster.api, node, resource("foreign"), 1)
        pods.create(simple("plain", STAY))
        for name in OPTIONS.keys() - {"foreign"}:
            pods.create(simple(name, f"{SCRIPTS.get(name, '')}\n{STAY}", {resource(name): 1}))
        found = {}
        for name in OPTIONS.keys() - {"foreign"} | {"plain"}:
            pods.wait_phase(name, "Running")
            id_ = next(iter(devices_of(node, name)), "")
            found[name] = _Given(id_, devices.get(id_, {}), seen(pods, name))
        yield found
    finally:
        pods.delete_all()
        wait_until("the kubelet has cleaned up", lambda: not pods.on_disk(node) and listed(node) == {})
        agent.stop()
        forget(node)
        if renumbered:
            node.run("rm", "-f", *renumbered)
            node.make_devices(*renumbered)


def resource(name: str) -> str:
    return f"example.com/{name}"


def _own(agent: NodeAgent, name: str) -> set[str]:
    (device,) = agent.offered(resource(name)).values()
    return nodes_of(device)


def nodes_of(device: Object) -> set[str]:
    return {entry["path"] for entry in device["nodes"] if entry["role"] == "device"}


def test_a_variable_names_the_device_and_nothing_else_is_given(given: dict[str, _Given]) -> None:
    one = given["env"]
    assert one.inside.env[VARIABLE] == one.id
    assert one.inside.below("/dev/nvidia") == set()
    assert not any(path.startswith(FOLDER) for path in one.inside.mounts)


def test_a_variable_names_the_device_by_its_index_where_that_is_wanted(given: dict[str, _Given]) -> None:
    assert given["index"].inside.env[VARIABLE] == "1"


def test_mounts_name_the_device_and_the_variable_names_their_folder(given: dict[str, _Given]) -> None:
    one = given["mounts"]
    assert one.inside.env[VARIABLE] == FOLDER
    assert f"{FOLDER}/{one.id}" in one.inside.mounts
    assert one.inside.said == (f"{FOLDER}/{one.id}",)
    assert one.inside.below("/dev/nvidia") == set()


def test_device_nodes_are_the_devices_own_and_the_drivers_and_are_read_and_written(given: dict[str, _Given]) -> None:
    one = given["nodes"]
    assert one.inside.env[VARIABLE] == one.id
    assert one.inside.below("/dev/nvidia") == one.nodes
    assert [line.split() for line in one.inside.said] == [["00", "00", "00", "00"], ["written"]]


def test_a_device_that_was_not_given_cannot_be_opened_even_with_a_node_for_it(given: dict[str, _Given]) -> None:
    """Whoever may make device nodes has them: only the cgroup of devices stands between two pods then."""
    one = given["guarded"]
    assert {one.inside.devices[path] for path in nodes_of(one.device)} == {"3c:0"}
    own, foreign = one.inside.said
    assert own.endswith("/tmp/0: No such device or address")
    assert foreign.endswith("/tmp/1: Operation not permitted")


def test_cdi_by_field_gives_what_the_spec_says(given: dict[str, _Given]) -> None:
    one = given["field"]
    assert one.inside.below("/dev/nvidia") == one.nodes
    # NVIDIA's own runtime is told to keep out.
    assert one.inside.env[VARIABLE] == "void"


def test_cdi_by_annotation_gives_what_the_spec_says(given: dict[str, _Given], api: RigApi) -> None:
    one = given["annotation"]
    assert one.inside.below("/dev/nvidia") == one.nodes
    assert one.inside.env[VARIABLE] == "void"
    # The annotation is for the runtime: those of the pod are not ours to write.
    assert "annotations" not in RigPods(api).get("annotation")["metadata"]


def test_the_cdi_spec_names_the_devices_that_are_given_by_cdi(given: dict[str, _Given], node: RigNode) -> None:
    (spec,) = [json.loads(path.read_text()) for path in (node.folder / "cdi").iterdir() if path.suffix == ".json"]
    assert {device["name"] for device in spec["devices"]} >= {given["field"].id, given["annotation"].id}


def test_a_container_without_devices_sees_none(given: dict[str, _Given]) -> None:
    one = given["plain"]
    assert one.id == ""
    assert one.inside.below("/dev/nvidia") == set()
    assert VARIABLE not in one.inside.env
