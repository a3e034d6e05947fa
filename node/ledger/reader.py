"""Reads what the kubelet has allocated, from its pod resources API and its device checkpoint, as one ``Reading``.

Both are needed: the API lists sidecars and app containers of active pods; only the checkpoint knows ordinary init
containers, and it may name pods that have ended since it was written. A part that cannot be read is None with its
fault, never empty; a missing checkpoint counts as empty if its folder exists, as it does for the kubelet. The kubelet
replaces the checkpoint as a whole by a rename, so it is read (in a thread) only if it is a different file.

Ids are the kubelet's, of any resource and plugin, because another plugin may have allocated the same hardware;
``node.ledger.naming`` decides which of the current devices an id means.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc
import grpc.aio

from node.clocks import Clocks
from node.inventory.live.passing import in_passing
from node.kubelet.podresources import OPTIONS, TIMEOUT, PodResourcesRefused, ids_by_resource, readable, socket_below
from node.ledger.holds import Id
from node.opening import KUBELET_STATE, content, opened
from node.sockets import FileId, is_socket
from node.values import Value, quick, value

if TYPE_CHECKING:
    from protos.podresources.v1 import api_pb2, api_pb2_grpc

log = logging.getLogger("ostler.holds")
Answer = TypeVar("Answer")

CHECKPOINT = "kubelet_internal_checkpoint"
"""The file name of node.kubelet.checkpoint; not imported, because the first Allocate needs the name and not the module.
"""
RACY_NS = 2_000_000_000
"""Nanoseconds after its modification within which a file may be replaced by one that looks the same.

Kernels take the time of modification from a coarse clock, and give the inode number of a removed file to the next one.
"""

LOOKED_UP_WITHIN = 1.0
"""Seconds that an Allocate waits for the kubelet's records."""
AGAIN = 0.05
"""Seconds until a kubelet that refused a call because of too many is asked again."""


@quick
@value
class Holding(Value):
    """An id that a container has through the plugin door.

    ``pod``: ``namespace/name``, empty if only the UID is known (checkpoint); ``uid``: empty if only the name is known
    (podresources).
    """

    resource: str
    id: str
    container: str
    pod: str = ""
    uid: str = ""


Holdings = tuple[Holding, ...]


@value
class Reading(Value):
    """One reading of the kubelet, begun at a time (monotonic); it says nothing of later changes.

    ``listed``: podresources; ``recorded``: the checkpoint; ``allocatable``: resource and id of every device that the
    kubelet counts as healthy. Each is None if it could not be read, and ``faults`` says why, for people.
    """

    began: float
    listed: Holdings | None = None
    recorded: Holdings | None = None
    allocatable: frozenset[Id] | None = None
    faults: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything could be read."""
        return None not in (self.listed, self.recorded, self.allocatable)


class CheckpointFault(Exception):
    """The kubelet's checkpoint is unusable; the message names its path and the reason."""


class KubeletReader(Protocol):
    """Reads the kubelet."""

    async def read(self) -> Reading:
        """Begin a reading now; never raises for what the kubelet does."""


class KubeletSource(KubeletReader, Protocol):
    """A reader that also looks up single records."""

    @property
    def has_records(self) -> bool:
        """Whether the kubelet has records; does not block."""

    async def holding(self, ids: Collection[Id], gone: Callable[[str], bool]) -> Holding | None:
        """The first of these ids that the kubelet currently records for a sidecar or app container; None if unknown.

        ``gone``: whether the pod of a UID is known to have ended.
        """

    async def recorded(self) -> Holdings | None:
        """The kubelet's current records; None if they cannot be read."""


