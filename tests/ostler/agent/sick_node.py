"""A node whose GPUs fall ill: the agent's own process on the stub NVML library, with a kubelet and an API server.

Every GPU is offered at both doors unless the resources say otherwise. Devices are well again at the first look that
finds them well, and what happened is over after 20 s, so that tests need not wait for minutes.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node.inventory.facts import NvmlFacts
from node.inventory.recordings.source import read
from sandbox.apiserver.server import ApiServer
from sandbox.cluster.samples import DRIVER
from sandbox.node import NODE_NAME, SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentCommandFailed
from tests.making.commands import command
from tests.node.nvml.stub.injected import RECOVERY_ACTION, InjectedNvml
from tests.node.sysfs.rendering import mknod_device, render
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
BOTH: Mapping[str, object] = {"name": GPU, "door": "both", "devices": {"kind": "gpu"}}
SOON: Mapping[str, object] = {"looks": 1, "apart": "1s", "warn": "1s", "drain": "20s"}
BOOT = "2f6f1d5c-0000-4000-8000-000000000001"


class SickNode(SandboxNode):
    """``async with`` gives it when both doors show every device well, and NVML is listened to.

    ``folder`` holds the library, /sys and /proc; ``health`` is the section of the configuration, over quick times.
    """

    def __init__(
        self,
        folder: Path,
        recorded: str = "h100-sxm-8",
        *,
        resources: Sequence[Mapping[str, object]] = (BOTH,),
        health: Mapping[str, object] | None = None,
    ) -> None:
        facts = read(path(recorded)).facts
        assert facts.nvml is not None
        assert facts.sysfs is not None
        self.facts: NvmlFacts = facts.nvml
        self.nvml = InjectedNvml(folder / "nvml", facts.nvml)
        self.folder = folder
        render(facts.sysfs, folder, mknod_device)
        self.boot(BOOT)
        document = {
            "apiVersion": "ostler.dev/v1alpha1",
            "kind": "Config",
            "resources": list(resources),
            "health": {"quiet": SOON, **(health or {})},
        }
        super().__init__(
            None,
            configuration=json.dumps(document),
            flags={
                "--nvidia-library": str(self.nvml.library),
                "--sys-root": str(folder / "sys"),
                "--proc-root": str(folder / "proc"),
                "--nvidia-dev-root-mount": str(folder / "host"),
                "--http": "127.0.0.1:0",
            },
            reconcile_interval=0.05,
            cluster=True,
        )

    def boot(self, id_: str) -> None:
        """This is the id of the node's boot from now on."""
        file = self.folder / "proc/sys/kernel/random/boot_id"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{id_}\n")

    async def _start(self) -> None:
        await super()._start()
        await self.registered()
        await self.listening()
        await eventually(self._offered, "nothing is tainted but GPUs in MIG mode", within=120)

    def _offered(self) -> bool:
        keys = {key for taints in self.taints().values() for key, _ in taints}
        return bool(self.devices_in_slices()) and keys <= {"ostler.dev/mig-mode"}

    async def listening(self) -> None:
        """Wait until the agent of now waits for NVML's events of every GPU."""

        async def waits() -> bool:
            status = await self.agent.status()
            heard = [each.state for each in status.sources if each.name == "nvml-signals"]
            return heard == ["ok"] and self.nvml.listeners >= len(self.facts.gpus)

        await eventually(waits, "NVML is listened to", within=120)

    async def restart(self) -> None:
        """Kill the agent and start it again."""
        before = self.nvml.listeners
        await self.restart_agent()
        await self.registered()
        await eventually(lambda: self.nvml.listeners > before, "NVML is listened to again", within=120)

    @property
    def api(self) -> ApiServer:
        """Its API server."""
        assert self.server is not None
        return self.server

    def name(self, gpu: int) -> str:
        """The name of a GPU's device."""
        bus = str(self.facts.gpus[gpu].bus_id).lower()
        return "gpu-" + bus[-12:].replace(":", "-").replace(".", "-")

    def uuid(self, gpu: int) -> str:
        """Its id towards the kubelet."""
        return str(self.facts.gpus[gpu].uuid)

    def look(self, gpu: int) -> None:
        """Have the agent look at a GPU that it listens to, by an event that says nothing itself."""
        self.nvml.event(gpu, RECOVERY_ACTION)

    # What is shown, where:

    def unhealthy(self, resource: str = GPU) -> list[str]:
        """Ids that the kubelet may not allocate."""
        return sorted(device.id for device in self.kubelet.devices(resource) if not device.healthy)

    def devices_in_slices(self) -> dict[str, dict[str, Any]]:
        """Devices by name, as the API server has them."""
        slices = self.api.store.list("resourceslices")
        return {device["name"]: device for each in slices for device in each["spec"].get("devices") or ()}

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        """Keys and effects of the taints of those that have any."""
        found = {
            name: [(taint["key"], taint["effect"]) for taint in device.get("taints") or ()]
            for name, device in self.devices_in_slices().items()
        }
        return {name: taints for name, taints in found.items() if taints}

    def streamed(self, device: str) -> tuple[str, str]:
        """What the kubelet was told of a device's health for the status of pods: a word and a sentence."""
        found = self.kubelet.dra.health.of(DRIVER, NODE_NAME, device)
        return found.health, found.message

    async def told(self, reason: str) -> list[str]:
        """Messages of the agent's events with this reason, the oldest first."""
        return [event.message for event in (await self.agent.status()).events if event.reason == reason]

    async def command(self, *words: str) -> str:
        """The output of ``ostler WORDS``, run in this process; raises ``AgentCommandFailed``."""
        done = await command(*words, "--socket", self.agent.flags["--socket"])
        if done.code:
            raise AgentCommandFailed(" ".join(words), done.err.strip())
        return done.out

    async def health(self, *words: str) -> dict[str, dict[str, Any]]:
        """What ``ostler health`` says of each device, by name."""
        document = json.loads(await self.command("health", "-o", "json", *words))
        return {each["device"]: each for each in document["devices"]}

    async def eviction_limits(self) -> list[dict[str, Any]]:
        """The eviction limits that are on."""
        found: list[dict[str, Any]] = json.loads(await self.command("health", "-o", "json"))["brakes"]
        return found

    async def metric(self, name: str, **labels: str) -> float:
        """A figure of /metrics; 0 for one that is not there."""
        port = re.findall(r'msg="serving probes and metrics".*port=(\d+)', self.log.read_text())[-1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        for line in text.splitlines():
            if line.partition("{")[0].partition(" ")[0] == name:
                found = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if all(found.get(key) == value for key, value in labels.items()):
                    return float(line.rpartition(" ")[2])
        return 0.0
