"""Orders the calls to ``PodSandboxes`` and limits their time, across all connections to the runtime.

The runtime waits two seconds for an answer. Then it drops the plugin and starts the pod without it, so an answer has to
come earlier, even if it is an error. What was begun goes on anyway: moving an interface must not stop halfway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from driver.nri.calls import Code, RpcFailed
from driver.nri.sandboxes import PodSandboxes, Sandbox, SandboxRefused
from node.interfaces.model import InterfaceError
from node.tasks import LastingTasks

log = logging.getLogger("ostler.nri")

Act = Callable[[Sandbox], Awaitable[None]]


class SandboxSequence:
    """Asks ``sandboxes``: one call after the other for each sandbox, and none while it is being synchronized."""

    def __init__(self, sandboxes: PodSandboxes) -> None:
        self._sandboxes = sandboxes
        self._synchronizing: asyncio.Task[None] | None = None
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tasks = LastingTasks(RpcFailed)

    async def synchronize(self, sandboxes: Sequence[Sandbox], within: float) -> None:
        """Hand over all sandboxes. Returns after ``within`` seconds at the latest, whether it has ended or not.

        An error is logged: the runtime would only end the connection, and each sandbox is judged again when it runs.
        """
        task = self._tasks.begin(self._synchronize(self._synchronizing, sandboxes), "synchronize sandboxes")
        self._synchronizing = task
        await asyncio.wait((task,), timeout=within)

    async def run(self, sandbox: Sandbox, within: float) -> None:
        """The sandbox starts; raises ``RpcFailed`` if it must not, or if that is not known in time."""
        await self._ask("start", self._sandboxes.run, sandbox, within)

    async def stop(self, sandbox: Sandbox, within: float) -> None:
        """The sandbox stops; raises ``RpcFailed``."""
        await self._ask("stop", self._sandboxes.stop, sandbox, within)

    async def removed(self, sandbox: Sandbox, within: float) -> None:
        """The sandbox is gone; raises ``RpcFailed``."""
        await self._ask("remove", self._sandboxes.removed, sandbox, within)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        await self._tasks.cancel()

    async def _ask(self, verb: str, act: Act, sandbox: Sandbox, within: float) -> None:
        before = self._last.get(sandbox.id)
        if before is None and not self._sandboxes.concerns(sandbox):
            return
        task = self._tasks.begin(
            self._act(verb, act, sandbox, (self._synchronizing, before)), f"{verb} sandbox of pod {sandbox.pod}"
        )
        self._last[sandbox.id] = task
        task.add_done_callback(lambda _: self._forget(sandbox.id, task))
        await asyncio.wait((task,), timeout=within)
        if not task.done():
            log.warning("a sandbox takes too long", extra={"pod": sandbox.pod, "to": verb, "within_s": within})
            reason = f"not finished after {within:.3g} s; ostler continues, and a later attempt finds it done"
            raise _failed(Code.UNAVAILABLE, verb, sandbox, reason)
        if task.cancelled():
            raise _failed(Code.UNAVAILABLE, verb, sandbox, "ostler is stopping; the next instance continues")
        task.result()

    async def _act(self, verb: str, act: Act, sandbox: Sandbox, before: Sequence[asyncio.Task[None] | None]) -> None:
        for task in before:
            await _ended(task)
        try:
            await act(sandbox)
        except (SandboxRefused, InterfaceError) as error:
            log.warning("a sandbox is refused", extra={"pod": sandbox.pod, "to": verb, "reason": str(error)})
            raise _failed(Code.FAILED_PRECONDITION, verb, sandbox, str(error)) from None
        except Exception as error:
            log.exception("a bug: work for a sandbox failed", extra={"pod": sandbox.pod, "to": verb})
            raise _failed(Code.INTERNAL, verb, sandbox, f"{type(error).__name__}: {error}") from None

    async def _synchronize(self, before: asyncio.Task[None] | None, sandboxes: Sequence[Sandbox]) -> None:
        await _ended(before)
        try:
            await self._sandboxes.synchronize(sandboxes)
        except Exception:  # A bug; see synchronize().
            log.exception("the sandboxes of the container runtime could not be synchronized")

    def _forget(self, sandbox: str, task: asyncio.Task[None]) -> None:
        if self._last.get(sandbox) is task:
            del self._last[sandbox]


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Wait for the end of a task, however it ends."""
    if task is not None and not task.done():
        await asyncio.wait((task,))


def _failed(code: Code, verb: str, sandbox: Sandbox, reason: str) -> RpcFailed:
    return RpcFailed(code, f"ostler cannot {verb} the sandbox of pod {sandbox.pod}: {reason}")
