"""Pods of a sandbox node as their controllers create them."""

from __future__ import annotations

from sandbox.node import PodResult, SandboxNode
from tests.waiting import eventually

UNKNOWN = "the kubelet has not reported its allocations yet"


async def given_once_known(box: SandboxNode, resource: str, count: int) -> PodResult:
    """Admit pods, each after the one before was refused, until the agent knows what the kubelet has given to pods.

    An agent that has just started refuses a device that overlaps another one, which a pod may have since before.
    """

    async def answered() -> list[PodResult]:
        given = await box.give(resource, count)
        return [] if UNKNOWN in given.admission.message else [given]

    (given,) = await eventually(answered, "the kubelet's allocations are known")
    return given
