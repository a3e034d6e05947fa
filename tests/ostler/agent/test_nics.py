"""The agent process serving NICs: what pods get, links that go down, interfaces in pods, devices of the node itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from node.inventory.cdi_specs import CdiSpecSource
from protos.agent.v1alpha1 import agent_pb2
from sandbox.configuration import configuration
from sandbox.node import PodResult, SandboxNode
from sandbox.nodes import path
from sandbox.tour import DeviceDistances

VF = "example.com/vf"
DPDK = "example.com/dpdk"
PORT = "example.com/port"
GPU = "nvidia.com/gpu"
RDMA = "ostler.dev/rdma"
MIG = "nvidia.com/mig-1g.5gb"

FIRST_FOUR = ["0000:17:00.2", "0000:17:00.3", "0000:17:00.4", "0000:17:00.5"]


def rules(*resources: Mapping[str, object]) -> str:
    return json.dumps({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": list(resources)})


def vfs(**options: object) -> dict[str, object]:
    return {"name": VF, "devices": {"interfaces": ["ens1f0np0#0-3"]}, **options}


def node(text: str, name: str = "sriov-2", **flags: str) -> SandboxNode:
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    return SandboxNode(path(name), flags=given, configuration=text, reconcile_interval=0.05)


async def by_name(box: SandboxNode) -> dict[str, agent_pb2.Device]:
    return {device.name: device for device in (await box.agent.devices()).devices}


def ids(box: SandboxNode, resource: str) -> list[str]:
    return sorted(device.id for device in box.kubelet.devices(resource))


def paths(given: PodResult) -> list[str]:
    nodes = given.response["devices"]
    assert isinstance(nodes, tuple)
    return sorted(each["container_path"] for each in nodes)


def environment(given: PodResult) -> dict[str, str]:
    found = given.response["envs"]
    assert isinstance(found, dict)
    return found


async def test_a_pod_gets_addresses_in_its_environment_and_the_device_files_of_its_functions() -> None:
    dpdk = {"name": DPDK, "devices": {"drivers": ["vfio-pci"], "rootDevices": ["0000:17:00.0"]}, "vhostNet": True}
    async with node(rules(vfs(rdmaDevices=True), dpdk)) as box:
        await box.registered()
        assert ids(box, VF) == FIRST_FOUR
        given = await box.give(VF, 2)
        variables = environment(given)
        assert sorted(variables["PCIDEVICE_EXAMPLE_COM_VF"].split(",")) == sorted(given.ids)
        assert set(json.loads(variables["PCIDEVICE_EXAMPLE_COM_VF_INFO"])) == set(given.ids)
        assert "/dev/infiniband/rdma_cm" in paths(given)
        assert sum(each.startswith("/dev/infiniband/uverbs") for each in paths(given)) == 2
        bound = await box.give(DPDK, 1)
        assert {"/dev/vfio/vfio", "/dev/vhost-net", "/dev/net/tun"} < set(paths(bound))
        assert len(paths(bound)) == 4, "and its own group"


async def test_cdi_names_of_a_pods_functions_resolve_on_the_node() -> None:
    async with node(rules(vfs(rdmaDevices=True, deviceListStrategy=["cdi-cri"]))) as box:
        await box.registered()
        given = await box.give(VF, 2)
        names = given.response["cdi_devices"]
        assert isinstance(names, tuple)
        facts = CdiSpecSource([box.root / "cdi"]).read().cdi
        assert facts is not None
        assert len(names) == 2
        assert set(names) <= set(facts.devices)
        assert "devices" not in given.response


@pytest.mark.parametrize("asked", [True, False], ids=["with linkHealth", "without"])
async def test_a_link_that_goes_down_is_unhealthy_only_where_the_rule_asks_for_it(asked: bool) -> None:
    async with node(rules(vfs(linkHealth=asked))) as box:
        await box.registered()
        assert box.hardware is not None
        held = await box.give(VF, 1)
        port = box.hardware.find("ens1f0np0")
        box.hardware.fail(port)
        await box.agent.rescan()
        await box.kubelet.wait_for(VF, healthy=0 if asked else 4)
        assert ids(box, VF) == FIRST_FOUR
        assert ((await box.give(VF, 1)).admission.admitted) is not asked
        box.hardware.heal(port)
        await box.agent.rescan()
        await box.kubelet.wait_for(VF, healthy=4)
        again = await box.give(VF, 2)
        assert again.admission.admitted
        assert not set(again.ids) & set(held.ids)


async def test_an_interface_in_a_pod_leaves_its_function_healthy_and_offered_over_a_restart() -> None:
    async with node(rules(vfs(linkHealth=True, rdmaDevices=True))) as box:
        await box.registered()
        assert box.hardware is not None
        held = await box.give(VF, 1)
        (address,) = held.ids
        before = (await by_name(box))[f"nic-{address.replace(':', '-').replace('.', '-')}"]
        box.hardware.take(box.hardware.find(address))
        await box.agent.rescan()
        await box.restart_agent()
        await box.registered()
        assert ids(box, VF) == FIRST_FOUR
        await box.kubelet.wait_for(VF, healthy=4)
        after = (await by_name(box))[before.name]
        told = {item.name: item for item in after.attributes}
        assert told["inPod"].bool_value
        lasting = {item.name: item for item in before.attributes if item.name in ("ifName", "mac", "pfName", "vfIndex")}
        assert len(lasting) == 4
        assert {name: told[name] for name in lasting} == lasting
        assert (after.resource, after.offered_as) == (VF, "Healthy")
        rest = await box.give(VF, 3)
        assert not set(rest.ids) & {address}
        assert not (await box.give(VF, 1)).admission.admitted


@pytest.mark.parametrize("taken_first", [False, True])
async def test_a_function_that_is_taken_while_its_link_is_down_is_well_again(taken_first: bool) -> None:
    async with node(rules({"name": PORT, "devices": {"interfaces": ["ens2"]}, "linkHealth": True})) as box:
        await box.registered()
        assert box.hardware is not None
        function = box.hardware.find("ens2v0")
        for happens in (
            (box.hardware.take, box.hardware.fail) if taken_first else (box.hardware.fail, box.hardware.take)
        ):
            happens(function)
            await box.agent.rescan()
        box.hardware.heal(function)
        await box.agent.rescan()
        device = (await by_name(box))["nic-0000-b1-01-0"]
        assert (device.health.state, device.offered_as) == ("healthy", "Healthy")


async def test_devices_of_the_node_itself_are_offered_only_by_name() -> None:
    async with node(rules({"name": PORT, "devices": {"kind": "nic"}})) as box:
        await box.registered()
        devices = await by_name(box)
        for name in ("nic-0000-61-00-0", "nic-0000-61-00-1"):
            assert devices[name].resource == ""
            assert devices[name].offer_reason.startswith("the node itself uses it: is in bond0; carries the node's")
        for name in ("nic-0000-17-00-0", "nic-0000-17-00-1", "nic-0000-b1-00-0"):
            assert devices[name].resource == "", "its virtual functions are offered in its place"
            assert "virtual functions" in devices[name].offer_reason
        assert len(ids(box, PORT)) == 25
    named = {"name": PORT, "devices": {"interfaces": ["eno1np0"]}}
    async with node(rules(named, {"name": VF, "devices": {"kind": "nic"}})) as box:
        await box.registered()
        assert ids(box, PORT) == ["0000:61:00.0"]
        assert "0000:61:00.1" not in ids(box, VF)


async def test_the_first_rule_that_selects_a_device_has_it() -> None:
    some = {"name": PORT, "devices": {"interfaces": ["ens1f0np0#1-2"]}}
    async with node(rules(some, vfs())) as box:
        await box.registered()
        assert (ids(box, PORT), ids(box, VF)) == (FIRST_FOUR[1:3], [FIRST_FOUR[0], FIRST_FOUR[3]])


async def test_a_file_of_the_sriov_plugin_serves_the_same_pods() -> None:
    resources = [
        {"resourceName": "mlx", "selectors": {"vendors": ["15b3"], "devices": ["101e"], "pfNames": ["ens1f0np0#0-3"]}},
        {"resourceName": "dpdk", "resourcePrefix": "example.com", "selectors": [{"drivers": ["vfio-pci"]}]},
    ]
    async with node(json.dumps({"resourceList": resources})) as box:
        await box.registered()
        assert set(box.kubelet.allocatable()) == {"intel.com/mlx", DPDK}
        assert ids(box, "intel.com/mlx") == FIRST_FOUR
        given = await box.give_together({"intel.com/mlx": 1, DPDK: 1})
        assert given.admission.admitted
        assert environment(given)["PCIDEVICE_INTEL_COM_MLX"] == given.devices["intel.com/mlx"][0]
        assert environment(given)["PCIDEVICE_EXAMPLE_COM_DPDK"] == given.devices[DPDK][0]


async def test_pods_with_a_gpu_and_a_nic_get_them_side_by_side_in_whichever_order_the_kubelet_takes_them() -> None:
    chance = random.Random(6)

    def any_order(resources: Iterable[str]) -> list[str]:
        return sorted(resources, key=lambda _: chance.random())

    text = configuration(mig=False)
    async with SandboxNode(path("h100-sxm-8"), configuration=text, reconcile_interval=0.05, order=any_order) as box:
        await box.registered()
        near = DeviceDistances(await box.agent.devices(), await box.agent.topology())
        running, seen = list[str](), list[str]()
        for _ in range(32):
            if len(running) == 8:
                for _ in range(3):
                    box.end(running.pop(chance.randrange(len(running))))
            pod = await box.give_together({GPU: 1, RDMA: 1})
            assert pod.admission.admitted
            running.append(pod.pod)
            seen.append(near.between(pod.devices[GPU][0], pod.devices[RDMA][0]))
        assert seen == ["PXB"] * 32


async def test_killed_at_any_moment_with_nics_and_mig_nothing_is_given_twice() -> None:
    chance = random.Random(4)
    async with node(configuration(mig=True), "a100-mig-4") as box:
        before = {item.name: item.devices for item in (await box.registered()).resources}
        held: dict[str, PodResult] = {}
        for _ in range(12):
            given = await box.give_together({MIG: 1, RDMA: 1})
            if given.admission.admitted:
                assert not set(given.ids) & {each for other in held.values() for each in other.ids}
                held[given.pod] = given
            await box.restart_agent(chance.choice([signal.SIGKILL, signal.SIGTERM]))
            status = await box.registered()
            assert {item.name: item.devices for item in status.resources} == before
            if len(held) > 1:
                pod = chance.choice(sorted(held))
                box.end(pod)
                del held[pod]
        assert held


async def test_on_a_full_disk_an_interface_in_a_pod_is_kept_as_long_as_the_agent_runs(short_dir: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small file system")
    disk = short_dir / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(disk)], check=True)
    try:
        async with node(rules(vfs()), state_dir=str(disk)) as box:
            await box.registered()
            with contextlib.suppress(OSError):
                (disk / "filling").write_bytes(b"x" * 131072)
            assert box.hardware is not None
            for wanted in ("ens1f0v0", "ens1f0v1"):
                box.hardware.take(box.hardware.find(wanted))
                await box.agent.rescan()
            await box.kubelet.wait_for(VF, healthy=4)
            devices = await by_name(box)
            told = {item.name for item in devices["nic-0000-17-00-2"].attributes}
            assert {"inPod", "ifName"} <= told
            assert "Traceback" not in box.log.read_text()
            assert (await box.give(VF, 4)).admission.admitted
    finally:
        subprocess.run(["umount", str(disk)], check=True)
