"""Whether the kubelet's slot of one resource is ours, by the devices that the kubelet has.

Other devices than we show mean that another plugin's list counts, or nobody's. Equal devices prove less: another plugin
may show the same ones (GPUs go by their UUIDs everywhere). So sockets that appear after our registration are asked,
too, whether they serve our resource; those that were there before it are older than our registration, and the newest
registration wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from node.sockets import PREFIX
from node.values import Value, value
from plugin.foreign import newcomers_with
from plugin.kubelet import KUBELET_SOCKET, KubeletFolders
from plugin.kubelet_view import KubeletView, Pace
from plugin.listing import Listing

NAMED = 3
"""Most ids that are named of a difference."""


Socket = tuple[str, int, int]
"""Path, inode and time of modification in ns: what tells a socket from its successor under the same name."""


def _sockets(folder: str) -> Iterator[Socket]:
    """Sockets of others in a folder; this runs at every look, so it asks as little as it can."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # Another process of ours is no stranger: the instance lock lets one of them take over from the other.
            if entry.name.startswith((PREFIX, ".")) or entry.name == KUBELET_SOCKET:
                continue
            if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_ino, status.st_mtime_ns


def difference(ours: frozenset[str], theirs: frozenset[str]) -> str:
    """What only one side has, in words; empty for nothing."""
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
    """The kubelet has other devices: ``words`` for people, all it has (``theirs``), and what is not ours of that."""

    words: str
    theirs: frozenset[str]
    taken: frozenset[str]


class SlotOwnership:
    """Judges one resource while its stream is open; ``registered`` begins anew, ``look`` is called at every look."""

    def __init__(
        self,
        listing: Listing,
        folders: KubeletFolders,
        view: KubeletView,
        *,
        pace: Pace,
        wake: Callable[[], None],
    ) -> None:
        self._listing = listing
        self._folders = folders
        self._view = view
        self._pace = pace
        self._wake = wake
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
        """The kubelet took our registration and has opened its stream."""
        self.forget()
        self._since = now
        self._streams = self._listing.streams
        self._known = self._others()
        self._view.want(self._pace.soon)

    def forget(self) -> None:
        """Nothing is registered: what was doubted or found no longer counts."""
        self._doubted, self.agrees, self.found = None, False, ()
        self._newcomers.clear()
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None

    def ended(self, grace: float) -> None:
        """Our stream has ended; have the kubelet asked before the grace in seconds is over, in which it may return."""
        self.forget()
        self._view.want(grace * 0.75)

    def taken_since(self, ended: float) -> frozenset[str]:
        """Healthy devices that the kubelet had of the resource after our stream had ended: somebody else's."""
        answer = self._view.answer
        if answer is None or answer.asked_at <= ended:
            return frozenset()
        return answer.ids.get(self._listing.resource, frozenset())

    def look(self, now: float) -> Loss | None:
        """What the kubelet has instead of our devices, once that is sure."""
        self._see_newcomers()
        if self._listing.streams < self._streams:
            # Whose stream it was that ended cannot be told: a person's, or the kubelet's.
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
                # Beside the looks: a plugin that does not answer must not make us late for the kubelet.
                self._inquiry = asyncio.create_task(self._inquire(), name=f"ask newcomers {self._listing.resource}")

    async def _inquire(self) -> None:
        while self._newcomers:
            new = sorted(self._newcomers)
            self._newcomers.clear()
            # Later than other devices would have shown: those tell more.
            await asyncio.sleep(self._pace.soon + self._pace.sure + self._pace.again)
            # Once more: some register late, and kubelets try a plugin in their registry again after seconds.
            self._view.want(self._pace.soon)
            found = await newcomers_with(new, self._listing.resource, self._listing.devices)
            if found:
                self.found = tuple(found)
                self._wake()
