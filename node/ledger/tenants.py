"""Remembers pods that had a device until their containers are proved to have ended; until then it is pending release.

The kubelet and the API server forget a pod that was deleted by force before its containers end. So every pod seen with
a device is remembered here, by its UID, until a check finds no container of it on the node. Invariants: only such a
check, or a person, removes a pod from this memory; a device that somebody has according to the sources is not pending,
whoever had it before; a proof holds until a source names the pod again. Pods that share a device have one share each:
another share of the device waits for none of them, but theirs stay taken until their own containers have ended.

A device that the plugin door allocated stays in that door's list for ``WAIT`` seconds, and as long as an Allocate that
began within them waits; then the plugin door withholds it too, so that no later Allocate waits. Pure, and for the event
loop alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from node.ledger.holds import Hold, HoldState, pending_owner, plugin_owner
from node.rules import Door
from node.sharing import Amounts, replica_id
from node.values import Record, Value, record, replace, value

WAIT = 5.0
"""Seconds that an Allocate waits for the containers of a device's previous pods: the kubelet admits no pod meanwhile.

This long after the pod's end the plugin door withholds its device too, and a later Allocate does not wait.
"""
NAMED = 2
"""Most pods named for one device."""


@value
class Tenancy(Value):
    """A pod (by UID) that has or had a device, which is part of others (``within``), through a door."""

    device: str
    uid: str
    within: tuple[str, ...] = ()
    door: Door = Door.PLUGIN
    pod: str = ""
    """``namespace/name`` of the pod or claim, empty if unknown."""
    share: str = ""
    """The share of the device that it has or had, ``amounts`` and ``whole`` as in ``Hold``; empty for all of it."""
    amounts: Amounts = ()
    whole: Amounts = ()
    slices: tuple[int, int] | None = None
    """The GPU's memory slices that a partition takes, as in ``Hold``."""

    @property
    def words(self) -> str:
        """The pod, for people."""
        if self.door is Door.DRA:
            return f"a pod of claim {self.pod} (UID {self.uid})"
        return f"pod {self.pod} (UID {self.uid})" if self.pod else f"the pod with UID {self.uid}"


@record
class _Wait(Record):
    """When the wait for a pod's end began: monotonic, and Unix seconds for people.

    ``asked``: when the first Allocate began to wait for it (monotonic), None for none.
    """

    since: float
    at: float
    asked: float | None = None


