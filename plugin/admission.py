"""Decides whether a container gets the devices that it asks for: asks the ledger, and names the refusals.

``DevicePluginServicer`` turns a refusal into its gRPC status. The kubelet then refuses the pod for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

import grpc

from node.offer import OfferedDevice

_MOST_NAMED = 10
"""Ids that a refusal names; the rest is counted."""


class DevicePluginError(Exception):
    """A call that cannot be answered; subclasses say why, in fields and in words."""

    code = grpc.StatusCode.INTERNAL


class BadDevices(DevicePluginError):
    """Ids that cannot be allocated: ``unknown``, ``duplicated``, and ``unhealthy`` with the reason of each."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(
        self, resource: str, unknown: tuple[str, ...], duplicated: tuple[str, ...], unhealthy: Mapping[str, str]
    ) -> None:
        ill = [f"{id_} ({why})" for id_, why in unhealthy.items()]
        found = (
            ("unknown device ids", unknown),
            ("device ids named more than once", duplicated),
            ("unhealthy devices", ill),
        )
        parts = [f"{what} {_some(ids)}" for what, ids in found if ids]
        super().__init__(f"{resource}: {'; '.join(parts)}")


def _some(ids: Sequence[str]) -> str:
    """The first of these: a status with all replicas of a node would exceed gRPC's limit."""
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(ids[:_MOST_NAMED]) + more


class DeviceTaken(DevicePluginError):
    """A device that somebody else has, through the other door or by an overlapping device; ``why`` says who."""

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"{resource}: {why}")


class NoDeviceRequested(DevicePluginError):
    """A request without a device."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, resource: str) -> None:
        super().__init__(f"{resource}: the request names no device")


class TooManyShares(DevicePluginError):
    """A container asks for several shares of a resource whose rule allows one; NVIDIA's plugin refuses the same."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, resource: str, asked: int) -> None:
        super().__init__(
            f"{resource}: invalid request: maximum request size for shared resources is 1; found {asked}; write "
            f"'{resource}: 1' in the container's resources.limits (several shares give no more of a device than one)"
        )


class Admission(Protocol):
    """Decides whether devices may be allocated, by the ledger."""

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None] | None:
        """What to wait for before these are allocated; usually None.

        It raises ``HeldError`` if the kubelet has one of them on record for another pod, or if containers of a pod that
        had one of them do not end in time.
        """

    def unlisted(self) -> Awaitable[None] | None:
        """What to wait for before shares are chosen: a list that reflects what pods have. None once there is one."""

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Enter the devices of a resource that are allocated now, all or none; raises ``HeldError``. Does not wait."""


class AdmitAll:
    """For a door that shares its devices with nobody."""

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Wait for nothing."""

    def unlisted(self) -> None:
        """Wait for nothing."""

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Allow everything."""
