"""A DRA driver that keeps every rule but those that it is told to break, in this process and over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from node.sockets import FileId, is_answered
from protos.dra.v1 import api_pb2, api_pb2_grpc
from protos.drahealth.v1 import api_pb2 as health_pb2
from protos.drahealth.v1 import api_pb2_grpc as health_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.server import ApiServer
from sandbox.conformance.driver_testbed import NODE
from sandbox.conformance.subject import ProcessSize, ProgramEnd

Context = grpc.aio.ServicerContext[Any, Any]
KIND = "gpu.example.com/claim"
DEVICES = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")
LOOK = 0.04
"""Seconds between two looks at the slices."""

ENDS_ITSELF = "ends-itself"
"""The habit of drivers that leave it to Kubernetes to start them again when there is no kubelet."""


class FlawedDriver(
    api_pb2_grpc.DRAPluginServicer, registration_grpc.RegistrationServicer, health_grpc.DRAResourceHealthServicer
):
    """One serving of one driver; ``flaws``: the rules to break. What it prepared is in a file in ``state``."""

    def __init__(self, root: Path, server: ApiServer, cdi: Path, state: Path, flaws: Collection[str]) -> None:
        self.flaws = frozenset(flaws)
        self.name = "GPU.example.com" if "driver-name" in self.flaws else "gpu.example.com"
        self.endpoint = root / "plugins" / self.name / "dra.sock"
        self.registration = root / "plugins_registry" / f"{self.name}-reg.sock"
        self.kubelet = root / "device-plugins" / "kubelet.sock"
        self.prepared = 0
        self._api = server
        self._cdi = cdi
        self._record = state / "claims.json"
        self._refused = state / "refused"
        self._claims: dict[str, str] = {}
        if self._record.exists():
            self._claims = json.loads(self._record.read_text())
        self._once: set[str] = set()
        self._released: set[str] = set()
        self._busy = 0
        self._servers: list[grpc.aio.Server] = []

    async def run(self) -> None:
        """Serve and publish until cancelled; a driver with the habit ends itself without a kubelet."""
        if not self.kubelet.exists():
            if "starts-before-kubelet" in self.flaws:
                await asyncio.Event().wait()
            if ENDS_ITSELF in self.flaws:
                return
        await self._serve()
        published = False
        kubelet: FileId | None = None
        while True:
            found = FileId.of(self.kubelet)
            if "registry-after-kubelet" in self.flaws and kubelet is not None and not is_answered(self.kubelet):
                self.registration.unlink(missing_ok=True)
            kubelet = kubelet or found
            if "publishes" not in self.flaws and not (published and "restores-slices" in self.flaws):
                published = self._publish() or published
            await asyncio.sleep(LOOK)

    async def close(self, *, clean: bool) -> None:
        """End the servers; ``clean``: as after SIGTERM."""
        servers, self._servers = self._servers[::-1], []
        for server in servers:
            await server.stop(None)
        if clean and "restarts-between" in self.flaws:
            self._refused.write_text("")
        if clean and "keeps-slices" in self.flaws:
            for each in self._api.store.list("resourceslices"):
                self._api.store.delete("resourceslices", each["metadata"]["name"])
        if clean and "killed-between" in self.flaws:
            self._record.write_text(json.dumps(self._claims))

    async def _serve(self) -> None:
        service, registry = grpc.aio.server(), grpc.aio.server()
        api_pb2_grpc.add_DRAPluginServicer_to_server(self, service)
        if "serves-what-it-lists" not in self.flaws:
            health_grpc.add_DRAResourceHealthServicer_to_server(self, service)
        registration_grpc.add_RegistrationServicer_to_server(self, registry)
        for server, socket in ((service, self.endpoint), (registry, self.registration)):
            socket.parent.mkdir(parents=True, exist_ok=True)
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
            self._servers.append(server)

    def _publish(self) -> bool:
        """Create the slices that are missing; whether all are there."""
        wanted = 2 if "unique-devices" in self.flaws else 1
        store = self._api.store
        node = store.get("nodes", NODE)["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["uid"], "controller": True}
        for number in range(wanted):
            metadata: dict[str, Any] = {"name": f"{self.name.lower()}-{number}"}
            if "owned-by-node" not in self.flaws:
                metadata["ownerReferences"] = [owner]
            spec = {
                "driver": self.name,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": wanted},
                "devices": [{"name": name} for name in DEVICES],
            }
            with contextlib.suppress(StatusError):  # It is there.
                store.create("resourceslices", {"metadata": metadata, "spec": spec})
        return True

    async def NodePrepareResources(
        self, request: api_pb2.NodePrepareResourcesRequest, context: Context
    ) -> api_pb2.NodePrepareResourcesResponse:
        self._busy += 1
        try:
            if "prepares-in-parallel" in self.flaws:
                await self._until_two()
            if self._busy > 1 and "prepares-in-parallel" in self.flaws:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "one claim at a time")
            response = api_pb2.NodePrepareResourcesResponse()
            for claim in request.claims:
                try:
                    devices = self._prepare(claim)
                except ValueError as error:
                    if "judges-each-claim" in self.flaws:
                        await context.abort(grpc.StatusCode.INTERNAL, str(error))
                    response.claims[claim.uid].error = str(error)
                else:
                    response.claims[claim.uid].devices.extend(devices)
            if "answers-every-claim" in self.flaws and len(request.claims) > 1:
                response.claims["another"].error = "who is this?"
            return response
        finally:
            self._busy -= 1

    async def _until_two(self) -> None:
        """Wait a moment for a second call: on a slow machine it comes late."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.25
        while self._busy < 2 and loop.time() < deadline:
            await asyncio.sleep(0.005)

    async def NodeUnprepareResources(
        self, request: api_pb2.NodeUnprepareResourcesRequest, context: Context
    ) -> api_pb2.NodeUnprepareResourcesResponse:
        response = api_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            error = self._unprepare(claim)
            response.claims[claim.uid].error = error
        return response

    def _prepare(self, claim: api_pb2.Claim) -> list[api_pb2.Device]:
        self.prepared += 1
        try:
            found = self._api.store.get("resourceclaims", claim.name, namespace=claim.namespace)
        except StatusError as error:
            raise ValueError(str(error)) from error
        if found["metadata"]["uid"] != claim.uid and "checks-claims" not in self.flaws:
            raise ValueError("the claim was replaced")
        results = (found.get("status") or {}).get("allocation", {}).get("devices", {}).get("results") or []
        if not results:
            raise ValueError("the claim is not allocated")
        if self._refused.exists() and claim.uid in self._claims:
            raise ValueError("a predecessor prepared it")
        if "repeats-prepare" in self.flaws and claim.uid in self._once:
            raise ValueError("it is prepared already")
        devices = [each["device"] for each in results]
        for name in devices:
            if name not in DEVICES:
                raise ValueError(f"there is no device {name}")
            if "guards-devices" not in self.flaws and any(
                held == name for uid, held in self._claims.items() if uid != claim.uid
            ):
                raise ValueError(f"device {name} is held by another claim")
        self._once.add(claim.uid)
        self._claims[claim.uid] = devices[0]
        self._write()
        self._write_cdi(claim.uid, devices)
        shown = ["gpu-9"] if "prepares" in self.flaws else devices
        return [
            api_pb2.Device(
                request_names=["devices"], pool_name=NODE, device_name=name, cdi_device_ids=[f"{KIND}={claim.uid}"]
            )
            for name in shown
        ]

    def _unprepare(self, claim: api_pb2.Claim) -> str:
        if "unprepares-deleted" in self.flaws and claim.uid in self._claims:
            try:
                self._api.store.get("resourceclaims", claim.name, namespace=claim.namespace)
            except StatusError as error:
                return str(error)
        if claim.uid not in self._claims:
            if "unprepares-unknown" in self.flaws and claim.uid not in self._released:
                return "the claim is not known"
            return "it was released" if "repeats-unprepare" in self.flaws and claim.uid in self._released else ""
        del self._claims[claim.uid]
        self._released.add(claim.uid)
        self._write()
        if "removes-cdi-files" not in self.flaws:
            self._file(claim.uid).unlink(missing_ok=True)
        return ""

    def _write(self) -> None:
        if "killed-between" not in self.flaws:
            self._record.write_text(json.dumps(self._claims))

    def _write_cdi(self, uid: str, devices: Sequence[str]) -> None:
        nodes = [{"path": f"/dev/{name}"} for name in devices]
        spec = {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [{"name": uid, "containerEdits": {"deviceNodes": nodes}}],
        }
        if "cdi-files" in self.flaws:
            del spec["cdiVersion"]
        self._file(uid).write_text(json.dumps(spec))

    def _file(self, uid: str) -> Path:
        return self._cdi / f"gpu.example.com-claim_{uid}.json"

    async def NodeWatchResources(self, request: object, context: Context) -> AsyncIterator[Any]:
        devices = DEVICES[:2] if "health-reports" in self.flaws else DEVICES
        yield health_pb2.NodeWatchResourcesResponse(
            devices=[
                health_pb2.DeviceHealth(
                    device=health_pb2.DeviceIdentifier(pool_name=NODE, device_name=name), health=health_pb2.HEALTHY
                )
                for name in devices
            ]
        )
        await asyncio.Event().wait()

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: Context) -> registration_pb2.PluginInfo:
        services = ["v1.DRAPlugin", "v1.DRAResourceHealth"]
        if "services" in self.flaws:
            services = ["v1", *services[1:]]
        scheme = "unix://" if "endpoint" in self.flaws else ""
        return registration_pb2.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=f"{scheme}{self.endpoint}", supported_versions=services
        )

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        if "registry-calls" in self.flaws:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return registration_pb2.RegistrationStatusResponse()


