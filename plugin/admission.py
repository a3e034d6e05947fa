"""The ledger as the plugin door sees it: what has the last word on every Allocate."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from node.offer import OfferedDevice


class Admission(Protocol):
    """Whoever knows who has which device."""

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None] | None:
        """What has to be waited for before these are given out; None, mostly, where nothing speaks against them.

        It raises ``HeldError`` if the kubelet has one of them on record for another pod, or if containers of a pod that
        had one of them do not end in time.
        """
        ...

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Enter devices of a resource that are given out now, all or none; raises ``HeldError``. Does not wait."""
        ...


class AdmitAll:
    """For a door that nobody shares its devices with."""

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Nothing is."""

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """They may always be given out."""
