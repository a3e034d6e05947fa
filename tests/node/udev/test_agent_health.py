"""The agent's own process with NICs whose cables are real: a link that goes down is withdrawn, and nothing else is.

/sys is mocked, rtnetlink is not: the NICs' interfaces are ends of veth pairs in this network namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from sandbox.node import SandboxNode
from tests.node.udev.conftest import UdevBed
from tests.node.udev.test_agent import listening
from tests.node.udev.test_umockdev import NIC, ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.needs_root

CARING, CARELESS = "example.com/caring", "example.com/careless"


def interfaces() -> list[str]:
    """Names of this process' own: tests run side by side."""
    return [f"ot{os.getpid() % 10**7}n{number}" for number in range(3)]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def cables() -> Iterator[list[str]]:
    """Three interfaces with a carrier; the other end of each has an x behind its name."""
    names = interfaces()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root rights and iproute2")
    if subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", f"{names[0]}x"], check=False).returncode:
        pytest.skip("needs the right to make links, and veth in the kernel")
    for name in names[1:]:
        ip("link", "add", name, "type", "veth", "peer", f"{name}x")
    for name in names:
        ip("link", "set", f"{name}x", "up")
        ip("link", "set", name, "up")
    yield names
    for name in names:
        ip("link", "delete", name)


@pytest.fixture
async def box(bed: UdevBed, cables: list[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxNode]:
    for number, name in enumerate(cables):
        path = await bed.add("pci", f"0000:{84 + number}:00.0", ROOT, **{**NIC, "numa_node": "-1"})
        await bed.link(f"{path}/driver", "/sys/bus/pci/drivers/mlx5_core")
        await bed.add(
            "net", f"net/{name}", path, operstate="up", carrier="1", type="1", mtu="1500", ifindex=f"{number}"
        )
    for variable in ("LD_PRELOAD", "UMOCKDEV_DIR"):
        monkeypatch.setenv(variable, bed.environment[variable])
    first, second, third = cables
    rules = f"""
apiVersion: ostler.dev/v1alpha1
kind: Config
health: {{quiet: {{looks: 1}}}}
resources:
  - {{name: {CARING}, linkHealth: true, devices: {{kind: nic, interfaces: [{first}, {second}]}}}}
  - {{name: {CARELESS}, devices: {{kind: nic, interfaces: [{third}]}}}}
"""
    flags = {"--nvidia-library": "/nonexistent/libnvidia-ml.so.1"}
    node = SandboxNode(None, flags=flags, configuration=rules, reconcile_interval=0.05)
    async with node:
        await eventually(lambda: listening(node))
        await node.kubelet.wait_for(CARING, healthy=2)
        await node.kubelet.wait_for(CARELESS, healthy=1)
        yield node


async def health(node: SandboxNode, interface: str) -> tuple[str, str]:
    """State and reason of the NIC with that interface."""
    answer = await node.agent.devices()
    return next((each.health.state, each.health.reason) for each in answer.devices if f'"{interface}"' in str(each))


async def test_a_cable_that_is_pulled_withdraws_its_nic_and_no_other_until_it_is_back(
    box: SandboxNode, cables: list[str]
) -> None:
    ip("link", "set", f"{cables[0]}x", "down")
    await box.kubelet.wait_for(CARING, healthy=1)
    state, reason = await health(box, cables[0])
    assert (state, reason) == ("unhealthy", f"{cables[0]} has no carrier")
    assert (await health(box, cables[1]))[0] == "healthy"
    ip("link", "set", f"{cables[0]}x", "up")
    await box.kubelet.wait_for(CARING, healthy=2)
    assert (await health(box, cables[0]))[0] == "healthy"


async def test_where_no_rule_asks_a_link_may_be_down(box: SandboxNode, cables: list[str]) -> None:
    ip("link", "set", f"{cables[2]}x", "down")
    # What comes after it is seen, so that it has been seen, too.
    ip("link", "set", f"{cables[1]}x", "down")
    await box.kubelet.wait_for(CARING, healthy=1)
    assert (await health(box, cables[2]))[0] == "healthy"
    await box.kubelet.wait_for(CARELESS, healthy=1)
