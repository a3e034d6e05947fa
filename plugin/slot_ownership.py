"""Whether the kubelet's slot of one resource is ours, by the devices that the kubelet has, and who else serves it.

If the kubelet has other devices than we show, another plugin's list counts, or nobody's. Equal devices prove less:
another plugin may show the same ones (GPUs go by their UUIDs everywhere). So sockets that appear after our registration
are asked, too, whether they serve our resource; sockets older than our registration do not matter, because the newest
registration wins.

Sockets carry no resource name, but they can be asked: in ``plugins_registry`` GetInfo returns the name, and anywhere
the first message of ListAndWatch has the device ids. That question is not gentle: some plugins hand each update to one
stream only, and our stream may swallow one. So ListAndWatch is asked only when the resource is lost. Before that,
GetPreferredAllocation is enough: a plugin that prefers one of our devices and refuses one that cannot exist has our
devices. Plugins without that call are found by their devices or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import grpc
import grpc.aio

from node.kubelet.watcher_service import INQUIRY
from node.sockets import CHANNEL, PREFIX, is_socket
from node.tasks import report_fault
from node.values import Value, value
from plugin.kubelet import KUBELET_SOCKET, KubeletFolders, KubeletView, QuestionPace
from plugin.listing import DeviceListing
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

NAMED = 3
"""Most ids of a difference that a message names."""


Socket = tuple[str, int, int]
"""Path, inode and time of modification in ns: what tells a socket from its successor under the same name."""


def _sockets(folder: str) -> Iterator[Socket]:
    """Sockets of others in a folder; called at every check, so it asks as little as possible."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # Another process of ours does not count: the instance lock lets one of them take over from the other.
            if entry.name.startswith((PREFIX, ".")) or entry.name == KUBELET_SOCKET:
                continue
            if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_ino, status.st_mtime_ns


def difference(ours: frozenset[str], theirs: frozenset[str]) -> str:
    """The differences of both sides, in words; empty if there are none."""
    parts = []
    if missing := sorted(ours - theirs):
        parts.append(f"missing: {_named(missing)}")
    if extra := sorted(theirs - ours):
        parts.append(f"not ours: {_named(extra)}")
    return "; ".join(parts)


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


@value
class Loss(Value):
    """The kubelet has other devices: ``words`` for people, all it has (``theirs``), and the foreign ones among them."""

    words: str
    theirs: frozenset[str]
    taken: frozenset[str]


class SlotOwnership:
    """Judges one resource while its stream is open; ``registered`` starts over, ``look`` is called at every check.

    ``woken`` is set when another plugin was found between two checks.
    """

    def __init__(
        self,
        listing: DeviceListing,
        folders: KubeletFolders,
        view: KubeletView,
        *,
        pace: QuestionPace,
        woken: asyncio.Event,
    ) -> None:
        self._listing = listing
        self._folders = folders
        self._view = view
        self._pace = pace
        self._woken = woken
        self._since = 0.0
        self._streams = 0
        self._known: frozenset[Socket] = frozenset()
        self._judged = 0
        self._doubted: tuple[float, int] | None = None
        self._newcomers: set[Path] = set()
        self._inquiry: asyncio.Task[None] | None = None
        self.agrees = False
        """Whether the kubelet's last answer was our devices."""
        self.found: tuple[Path, ...] = ()
        """Sockets that appeared after our registration and serve our resource."""

    def registered(self, now: float) -> None:
        """The kubelet has accepted our registration and opened its stream."""
        self.forget()
        self._since = now
        self._streams = self._listing.streams
        self._known = self._others()
        self._view.want(self._pace.soon)

    def forget(self) -> None:
        """Nothing is registered: earlier doubts and findings no longer count."""
        self._doubted, self.agrees, self.found = None, False, ()
        self._newcomers.clear()
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None

    def ended(self, grace: float) -> None:
        """Our stream has ended; ask the kubelet before the grace in seconds ends, in which it may return.

        An answer from the start of the grace would not show a plugin that registers during it.
        """
        self.forget()
        self._view.want_after(grace * 0.75)

    def taken_since(self, ended: float) -> frozenset[str]:
        """Healthy devices of the resource that the kubelet had after our stream ended: another plugin's."""
        answer = self._view.answer
        if answer is None or answer.asked_at <= ended:
            return frozenset()
        return answer.ids.get(self._listing.resource, frozenset())

    def look(self, now: float) -> Loss | None:
        """The kubelet's other devices, once that is certain."""
        self._see_newcomers()
        if self._listing.streams < self._streams:
            # It is unknown whose stream ended: a person's, or the kubelet's.
            self._view.want(self._pace.soon)
        self._streams = self._listing.streams
        return self._judge(now)

    def _judge(self, now: float) -> Loss | None:
        answer = self._view.answer
        if answer is None or answer.number == self._judged or answer.asked_at < self._since:
            return None
        self._judged = answer.number
        listing = self._listing
        ours = frozenset(id_ for id_, offered in listing.devices.items() if offered.healthy)
        theirs = answer.ids.get(listing.resource, frozenset())
        self.agrees = ours == theirs
        if self.agrees:
            self._doubted = None
            return None
        if self._doubted is None or self._doubted[1] != listing.version:
            self._doubted = now, listing.version
        if now - self._doubted[0] >= self._pace.sure:
            return Loss(difference(ours, theirs), theirs, theirs - ours)
        self._view.want(self._pace.again)
        return None

    def _others(self) -> frozenset[Socket]:
        return frozenset(socket for folder in self._folders.plugin_folders for socket in _sockets(str(folder)))

    def _see_newcomers(self) -> None:
        others = self._others()
        new = {Path(path) for path, *_ in others - self._known}
        self._known = others
        if new:
            self._view.want(self._pace.soon)
            self._newcomers |= new
            if self._inquiry is None or self._inquiry.done():
                # Beside the checks: a plugin that does not answer must not make us late for the kubelet.
                self._inquiry = asyncio.create_task(self._inquire(), name=f"ask newcomers {self._listing.resource}")
                report_fault(self._inquiry, self._inquiry.get_name())

    async def _inquire(self) -> None:
        while self._newcomers:
            new = sorted(self._newcomers)
            self._newcomers.clear()
            # Later than other devices would show: they prove more.
            await asyncio.sleep(self._pace.soon + self._pace.sure + self._pace.again)
            # Once more: some register late, and kubelets try a plugin in their registry again after seconds.
            self._view.want(self._pace.soon)
            found = await newcomers_with(new, self._listing.resource, self._listing.devices)
            if found:
                self.found = tuple(found)
                self._woken.set()


