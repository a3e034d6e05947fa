"""The contracts of the claim service: its options, what it offers, and what it needs from others.

``ClaimPreparer`` is what the kubelet's calls need of it. ``ClaimReader`` is the API server, reduced to one question.
``InterfaceReporter`` is called when the interfaces of a claim are moved into its pod or taken back.
``ClaimObserver`` counts. ``StepObserver`` is called between any two steps of preparing and releasing a claim, so that
tests can end the process there: each step leaves something else on disk, and a restart must recover from all of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from driver.claims.model import ClaimReference, PreparedDevice
from driver.claims.record import ClaimRecord
from driver.metadata.model import ClaimMetadata
from driver.names import MetadataVersion, Peer
from kube.bodies import JsonObject
from node.interfaces.model import AttachedInterface
from node.values import Value, value

log = logging.getLogger("ostler.claims")


@value
class ClaimOptions(Value):
    """``state_dir``: the folder with our ``claims`` folder of records. ``kubelet_root``: has ``dra_manager_state``.

    ``pool``: name of this node's pool. ``metadata_versions``: of the metadata files that containers get, none for no
    files; ``metadata_required``: whether a claim is refused if they cannot be written. ``peers``: drivers whose claims
    run on our devices; parameters for them are checked, those for any other driver are not. ``mps_root``: the host
    folder of MPS. ``guard_dir``: of the claims' guards (``driver.interfaces.guard``), the same path on the host.

    Times are seconds:

    - ``device_wait``: for a device that another claim still holds (the kubelet gives a call 45 s and retries only after
      a minute or more);
    - ``collect_every``: between two rounds that look for claims nobody uses any more;
    - ``collect_first``: until the first round, at most (the nodes of a rollout start together);
    - ``collect_spacing``: between two rounds at least, however often one is requested;
    - ``partition_wait``: until the inventory must see a partition that was made;
    - ``rebuild_after``: until a claim without a usable record is tried again (doubled each time);
    - ``tombstone_age``: how long a released claim is remembered;
    - ``kubelet_release``: until an event reports a claim that the API server no longer has, that another claim waits
      for, and of which only the kubelet could say whether it is in use (it checks once a minute).

    ``threads``: how many may wait for the disk at once; a disk makes writes that arrive together durable together.
    """

    driver_name: str
    pool: str
    state_dir: Path
    cdi_dir: Path
    kubelet_root: Path
    metadata_versions: tuple[MetadataVersion, ...] = ()
    metadata_required: bool = False
    peers: tuple[Peer, ...] = ()
    mps_root: str = "/run/nvidia/mps"
    guard_dir: Path = Path("/var/lib/kubelet/plugins/ostler.dev/interfaces")
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
    """Reads claims one by one, because a node's identity may not list them."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as resource.k8s.io/v1, None if there is none of that name.

        Raises ``driver.claims.model.Unavailable`` if the API server does not answer in time or refuses us; its text
        says which, and the fix.
        """


class ClaimPreparer(Protocol):
    """Prepares and releases claims; both methods raise ``driver.claims.model.ClaimError`` for the one claim."""

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Prepare the claim's devices; a repeated call gets the same answer."""

    async def unprepare(self, claim: ClaimReference) -> None:
        """Release the claim's devices; an unknown claim counts as released."""


class InterfaceReporter(Protocol):
    """Reports where the interfaces of prepared claims are; its methods never raise."""

    def describe(
        self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], metadata: ClaimMetadata | None
    ) -> str:
        """Write the interfaces into the metadata files of the claim's containers; why that failed, empty if it did not.

        ``metadata``: that of the claim's record. Blocking; called in a worker thread, before containers may start.
        """

    def attached(self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], undescribed: str = "") -> None:
        """The claim's interfaces are in its pod, all of them; also those that an earlier process moved.

        ``undescribed``: what ``describe`` returned.
        """

    def detached(self, claim: ClaimReference, problem: str = "") -> None:
        """None of the claim's interfaces is in its pod; ``problem``: why they could not be moved, empty if they are
        back on the node or not moved yet.
        """


class ClaimObserver:
    """Counts nothing itself; subclasses count. They must not block or raise.

    Outcomes are ``ok``, ``refused`` or ``unavailable``.
    """

    def prepared(self, outcome: str, seconds: float) -> None:
        """An attempt to prepare one claim ended."""

    def unprepared(self, outcome: str, seconds: float) -> None:
        """An attempt to release one claim ended."""

    def collected(self, count: int) -> None:
        """Released ``count`` claims that no pod had any more."""

    def damaged(self) -> None:
        """A record of a claim could not be read."""

    def partition_made(self, seconds: float) -> None:
        """A partition of a GPU was made for a claim."""

    def partitions_removed(self, count: int) -> None:
        """Removed ``count`` partitions of released claims."""

    def partition_failed(self, *, pending: bool) -> None:
        """A partition could not be made or removed; ``pending``: it can be once something else ends."""

    def metadata_failed(self) -> None:
        """Metadata files of a claim could not be written."""

    def lost(self) -> None:
        """A claim of a pod on this node was allocated a device that a pod already has through the plugin door."""


class MovedInterfaces:
    """The network interfaces that move into the pods of claims: none here, ``ClaimInterfaces`` moves them."""

    def check(self, record: ClaimRecord) -> None:
        """Raise ``ClaimError`` before a preparation if the pods of the claim can never have its interfaces."""

    def expect(self, record: ClaimRecord) -> None:
        """The claim is prepared: move its interfaces when its pod's sandbox starts."""

    def is_out(self, uid: str) -> bool:
        """Whether an interface of the claim is in a pod, or on its way."""
        return False

    def leftovers(self, owners: Collection[str]) -> tuple[str, ...]:
        """UIDs of claims other than these with interfaces that must be taken back."""
        return ()

    async def recover(self, records: Iterable[ClaimRecord]) -> tuple[str, ...]:
        """Take over what an earlier process left, and expect these claims; returns what failed, in words."""
        return ()

    async def take_back(self, claim: ClaimReference) -> None:
        """Take back what is still in a pod; raises ``Unavailable`` while that fails."""

    async def close(self) -> None:
        """Return when everything begun is done."""


class ClaimStep(StrEnum):
    """The step that was just done."""

    FETCHED = "prepare: the claim was read"
    TAKEN = "prepare: the ledger has its devices"
    STARTED = "prepare: the record says started"
    DESCRIBED = "prepare: the CDI file is written"
    METADATA = "prepare: the metadata files are written"
    COMPLETED = "prepare: the record says completed"
    ANSWERED = "prepare: the answer is made"
    MADE = "partitions: they are made and seen"
    SHARED = "sharing: it is done"
    UNSHARED = "sharing: it is undone"
    REMOVED = "partitions: they are removed"
    TAKEN_BACK = "interfaces: they are back on the node"
    RELEASING = "unprepare: nothing is done yet"
    UNDESCRIBED = "unprepare: the CDI file is removed"
    METADATA_GONE = "unprepare: the metadata files are removed"
    FORGOTTEN = "unprepare: the record is removed"
    RELEASED = "unprepare: the ledger is free"


class StepObserver:
    """Shows in the debug log when each step was done, in Unix seconds; tests end the process at a step.

    Called in the thread that did the step.
    """

    def reached(self, step: ClaimStep, uid: str) -> None:
        """The step is done for the claim with this UID."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("claim step", extra={"step": step.name.lower(), "uid": uid, "at": round(time.time(), 6)})
