"""Faults of the kubelet's calls, and the one place that maps them to gRPC status codes."""

from __future__ import annotations

from collections.abc import Mapping

import grpc


class CallError(Exception):
    """A call that cannot be answered; subclasses say why in fields and in words."""

    code = grpc.StatusCode.INTERNAL


class BadDevices(CallError):
    """Ids that cannot be given: ``unknown``, ``duplicated``, and ``unhealthy`` with the reason of each."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(
        self, resource: str, unknown: tuple[str, ...], duplicated: tuple[str, ...], unhealthy: Mapping[str, str]
    ) -> None:
        parts = []
        if unknown:
            parts.append(f"unknown device ids {', '.join(unknown)}")
        if duplicated:
            parts.append(f"device ids named more than once {', '.join(duplicated)}")
        if unhealthy:
            parts.append("unhealthy devices " + ", ".join(f"{id_} ({why})" for id_, why in unhealthy.items()))
        super().__init__(f"{resource}: {'; '.join(parts)}")
        self.resource = resource
        self.unknown = unknown
        self.duplicated = duplicated
        self.unhealthy = dict(unhealthy)


class DeviceTaken(CallError):
    """A device that somebody else has, through the other door or with what it overlaps: ``why`` says who."""

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"{resource}: {why}")
        self.resource = resource
        self.why = why


class NoDevices(CallError):
    """A request that names no device at all."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, resource: str) -> None:
        super().__init__(f"{resource}: the request names no device")
        self.resource = resource