class LocalKubelet:
    """Reads the kubelet with this root folder; ``device_plugins`` is the folder of its checkpoint.

    ``clocks.clock`` is the clock that stamps files. ``seconds``: the limit of each call.
    """

    def __init__(
        self,
        root: Path,
        device_plugins: Path,
        clocks: Clocks,
        *,
        seconds: float = TIMEOUT,
    ) -> None:
        self._socket = socket_below(root)
        self._folder = device_plugins
        self._clocks = clocks
        self._seconds = seconds
        self._last: tuple[FileId, Holdings] | None = None

    async def read(self) -> Reading:
        """See ``KubeletReader``."""
        began = self._clocks.monotonic()
        listed, allocatable, recorded = None, None, None
        faults: list[str] = []
        try:
            async with self._lister() as lister:
                listed = await self._listed(lister)
                allocatable = await self._allocatable(lister)
        except PodResourcesRefused as error:
            faults.append(str(error))
        try:
            recorded = await self._checkpoint()
        except CheckpointFault as error:
            faults.append(str(error))
        return Reading(began, listed, recorded, allocatable, tuple(faults))

    @property
    def has_records(self) -> bool:
        """Whether a checkpoint exists, which the kubelet writes with its first allocation."""
        return os.path.lexists(self._file)

    async def holding(self, ids: Collection[Id], gone: Callable[[str], bool]) -> Holding | None:
        """The first of these ids that the kubelet currently records for a sidecar or app container; None if unknown.

        The kubelet writes the checkpoint with every allocation, so pods are listed only if it has one of the ids for a
        pod that is not known to have ended. A kubelet that refuses the call because of too many is asked again.
        """
        try:
            async with asyncio.timeout(LOOKED_UP_WITHIN):
                recorded = await self._checkpoint()
                if not any((item.resource, item.id) in ids and not gone(item.uid) for item in recorded):
                    return None
                listed = await self._listed_in_time()
        except (CheckpointFault, PodResourcesRefused, TimeoutError) as error:
            log.warning(
                "cannot tell whether another pod has the requested devices", extra={"reason": str(error) or "no answer"}
            )
            return None
        return next((item for item in listed if (item.resource, item.id) in ids), None)

    async def recorded(self) -> Holdings | None:
        """The current content of the checkpoint; None if it cannot be read, which the next reading reports."""
        try:
            async with asyncio.timeout(LOOKED_UP_WITHIN):
                return await self._checkpoint()
        except (CheckpointFault, TimeoutError):
            return None

    async def _listed_in_time(self) -> Holdings:
        while True:
            try:
                async with self._lister() as lister:
                    return await self._listed(lister)
            except PodResourcesRefused as error:
                if error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            await asyncio.sleep(AGAIN)

    @asynccontextmanager
    async def _lister(self) -> AsyncIterator[api_pb2_grpc.PodResourcesListerStub]:
        """A connection to the kubelet; raises ``PodResourcesRefused`` if there is no socket."""
        from protos.podresources.v1 import api_pb2_grpc  # Imported late: registration comes first.

        if not is_socket(self._socket):
            raise PodResourcesRefused(self._socket, grpc.StatusCode.UNAVAILABLE, "the socket does not exist")
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=OPTIONS) as channel:
            yield api_pb2_grpc.PodResourcesListerStub(channel)

    async def _listed(self, lister: api_pb2_grpc.PodResourcesListerStub) -> Holdings:
        """What containers have; raises ``PodResourcesRefused``."""
        from protos.podresources.v1 import api_pb2  # As above.

        call = lister.List(api_pb2.ListPodResourcesRequest(), timeout=self._seconds)
        return holdings(readable(self._socket, await self._answered(call)))

    async def _allocatable(self, lister: api_pb2_grpc.PodResourcesListerStub) -> frozenset[Id]:
        """What the kubelet counts as healthy; raises ``PodResourcesRefused``."""
        from protos.podresources.v1 import api_pb2  # As above.

        call = lister.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), timeout=self._seconds)
        found = ids_by_resource(readable(self._socket, await self._answered(call)))
        return frozenset((name, id_) for name, ids in found.items() for id_ in ids)

    async def _answered(self, call: Awaitable[Answer]) -> Answer:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise PodResourcesRefused(self._socket, error.code(), error.details() or "") from error

    @cached_property
    def _file(self) -> Path:
        return self._folder / CHECKPOINT

    async def _checkpoint(self) -> Holdings:
        path = self._file
        seen = FileId.of(path)
        if self._last is not None and seen == self._last[0]:
            return self._last[1]
        if seen is None and self._folder.is_dir():
            return ()  # The kubelet writes it with its first allocation.
        now = int(self._clocks.clock() * 1e9)
        read, found = await in_passing(read_checkpoint, path)
        settled = read is not None and now - read.modified_ns > RACY_NS
        self._last = (read, found) if read is not None and settled else None
        return found


def holdings(answer: api_pb2.ListPodResourcesResponse) -> Holdings:
    """Every id that a listed container has, once: the kubelet lists it for each of its NUMA nodes."""
    found: dict[Holding, None] = {}
    for pod in answer.pod_resources:
        name = f"{pod.namespace}/{pod.name}"
        for container in pod.containers:
            for entry in container.devices:
                for id_ in entry.device_ids:
                    found[Holding(entry.resource_name, id_, container.name, pod=name)] = None
    return tuple(found)


def read_checkpoint(path: Path) -> tuple[FileId | None, Holdings]:
    """The file's content and identity (None if the folder has no such file); blocking. Raises ``CheckpointFault``."""
    from node.kubelet.checkpoint import decode
    from node.kubelet.gojson import KubeletStateError

    try:
        with opened(path) as descriptor:
            status = os.fstat(descriptor)
            text = content(descriptor, path, KUBELET_STATE)
    except FileNotFoundError as error:
        if path.parent.is_dir():
            return None, ()
        raise CheckpointFault(f"{path}: the folder does not exist") from error
    except OSError as error:
        raise CheckpointFault(f"{path}: {error.strerror or error}") from error
    try:
        entries = decode(text).held().values()
    except KubeletStateError as error:
        raise CheckpointFault(f"{path}: {error}") from error
    found = tuple(
        Holding(entry.resource, id_, entry.container, uid=entry.pod_uid)
        for entry in entries
        for id_ in sorted(entry.ids)
    )
    return FileId(status.st_dev, status.st_ino, status.st_mtime_ns), found
