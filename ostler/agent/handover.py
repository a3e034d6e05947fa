"""Which instance is active, and how it hands over to a standby without the kubelet losing the devices.

An agent that ends takes its device streams with it, and the kubelet, which checks its registry every second, has no
healthy devices until it has found the successor's sockets: a pod admitted meanwhile fails for good. So an agent that is
asked to end while a standby waits ends in two steps. First, everything that decides or writes ends (inventory,
publisher, CDI specs, the agent's socket, probes), and the instance lock is released: from then on the standby is the
active instance and its ledger the only one. Then the old agent answers the kubelet's calls until the kubelet has
changed over: from memory, for the devices of the last list. It writes nothing and decides nothing new in this time; if
a device fails meanwhile, the successor reports it, within a second. How the kubelet is made to change over is up to the
door (``plugin.serving``).

This agent also waits for one with another state folder that serves the same kubelet: that one hands over to none of our
instances, and its devices are gone until this one has registered.

The locks are the kernel's, so a killed process never leaves one behind. If the successor dies, the devices go
``LINGER`` seconds later than they would have without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from node.clocks import SELDOM, until_tick
from node.lock import FILE_NAME, POLL, FolderLock, InstanceLock, LockError

log = logging.getLogger("ostler.agent")

LINGER = 8.0
"""Seconds that the kubelet and the standby have for the change-over.

The kubelet checks every second; on a busy machine the standby may need several until it serves.
"""


GUARDED = SELDOM / 2
"""Seconds between checks that the kubelet's folder is still the one that is locked; every other one wakes nobody."""


class Streams(Protocol):
    """A door, whose streams stay open for the kubelet when a process hands over."""

    def hand_over(self) -> None:
        """Keep the streams when everything else ends."""

    async def leave(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the kubelet to end them; returns whether it did. None is left afterwards."""


class KubeletTaken(Exception):
    """Another agent serves the kubelet that this one was serving: two ledgers are worse than a restart."""

    def __init__(self, holder: str) -> None:
        super().__init__(
            f"another agent serves this kubelet: {holder}; end one of the two, or give both one state folder"
        )


class Handover:
    """The instance lock of one process, from waiting for it to releasing it.

    ``doors``: those that are open at the end. ``relieves``: whether this process, as a standby, can take over streams
    that are still open. A kubelet that learns of a plugin by Register may disconnect the wrong one, so an instance
    whose first way is Register does not offer that. ``kubelet``: the folder of the kubelet that is served; its lock is
    taken together with the state folder's.
    """

    def __init__(
        self,
        state_dir: Path,
        doors: Callable[[], Sequence[Streams]],
        *,
        relieves: bool,
        linger: float = LINGER,
        kubelet: FolderLock | None = None,
    ) -> None:
        self.lock = InstanceLock(state_dir / FILE_NAME)
        self._kubelet = kubelet
        self.lingering = False
        """Whether it waits only for the kubelet's lock."""
        self._standby = InstanceLock(state_dir / "standby")
        self._doors = doors
        self._relieves = relieves
        self._linger = linger
        self._begun = False
        self._refused = False

    async def wait(self) -> None:
        """Wait as a standby until active, calling ``stand_by`` all the while."""
        try:
            await self.lock.acquire(self.stand_by)
            is_logged = False
            while not self._has_kubelet():
                if not is_logged:
                    log.warning("standby: another agent serves this kubelet", extra={"holder": self.holder()})
                is_logged = True
                await asyncio.sleep(POLL)
        finally:
            self._standby.release()

    def try_acquire(self) -> bool:
        """Whether this process becomes the active one at once."""
        return self.lock.try_acquire() and self._has_kubelet()

    def holder(self) -> str:
        """The active process, in words, as far as it can be known."""
        if self.lock.held and self._kubelet is not None:
            return f"{self._kubelet.holder() or 'a process that cannot be seen'} holds {self._kubelet.path}"
        return f"process {self.lock.holder() or 'unknown'} holds {self.lock.path}"

    async def guard(self) -> None:
        """Hold the lock of the kubelet's folder, even if the folder appears or is replaced while this one is active.

        Raises ``KubeletTaken`` if another agent was there first.
        """
        while self._kubelet is not None:
            await asyncio.sleep(until_tick(GUARDED, asyncio.get_running_loop().time()))
            if not self._kubelet.is_current and not self._has_kubelet():
                raise KubeletTaken(self.holder())

    def _has_kubelet(self) -> bool:
        return self._kubelet is None or self._kubelet.try_acquire()

    def stand_by(self) -> None:
        """Announce that a standby waits, or is about to; a second standby cannot, and keeps trying."""
        if not self._relieves or self._refused:
            return
        try:
            self._standby.try_acquire()
        except LockError as error:
            # The kubelet is then served without a handover, after a gap, which people learn here.
            self._refused = True
            log.warning("the active instance cannot hand over to this one", extra={"reason": str(error)})

    def begin(self) -> bool:
        """Whether the instance that is about to end hands over to a standby; when asked again, it does not."""
        self._begun = not self._begun and self.lock.held and self._standby.taken()
        if self._begun:
            for door in self._doors():
                door.hand_over()
        return self._begun

    async def leave(self) -> None:
        """When all else has ended: release the lock, and wait for the kubelet if it was handed over."""
        self.lock.release()
        if self._kubelet is not None:
            self._kubelet.release()
        self._standby.release()
        if not self._begun:
            await self._leave(0.0)
            return
        log.info("handed over: this instance answers the kubelet until it has changed over")
        self.lingering = True
        if await self._leave(self._linger):
            log.info("the kubelet has changed over")
        else:
            log.warning("the kubelet has not changed over in time", extra={"seconds": self._linger})

    async def _leave(self, seconds: float) -> bool:
        return all(await asyncio.gather(*(door.leave(seconds) for door in self._doors())))
