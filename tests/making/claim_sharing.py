"""A node with the driver's programs, which run as real processes, and claims whose containers share their GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from driver.claims.service import ClaimService
from driver.claims.sharing import CLAIMS_RECORD, ClaimDaemons, ClaimSharing, SharingTools, is_of_claim
from driver.names import Peer
from kube.bodies import JsonObject
from node.clocks import SYSTEM
from node.edits.options import EditOptions
from node.inventory.nvidia.compute_modes import DEFAULT
from node.inventory.nvidia.time_slices import TimeSlicer
from node.mps.daemon import MpsError
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.processes import find_daemons
from node.mps.service import MpsPace
from node.mps.supervisor import MpsSupervisor
from node.rules import Doors, Rule
from node.sharing import Sharing, SharingStrategy
from tests.making.claim_service import ClaimNode, claim, opaque, result
from tests.making.mps import GpuModes, MpsStandIn, SmiStandIn

NVIDIA: JsonObject = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
GIB = 2**30
LONG: JsonObject = {**NVIDIA, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
OURS: JsonObject = {"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig"}
LIMITED: JsonObject = {
    **NVIDIA,
    "sharing": {
        "strategy": "MPS",
        "mpsConfig": {
            "defaultActiveThreadPercentage": 40,
            "defaultPinnedDeviceMemoryLimit": "10Gi",
            "defaultPerDevicePinnedMemoryLimit": {"GPU-1": "4Gi"},
            "multiUser": True,
        },
    },
}

SHARED_RULE = Rule(
    "nvidia.com/gpu.shared",
    sharing=Sharing(SharingStrategy.MPS, 4),
    door=Doors.DRA,
    edits=EditOptions(mps=("/run/nvidia/mps", "nvidia.com/gpu.shared")),
)


class Sharer:
    """A node with the driver's programs, and one process after the other on it that prepares claims."""

    def __init__(self, root: Path) -> None:
        self.node = ClaimNode(root)
        self.node.with_options(peers=(Peer.NVIDIA,), mps_root=str(root / "mps"))
        self.driver = MpsStandIn(root)
        self.smi = SmiStandIn(root / "driver")
        self.modes = GpuModes("GPU-0", "GPU-1", "GPU-2", "GPU-3")
        self.tools = SharingTools(TimeSlicer(root / "driver", 120.0), self._daemons, self)
        self.sharing: ClaimSharing
        self.asked: list[str] = []
        self.fault = ""

    def _daemons(self) -> ClaimDaemons:
        return MpsSupervisor(
            self.driver.home,
            ExclusiveModes(self.modes),
            MpsRecord(self.node.root / "state" / CLAIMS_RECORD),
            clocks=SYSTEM,
            events=self.node.events,
            on_changed=lambda: None,
            pace=MpsPace(look=0.1, linger=0.0, first_pause=0.05, longest_pause=0.2),
            owns=is_of_claim,
        )

    async def shares_ready(self, resource: str) -> None:
        self.asked.append(resource)
        if self.fault:
            raise MpsError(self.fault)

    @asynccontextmanager
    async def process(self, **more: Any) -> AsyncIterator[ClaimService]:
        """A process that prepares claims until the context ends, which it does not survive."""
        self.sharing = ClaimSharing(self.tools, self.node.root / "state", self.node.boot)
        service = await self.node.started(sharing=self.sharing, **more)
        running = asyncio.create_task(self.sharing.run())
        try:
            yield service
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def put(self, number: int, *devices: str, parameters: JsonObject = LONG, **fields: Any) -> None:
        driver = str(Peer.NVIDIA) if "nvidia" in str(parameters["apiVersion"]) else "ostler.dev"
        results = (result(device, **fields) for device in devices)
        self.node.reader.put(claim(number, *results, config=(opaque(parameters, driver=driver),)))

    @property
    def pids(self) -> set[int]:
        """Of the daemons that run."""
        return {process.pid for _, process in find_daemons(self.driver.home.root, self.driver.home.proc)}

    def check_clean(self) -> None:
        """Nothing is left of any claim."""
        assert self.smi.slices == {}
        assert self.pids == set()
        assert set(self.modes.modes.values()) == {DEFAULT}
        assert [path.name for path in self.driver.home.root.glob("claim-*")] == []
        left = [*(self.node.root / "state").rglob("*.json"), *(self.node.root / "cdi").glob("*")]
        assert left == []
