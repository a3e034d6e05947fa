"""The testbed of DRA drivers: an API server, claims that are allocated as a scheduler does it, and CDI folders.

The driver finds the API server by a kubeconfig and publishes its slices there. A claim is made with its pod, allocated
a device of these slices by the structured allocator, and given back at the end of the rule. Unlike a kubelet, the one
here deletes no slices when it starts: a driver may take half a minute to publish them again, and one rule asks for it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from node.cdi.spec import LARGEST
from node.opening import read_regular
from protos.dra.v1 import api_pb2
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.server import ApiServer
from sandbox.cluster.controllers import Unschedulable, allocate, allocation, reserved
from sandbox.conformance.driver_client import DriverClient
from sandbox.conformance.observed import ObservedRegistration
from sandbox.conformance.observing_kubelet import LOOK
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.rule import CannotJudge, RuleNotApplicable
from sandbox.conformance.subject import JudgedProgram
from sandbox.conformance.testbed import ConformancePace, ProgramTestbed
from sandbox.kubelet.dra.instance import KNOWN

Json = dict[str, Any]
NODE: Final = "conformance"
"""Name of the Node."""
CLASS: Final = "conformance"
"""Name of the DeviceClass, which has all devices of the driver."""
REQUEST: Final = "devices"
"""Name of each claim's request."""


