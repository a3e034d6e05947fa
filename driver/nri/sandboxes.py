"""Pod sandboxes as the container runtime reports them, and the part that acts on them.

A sandbox is a pod's network namespace with the process that keeps it. The kubelet makes a new one when the old one
fails, so a pod (``uid``) may have several, one after the other (``id``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from node.values import Value, value


@value
class SandboxContainer(Value):
    """A container of a sandbox; ``running``: its process was started and has not ended."""

    id: str
    name: str
    running: bool


@value
class Sandbox(Value):
    """A pod's sandbox: ``id`` is the runtime's, ``uid``, ``namespace`` and ``name`` are the pod's.

    ``netns``: path of its network namespace as the runtime sees it; empty for a stopped sandbox, whose namespace is
    gone, and for one in the host's network (``host_network``). A path may also be left of a namespace that is gone.
    ``pid``: the process that keeps the sandbox, as the runtime sees it; 0 if it has ended or is unknown.
    ``containers``: known in ``synchronize`` alone.
    """

    id: str
    uid: str
    namespace: str
    name: str
    netns: str = ""
    host_network: bool = False
    pid: int = 0
    containers: tuple[SandboxContainer, ...] = ()

    @property
    def pod(self) -> str:
        """The pod as people write it."""
        return f"{self.namespace}/{self.name}"


class SandboxRefused(Exception):
    """The sandbox must not start; the text says why and what to do, and reaches the pod's events."""


class PodSandboxes(Protocol):
    """Acts on the life of pod sandboxes, for ``NriPlugin``.

    After each connection ``synchronize`` comes first, and no other call begins before it has returned. Calls about one
    sandbox come one after the other, in the runtime's order; those about different ones may run side by side. A call
    that takes too long is answered with an error and goes on: it is cancelled only with ``NriPlugin.run``. So the
    next call about its sandbox waits for its end.
    """

    def concerns(self, sandbox: Sandbox) -> bool:
        """Whether the part has anything to do for this sandbox; from memory, must not block.

        A sandbox that is of no concern is answered at once, and nothing that fails or hangs for others delays it.
        """

    async def run(self, sandbox: Sandbox) -> None:
        """The sandbox has its network namespace, and no container yet; an exception fails it (fail closed)."""

    async def stop(self, sandbox: Sandbox) -> None:
        """The sandbox's containers have ended, and its network namespace is about to go."""

    async def removed(self, sandbox: Sandbox) -> None:
        """The sandbox is gone. A runtime that could not make it calls ``stop``, this, or both."""

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """These are all sandboxes that the runtime has; nobody reports what happened while there was no connection."""
