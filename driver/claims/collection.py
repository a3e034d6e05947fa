"""Finds claims that no pod uses any more, and releases them once that is proved.

A claim is released here only if the API server no longer reserves it for a pod AND the kubelet no longer has it on
record, checked in this order, so that one of the two shows a pod that is just starting. For a completed claim the API
server's answer alone proves nothing: the pod of a force-deleted claim runs until the kubelet has ended it. If the
kubelet's file cannot be read, the API server's answer suffices for a claim that was never completed, because the
kubelet got no answer, and for a claim of an earlier boot, because no container survives a reboot. If a claim stays for
lack of proof and another claim waits for it, that is reported.

Most rounds ask the API server nothing: a claim that the kubelet knows is left to the kubelet. The same rounds also
prepare claims again that a restart found without a usable record, and remove what a full or read-only disk kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Collection

from driver.claims.allocation import still_here
from driver.claims.book import ClaimBook
from driver.claims.contracts import ClaimPreparer
from driver.claims.kubelet import KubeletClaims
from driver.claims.model import ClaimError, ClaimReadForbidden, ClaimReference, Unavailable
from driver.claims.record import ClaimRecord

log = logging.getLogger("ostler.claims")


class Collector:
    """Checks from time to time and whenever it is poked; prepares the claims of ``prepare_again`` again."""

    def __init__(self, book: ClaimBook, claims: ClaimPreparer) -> None:
        self._to_rebuild: set[str] = set()
        self._book = book
        self._claims = claims
        self._poked = asyncio.Event()
        self._reported = ""
        self._waited_for: set[str] = set()
        self._left_behind: dict[str, tuple[float, float]] = {}
        """Claims, by UID, that others wait for and whose end the API server and the kubelet do not both confirm.

        Each with the time at which it took its devices and the time of the first check, which is infinite once
        reported.
        """
        self._looking: asyncio.Task[int] | None = None
        self._closed = False

    def prepare_again(self, uids: Collection[str]) -> None:
        """Prepare these claims again as soon as the API server answers; call it before ``run``."""
        self._to_rebuild.update(uids)

    def is_to_prepare(self, uid: str) -> bool:
        """Whether the claim is still to be prepared again."""
        return uid in self._to_rebuild

    def poke(self, holder: str) -> None:
        """Check soon: a claim waits for a device of this one, which nobody may be using any more."""
        self._waited_for.add(holder)
        self._poked.set()

    async def run(self) -> None:
        """Check until cancelled; once closed, only wait for the cancellation."""
        options = self._book.options
        await self._wait(0.0 if self._to_rebuild else options.collect_first * self._book.random())
        # The kubelet may have been about to forget a claim that only it knew, so check again soon.
        retry = options.rebuild_after if self._to_rebuild else math.inf
        while not self._closed:
            self._looking = asyncio.create_task(self.look())
            try:
                await asyncio.wait([self._looking])
            finally:
                self._looking.cancel()
            if not self._looking.cancelled():
                self._looking.result()
            every = options.collect_every * (0.8 + 0.4 * self._book.random())
            await asyncio.sleep(min(options.collect_spacing, every))
            await self._wait(min(every, retry))
            retry *= 2
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Stop checking, and return when no check is under way."""
        self._closed = True
        self._poked.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def look(self) -> int:
        """Check once; returns how many claims were released."""
        await self._clear_remains()
        await self._rebuild()
        known = await self._known()
        released = 0
        refused = set()
        for record in [each for each in self._book.records.values() if self._unknown(each, known)]:
            try:
                released += await self._released(record)
            except ClaimError as error:
                _later(record, error)
                if isinstance(error, ClaimReadForbidden):
                    refused.add(record.claim.uid)
        await self._warn_left_behind(known, refused)
        await self._mend()
        await self._unmake_leftovers()
        await self._take_back_leftovers(known)
        await self._sweep(known)
        if released:
            self._book.observer.collected(released)
        return released

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        self._poked.clear()

    async def _known(self) -> KubeletClaims:
        known = await self._book.kubelet.claims()
        if not known.fault:
            self._reported = ""
        elif known.fault != self._reported and self._book.records and not known.stale:
            # A stale file comes from how the container was created: every node would report it, and nobody could act on
            # it.
            self._reported = known.fault
            fix = "check the setting of the kubelet's root"
            self._book.warn(
                "KubeletClaimsUnknown", f"cannot find claims that no pod uses any more: {known.fault}; {fix}"
            )
        return known

    async def _released(self, record: ClaimRecord) -> bool:
        """Release the claim if nobody uses it.

        Raises Unavailable if the API server does not answer, and ClaimError if a partition cannot be removed.
        """
        claim = record.claim
        if self._book.locks.busy(claim.uid):
            return False
        if claim.name and await self._given(claim):
            return False
        async with self._book.locks.of(claim.uid):
            known = await self._known()
            if self._book.records.get(claim.uid) is not record or not self._unknown(record, known):
                return False
            await self._book.release(claim)
        log.info("claim released: no pod uses it any more", extra={"claim": str(claim), "uid": claim.uid})
        return True

    async def _given(self, claim: ClaimReference) -> bool:
        """Whether the API server reserves the claim for a pod; raises Unavailable."""
        body = await self._book.reader.claim(claim.namespace, claim.name)
        return still_here(body, claim, self._book.options.driver_name, self._book.options.pool)

    def _unknown(self, record: ClaimRecord, known: KubeletClaims) -> bool:
        """Whether the kubelet does not have the claim for a container, as far as that is known."""
        if known.fault:
            return not record.may_run(self._book.boot)
        return known.lacks(record.claim.uid)

    async def _warn_left_behind(self, known: KubeletClaims, refused: Collection[str]) -> None:
        """Report claims that others wait for and that only the kubelet may still have.

        ``refused``, UIDs of claims that the API server does not let us read, have no proof either.
        """
        waited_for, self._waited_for = self._waited_for, set()
        unseen = bool(known.fault or known.stale)
        for uid, record in list(self._book.records.items()):
            if uid in waited_for and record.claim.name and (unseen or uid in refused):
                try:
                    why = "" if await self._given(record.claim) else _unseen(known)
                except ClaimReadForbidden as error:
                    why = _unread(error)
                except Unavailable as error:
                    _later(record, error)
                    continue
                self._warn_late(record, why)
        self._left_behind = {uid: seen for uid, seen in self._left_behind.items() if uid in self._book.records}

    def _warn_late(self, record: ClaimRecord, why: str) -> None:
        """Report why a claim keeps its devices although the kubelet had time to release it."""
        claim = record.claim
        first = self._left_behind.get(claim.uid)
        if not why:
            self._left_behind.pop(claim.uid, None)
        elif first is None or first[0] != record.since:
            self._left_behind[claim.uid] = record.since, self._book.monotonic()
        elif self._book.monotonic() - first[1] >= self._book.options.kubelet_release:
            self._left_behind[claim.uid] = record.since, math.inf
            devices = ", ".join(device.device for device in record.devices)
            self._book.warn("ClaimLeftBehind", f"claim {claim} ({claim.uid}) keeps {devices}, though {why}")

    async def _rebuild(self) -> None:
        for uid in sorted(self._to_rebuild):
            record = self._book.records.get(uid)
            # The kubelet has released the claim since the start: preparing it again would bring it back for good.
            if record is None or self._book.tombstones.serial_of(uid) is not None:
                self._to_rebuild.discard(uid)
                continue
            try:
                await self._claims.prepare(record.claim)
            except Unavailable as error:
                log.info(
                    "the claim will be prepared again later", extra={"claim": str(record.claim), "reason": str(error)}
                )
            except ClaimError as error:
                # The kubelet will ask for it again or release it; its devices stay taken until then.
                self._to_rebuild.discard(uid)
                self._book.warn("ClaimNotRebuilt", f"claim {record.claim} cannot be prepared again: {error}")
            else:
                self._to_rebuild.discard(uid)

    async def _clear_remains(self) -> None:
        for uid in sorted(self._book.remains):
            async with self._book.locks.of(uid):
                if uid in self._book.records:
                    self._book.remains.discard(uid)
                else:
                    await self._book.erase(uid)

    async def _mend(self) -> None:
        """Write lost files of prepared claims again: a container that restarts needs them."""
        prepared = [record for record in self._book.records.values() if record.prepared_in(self._book.boot)]
        for record in await self._book.in_thread(self._book.incomplete, prepared):
            uid = record.claim.uid
            if self._book.locks.busy(uid):
                continue
            async with self._book.locks.of(uid):
                if self._book.records.get(uid) is not record:
                    continue
                try:
                    await self._book.renew(record)
                except Unavailable as error:
                    log.warning("cannot rebuild a lost file", extra={"claim": str(record.claim), "reason": str(error)})

    async def _unmake_leftovers(self) -> None:
        """Undo what remains on GPUs of released claims; what cannot be undone now is tried in the next round."""
        book = self._book
        left = {*book.partitions.leftovers(book.records), *book.sharing.leftovers(book.records)}
        for uid in sorted(left):
            if self._book.locks.busy(uid):
                continue
            async with self._book.locks.of(uid):
                if uid not in self._book.records:
                    try:
                        problems = await self._book.unmake(ClaimReference("", "", uid))
                    except ClaimError as error:
                        problems = (str(error),)
                    for problem in problems:
                        log.info(
                            "a GPU keeps the changes made for a released claim for now",
                            extra={"uid": uid, "reason": problem},
                        )

    async def _take_back_leftovers(self, known: KubeletClaims) -> None:
        """Take back the interfaces of claims that nobody has on record; one that fails is tried in the next round."""
        book = self._book
        for uid in book.interfaces.leftovers(book.records):
            if book.locks.busy(uid) or not known.lacks(uid):
                continue
            async with book.locks.of(uid):
                if uid not in book.records:
                    try:
                        await book.take_back(ClaimReference("", "", uid))
                    except Unavailable as error:
                        log.info("a pod keeps interfaces of a released claim for now", extra={"reason": str(error)})

    async def _sweep(self, known: KubeletClaims) -> None:
        """Remove files of claims that neither we nor the kubelet know."""
        for uid in sorted(await self._book.in_thread(self._book.described)):
            if uid in self._book.records or self._book.locks.busy(uid) or not known.lacks(uid):
                continue
            async with self._book.locks.of(uid):
                if uid not in self._book.records:
                    await self._book.erase(uid)


def _later(record: ClaimRecord, error: ClaimError) -> None:
    log.info("the claim will be checked again later", extra={"claim": str(record.claim), "reason": str(error)})


def _unseen(known: KubeletClaims) -> str:
    why = known.fault or "only an old version of the kubelet's file is visible here"
    fix = "restart this agent's container" if known.stale else "fix that"
    return (
        "according to the API server no pod uses it, but the kubelet has not released it, and its record cannot be "
        f"read: {why}; {fix}"
    )


def _unread(error: ClaimReadForbidden) -> str:
    return (
        "the kubelet has not released it and the API server does not let this agent see whether a pod has it: "
        f"{error.reason}; give the agent's account the verb get on resourceclaims by a ClusterRole"
    )
