"""Taking up what an earlier process left: reads everything, lets ``recovery`` decide, does what it says.

A failure here costs what it is about and no more: claims are served whatever the disk says.
"""

from __future__ import annotations

from collections.abc import Callable

from driver.claims.book import ClaimBook
from driver.claims.errors import ClaimError
from driver.claims.observer import ClaimObserver
from driver.claims.options import ClaimOptions
from driver.claims.recovery import Recovery, recovery_of
from driver.claims.store import Stored
from node.files import FileError
from node.values import Value, value


@value
class _Found(Value):
    stored: Stored
    specs: dict[str, str]
    fault: str


class Restart:
    """Brings a fresh ``ClaimBook`` up to what is true."""

    def __init__(
        self,
        options: ClaimOptions,
        book: ClaimBook,
        observer: ClaimObserver,
        boot: str,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._book = book
        self._observer = observer
        self._boot = boot
        self._clock = clock

    async def recover(self) -> set[str]:
        """Enter what is there; returns UIDs of claims that are to be prepared again when the API server answers."""
        found = await self._book.in_thread(self._read)
        recovery = recovery_of(
            found.stored,
            await self._book.kubelet.claims(),
            found.specs,
            boot=self._boot,
            driver=self._options.driver_name,
            now=self._clock(),
        )
        for record in recovery.records:
            self._book.restore(record)
        problems = await self._book.in_thread(self._act, recovery, found.stored)
        for _ in found.stored.unreadable:
            self._observer.damaged()
        for note in recovery.notes:
            self._book.tell("ClaimRecordUnusable", note)
        for problem in (*([found.fault] if found.fault else []), *problems):
            self._book.tell("ClaimRecoveryIncomplete", problem)
        return set(recovery.rebuild)

    def _read(self) -> _Found:
        import node.cdi.spec  # noqa: F401 - here, in a thread, and not on the loop with the first claim

        book, fault = self._book, ""
        book.specs.sweep_unfinished()
        try:
            book.store.sweep_unfinished()
            stored = book.store.load()
        except FileError as error:
            stored, fault = Stored({}, {}), f"{error}; claims are taken from the kubelet's own file"
        return _Found(stored, {uid: book.specs.text(uid) for uid in book.specs.uids()}, fault)

    def _act(self, recovery: Recovery, stored: Stored) -> list[str]:
        """Put the disk right; returns what did not succeed, in words."""
        book, problems = self._book, []
        for uid in recovery.sweep:
            try:
                book.specs.remove(uid)
            except ClaimError as error:
                problems.append(f"claim {uid}: {error}")
        for uid, text in recovery.ensure.items():
            try:
                book.specs.ensure(uid, text)
            except ClaimError as error:
                problems.append(f"claim {uid}: {error}")
        for record in recovery.records:
            uid = record.claim.uid
            if uid not in recovery.adopted or uid in stored.foreign:
                continue
            try:
                book.store.write(record)
            except FileError as error:
                problems.append(f"claim {uid}: {error}")
        return problems
