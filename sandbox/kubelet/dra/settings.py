"""The DRA manager's settings: the API server behind a protocol, and the kubelet's intervals.

Numbers are those of kubelet 1.36; tests shorten them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.plugin_calls import PENDING_SECONDS

Object = Mapping[str, Any]
"""A Kubernetes object as plain data."""

CALL_SECONDS = 45.0
"""How long a driver has for each call."""
WIPING_SECONDS = 30.0
"""How long a driver may be away before its slices are deleted."""
HEALTH_RETRY_SECONDS = 5.0
"""Between two starts of a driver's health stream."""
RECONCILE_SECONDS = 60.0
"""Between two looks for pods that are gone."""
WIPE_RETRIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Seconds between the attempts to delete slices; a real kubelet gives up silently after these, and adds a fifth."""


class ApiFailed(KubeletError):
    """The API server refuses or does not answer; the text is what a pod's event shows of it."""


class Api(Protocol):
    """The API server as far as the kubelet needs it for DRA."""

    async def claim(self, namespace: str, name: str) -> Object:
        """The ResourceClaim as resource.k8s.io/v1; raises ``ApiFailed``, also for a missing claim."""

    async def delete_slices(self, driver: str | None) -> None:
        """Delete this node's ResourceSlices in one call, of one driver or of all; raises ``ApiFailed``."""


@dataclass(frozen=True, slots=True)
class DraManagerSettings:
    """How the DRA manager is set up. Without ``api`` no claim can be prepared and no slice is deleted.

    ``now``: seconds since the epoch, for the ages of health reports. ``pending_seconds``: until a call without an
    answer is reported.
    """

    api: Api | None = None
    call_seconds: float = CALL_SECONDS
    wiping_seconds: float = WIPING_SECONDS
    health_retry_seconds: float = HEALTH_RETRY_SECONDS
    reconcile_seconds: float = RECONCILE_SECONDS
    wipe_retries: tuple[float, ...] = WIPE_RETRIES
    now: Callable[[], float] = time.time
    pending_seconds: float = PENDING_SECONDS
