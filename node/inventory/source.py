"""The edge to the hardware: whatever reads facts is a ``Source``."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from node.inventory.facts import NodeFacts
from node.values import Value, value


class DriverHeld(Exception):
    """A source cannot release the driver; the text says why, and what to do."""


@value
class ScanWanted(Value):
    """The last scan may be out of date: another one should follow soon."""


@value
class HardwareHint(Value):
    """Hardware may have changed; hints that come close together lead to one ``ScanWanted``."""


class Source(Protocol):
    """Reads facts about the node; called from one worker thread, never twice at once.

    ``read`` may block (NVML does) and never raises for what hardware or driver do wrong: a fault is a fact, degrades
    what it concerns and leaves the rest. ``close`` releases libraries and files; ``read`` may be called again after it.
    """

    @property
    def name(self) -> str:
        """Short name for logs and status."""

    def read(self) -> NodeFacts:
        """The sections that this source knows."""

    def close(self) -> None:
        """Release libraries and files."""


@runtime_checkable
class GpuReader(Protocol):
    """A source that can read the partitions of single GPUs again, much faster than everything."""

    def read_gpus(self, uuids: frozenset[str]) -> NodeFacts:
        """As ``read``, but only what changes with the partitions of these GPUs must be newer than the last ``read``."""


@runtime_checkable
class DriverHolder(Protocol):
    """A source that keeps a device's driver in use from ``read`` to ``close``, so that it cannot be unloaded."""

    holds_driver: Literal[True]
