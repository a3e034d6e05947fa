"""The agent's own process on a mocked machine: what is plugged in, changed or pulled out is shown by events.

They are what shows it: the next full scan is 60 s away. How long it takes is the benchmark's matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from protos.agent.v1alpha1 import agent_pb2
from sandbox.node import SandboxNode
from tests.node.udev.conftest import UdevBed
from tests.node.udev.test_umockdev import NIC, ROOT, switch
from tests.waiting import eventually

NAME = "nic-0000-84-00-0"
VFS = "example.com/vfs"
RULES = f"""
apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
  - name: {VFS}
    devices: {{kind: nic, functions: vf}}
"""


@pytest.fixture
async def box(bed: UdevBed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxNode]:
    for name in ("LD_PRELOAD", "UMOCKDEV_DIR"):
        monkeypatch.setenv(name, bed.environment[name])
    flags = {"--nvidia-library": "/nonexistent/libnvidia-ml.so.1"}
    node = SandboxNode(None, flags=flags, configuration=RULES, reconcile_interval=0.05)
    async with node:
        await eventually(lambda: listening(node))
        yield node


async def listening(node: SandboxNode) -> bool:
    status = await node.agent.status()
    return any(
        source.name == "events" and source.state == "ok" and source.detail.startswith("from ")
        for source in status.sources
    )


async def shown(node: SandboxNode, condition: Callable[[dict[str, agent_pb2.Device]], object]) -> None:
    async def fulfilled() -> bool:
        answer = await node.agent.devices()
        return bool(condition({device.name: device for device in answer.devices}))

    await eventually(fulfilled)


async def make_vf(bed: UdevBed, pf: str, number: int) -> str:
    """A virtual function as the kernel makes it, with its driver."""
    vf = await bed.add("pci", f"0000:84:01.{number}", ROOT, **{**NIC, "device": "0x101e"})
    await bed.link(f"{vf}/physfn", pf)
    await bed.link(f"{pf}/virtfn{number}", vf)
    await bed.link(f"{vf}/driver", "/sys/bus/pci/drivers/mlx5_core")
    await bed.uevent(vf, "bind")
    return vf


async def test_virtual_functions_that_are_made_reach_the_kubelet_within_a_second(
    bed: UdevBed, box: SandboxNode
) -> None:
    pf = await bed.add("pci", "0000:84:00.0", ROOT, **NIC, sriov_totalvfs="8", sriov_numvfs="2")
    for number in range(2):
        await make_vf(bed, pf, number)
    # A resource that is new to the kubelet is registered first.
    await box.kubelet.wait_for(VFS, healthy=2)
    more = [await make_vf(bed, pf, number) for number in range(2, 8)]
    await box.kubelet.wait_for(VFS, healthy=8)
    for vf in more:
        await bed.remove(vf)
    await box.kubelet.wait_for(VFS, healthy=2)


async def test_a_nic_that_is_plugged_in_bound_and_pulled_out_is_shown_so(bed: UdevBed, box: SandboxNode) -> None:
    nic = await bed.add("pci", "0000:84:00.0", await switch(bed), **NIC)
    await shown(box, lambda devices: NAME in devices)
    await bed.link(f"{nic}/driver", "/sys/bus/pci/drivers/mlx5_core")
    await bed.uevent(nic, "bind")
    await shown(box, lambda devices: "mlx5_core" in str(devices[NAME]))
    await bed.add("net", "net/ens1np0", nic, operstate="up", carrier="1", type="1", mtu="9000", ifindex="5")
    await shown(box, lambda devices: "ens1np0" in str(devices[NAME]))
    await bed.remove(f"{nic}/net/ens1np0")
    await bed.remove(nic)
    # A pod may hold it: it is not withdrawn, but shown as gone.
    await shown(box, lambda devices: "gone from the PCI bus" in devices[NAME].health.reason)