ANSWER_TIMEOUT = 2.0
"""Seconds a foreign plugin gets for each question."""
NO_DEVICE = "ostler-asks-for-no-device"
"""An id that no device has."""


def sockets_of_others(directories: Iterable[Path], own: Iterable[Path]) -> list[Path]:
    """Plugins' sockets in the folders and below them, where kubelets also look; without ``own`` ones."""
    ours = frozenset(own)
    return [
        path
        for directory in dict.fromkeys(directories)
        for path in _listed(directory)
        if path not in ours and path.name != KUBELET_SOCKET and not path.name.startswith(".") and is_socket(path)
    ]


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.rglob("*"))
    except OSError:
        return []  # Missing, or it changed under us; the caller checks again.


async def newcomers_with(candidates: Iterable[Path], resource: str, ids: Iterable[str]) -> list[Path]:
    """Those of the sockets that serve any device of ``ids``; only those of ``resource`` are asked for their list."""
    wanted = frozenset(ids)

    async def serves(channel: grpc.aio.Channel) -> bool:
        if await _names(channel, resource):
            return await _lists(channel, wanted)
        return await _prefers(channel, wanted)

    return await _asked(candidates, serves)


async def foreign_sockets(
    candidates: Iterable[Path], resource: str, ids: Iterable[str], taken: frozenset[str] = frozenset()
) -> list[Path]:
    """Those of the sockets that serve ``resource`` (by name), any of the devices ``ids``, or all of ``taken``.

    ``taken``: devices of the resource that the kubelet has and that are not ours.
    """
    wanted = frozenset(ids)

    async def serves(channel: grpc.aio.Channel) -> bool:
        return await _names(channel, resource) or await _lists(channel, wanted, taken)

    return await _asked(candidates, serves)


Question = Callable[[grpc.aio.Channel], Awaitable[bool]]


async def _asked(candidates: Iterable[Path], question: Question) -> list[Path]:
    paths = list(candidates)
    answers = await asyncio.gather(*(_ask(path, question) for path in paths))
    return [path for path, answer in zip(paths, answers, strict=True) if answer]


async def _ask(path: Path, question: Question) -> bool:
    async with grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL) as channel:
        return await question(channel)


async def _names(channel: grpc.aio.Channel, resource: str) -> bool:
    try:
        info = await registration_pb2_grpc.RegistrationStub(channel).GetInfo(
            registration_pb2.InfoRequest(), timeout=ANSWER_TIMEOUT, metadata=(INQUIRY,)
        )
    except grpc.aio.AioRpcError:
        return False  # It does not speak the watcher's protocol, or is dead: either way it does not name our resource.
    return bool(info.type == "DevicePlugin" and info.name == resource)


async def _prefers(channel: grpc.aio.Channel, ids: frozenset[str]) -> bool:
    """Whether the plugin distinguishes one of our devices from one that cannot exist."""
    one = min(ids, default="")
    return bool(one) and await _preferred(channel, one) and not await _preferred(channel, NO_DEVICE)


async def _preferred(channel: grpc.aio.Channel, id_: str) -> bool:
    request = api_pb2.PreferredAllocationRequest(
        container_requests=[
            api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=[id_], allocation_size=1),
        ]
    )
    try:
        answer = await api_pb2_grpc.DevicePluginStub(channel).GetPreferredAllocation(request, timeout=ANSWER_TIMEOUT)
    except grpc.aio.AioRpcError:
        return False  # It has no such call, or no such device.
    return any(id_ in container.deviceIDs for container in answer.container_responses)


async def _lists(channel: grpc.aio.Channel, ids: frozenset[str], taken: frozenset[str] = frozenset()) -> bool:
    stream = api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty(), timeout=ANSWER_TIMEOUT)
    try:
        async for message in stream:
            listed = frozenset(device.ID for device in message.devices)
            return bool(listed & ids) or (bool(taken) and taken <= listed)
    except grpc.aio.AioRpcError:
        return False  # No device plugin, or dead.
    finally:
        stream.cancel()
    return False
