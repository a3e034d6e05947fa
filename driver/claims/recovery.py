"""Takes over what an earlier process left behind: compares records, CDI files and the kubelet's own file.

``recovery_of`` is pure and decides; ``recover`` reads everything, enters it in the ledger and repairs the disk. A
failure costs the claim that it concerns and no more: claims are served whatever the disk says.

A record is believed. If there is no readable one, the kubelet's file says which devices the claim was given. These are
held from then on, and the claim is prepared again as soon as the API server answers, because neither file knows
everything. A CDI file that belongs to no known claim is removed, but only if the kubelet's file can be read: otherwise
it may belong to a claim that only the kubelet knows.

After a reboot a preparation is void: device files may have other numbers, and CDI files were in memory. The devices
stay taken, because the kubelet will ask for the claim again or release it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from driver.claims.allocation import is_uid
from driver.claims.book import ClaimBook
from driver.claims.disk import StoredClaims
from driver.claims.kubelet import KubeletClaims
from driver.claims.model import ClaimError, ClaimReference, RecordState
from driver.claims.plan import device_of_entry
from driver.claims.record import ClaimRecord, RecordedDevice
from node.documents import parse_json
from node.files import FileError
from node.values import Value, value


@value
class ClaimRecovery(Value):
    """The result of reading what an earlier process left, and the work that follows.

    ``records``: every claim that holds devices. ``adopted``: UIDs of claims that come from other sources than our
    records; ``rebuild``: those of them that must be prepared again. ``ensure``: CDI texts by UID. ``sweep``: claims
    whose files must be removed. ``notes``: problems to report to people.
    """

    records: tuple[ClaimRecord, ...]
    adopted: frozenset[str]
    rebuild: frozenset[str]
    ensure: Mapping[str, str]
    sweep: frozenset[str]
    notes: tuple[str, ...]


def recovery_of(
    stored: StoredClaims,
    known: KubeletClaims,
    specs: Mapping[str, str],
    *,
    boot: str,
    driver: str,
    now: float,
    described: frozenset[str] = frozenset(),
) -> ClaimRecovery:
    """Decide the recovery; ``specs``: the texts of the existing CDI files by UID; ``now`` in Unix seconds.

    ``described``: UIDs of the claims that have metadata files.
    """
    records = dict(stored.records)
    adopted = {
        uid: record
        for uid in (known.claims.keys() | stored.unreadable.keys()) - records.keys()
        if is_uid(uid)  # It becomes the name of a file.
        and (record := _adopted(uid, known, specs.get(uid, ""), driver, now, unreadable=uid in stored.unreadable))
    }
    records.update(adopted)
    ensure = {uid: record.spec for uid, record in records.items() if record.prepared_in(boot)}
    void = {uid for uid, record in records.items() if not record.made_in(boot)}
    orphans = {uid for uid in (specs.keys() | described) - records.keys() if known.lacks(uid)}
    left_alone = {uid for uid in adopted if uid in stored.foreign and uid in specs}
    return ClaimRecovery(
        tuple(records[uid] for uid in sorted(records)),
        frozenset(adopted),
        frozenset(uid for uid, record in adopted.items() if record.claim.name and uid not in left_alone),
        ensure,
        frozenset(void | orphans),
        tuple(_note(uid, reason, records.get(uid), known) for uid, reason in sorted(stored.unreadable.items())),
    )


def _adopted(
    uid: str, known: KubeletClaims, spec: str, driver: str, now: float, *, unreadable: bool
) -> ClaimRecord | None:
    """A record made from other sources; None if they know of no device of ours."""
    info = known.claims.get(uid)
    if info is not None:
        states = (info.drivers or {}).get(driver) or ()
        # A kubelet that prepared a shared claim twice at once lists its devices twice.
        devices = {
            (state.pool, state.device, state.share_id): RecordedDevice(
                request=next(iter(state.requests or ()), ""),
                pool=state.pool,
                device=state.device,
                share_id=state.share_id,
                cdi_devices=state.cdi_devices or (),
            )
            for state in states
        }
        claim, users = ClaimReference(info.namespace, info.name, uid), info.pods or ()
        found = tuple(devices.values()) or _described(uid, spec)
    elif unreadable and known.fault:
        claim, users, found = ClaimReference("", "", uid), (), _described(uid, spec)
    else:
        return None
    return ClaimRecord(claim, RecordState.STARTED, since=now, devices=found, users=users, spec=spec) if found else None


def _described(uid: str, spec: str) -> tuple[RecordedDevice, ...]:
    """The devices that a CDI file of the claim names."""
    try:
        document = parse_json(spec)
        kind, entries = document["kind"], [str(entry["name"]) for entry in document["devices"]]
    except (ValueError, TypeError, KeyError):
        return ()
    found = ((device_of_entry(uid, entry), entry) for entry in entries)
    return tuple(
        RecordedDevice("", "", each[0], share_id=each[1] or None, cdi_devices=(f"{kind}={entry}",))
        for each, entry in found
        if each is not None
    )


def _note(uid: str, reason: str, record: ClaimRecord | None, known: KubeletClaims) -> str:
    if record is not None:
        devices = ", ".join(device.device for device in record.devices)
        return f"claim {uid}: {reason}; its devices stay taken, as other sources name them: {devices}"
    if known.lacks(uid):
        return f"claim {uid}: {reason}; the kubelet does not know the claim, so nothing is held for it"
    return f"claim {uid}: {reason}; its devices are unknown until the kubelet asks for it again ({known.fault})"


@value
class _Found(Value):
    stored: StoredClaims
    specs: dict[str, str]
    described: frozenset[str]
    fault: str


async def recover(book: ClaimBook) -> frozenset[str]:
    """Enter what is found in a fresh book; returns UIDs of claims to prepare again when the API server answers."""
    found = await book.in_thread(_read, book)
    recovery = recovery_of(
        found.stored,
        await book.kubelet.claims(),
        found.specs,
        boot=book.boot,
        driver=book.options.driver_name,
        now=book.clock(),
        described=found.described,
    )
    for record in recovery.records:
        book.restore(record)
    problems = await book.in_thread(_put_right, book, recovery, found.stored)
    for _ in found.stored.unreadable:
        book.observer.damaged()
    for note in recovery.notes:
        book.warn("ClaimRecordUnusable", note)
    for problem in (*([found.fault] if found.fault else []), *problems):
        book.warn("ClaimRecoveryIncomplete", problem)
    return recovery.rebuild


def _read(book: ClaimBook) -> _Found:
    import node.cdi.spec  # noqa: F401 - here, in a thread, and not on the loop with the first claim

    fault = ""
    book.specs.sweep_unfinished()
    book.metadata.sweep_unfinished()
    try:
        book.store.sweep_unfinished()
        stored = book.store.load()
    except FileError as error:
        stored, fault = StoredClaims({}, {}), f"{error}; the agent takes the claims from the kubelet's own file"
    specs = {uid: book.specs.text(uid) for uid in book.specs.uids()}
    return _Found(stored, specs, book.metadata.uids(), fault)


def _put_right(book: ClaimBook, recovery: ClaimRecovery, stored: StoredClaims) -> list[str]:
    """Repair the disk; returns what failed, in words."""
    problems = []

    def attempt(uid: str, change: Callable[..., object], *arguments: object) -> None:
        try:
            change(*arguments)
        except (ClaimError, FileError) as error:
            problems.append(f"claim {uid}: {error}")

    for uid in recovery.sweep:
        attempt(uid, book.specs.remove, uid)
        attempt(uid, book.metadata.remove_any, uid)
    for uid, text in recovery.ensure.items():
        attempt(uid, book.specs.ensure, uid, text)
    for record in recovery.records:
        uid = record.claim.uid
        if record.metadata is not None and uid in recovery.ensure:
            attempt(uid, book.metadata.ensure, record.claim, record.metadata)
        if uid in recovery.adopted and uid not in stored.foreign:
            attempt(uid, book.store.write, record)
    return problems
