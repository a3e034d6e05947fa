"""Devices that are not whole NVIDIA GPUs: what the Node offers and what their pods see."""

from __future__ import annotations

import json
import re

from tests.cluster.conftest import RunAgent
from tests.cluster.door.container import STAY, seen
from tests.cluster.rig.agent import capacity, configuration, wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of, listed
from tests.cluster.rig.pods import RigPods, container, pod, simple

GPU = "nvidia.com/gpu"
SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{profile}" for profile in ("1g.5gb", "2g.10gb", "3g.20gb"))
AMD = "amd.com/gpu"
VF, DPDK = "example.com/vf", "example.com/dpdk"


def paths(device: Object, *roles: str) -> set[str]:
    """The device nodes of a device that have one of the roles."""
    return {entry["path"] for entry in device["nodes"] if entry["role"] in roles}


def make_nodes(node: RigNode, *devices: Object) -> None:
    """Make the device files that recorded devices have, so that containers with them start."""
    node.make_devices(
        *sorted({path for device in devices for path in paths(device, "device", "capability", "control")})
    )


def test_mig_devices_are_offered_by_profile_and_a_pod_gets_the_files_of_its_instance(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("a100-mig-4", nvidia={"migStrategy": "mixed"}))
    for name, count in {GPU: 2, MIDDLE: 1, LARGE: 1, SMALL: 9}.items():
        assert capacity(wait_allocatable(api, node, name, count), name) == count
    known = {name: agent.offered(name) for name in (SMALL, LARGE)}
    make_nodes(node, *known[SMALL].values(), *known[LARGE].values())
    small, large = container("small", STAY, {SMALL: 2}), container("large", STAY, {LARGE: 1})
    pods.run(pod("cut", small, large))
    for name, profile, count in (("small", SMALL, 2), ("large", LARGE, 1)):
        inside = seen(pods, "cut", name)
        ids = inside.env["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert len(ids) == count
        devices = [known[profile][id_] for id_ in ids]
        assert inside.below("/dev/nvidia") == set.union(
            *(paths(device, "device", "capability", "control") for device in devices)
        )
        # Two for every instance: its own, and that of the compute instance in it.
        assert len(inside.below("/dev/nvidia-caps/")) == 2 * count


def test_an_amd_gpu_comes_with_the_drivers_node_and_its_own_graphics_nodes(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("mi300x-8"))
    wait_allocatable(api, node, AMD, 8)
    known = agent.offered(AMD)
    make_nodes(node, *known.values())
    pods.run(simple("user", STAY, {AMD: 2}))
    first, second = (known[id_] for id_ in devices_of(node, "user"))
    given = paths(first, "device") | paths(second, "device")
    assert len([path for path in given if path.startswith("/dev/dri/renderD")]) == 2
    inside = seen(pods, "user")
    assert inside.below("/dev/dri/") == given
    assert inside.below("/dev/kfd") == {"/dev/kfd"}


def test_virtual_functions_are_named_by_variables_and_come_with_the_nodes_of_their_driver(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    vfs = {"name": VF, "devices": {"interfaces": ["ens1f0np0#0-3"]}}
    dpdk = {"name": DPDK, "devices": {"drivers": ["vfio-pci"]}}
    agent = run_agent(configuration("sriov-2", vfs, dpdk))
    for name in (VF, DPDK):
        assert capacity(wait_allocatable(api, node, name, 4), name) == 4
    known = agent.offered(DPDK)
    make_nodes(node, *known.values())
    pods.run(simple("user", STAY, {VF: 2, DPDK: 1}))
    inside = seen(pods, "user")
    given = {
        name: ",".join(id_ for resource, id_ in listed(node)["user", "main"] if resource == name) for name in (VF, DPDK)
    }
    told = {name: inside.env[f"PCIDEVICE_{re.sub('[^A-Z0-9]', '_', name.upper())}"] for name in (VF, DPDK)}
    assert {name: ",".join(sorted(value.split(","))) for name, value in told.items()} == given
    details = json.loads(inside.env["PCIDEVICE_EXAMPLE_COM_DPDK_INFO"])[told[DPDK]]
    assert inside.below("/dev/vfio/") == {details["vfio"]["mount"], details["vfio"]["dev-mount"]}
    assert allocatable_ids(node, DPDK) == sorted(known)
