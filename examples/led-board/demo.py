# ruff: noqa: INP001 - a program that shows what it does
"""The LED driver on a laptop: an API server, a kubelet and a scheduler in a box, the driver as a process of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import yaml

from sandbox.apiserver.server import ApiServer
from sandbox.cluster.client import ClusterClient, KubeletApi
from sandbox.cluster.cluster import SandboxCluster
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.kubelet import Kubelet

HERE = Path(__file__).parent
NODE = "workbench"


async def published(cluster: SandboxCluster, broken: int) -> None:
    """Wait for the slices with so many broken LEDs, and show them."""
    while True:
        slices = await cluster.slices("led.example.com")
        devices = [device for each in slices for device in each["spec"].get("devices") or ()]
        if devices and sum("taints" in device for device in devices) == broken:
            break
        await asyncio.sleep(0.05)
    shown = [f"{each['name']}{' (broken)' if 'taints' in each else ''}" for each in devices]
    print(f"published in {len(slices)} slice, generation {slices[0]['spec']['pool']['generation']}: {', '.join(shown)}")


async def show(root: Path) -> None:
    """One LED breaks, one is given to a pod, and given back."""
    board, cdi = root / "board", root / "cdi"
    board.write_text("led-0 red\nled-1 red\nled-2 green\n")
    cdi.mkdir()
    with ApiServer() as server:
        client = ClusterClient(server.url)
        kubelet = Kubelet(root / "kubelet", reconcile_interval=0.1, dra=DraManagerSettings(KubeletApi(client, NODE)))
        cluster = SandboxCluster(client, NODE, kubelet, [cdi])
        await cluster.start()
        async with kubelet:
            flags = {"--board": board, "--node": NODE, "--kubeconfig": server.kubeconfig(root / "kubeconfig")}
            flags |= {"--plugins": root / "kubelet" / "plugins", "--cdi": cdi}
            flags |= {"--registry": root / "kubelet" / "plugins_registry"}
            command = [sys.executable, str(HERE / "board.py"), *[str(part) for flag in flags.items() for part in flag]]
            with (root / "driver.log").open("w") as output:
                driver = await asyncio.create_subprocess_exec(*command, stderr=output)
            try:
                await published(cluster, 0)
                board.write_text("led-0 red broken\nled-1 red\nled-2 green\n")
                await published(cluster, 1)
                outcomes = await cluster.apply(yaml.safe_load_all((HERE / "pod.yaml").read_text()))
                for _ in range(100):
                    if outcomes[0].running:
                        break
                    # The kubelet looks for new drivers from time to time.
                    await asyncio.sleep(0.1)
                    outcomes = [await cluster.retry("lamp")]
                given = outcomes[0]
                print(f"pod {given.pod}: {given.phase} {given.message}", *given.claims.values())
                print("its container has", given.containers["main"]["injected"]["env"])
                await cluster.end("lamp")
                print("ended, claims left:", len(await cluster.claims()))
            finally:
                driver.terminate()
                await driver.wait()


if __name__ == "__main__":
    # Short: sockets' paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="led-", dir="/tmp") as folder:
        asyncio.run(asyncio.wait_for(show(Path(folder)), 60.0))
