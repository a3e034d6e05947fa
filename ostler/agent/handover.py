"""Who is active, and how the active instance leaves it to a standby without the kubelet losing the devices.

An agent that ends takes its device streams with it, and the kubelet, which looks into its registry every second, has no
healthy devices until it has found the successor's sockets: a pod admitted meanwhile fails for good. So an agent that is
told to end while a standby waits ends in two steps. First everything that decides or writes ends (inventory, publisher,
CDI specs, the agent's socket, probes), and the instance lock falls free: from here on the standby is the active one and
its ledger the only one. Then the kubelet's calls are answered until it has changed over: from memory, for the devices
of the last list. Nothing is written and nothing new is decided in this time; a device that fails in it is the
successor's to tell, within a second. How the kubelet is made to change over is the door's (``plugin.serving``).

An agent with another state folder that serves the same kubelet is waited for as well: it hands over to nobody of ours,
and the devices go with it until this one has registered.

The locks are the kernel's: whoever is killed, wherever, leaves nothing to be waited for. If the successor dies, the
devices go ``LINGER`` seconds later than they would have without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from node.lock import FILE_NAME, POLL, FolderLock, InstanceLock, LockError
from ostler.agent.doors import Streams

log = logging.getLogger("ostler.agent")

LINGER = 3.0
"""Seconds that the kubelet and the standby have for the change-over; the kubelet looks every second."""


GUARDED = 5.0
"""Seconds between two looks whether the kubelet's folder is still the one that is locked; each wakes an idle agent."""


class KubeletTaken(Exception):
    """Another agent serves the kubelet that this one was serving: two ledgers are worse than a restart."""

    def __init__(self, holder: str) -> None:
        super().__init__(
            f"another agent serves this kubelet: {holder}; end one of the two, or give both one state folder"
        )


class Handover:
    """The instance lock of one process, from waiting for it to leaving it.

    ``doors``: those that are open at the end. ``relieves``: whether this process, as a standby, can take over streams
    that are still open. A kubelet that is told by Register disconnects the wrong one, so who may register that way
    first does not offer it. ``kubelet``: the folder of the one that is served; its lock is had with the state folder's.
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
        """Whether only the kubelet is waited for."""
        self._standby = InstanceLock(state_dir / "standby")
        self._doors = doors
        self._relieves = relieves
        self._linger = linger
        self._begun = False
        self._refused = False

    async def wait(self) -> None:
        """Wait as a standby until active; ``stand_by`` is called all the while."""
        try:
            await self.lock.acquire(self.stand_by)
            told = False
            while not self._has_kubelet():
                if not told:
                    log.warning("standby: another agent serves this kubelet", extra={"holder": self.holder()})
                told = True
                await asyncio.sleep(POLL)
        finally:
            self._standby.release()

    def try_acquire(self) -> bool:
        """Whether this process is the active one at once."""
        return self.lock.try_acquire() and self._has_kubelet()

    def holder(self) -> str:
        """Who is active, in words as far as that can be known."""
        if self.lock.held and self._kubelet is not None:
            return f"{self._kubelet.holder() or 'a process that cannot be seen'} holds {self._kubelet.path}"
        return f"process {self.lock.holder() or 'unknown'} holds {self.lock.path}"

    async def guard(self) -> None:
        """Have the lock of the kubelet's folder also where that comes, or is made anew, while this process is active.

        Raises ``KubeletTaken`` when another agent was there first.
        """
        while self._kubelet is not None:
            await asyncio.sleep(GUARDED)
            if not self._kubelet.is_current and not self._has_kubelet():
                raise KubeletTaken(self.holder())

    def _has_kubelet(self) -> bool:
        return self._kubelet is None or self._kubelet.try_acquire()

    def stand_by(self) -> None:
        """Say that somebody waits, or is about to; a second standby cannot, and tries on."""
        if not self._relieves or self._refused:
            return
        try:
            self._standby.try_acquire()
        except LockError as error:
            # The kubelet is served without it, after a gap; people learn of it here.
            self._refused = True
            log.warning("the active instance cannot hand over to this one", extra={"reason": str(error)})

    def begin(self) -> bool:
        """Whether what is about to end is handed over to a standby; when asked again it is not."""
        self._begun = not self._begun and self.lock.held and self._standby.taken()
        if self._begun:
            for door in self._doors():
                door.hand_over()
        return self._begun

    async def leave(self) -> None:
        """When all else has ended: let the lock fall free, and wait for the kubelet if it was handed over."""
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
