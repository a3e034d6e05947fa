"""The edges of the claim service: its options, what it does, and the interfaces of what it asks and of what it tells.

``ClaimPreparer`` is what the kubelet's calls need of it. ``ClaimReader`` is the API server, reduced to one question.
``ClaimObserver`` counts. ``StepObserver`` hears of the places between two steps of preparing and releasing a claim, so
that tests can end the process at each of them: what is on the disk differs from one place to the next, and a restart
must find its way from each of them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from driver.claims.model import ClaimReference, PreparedDevice
from driver.names import Peer
from kube.bodies import JsonObject
from node.values import Value, value


@value
class ClaimOptions(Value):
    """``state_dir``: ours; records are in its folder ``claims``. ``kubelet_root``: holds ``dra_manager_state``.

    ``pool``: name of this node's pool. ``peers``: drivers whose claims run on ours; parameters for them are looked at,
    and those for any other driver are not. ``mps_root``: the host folder of MPS.

    Times are seconds: ``device_wait`` for a device that another claim still holds (the kubelet asks again only after a
    minute or more, and gives a call 45 s), ``collect_every`` between two looks for claims that nobody has any more,
    ``collect_first`` within which the first one is (the nodes of a rollout start together), ``collect_spacing`` between
    two at least, however often one is asked for, ``partition_wait`` for a partition that was made to be seen,
    ``rebuild_after`` until a claim without a usable record is tried again (doubled each time), ``tombstone_age`` for
    which a released claim is remembered, ``kubelet_release`` after which an event reports a claim that the API server
    does not have, that another one waits for, and of which only the kubelet could say whether it is used (it looks once
    a minute). ``threads``: that wait for the disk at once; disks make what comes together durable together.
    """

    driver_name: str
    pool: str
    state_dir: Path
    cdi_dir: Path
    kubelet_root: Path
    peers: tuple[Peer, ...] = ()
    mps_root: str = "/run/nvidia/mps"
    device_wait: float = 10.0
    ready_wait: float = 10.0
    collect_every: float = 300.0
    collect_first: float = 5.0
    collect_spacing: float = 1.0
    partition_wait: float = 20.0
    rebuild_after: float = 2.0
    tombstone_age: float = 600.0
    kubelet_release: float = 120.0
    threads: int = 16


class ClaimReader(Protocol):
    """Reads claims one by one: node identities may not list them."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as resource.k8s.io/v1, None when there is none of that name.

        Raises ``driver.claims.model.Unavailable`` when the API server gives no answer in time or refuses us; its text
        says which and what to do.
        """


class ClaimPreparer(Protocol):
    """Prepares and releases claims; both raise ``driver.claims.model.ClaimError`` for the one claim."""

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Prepare the claim's devices; a repeated call gets the same answer."""

    async def unprepare(self, claim: ClaimReference) -> None:
        """Give the claim's devices back; a claim that is not known is released already."""


class ClaimObserver:
    """Counts nothing; subclasses count. Must not block and must not raise.

    Outcomes are ``ok``, ``refused`` or ``unavailable``.
    """

    def prepared(self, outcome: str, seconds: float) -> None:
        """One claim was prepared, or not."""

    def unprepared(self, outcome: str, seconds: float) -> None:
        """One claim was released, or not."""

    def collected(self, count: int) -> None:
        """Released ``count`` claims that no pod had any more."""

    def damaged(self) -> None:
        """A record of a claim could not be read."""

    def partition_made(self, seconds: float) -> None:
        """A partition of a GPU was made for a claim."""

    def partitions_removed(self, count: int) -> None:
        """Removed ``count`` partitions of released claims."""

    def partition_failed(self, *, pending: bool) -> None:
        """A partition could not be made or removed; ``pending``: it can once something ends."""

    def lost(self) -> None:
        """A claim of a pod here was allocated a device that a pod has through the plugin door."""


class ClaimStep(StrEnum):
    """What has just been done."""

    FETCHED = "prepare: the claim was read"
    TAKEN = "prepare: the ledger has its devices"
    STARTED = "prepare: the record says started"
    DESCRIBED = "prepare: the CDI file is written"
    COMPLETED = "prepare: the record says completed"
    ANSWERED = "prepare: the answer is made"
    MADE = "partitions: they are made and seen"
    SHARED = "sharing: it is done"
    UNSHARED = "sharing: it is undone"
    REMOVED = "partitions: they are removed"
    RELEASING = "unprepare: nothing is done yet"
    UNDESCRIBED = "unprepare: the CDI file is removed"
    FORGOTTEN = "unprepare: the record is removed"
    RELEASED = "unprepare: the ledger is free"


class StepObserver:
    """Does nothing; tests end the process at a step. Called in whatever thread did the step."""

    def reached(self, step: ClaimStep, uid: str) -> None:
        """The step is done for the claim of that UID."""
