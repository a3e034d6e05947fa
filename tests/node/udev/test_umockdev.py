"""Real udev events over a mocked machine: what comes, goes or changes is in a scan long before the next full one."""

from __future__ import annotations

from typing import Any

from tests.node.udev.conftest import UdevBed, UdevMachine

ROOT = "/sys/devices/pci0000:80"
BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}
NIC = {"class": "0x020000", "vendor": "0x15b3", "device": "0x1021", "numa_node": "1"}
GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1"}


def functions(facts: dict[str, Any]) -> set[str]:
    return {function["address"] for function in facts["pci"]}


def driver(facts: dict[str, Any], address: str) -> str | None:
    return next((function["driver"] for function in facts["pci"] if function["address"] == address), None)


def interfaces(facts: dict[str, Any]) -> set[str]:
    return {interface["name"] for interface in facts["interfaces"]}


async def switch(bed: UdevBed) -> str:
    """A PCIe switch below a root port; devices go below its downstream port."""
    port = await bed.add("pci", "0000:80:01.0", ROOT, **BRIDGE)
    upstream = await bed.add("pci", "0000:81:00.0", port, **BRIDGE)
    return await bed.add("pci", "0000:82:00.0", upstream, **BRIDGE)


async def test_a_gpu_that_is_plugged_in_is_there_with_its_place_in_the_tree(bed: UdevBed, watcher: UdevMachine) -> None:
    below = await switch(bed)
    await bed.add("pci", "0000:83:00.0", below, **GPU)
    shown = await watcher.sees(lambda facts: "0000:83:00.0" in functions(facts))
    path = "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0"
    assert [each["path"] for each in shown["facts"]["pci"] if each["address"] == "0000:83:00.0"] == [path]


async def test_a_gpu_that_is_pulled_out_is_gone(bed: UdevBed, watcher: UdevMachine) -> None:
    gpu = await bed.add("pci", "0000:83:00.0", await switch(bed), **GPU)
    await watcher.sees(lambda facts: "0000:83:00.0" in functions(facts))
    await bed.remove(gpu)
    await watcher.sees(lambda facts: "0000:83:00.0" not in functions(facts))


async def test_a_driver_that_is_bound_unbound_or_replaced_is_seen(bed: UdevBed, watcher: UdevMachine) -> None:
    gpu = await bed.add("pci", "0000:83:00.0", ROOT, **GPU)
    await watcher.sees(lambda facts: "0000:83:00.0" in functions(facts))

    async def bind(name: str | None) -> None:
        await bed.link(f"{gpu}/driver", f"/sys/bus/pci/drivers/{name}" if name else None)
        await bed.uevent(gpu, "bind" if name else "unbind")
        await watcher.sees(lambda facts: driver(facts, "0000:83:00.0") == name)

    await bind("nvidia")
    await bind(None)
    await bind("vfio-pci")


async def test_an_interface_that_moves_to_a_pod_is_gone_and_its_function_is_not(
    bed: UdevBed, watcher: UdevMachine
) -> None:
    nic = await bed.add("pci", "0000:84:00.0", ROOT, **NIC)
    await bed.link(f"{nic}/driver", "/sys/bus/pci/drivers/mlx5_core")
    moved = await bed.add("net", "net/ens1np0", nic, operstate="up", type="1", mtu="9000", ifindex="5")
    await watcher.sees(lambda facts: interfaces(facts) == {"ens1np0"})
    await bed.remove(moved)
    await watcher.sees(lambda facts: interfaces(facts) == set() and driver(facts, "0000:84:00.0") == "mlx5_core")
    # It comes back under the name that it had in the pod.
    await bed.add("net", "net/eth0", nic, operstate="down", type="1", mtu="9000", ifindex="5")
    await watcher.sees(lambda facts: interfaces(facts) == {"eth0"})


async def test_an_rdma_device_comes_with_its_ports_and_goes(bed: UdevBed, watcher: UdevMachine) -> None:
    nic = await bed.add("pci", "0000:84:00.0", ROOT, **{**NIC, "class": "0x020700"})
    rdma = f"{nic}/infiniband/mlx5_0"
    await bed.write(f"{rdma}/ports/1/state", "1: DOWN")
    await bed.write(f"{rdma}/ports/1/link_layer", "InfiniBand")
    assert await bed.add("infiniband", "infiniband/mlx5_0", nic, node_type="1: CA") == rdma
    await watcher.sees(lambda facts: [each["ports"][0]["state"] for each in facts["rdma"]] == ["1: DOWN"])
    # No event tells of a port's state: it is compared.
    await bed.write(f"{rdma}/ports/1/state", "4: ACTIVE")
    await watcher.sees(lambda facts: [each["ports"][0]["state"] for each in facts["rdma"]] == ["4: ACTIVE"])
    await bed.remove(rdma)
    await watcher.sees(lambda facts: facts["rdma"] == [])


async def test_virtual_functions_that_are_made_are_seen_together(bed: UdevBed, watcher: UdevMachine) -> None:
    pf = await bed.add("pci", "0000:84:00.0", ROOT, **NIC, sriov_totalvfs="8", sriov_numvfs="0")
    await watcher.sees(lambda facts: "0000:84:00.0" in functions(facts))
    scans = watcher.latest["scans"]
    # To the watcher they come together, however long making them takes here.
    with watcher.held():
        await bed.write(f"{pf}/sriov_numvfs", "8")
        for number in range(8):
            vf = await bed.add("pci", f"0000:84:01.{number}", ROOT, **{**NIC, "device": "0x101e"})
            await bed.link(f"{vf}/physfn", pf)
            await bed.link(f"{pf}/virtfn{number}", vf)
    shown = await watcher.sees(
        lambda facts: len([each for each in facts["pci"] if each["physfn"] == "0000:84:00.0"]) == 8
    )
    assert shown["scans"] - scans <= 3
    assert {each["vf_index"] for each in shown["facts"]["pci"] if each["physfn"]} == set(range(8))


async def test_pods_interfaces_are_no_reason_to_scan(bed: UdevBed, watcher: UdevMachine) -> None:
    before = watcher.latest["counts"]
    for number in range(20):
        path = await bed.add("net", f"veth{number}", "/sys/devices/virtual/net", operstate="up")
        await bed.remove(path)
    await bed.add("pci", "0000:83:00.0", ROOT, **GPU)
    shown = await watcher.sees(lambda facts: "0000:83:00.0" in functions(facts))
    assert shown["counts"]["ostler_uevents"] == before["ostler_uevents"] + 41
    assert shown["counts"]["ostler_hardware_wakeups"] == before["ostler_hardware_wakeups"] + 1
