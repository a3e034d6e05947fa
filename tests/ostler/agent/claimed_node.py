"""A sandbox whose devices are offered through DRA: an agent of its own process, a kubelet, a cluster to talk to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from protos.agent.v1alpha1 import agent_pb2
from sandbox.apiserver.server import ApiServer
from sandbox.cluster import samples
from sandbox.cluster.cluster import PodOutcome, SandboxCluster
from sandbox.cluster.samples import DRIVER
from sandbox.kubelet.pods import Pod
from sandbox.node import NODE_NAME, SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
CLAIMED: Mapping[str, object] = {"name": GPU, "door": "dra", "devices": {"kind": "gpu"}}
PLUGIN: Mapping[str, object] = {"name": GPU, "devices": {"kind": "gpu"}}


def configured(*resources: Mapping[str, object]) -> str:
    """The text of a configuration with these resources."""
    return json.dumps({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": list(resources)})


class ClaimedNode(SandboxNode):
    """``async with`` gives one on which the template ``one`` (a GPU) is there, as soon as slices are published."""

    def __init__(
        self,
        recorded: Path | None = None,
        *,
        resources: Sequence[Mapping[str, object]] = (CLAIMED,),
        flags: Mapping[str, str] | None = None,
        reconcile_interval: float = 0.05,
    ) -> None:
        super().__init__(
            recorded or path("h100-sxm-8"),
            configuration=configured(*resources),
            flags=flags,
            reconcile_interval=reconcile_interval,
            cluster=True,
        )

    async def _start(self) -> None:
        await super()._start()
        await self.control.apply([samples.template("one")])
        await self.registered()

    @property
    def api(self) -> ApiServer:
        """Its API server."""
        assert self.server is not None
        return self.server

    @property
    def control(self) -> SandboxCluster:
        """Its control plane."""
        assert self.cluster is not None
        return self.cluster

    @property
    def driver_folder(self) -> Path:
        """Where the driver's sockets for claims are."""
        return self.root / "kubelet" / "plugins" / DRIVER

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for drivers."""
        return self.root / "kubelet" / "plugins_registry"

    def reconfigure(self, *resources: Mapping[str, object]) -> None:
        """Write another configuration; the agent has to be told of it."""
        (self.root / "ostler.yaml").write_text(configured(*resources))

    def said(self) -> str:
        """What the agent has logged."""
        return self.log.read_text()

    def cdi_files(self) -> list[Path]:
        """The CDI specs of claims."""
        return sorted(self.cdi.glob(f"{DRIVER}-claim_*"))

    def stored(self) -> list[str]:
        """Devices in the slices that the API server has, whether it answers or not."""
        slices = self.api.store.list("resourceslices")
        return sorted(device["name"] for each in slices for device in each["spec"].get("devices") or ())

    def tainted(self) -> list[str]:
        """Those of them that have a taint."""
        slices = self.api.store.list("resourceslices")
        return [
            device["name"] for each in slices for device in each["spec"].get("devices") or () if device.get("taints")
        ]

    def slice_writes(self) -> list[str]:
        """What the agent has written so far."""
        return [
            each.verb
            for each in self.api.requests.writes("resourceslices")
            if each.user_agent.startswith("ostler") and "dryRun" not in each.query
        ]

    async def run_pod(self, name: str, template: str = "one") -> PodOutcome:
        """A pod with a claim, as far as it comes."""
        return await self.control.run(samples.pod(name, template))

    async def running(self, name: str, template: str = "one") -> PodOutcome:
        """A pod with a claim that runs."""
        outcome = await self.run_pod(name, template)
        assert outcome.running, outcome.message
        return outcome

    async def runs_in_the_end(self, name: str, within: float = 60.0) -> PodOutcome:
        """A pod that could not be started, tried again until it runs."""

        async def tried() -> PodOutcome | None:
            outcome = await self.control.retry(name)
            return outcome if outcome.running else None

        found = await eventually(tried, f"pod {name} runs", within)
        assert found is not None
        return found

    async def claims(self) -> dict[str, dict[str, Any]]:
        """What the agent says of claims, by the UID."""
        answer = await self.agent.claims()
        return {each.uid: MessageToDict(each, preserving_proto_field_name=True) for each in answer.claims}

    async def door(self) -> agent_pb2.DraStatus:
        """What the agent's status says of the DRA door."""
        return (await self.agent.status()).dra

    def pod(self, name: str) -> Pod:
        """A pod that the kubelet has."""
        return next(pod for pod in self.kubelet.pods() if pod.name == name)


__all__ = ["CLAIMED", "DRIVER", "GPU", "NODE_NAME", "PLUGIN", "ClaimedNode", "configured"]
