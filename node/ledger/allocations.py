"""Merges the devices of answered Allocate calls with what the kubelet reports into the holds of the plugin door.

The kubelet decides: a pod holds a device as long as podresources lists it, or the checkpoint records it for a pod that
is not known to be gone. Both lag behind Allocate, and both may fail, so only proof ends a hold. Invariants:

- a reading never ends a grant that was made after the reading began;
- a grant that neither source shows ends after two later readings, begun at least ``APART`` seconds apart, miss it; the
  checkpoint alone confirms a grant only after that time, because its entry may belong to the previous pod until then;
- a hold that a source has shown ends with the first later reading of both sources in which neither has it, or with its
  pod if only the checkpoint has it; a reading without one of the sources only adds;
- an id holds every device it can mean (``naming``), including one that is absent at the moment;
- an id of a replica holds that replica alone if the rules share its device as that resource, whichever plugin allocated
  it: the ids are those of NVIDIA's plugin. Otherwise it holds the whole device.

Pure: callers pass the times. For the event loop alone. Trade-off: an entry of the checkpoint holds its device until the
API server says that the pod is gone, which restricts only the other door and devices that overlap it. Without an API
server it holds until the kubelet rewrites the file, which it does with its next allocation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from node.inventory.model import Snapshot
from node.ledger.holds import Hold, HoldState, Id, plugin_owner, slices_of, wholes_of
from node.ledger.naming import HeldIds, IdPlace
from node.ledger.pods import PodsKnown
from node.ledger.reader import Holding, Reading
from node.ledger.tenants import Tenancy
from node.rules import Door
from node.sharing import SharedDevice, replica_id
from node.values import Record, quick, record, replace

APART = 10.0
"""Seconds between two readings that miss a grant before it ends: far longer than a kubelet takes to record a device."""
ENTERED = 1.0
"""Seconds within which the kubelet records a grant in its checkpoint unless it refuses the pod; a generous limit."""
TRUSTED = 60.0
"""Seconds for which the last whole reading counts as current."""
NAMED = 2
"""Most pods named for one device."""


@quick
@record
class _Granted(Record):
    """``now``: monotonic; ``missed``: when the first of the readings in a row that miss the grant began."""

    now: float
    missed: float | None = None


class KubeletAllocations:
    """All holds of the plugin door; ``wanted`` returns them for the ledger. See the module for the invariants."""

    def __init__(self) -> None:
        self._listed: dict[Id, tuple[str, ...]] = {}
        self._recorded: dict[Id, tuple[str, ...]] = {}
        """UIDs by id, without pods that are gone."""
        self._names: dict[str, str] = {}
        self._granted: dict[Id, _Granted] = {}
        self._unattributed: dict[Id, float] = {}
        """When each grant was made (monotonic) whose pod no reading has shown yet."""
        self._written: tuple[Holding, ...] = ()
        """The last checkpoint read, including pods that are gone."""
        self._written_at = -math.inf
        self._identified: tuple[Holding, ...] = ()
        """The last list of podresources, with UIDs from the API server; only while the checkpoint is unreadable."""
        self._since: dict[Id, float] = {}
        self.ids = HeldIds()
        self._allocatable: frozenset[Id] = frozenset()
        self._allocatable_began: float | None = None
        self._began = -math.inf
        self._good = -math.inf
        self._barrier = math.inf
        self._faults: tuple[str, ...] = ()
        self._wanted: Mapping[str, Hold] | None = {}
        self._at_kubelet: frozenset[str] | None = frozenset()

    def barrier(self, monotonic: float) -> None:
        """Trust only readings begun after this time: until then another instance may have answered Allocate.

        Nothing is known before the first barrier. It may lie a moment ahead, for an answer still under way.
        """
        self._barrier = monotonic

    def granted(self, grants: Iterable[tuple[Id, IdPlace]], now: float, at: float) -> None:
        """Enter the devices of an Allocate at this moment (``now``: monotonic, ``at``: Unix seconds)."""
        for id_, place in grants:
            self._granted[id_] = _Granted(now)
            self._unattributed[id_] = now
            self._since[id_] = at
            self.ids.put(id_, (place,))
        self._wanted = None

    def place(
        self,
        snapshot: Snapshot,
        resources: Collection[str] = (),
        shared: Mapping[str, SharedDevice] = MappingProxyType({}),
    ) -> None:
        """Match ids with the current devices again.

        ``resources``: those that this agent serves; ``shared``: how it divides devices, by name.
        """
        self.ids.place(snapshot, frozenset(resources), shared)
        for id_ in self._since:
            self.ids.match(id_)
        self._wanted = self._at_kubelet = None

    def read(self, reading: Reading, pods: PodsKnown, at: float) -> None:
        """Take in a reading of the kubelet (``at``: Unix seconds); one older than the last is dropped."""
        if reading.began <= self._began:
            return
        self._began = reading.began
        self._faults = reading.faults
        self._identify(reading, pods)
        if reading.recorded is not None:
            self.attribute(reading.recorded, reading.began)
        shown = _by_id((item, item.pod) for item in reading.listed or ())
        written = _by_id((item, item.uid) for item in reading.recorded or ())
        whole = reading.listed is not None and reading.recorded is not None
        # What one source lacks, the source that could not be read may have.
        listed, recorded = (shown, written) if whole else (self._listed | shown, self._recorded | written)
        recorded = _of_pods_not_gone(recorded, pods)
        self._judge(reading.began, shown.keys(), written.keys() & recorded.keys(), whole=whole)
        if whole:
            self._good = reading.began
        names = {uid: pods.name_of(uid) for uids in recorded.values() for uid in uids}
        if (listed, recorded, names) != (self._listed, self._recorded, self._names):
            self._listed, self._recorded, self._names = listed, recorded, names
            self._wanted = None
        self._keep(at)
        if reading.allocatable is not None:
            self._allocatable_began = reading.began
            if reading.allocatable != self._allocatable:
                self._allocatable, self._at_kubelet = reading.allocatable, None

    def attribute(self, recorded: tuple[Holding, ...], now: float) -> None:
        """Take in the checkpoint; a grant that it lacks after ``ENTERED`` seconds was never recorded.

        The kubelet records a container's devices before it asks for those of the next, and starts no container whose
        devices it has not recorded.
        """
        if recorded != self._written:
            self._wanted = None
        self._written, self._written_at = recorded, now
        if self._unattributed:
            there = {(item.resource, item.id) for item in recorded}
            late = {id_: at for id_, at in self._unattributed.items() if id_ not in there and at > now - ENTERED}
            self._unattributed = late

    def _identify(self, reading: Reading, pods: PodsKnown) -> None:
        """Find pods' UIDs by their names while the checkpoint, which has UIDs, is unreadable.

        Only a UID leads to the containers of a pod that was deleted by force.
        """
        found: tuple[Holding, ...] = ()
        if reading.recorded is None:
            uids = {item.pod: pods.uid_of(item.pod) for item in reading.listed or ()}
            found = tuple(replace(item, uid=uids[item.pod]) for item in reading.listed or () if uids[item.pod])
        if found != self._identified:
            self._identified, self._wanted = found, None

    @property
    def unattributed(self) -> bool:
        """Whether a device was allocated to a pod that no reading has shown yet."""
        return bool(self._unattributed)

    @property
    def living(self) -> frozenset[str]:
        """UIDs of the pods that the kubelet lists with their devices."""
        listed = (uids for id_, uids in self._recorded.items() if id_ in self._listed and len(uids) == 1)
        return frozenset(uid for uids in listed for uid in uids)

    def tenancies(self) -> Iterator[Tenancy]:
        """Which pods had which devices when the kubelet wrote its checkpoint, including pods that have ended since.

        While the checkpoint is unreadable, also the pods that podresources lists and the API server knows.
        """
        for item in (*self._written, *self._identified):
            pod = self._names.get(item.uid, "")
            for device in self.ids.meant((item.resource, item.id)):
                share = self.ids.share_of((item.resource, item.id), device.name)
                amounts, whole = self.ids.amounts(device.name, share)
                yield Tenancy(
                    device.name,
                    item.uid,
                    wholes_of(device),
                    pod=pod,
                    share=share,
                    amounts=amounts,
                    whole=whole,
                    slices=slices_of(device),
                )

    def recorded_shares(self, device: str) -> frozenset[str] | None:
        """The replicas of a device that pods have by the last checkpoint, gone or not; None if it was never read."""
        if self._written_at == -math.inf:
            return None
        ids = {(item.resource, item.id) for item in (*self._written, *self._identified)}
        shares = (
            self.ids.share_of(id_, device) for id_ in ids if any(each.name == device for each in self.ids.meant(id_))
        )
        return frozenset(share for share in shares if share)

    def recorded_devices(self, pods: PodsKnown, since: float = -math.inf) -> Mapping[str, str] | None:
        """The devices of the last checkpoint, each with a pod that is not known to be gone.

        None unless it was read since this time (monotonic) and since another instance may have answered the kubelet.
        """
        if self._written_at < since or self._written_at <= self._barrier:
            return None
        there = [item for item in self._written if not pods.gone(item.uid)]
        return {
            device.name: pods.name_of(item.uid) or f"pod with UID {item.uid}"
            for item in there
            for device in self.ids.meant((item.resource, item.id))
        }

    def known(self, now: float) -> bool:
        """Whether these holds include everything that the plugin door has allocated."""
        return self._good > self._barrier and now - self._good <= TRUSTED

    def unknown_because(self, now: float) -> str:
        """Why not everything is known, in one sentence; empty when it is."""
        if self.known(now):
            return ""
        why = f": {'; '.join(self._faults)}" if self._faults else ""
        if self._good <= self._barrier:
            return f"the kubelet has not reported its device allocations yet{why}"
        return f"the kubelet has not reported its device allocations for {now - self._good:.0f} s{why}"

    def read_since(self, when: float) -> bool:
        """Whether a reading of both sources began at this time (monotonic) or later."""
        return self._good >= when

    @property
    def unseen(self) -> int:
        """Grants that no source shows yet."""
        return sum(1 for id_, grant in self._granted.items() if id_ not in self._recorded or self._began <= grant.now)

    def are_held_only_by(self, uids: Collection[str], names: Collection[str]) -> bool:
        """Whether the last reading shows devices only in these pods, by UID and by ``namespace/name``.

        False while anything is open: a grant without its pod, a pod whose name the reading did not know, a source that
        could not be read, no reading yet.
        """
        if self._good == -math.inf or self._good < self._began or self._unattributed or self.unseen:
            return False
        recorded = all(uid in uids and self._names.get(uid) for held in self._recorded.values() for uid in held)
        return recorded and all(name in names for held in self._listed.values() for name in held)

    @property
    def at_kubelet(self) -> frozenset[str]:
        """Devices that the kubelet last reported as allocatable, through any plugin."""
        if self._at_kubelet is None:
            found = {device.name for id_ in self._allocatable for device in self.ids.meant(id_)}
            self._at_kubelet = frozenset(found)
        return self._at_kubelet

    @property
    def at_kubelet_since(self) -> float | None:
        """When the reading behind ``at_kubelet`` began (monotonic); None if there was none."""
        return self._allocatable_began

    def wanted(self) -> Mapping[str, Hold]:
        """The hold that pods have of each device or replica, by device or ``<device>::<share>``.

        The same object until something changes.
        """
        if self._wanted is None:
            wanted: dict[str, Hold] = {}
            for device, ids in self.ids.by_device():
                shares: dict[str, list[Id]] = {}
                for id_ in sorted(ids):
                    shares.setdefault(ids[id_], []).append(id_)
                for share, those in shares.items():
                    wanted[replica_id(device, share)] = self._hold(device, share, those)
            self._wanted = wanted
        return self._wanted

    def _judge(self, began: float, listed: Collection[Id], recorded: Collection[Id], *, whole: bool) -> None:
        """Drop the grants that a source shows from here on, or that enough readings have missed."""
        for id_, grant in tuple(self._granted.items()):
            if began <= grant.now:
                continue
            if id_ in listed:
                # The kubelet lists active pods only, and forgets a device's previous pod when it gives it again.
                done = True
            elif id_ in recorded:
                grant.missed = None
                done = began - grant.now >= APART
            else:
                if whole and grant.missed is None:
                    grant.missed = began
                done = whole and grant.missed is not None and began - grant.missed >= APART
            if done:
                del self._granted[id_]
                self._wanted = None

    def _keep(self, at: float) -> None:
        """Forget holds that ended, and match new ids with devices."""
        held = self._listed.keys() | self._recorded.keys() | self._granted.keys()
        for id_ in self._since.keys() - held:
            del self._since[id_]
            self.ids.put(id_, ())
        for id_ in held - self._since.keys():
            self._since[id_] = at
            self.ids.match(id_)

    def _hold(self, device: str, share: str, ids: list[Id]) -> Hold:
        state, names = self._state(ids)
        place = self.ids.place_of(ids[0], device)
        amounts, whole = self.ids.amounts(device, share)
        return Hold(
            device,
            Door.PLUGIN,
            names,
            min(self._since[id_] for id_ in ids),
            owner=plugin_owner(device, share),
            share=share,
            within=place.within,
            amounts=amounts,
            whole=whole,
            slices=place.slices,
            state=state,
            resource=ids[0][0],
            ids=tuple(ids),
            bound=state is HoldState.RECORDED and self._is_bound(ids),
            pods=self._pods_of(ids, state),
        )

    def _pods_of(self, ids: list[Id], state: HoldState) -> tuple[str, ...]:
        """UIDs of the pods that have these ids according to the checkpoint.

        A pod that is gone from the API server is included until the kubelet forgets it: the kubelet may be about to
        start its containers, so the absence of containers proves nothing.
        """
        if state is HoldState.RECORDED:
            return tuple(sorted({uid for id_ in ids for uid in self._recorded.get(id_, ())}))
        read = {id_ for id_ in ids if id_ not in self._granted or self._written_at > self._granted[id_].now}
        found = {item.uid for item in self._written if (item.resource, item.id) in read}
        listed = {id_ for id_ in ids if id_ not in self._granted}
        found |= {item.uid for item in self._identified if (item.resource, item.id) in listed}
        return tuple(sorted(found))

    def _is_bound(self, ids: list[Id]) -> bool:
        """Whether the API server knows a pod that the checkpoint names and that is not gone."""
        return any(self._names.get(uid) for id_ in ids for uid in self._recorded.get(id_, ()))

    def _state(self, ids: list[Id]) -> tuple[HoldState, str]:
        """The strongest state that a source proves, and the holders; readings before a grant show the previous pod."""
        listed = [id_ for id_ in ids if id_ not in self._granted]
        if pods := {pod for id_ in listed for pod in self._listed.get(id_, ())}:
            return HoldState.LISTED, _joined(pods)
        recorded = [id_ for id_ in ids if id_ in listed or self._began > self._granted[id_].now]
        if uids := {uid for id_ in recorded for uid in self._recorded.get(id_, ())}:
            return HoldState.RECORDED, _joined({self._names.get(uid) or f"pod with UID {uid}" for uid in uids})
        return HoldState.ALLOCATED, _joined({f"a pod that asked for {resource}" for resource, _ in ids})


def _by_id(items: Iterable[tuple[Holding, str]]) -> dict[Id, tuple[str, ...]]:
    found: dict[Id, tuple[str, ...]] = {}
    for item, holder in items:
        id_ = (item.resource, item.id)
        known = found.get(id_, ())
        if holder not in known:
            found[id_] = (*known, holder)
    return found


def _of_pods_not_gone(recorded: Mapping[Id, tuple[str, ...]], pods: PodsKnown) -> dict[Id, tuple[str, ...]]:
    gone = {uid: pods.gone(uid) for uid in {uid for uids in recorded.values() for uid in uids}}
    left = {id_: tuple(uid for uid in uids if not gone[uid]) for id_, uids in recorded.items()}
    return {id_: uids for id_, uids in left.items() if uids}


def _joined(names: Collection[str]) -> str:
    shown = sorted(names)[:NAMED]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(shown) + more