class DriverInProcess:
    """A flawed driver as a program of a testbed; see ``JudgedProgram``."""

    def __init__(self, root: Path, server: ApiServer, cdi: Path, state: Path, *flaws: str) -> None:
        self._place = (root, server, cdi, state)
        self._flaws = flaws
        self._driver: FlawedDriver | None = None
        self._prepared = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.stop()
        self._driver = FlawedDriver(*self._place, self._flaws)
        self._task = asyncio.create_task(self._driver.run())

    async def terminate(self) -> ProgramEnd:
        left = self._driver.registration if self._driver is not None else None
        if left is not None and "removes-sockets" in self._flaws:
            hidden = left.with_name(".left")
            left.rename(hidden)
            await self._end(clean=True)
            hidden.rename(left)
        else:
            await self._end(clean=True)
        return ProgramEnd("ends-in-grace" not in self._flaws, 0.0)

    async def stop(self) -> None:
        await self._end(clean=True)

    async def kill(self) -> None:
        await self._end(clean=False)

    async def _end(self, *, clean: bool) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close(clean=clean)

    def ended(self) -> str:
        return "ended with exit code 1 and wrote no log" if self._task is not None and self._task.done() else ""

    def size(self) -> ProcessSize | None:
        calls = self._driver.prepared if self._driver is not None else 0
        return ProcessSize(20_000 + (2000 * calls if "does-not-grow" in self._flaws else 0), 12)
