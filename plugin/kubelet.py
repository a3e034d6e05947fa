"""The kubelet as the door sees it: its folders, its socket, the Register call, and which of our devices it has.

``device-plugins/`` has a fixed place whatever the kubelet's root folder is; ``plugins_registry/`` follows that root. So
they are two settings.

An open device stream does not prove that our list counts: when another plugin registers the same resource, kubelets up
to 1.36 overwrite their slot for that name and leave our stream open, and people's tools open streams as well. So
``KubeletView`` asks the kubelet which devices it has: once for all resources, a moment after anything that may have
changed it, and every minute, unless the ledger has asked the same meanwhile. If the pod resources API is missing or
refuses, ostler knows nothing and concludes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from node.clocks import Clocks
from node.events import EventBus
from node.kubelet.podresources import PodResourcesRefused, by_resource, healthy_ids, socket_below
from node.sockets import CHANNEL, FileId, is_socket
from node.values import Value, value
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER_TIMEOUT = 10.0
"""Seconds for Register: the kubelet dials back (10 s at most) inside the call and within its deadline."""


class RegistrationPath(StrEnum):
    """How the kubelet finds a plugin."""

    REGISTRY = "registry"
    """The plugin watcher finds the socket in ``plugins_registry/``; a restarted kubelet finds it again by itself."""
    REGISTER = "register"
    """The plugin calls Register on ``kubelet.sock``, and again after every restart of the kubelet."""


SLOT_ENDS: Final = (1, 80)
"""The first grpc-go of kubelets with a client per socket: 1.36 has 1.79, 1.37 has 1.82."""
_AGENT = r"grpc-go/(\d+)\.(\d+)"


def grpc_go(user_agent: str) -> tuple[int, int] | None:
    """The library version of a calling kubelet; None for other callers, such as grpcurl."""
    found = re.match(_AGENT, user_agent)
    return (int(found[1]), int(found[2])) if found else None


class RegisterRefused(Exception):
    """The kubelet refused a registration; ``reason`` is its own text."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"the kubelet refused to register {resource}: {reason}")
        self.reason = reason


@value
class KubeletFolders(Value):
    """Where the kubelet's sockets are; ``paths``: the ways to register that may be tried, in this order.

    ``patience``: seconds a live kubelet gets to ask a socket in its registry; it looks every second.
    """

    device_plugins: Path
    registry: Path
    paths: tuple[RegistrationPath, ...] = (RegistrationPath.REGISTRY, RegistrationPath.REGISTER)
    patience: float = 5.0

    @property
    def socket(self) -> Path:
        """The kubelet's registration socket; it exists if a kubelet does."""
        return self.device_plugins / KUBELET_SOCKET

    @property
    def pod_resources(self) -> Path:
        """The folder in which the kubelet reports its devices; it follows the kubelet's root, as the registry does."""
        return socket_below(self.registry.parent)

    @property
    def plugin_folders(self) -> tuple[Path, Path]:
        """The folders in which plugins have their sockets, ours and others'."""
        return self.device_plugins, self.registry

    def directory(self, path: RegistrationPath) -> Path:
        """The folder that a plugin's socket must be in for this way of registering."""
        return self.registry if path is RegistrationPath.REGISTRY else self.device_plugins

    def socket_id(self) -> FileId | None:
        """Identity of the kubelet's socket, which changes with its restart; None if there is no socket."""
        return FileId.of(self.socket) if is_socket(self.socket) else None


async def register(socket: Path, resource: str, endpoint: str, options: api_pb2.DevicePluginOptions) -> None:
    """Tell the kubelet to dial ``endpoint`` (a file name in its folder); raises ``RegisterRefused``.

    The kubelet calls GetDevicePluginOptions on that endpoint before it answers, so the loop must be free.
    """
    request = api_pb2.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options)
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL) as channel:
        try:
            await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=REGISTER_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise RegisterRefused(resource, error.details() or error.code().name) from error


log = logging.getLogger("ostler.registration")

TOGETHER = 0.05
"""Seconds by which a question may come early to share another one's answer: the streams of all resources end at
once."""


@value
class QuestionPace(Value):
    """Seconds around the questions which devices the kubelet has, in the order in which they matter."""

    soon: float = 1.0
    """From a registration, or another plugin's socket, to the question: the kubelet dials and lists meanwhile."""
    again: float = 1.0
    """Between questions while the answer differs from our list."""
    sure: float = 2.0
    """How long it must differ: a list may be on its way, and a busy kubelet may answer late."""
    every: float = 60.0
    """Between questions when nothing happens."""
    alive: float = 1.0
    """Between checks whether a plugin that took a resource still lives."""


@value
class AllocatableAnswer(Value):
    """Healthy ids by resource; ``number`` counts the answers, ``asked_at`` is of the injected clock."""

    number: int
    asked_at: float
    ids: Mapping[str, frozenset[str]]


@value
class KubeletAnswered(Value):
    """The kubelet has said which devices it has of every resource."""


class KubeletView:
    """Asks at ``socket`` while ``run`` runs and publishes ``KubeletAnswered``; ``answer`` is None without a valid one.

    Before the first ``want`` it asks nothing, and takes no answers from others.
    """

    def __init__(self, socket: Path, bus: EventBus, *, clocks: Clocks, pace: QuestionPace) -> None:
        self.answer: AllocatableAnswer | None = None
        self._socket = socket
        self._bus = bus
        self._clock = clocks.monotonic
        self._pace = pace
        self._wanted = math.inf
        self._regular = math.inf
        """When to ask: for a reason, and regularly."""
        self._later: list[float] = []
        """When to ask for reasons that an earlier answer does not serve."""
        self._answers = 0
        self._problem = ""
        self._woken = asyncio.Event()

    def want(self, seconds: float) -> None:
        """Ask the kubelet within that many seconds."""
        due = self._clock() + seconds
        if due < min(self._wanted, self._regular):
            self._woken.set()
        self._wanted = min(self._wanted, due)

    def want_after(self, seconds: float) -> None:
        """Ask the kubelet after that many seconds, whatever it answers before."""
        self._later.append(self._clock() + seconds)
        self._woken.set()

    def take_answer(self, asked_at: float, healthy: Iterable[tuple[str, str]] | None) -> None:
        """Take an answer that another part got at this time (monotonic): resource and id of every healthy device.

        It replaces the next regular question if that is due soon enough. ``healthy``: None if the kubelet refused.
        """
        if healthy is None:
            return
        if self._wanted == math.inf and asked_at + self._pace.every / 2 >= self._regular:
            self._regular = asked_at + self._pace.every
            self._take(asked_at, by_resource(healthy))

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._woken.clear()
            left = min(self._wanted, self._regular, *self._later) - self._clock()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if left == math.inf else left):
                        await self._woken.wait()
            else:
                await self._ask()

    async def _ask(self) -> None:
        now = self._clock()
        self._wanted, self._regular = math.inf, now + self._pace.every
        self._later = [due for due in self._later if due > now + TOGETHER]
        self.answer = None
        if not is_socket(self._socket):
            return
        try:
            ids = await healthy_ids(self._socket)
        except PodResourcesRefused as error:
            if error.passing:
                self.want(self._pace.every / 12)
            if str(error) != self._problem:
                self._problem = str(error)
                log.info("cannot read which devices the kubelet has", extra={"reason": self._problem})
            return
        self._take(now, ids)

    def _take(self, asked_at: float, ids: Mapping[str, frozenset[str]]) -> None:
        self._answers += 1
        self._problem = ""
        self.answer = AllocatableAnswer(self._answers, asked_at, ids)
        self._bus.publish(KubeletAnswered())