class Tenants:
    """The remembered pods. The caller that changes them must settle the ledger."""

    def __init__(self, remembered: Iterable[Tenancy] = ()) -> None:
        self.version = 0
        """Grows with every tenancy that comes or goes; the memory must then be saved."""
        self._by_device: dict[str, dict[tuple[str, str], Tenancy]] = {}
        """By UID and share."""
        self._by_place: dict[str, set[str]] = {}
        """Devices by their own name and by the names of the devices they are parts of."""
        self._held: frozenset[tuple[str, str]] = frozenset()
        """Devices and shares."""
        self._waits: dict[str, _Wait] = {}
        """By UID, the pods that devices wait for."""
        self._proved: set[str] = set()
        """Pods that have no container left, though a source may still name them."""
        for tenancy in remembered:
            self._add(tenancy)

    @property
    def all(self) -> tuple[Tenancy, ...]:
        """Every remembered tenancy."""
        return tuple(each for those in self._by_device.values() for each in those.values())

    @property
    def waited_for(self) -> frozenset[str]:
        """UIDs of the pods that devices wait for."""
        return frozenset(self._waits)

    @property
    def is_empty(self) -> bool:
        """Whether no pod is known that may have a device."""
        return not self._by_place

    def note(self, tenancies: Iterable[Tenancy]) -> None:
        """Remember the tenancies that a source names, which may be outdated."""
        for each in tenancies:
            if each.uid not in self._proved:
                self._add(each)

    def took(self, holds: Iterable[Hold]) -> None:
        """Remember the pods of holds that begin or go on: what proved their end before is outdated."""
        for hold in holds:
            for uid in hold.pods:
                self._proved.discard(uid)
                share = _share(hold)
                self._add(
                    Tenancy(
                        hold.device,
                        uid,
                        hold.within,
                        hold.door or Door.PLUGIN,
                        _pod(hold),
                        share,
                        hold.amounts,
                        hold.whole,
                        hold.slices,
                    )
                )

    def gave_back(self, holds: Iterable[Hold], now: float, at: float) -> None:
        """Wait for the pods of holds that have certainly ended, whatever is not known; times as in ``update``."""
        for uid in {uid for hold in holds for uid in hold.pods}:
            self._wait_for(uid, now, at)

    def update(self, held: Iterable[Hold], now: float, at: float, *, is_complete: bool) -> None:
        """Compare with the holds that the sources name; ``now`` is monotonic, ``at`` Unix seconds.

        ``is_complete``: whether the sources are complete, so that a pod they do not name has given its device back.
        """
        held = [hold for hold in held if not hold.admin and hold.door is not None]
        self.took(held)
        current = {(hold.device, uid, _share(hold)) for hold in held for uid in hold.pods}
        self._held = frozenset((hold.device, _share(hold)) for hold in held)
        if not is_complete:
            return
        over = {each.uid for each in self.all if (each.device, each.uid, each.share) not in current}
        for uid in over:
            self._wait_for(uid, now, at)
        for uid in self._waits.keys() - over:
            del self._waits[uid]

    def suspects(self, device: str, within: Collection[str], share: str = "") -> frozenset[str]:
        """Pods that may have the device (or this share of it), or one that overlaps it: no check proved them gone."""
        return frozenset(each.uid for each in self._overlapping(device, within, share))

    def pending(self, device: str, within: Collection[str], share: str = "") -> Hold | None:
        """The hold that keeps both doors from allocating the device, or this share of it; None if there is none."""
        return self.kept_by(self._waits.keys(), device, within, share) if self._waits else None

    def kept_by(self, uids: Collection[str], device: str, within: Collection[str], share: str = "") -> Hold | None:
        """The hold by which these pods keep the device; None if they have neither it nor anything that overlaps it."""
        those = [each for each in self._overlapping(device, within, share) if each.uid in uids]
        if not those:
            return None
        first = those[0].device, those[0].share
        return self._hold([each for each in those if (each.device, each.share) == first], None)

    def _overlapping(self, device: str, within: Collection[str], share: str) -> Iterator[Tenancy]:
        for place in (device, *within):
            for other in self._by_place.get(place, ()):
                for each in self._by_device[other].values():
                    if other == device:
                        if not share or not each.share or share == each.share:
                            yield each
                    elif other in within or device in each.within:
                        yield each

    def wait_until(self, uids: Iterable[str], now: float, at: float) -> float:
        """Until when an Allocate that begins now may wait for the end of these pods.

        All Allocates that wait for a pod share one period; none waits if the device has left the list.
        """
        until = now
        for uid in uids:
            self._wait_for(uid, now, at)
            wait = self._waits[uid]
            if wait.asked is None:
                wait.asked = now if self._is_young(uid, now) else wait.since
            until = max(until, wait.asked + WAIT)
        return until

    def gone(self, uids: Collection[str]) -> bool:
        """Forget pods that a check found without a container; whether any was remembered."""
        known = [each for each in self.all if each.uid in uids]
        for each in known:
            self._remove(each)
        self._proved.update(uids)
        for uid in uids:
            self._waits.pop(uid, None)
        return bool(known)

    def forget_proofs(self, named: Collection[str]) -> None:
        """Keep proofs only for the pods that the sources still name."""
        self._proved.intersection_update(named)

    def release(self, device: str) -> bool:
        """Release the device because a person declares it free; False if it waits for no pod."""
        waiting = self._waiting(device)
        for each in waiting:
            self._remove(each)
            self._proved.add(each.uid)
        return bool(waiting)

    def waiting(self, device: str) -> frozenset[str]:
        """UIDs of the pods that the device, or a share of it, waits for."""
        return frozenset(each.uid for each in self._waiting(device))

    def named(self, device: str) -> str:
        """The pods that the device waits for, for people; empty for none."""
        return _listed(self._waiting(device))

    def _waiting(self, device: str) -> list[Tenancy]:
        return [each for each in self._by_device.get(device, {}).values() if each.uid in self._waits]

    def wanted(self, now: float) -> Mapping[str, Hold]:
        """The holds of devices and shares that are pending release and that no source shows with anybody.

        By device, or ``<device>::<share>``.
        """
        found = {}
        for device in self._by_device:
            shares: dict[str, list[Tenancy]] = {}
            for each in self._waiting(device):
                shares.setdefault(each.share, []).append(each)
            for share, waiting in shares.items():
                if not self._held.isdisjoint(((device, ""), (device, share))):
                    continue
                patient = all(each.door is Door.PLUGIN and self._is_young(each.uid, now) for each in waiting)
                found[replica_id(device, share)] = self._hold(waiting, Door.PLUGIN if patient else None)
        return found

    def _hold(self, tenancies: list[Tenancy], door: Door | None) -> Hold:
        device, share = tenancies[0].device, tenancies[0].share
        return Hold(
            device,
            door,
            f"containers of {_listed(tenancies)} still run, though their pod was deleted",
            min((self._waits[each.uid].at for each in tenancies if each.uid in self._waits), default=0.0),
            owner=plugin_owner(device, share) if door is Door.PLUGIN else pending_owner(device, share),
            share=share,
            within=tenancies[0].within,
            amounts=tenancies[0].amounts,
            whole=tenancies[0].whole,
            slices=tenancies[0].slices,
            state=HoldState.PENDING_RELEASE,
        )

    def _is_young(self, uid: str, now: float) -> bool:
        """Whether an Allocate may wait for the pod; while one does, its device must stay in the list."""
        wait = self._waits[uid]
        return now - (wait.since if wait.asked is None else wait.asked) < WAIT

    def _wait_for(self, uid: str, now: float, at: float) -> None:
        if uid not in self._waits:
            self._waits[uid] = _Wait(now, at)

    def _add(self, tenancy: Tenancy) -> None:
        tenancies = self._by_device.setdefault(tenancy.device, {})
        key = tenancy.uid, tenancy.share
        before = tenancies.get(key)
        if before is not None and not tenancy.pod:
            slices = tenancy.slices or before.slices
            tenancy = replace(before, amounts=tenancy.amounts, whole=tenancy.whole, slices=slices)
        if before == tenancy:
            return
        if before is None:
            self.version += 1
            # By the rules of the moment a pod has shares of a device or all of it, never both.
            for other in [each for each in tenancies if each[0] == tenancy.uid and bool(each[1]) != bool(key[1])]:
                del tenancies[other]
        tenancies[key] = tenancy
        for place in (tenancy.device, *tenancy.within):
            self._by_place.setdefault(place, set()).add(tenancy.device)

    def _remove(self, tenancy: Tenancy) -> None:
        self.version += 1
        tenancies = self._by_device[tenancy.device]
        del tenancies[tenancy.uid, tenancy.share]
        if tenancies:
            return
        del self._by_device[tenancy.device]
        for place in (tenancy.device, *tenancy.within):
            devices = self._by_place.get(place, set())
            devices.discard(tenancy.device)
            if not devices:
                self._by_place.pop(place, None)


def _listed(tenancies: Sequence[Tenancy]) -> str:
    more = f" and {len(tenancies) - NAMED} more" if len(tenancies) > NAMED else ""
    return ", ".join(each.words for each in tenancies[:NAMED]) + more


def _share(hold: Hold) -> str:
    """The share; none for one that nobody counts, because it is not known what its pod leaves to others."""
    return hold.share if hold.amounts else ""


def _pod(hold: Hold) -> str:
    """The name of the claim, or of the only pod, that has the hold."""
    if hold.door is Door.DRA:
        return hold.holder
    named = len(hold.pods) == 1 and hold.state in (HoldState.LISTED, HoldState.RECORDED) and "/" in hold.holder
    return hold.holder if named else ""