@dataclass(frozen=True)
class JudgedDriver:
    """The driver: a client, and its registration (None where only its socket is known)."""

    name: str
    client: DriverClient
    registration: ObservedRegistration | None


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A claim with its devices, as (pool, device)."""

    message: api_pb2.Claim
    devices: tuple[tuple[str, str], ...]

    @property
    def uid(self) -> str:
        """Its UID."""
        return self.message.uid


class DriverTestbed(ProgramTestbed):
    """``program`` on the node ``NODE`` of a cluster, or what serves ``socket``; one of both is None.

    The caller starts and stops ``server``. ``cdi``: the folders in which the driver writes CDI files, in rising
    priority. ``state``: a folder that is empty at every new start of the driver.
    """

    def __init__(
        self,
        root: Path,
        program: JudgedProgram | None,
        pace: ConformancePace,
        server: ApiServer,
        *,
        cdi: Sequence[Path],
        state: Path,
        socket: Path | None = None,
    ) -> None:
        super().__init__(root, program, pace, "DRAPlugin", folders=(state, *cdi))
        self.cdi = tuple(cdi)
        self.server = server
        self._socket = socket
        self._drivers: dict[int, JudgedDriver] = {}
        self._numbers = itertools.count(1)
        self._unpublished = ""
        """Why there are no slices, once that was waited for; until the next start of a driver that had some."""
        self._had_slices = False

    async def begin(self, *, kubelet: bool = True) -> None:
        """Start the driver again, with an API server that has only the Node; see ``ProgramTestbed``."""
        for plural in ("resourceslices", "resourceclaims", "pods", "deviceclasses"):
            for each in self.server.store.list(plural):
                self._delete(plural, each)
        with suppress(StatusError):  # It is there already.
            self.server.store.create("nodes", {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
        if self._had_slices:
            self._unpublished = ""
        await super().begin(kubelet=kubelet)

    async def driver(self) -> JudgedDriver:
        """The driver as it is registered."""
        if self._socket is not None:
            return self._drivers[0]
        found = sorted(self.kubelet.current().values(), key=attrgetter("number"))
        registration = found[-1]
        if registration.number not in self._drivers:
            client = self._client(registration.socket, registration.versions)
            self._drivers[registration.number] = JudgedDriver(registration.resource, client, registration)
        return self._drivers[registration.number]

    def slices(self) -> list[Json]:
        """The specs of the driver's slices, of every pool only those of its newest generation."""
        name = max(self.resources, default="")
        specs = [each["spec"] for each in self.server.store.list("resourceslices", fields=f"spec.driver={name}")]
        newest: dict[str, int] = {}
        for spec in specs:
            pool = spec["pool"]
            newest[pool["name"]] = max(newest.get(pool["name"], 0), pool.get("generation", 0))
        return [spec for spec in specs if spec["pool"].get("generation", 0) == newest[spec["pool"]["name"]]]

    def delete_slices(self) -> None:
        """Delete the node's slices, as a kubelet does when it starts."""
        for each in self.server.store.list("resourceslices", fields=f"spec.nodeName={NODE}"):
            self._delete("resourceslices", each)

    async def published(self, seconds: float | None = None) -> list[Json]:
        """Wait for complete pools with at least one device; their slices' specs. Raises ``RuleNotApplicable``."""
        if not self.has_program:
            raise RuleNotApplicable(
                "it needs an API server that the driver publishes at; give the command, not a socket"
            )
        if self._unpublished:
            raise RuleNotApplicable(self._unpublished)
        patience = self.pace.patience if seconds is None else seconds
        problem = "it publishes no slice"

        def complete() -> bool:
            nonlocal problem
            specs = self.slices()
            problem = incomplete(specs) if specs else "it publishes no slice"
            return not problem and any(spec.get("devices") for spec in specs)

        if await self.polled(complete, patience):
            self._had_slices = True
            return self.slices()
        missing = problem or "its slices have no devices"
        self._unpublished = f"{missing} within {patience:g} s; the rules on slices judge that"
        self._lost = self._had_slices
        raise RuleNotApplicable(self._unpublished)

    async def polled(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether a condition becomes true within ``seconds``, and before the driver ends."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not condition():
            if loop.time() > end or self.program.ended():
                return False
            await asyncio.sleep(LOOK)
        return True

    @asynccontextmanager
    async def claims(self, count: int = 1) -> AsyncIterator[list[JudgedClaim]]:
        """So many allocated claims of one device each; in the end they are unprepared and deleted.

        Raises ``RuleNotApplicable`` if there are not enough devices for them.
        """
        await self.published()
        made: list[JudgedClaim] = []
        try:
            for _ in range(count):
                made.append(self.claim())  # noqa: PERF401 - what was made before a failure has to be given back
            yield made
        finally:
            for claim in made:
                await self.give_back(claim)

    def claim(self, *, like: JudgedClaim | None = None, device: str | None = None) -> JudgedClaim:
        """A new claim with its pod; ``like``: with the same devices; ``device``: of another name than is published.

        Raises ``RuleNotApplicable`` if nothing can be allocated.
        """
        store, name = self.server.store, f"conformance-{next(self._numbers)}"
        self._make_class()
        spec: Json = {"devices": {"requests": [{"name": REQUEST, "exactly": {"deviceClassName": CLASS, "count": 1}}]}}
        claim = store.create("resourceclaims", {"metadata": {"name": name}, "spec": spec})
        pod = store.create("pods", _pod(name))
        try:
            claim = self._allocated(claim, like, device)
        except Unschedulable as error:
            self._delete("resourceclaims", claim)
            self._delete("pods", pod)
            raise RuleNotApplicable(f"no device of its slices can be allocated: {error}") from error
        claim = store.replace("resourceclaims", reserved(claim, pod), part="status")
        return _judged(claim)

    def unallocated(self) -> JudgedClaim:
        """A new claim without an allocation."""
        spec: Json = {"devices": {"requests": [{"name": REQUEST, "exactly": {"deviceClassName": CLASS, "count": 1}}]}}
        self._make_class()
        name = f"conformance-{next(self._numbers)}"
        return _judged(self.server.store.create("resourceclaims", {"metadata": {"name": name}, "spec": spec}))

    async def give_back(self, claim: JudgedClaim) -> None:
        """Unprepare a claim and delete it and its pod, whatever of it is there; does not judge."""
        if self.has_program and self.kubelet.current():
            with suppress(JudgedCallFailed):
                await (await self.driver()).client.unprepare([claim.message])
        self.delete(claim)

    def delete(self, claim: JudgedClaim) -> None:
        """Delete a claim and its pod at the API server."""
        for plural in ("resourceclaims", "pods"):
            for each in self.server.store.list(plural, namespace=claim.message.namespace):
                if each["metadata"]["name"] == claim.message.name:
                    self._delete(plural, each)

    def cdi_files(self) -> dict[Path, bytes]:
        """The files in the CDI folders, hidden ones apart."""
        return {
            path: _content(path)
            for folder in self.cdi
            for path in sorted(folder.glob("*"))
            if path.is_file() and not path.name.startswith(".")
        }

    def _allocated(self, claim: Json, like: JudgedClaim | None, device: str | None) -> Json:
        store = self.server.store
        if like is not None:
            twin = store.get("resourceclaims", like.message.name, namespace=like.message.namespace)
            return {**claim, "status": {"allocation": allocation(twin)}}
        (found,) = allocate(
            [claim],
            store.list("resourceclaims"),
            classes=store.list("deviceclasses"),
            slices=store.list("resourceslices"),
            node=store.get("nodes", NODE),
        )
        if device is not None:
            for result in allocation(found)["devices"]["results"]:
                result["device"] = device
        return found

    def _make_class(self) -> None:
        expression = f"device.driver == {max(self.resources, default='')!r}"
        body = {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        with suppress(StatusError):  # It is there already.
            self.server.store.create("deviceclasses", body)

    def _delete(self, plural: str, obj: Mapping[str, Any]) -> None:
        """Delete an object at once, finalizers and grace notwithstanding; a missing one is no error."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default")
        with suppress(StatusError):
            if metadata.get("finalizers"):
                self.server.store.patch(
                    plural, metadata["name"], {"metadata": {"finalizers": None}}, namespace=namespace
                )
            options = {"gracePeriodSeconds": 0}
            self.server.store.delete(plural, metadata["name"], namespace=namespace, options=options)

    async def _check_socket(self) -> None:
        if 0 in self._drivers:
            return
        socket = str(self._socket)
        client = self._client(socket, KNOWN)
        if not await client.ready(self.pace.call):
            await client.close()
            raise CannotJudge(f"nobody answers at {socket}; start the driver, or correct the path")
        served = []
        for service in KNOWN:
            with suppress(JudgedCallFailed):
                await client.prepare((), service)
                served.append(service)
        await client.close()
        if not served:
            raise CannotJudge(f"{socket} serves none of {', '.join(KNOWN)}; give the socket that claims are served on")
        self._drivers[0] = JudgedDriver(socket, self._client(socket, served), None)

    async def _close_clients(self) -> None:
        for driver in self._drivers.values():
            await driver.client.close()
        self._drivers.clear()

    def _client(self, socket: str, services: Sequence[str]) -> DriverClient:
        return DriverClient(socket, services, self.pace.call)


def incomplete(specs: Sequence[Mapping[str, Any]]) -> str:
    """Say which pool is not complete; empty if all are."""
    pools: dict[str, list[Mapping[str, Any]]] = {}
    for spec in specs:
        pools.setdefault(spec["pool"]["name"], []).append(spec)
    for name, members in sorted(pools.items()):
        wanted = members[0]["pool"]["resourceSliceCount"]
        if len(members) != wanted:
            return f"pool {name} has {len(members)} slices of {wanted}"
    return ""


def _judged(claim: Mapping[str, Any]) -> JudgedClaim:
    metadata = claim["metadata"]
    message = api_pb2.Claim(namespace=metadata["namespace"], uid=metadata["uid"], name=metadata["name"])
    results = allocation(claim).get("devices", {}).get("results") or ()
    return JudgedClaim(message, tuple((each["pool"], each["device"]) for each in results))


def _pod(claim: str) -> Json:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": REQUEST}]}}
    claims = [{"name": REQUEST, "resourceClaimName": claim}]
    return {
        "metadata": {"name": claim},
        "spec": {"nodeName": NODE, "containers": [container], "resourceClaims": claims},
    }


def _content(path: Path) -> bytes:
    """The content of a file; empty if it is gone, or too large for a runtime."""
    try:
        return read_regular(path, LARGEST, links=True)
    except OSError:
        return b""
