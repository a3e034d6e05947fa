"""A node with devices, claims at an API server that is a dictionary, and services that can die and start again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import IO, Any

from driver.claims.contracts import ClaimOptions, ClaimReader, ClaimStep, StepObserver
from driver.claims.model import ClaimReference, Unavailable
from driver.claims.service import ClaimService
from driver.devices.view import DoorView, DraDevice
from driver.metadata.files import MetadataFiles
from kube.bodies import Json, JsonObject
from node.inventory.model import Device, Host
from node.kubelet.dra_state import ClaimInfo, DeviceState, DraState, encode
from node.ledger.events import OfferChanged
from node.rules import Doors, Rule
from node.values import replace
from tests.making.devices import gpu
from tests.making.events import RecordedEvents

DRIVER = "ostler.dev"
POOL = "node-1"
RULE = Rule("nvidia.com/gpu", door=Doors.DRA)


def reference(number: int = 1) -> ClaimReference:
    return ClaimReference("default", f"claim-{number}", f"uid-{number}")


def result(device: str, request: str = "gpu", **fields: Json) -> JsonObject:
    return {"request": request, "driver": DRIVER, "pool": POOL, "device": device, **fields}


def claim(
    number: int, *results: JsonObject, config: tuple[JsonObject, ...] = (), users: tuple[str, ...] = ("pod-1",)
) -> JsonObject:
    """A claim as the API server has it."""
    named = reference(number)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": named.namespace, "name": named.name, "uid": named.uid},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": list(config)}},
            "reservedFor": [{"resource": "pods", "name": user, "uid": user} for user in users],
        },
    }


def opaque(parameters: JsonObject, *requests: str, source: str = "FromClaim", driver: str = DRIVER) -> JsonObject:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


class _Reader:
    """Claims by namespace and name; ``fault`` is what the API server is silent for; ``gate`` holds answers back.

    ``faults``: by name of a claim what is raised for that one.
    """

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], JsonObject] = {}
        self.fault = ""
        self.faults: dict[str, Unavailable] = {}
        self.asked = 0
        self.gate: asyncio.Event | None = None

    def put(self, *claims: JsonObject) -> None:
        for body in claims:
            metadata: Any = body["metadata"]
            self.claims[metadata["namespace"], metadata["name"]] = body

    def drop(self, number: int) -> None:
        self.claims.pop(("default", reference(number).name), None)

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fault:
            raise Unavailable(self.fault)
        if name in self.faults:
            raise self.faults[name]
        return self.claims.get((namespace, name))


class Killed(BaseException):
    """The process ends here: nothing that follows is done, no clean-up either."""


class DieAt:
    """Ends the 'process' once, at one step."""

    def __init__(self, step: ClaimStep) -> None:
        self.step = step
        self.died = False

    def reached(self, step: ClaimStep, uid: str) -> None:
        if step is self.step and not self.died:
            self.died = True
            raise Killed(step)


class ClaimNode:
    """Folders of a node, what it has, and one driver process after the other on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reader = _Reader()
        self.data_dir = root / "plugins" / DRIVER
        self.events = RecordedEvents()
        self.boot = "boot-1"
        self.devices: tuple[DraDevice, ...] = tuple(offered(gpu(number)) for number in range(4))
        self.host = Host()
        self.options = ClaimOptions(
            DRIVER,
            POOL,
            root / "state",
            root / "cdi",
            root / "kubelet",
            device_wait=0.05,
            ready_wait=0.2,
            kubelet_release=0.0,
        )
        (root / "kubelet").mkdir(parents=True)
        self.changes = 0

    @property
    def view(self) -> DoorView:
        return DoorView(self.devices, self.host, 1)

    def service(
        self,
        *,
        steps: StepObserver | None = None,
        options: ClaimOptions | None = None,
        reader: ClaimReader | None = None,
        **more: Any,
    ) -> ClaimService:
        """A process that has just been started."""
        service = ClaimService(
            options or self.options,
            reader or self.reader,
            events=self.events,
            boot=self.boot,
            steps=steps or StepObserver(),
            **{"metadata": self.metadata_files(), **more},
        )
        service.ledger.bus.subscribe(OfferChanged, self._changed)
        return service

    async def started(self, **more: Any) -> ClaimService:
        """A process that has recovered and knows its devices."""
        service = self.service(**more)
        await service.recover()
        service.apply(self.view)
        return service

    def with_options(self, **changes: Any) -> ClaimOptions:
        self.options = replace(self.options, **changes)
        return self.options

    def spec(self, number: int) -> dict[str, Any] | None:
        """The claim's CDI file, None if there is none."""
        path = self.root / "cdi" / f"{DRIVER}-claim_{reference(number).uid}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def metadata_files(self) -> MetadataFiles:
        return MetadataFiles(self.data_dir, self.options.cdi_dir, DRIVER)

    def metadata_path(self, number: int, request: str = "gpu") -> Path:
        """The metadata file of a request of the claim."""
        named = reference(number)
        folder = self.data_dir / "dra-device-metadata" / f"{named.namespace}_{named.name}"
        return folder / request / "metadata.json"

    def metadata(self, number: int = 1, request: str = "gpu") -> list[Any]:
        """The objects in that file, one for each version."""
        return [json.loads(line) for line in self.metadata_path(number, request).read_text().splitlines() if line]

    def record_path(self, number: int) -> Path:
        return self.root / "state" / "claims" / f"{reference(number).uid}.json"

    def kubelet_knows(
        self, *numbers: int, devices: dict[int, tuple[str, ...]] | None = None, users: tuple[str, ...] = ("pod-1",)
    ) -> None:
        """Have the kubelet's file list these claims, with the devices they were answered with, if any."""
        infos = []
        for number in numbers:
            named = reference(number)
            states = tuple(
                DeviceState(POOL, name, None, ("gpu",), (f"{DRIVER}/claim={named.uid}-{name}",))
                for name in (devices or {}).get(number, ())
            )
            infos.append(ClaimInfo(named.uid, named.name, named.namespace, users, {DRIVER: states or None}))
        written = self.root / "kubelet" / ".written"
        written.write_bytes(encode(DraState(tuple(infos))))
        written.rename(self.kubelet_file)

    @property
    def kubelet_file(self) -> Path:
        return self.root / "kubelet" / "dra_manager_state"

    def in_a_container(self) -> IO[bytes]:
        """Have the driver see the kubelet's file as a container that begins now: that file, whatever replaces it.

        What a bind mount is to a container, a link is here: the way to a file that may have no name any more.
        """
        mounted = self.kubelet_file.open("rb")
        root = self.root / f"mounts-{mounted.fileno()}"
        root.mkdir()
        (root / self.kubelet_file.name).symlink_to(f"/proc/self/fd/{mounted.fileno()}")
        self.with_options(kubelet_root=root)
        return mounted

    def _changed(self, _: OfferChanged) -> None:
        self.changes += 1


def offered(device: Device, **changes: Any) -> DraDevice:
    return replace(DraDevice(device, RULE, healthy=True), **changes)


GPU0, GPU1, GPU2 = (gpu(number).name for number in range(3))
