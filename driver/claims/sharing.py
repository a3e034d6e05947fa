"""Sets up GPUs so that the containers of a claim can share them: time slices, and MPS.

Depending on its parameters, a claim has the time slice of its GPUs set, or gets an MPS control daemon of its own
(``driver.parameters.sharing``). A claim with a share of a GPU only needs the daemon of the GPU's resource, which others
use as well.

Every change is on record before it is made, so that a kill at any moment leaves nothing behind for good: the next start
undoes the changes for claims that are not on record, and keeps the daemons of the others. At the release the CDI file
goes first, then the daemon and the time slices, then the claim's record. A time slice that cannot be reset keeps no
claim from being released; every round of the collection tries again. A reboot undoes everything by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from driver.claims.model import ClaimReference, SharingNotDone, Unavailable
from kube.bodies import Json, JsonObject
from node.files import FileError, read_record, write_record
from node.inventory.nvidia.time_slices import TimeSlice, TimeSliceError, TimeSlicer
from node.values import Value, replace, value

if TYPE_CHECKING:
    from node.mps.daemon import MpsResource
    from node.mps.service import MpsHolders

FILE = "claim-sharing.json"
SCHEMA = "claim-sharing/v1"
CLAIMS_RECORD = "mps-claims.json"
"""The record of the supervisor of the claims' daemons."""
_PREFIX = "claim-"
_STOP = 25.0
"""Seconds for a daemon to stop, which is killed before; the kubelet gives a call 45."""
_START = 30.0


@value
class SharingWork(Value):
    """The changes that must precede a claim's preparation.

    ``time_slices``: by UUID of a GPU. ``daemon``: the claim's own. ``shares``: resources whose daemon must run.
    """

    time_slices: tuple[tuple[str, TimeSlice], ...] = ()
    daemon: MpsResource | None = None
    shares: tuple[str, ...] = ()

    @property
    def own(self) -> SharingWork:
        """The changes for this claim alone, which must be undone."""
        return replace(self, shares=())

    def __bool__(self) -> bool:
        return bool(self.time_slices or self.daemon or self.shares)


class ClaimDaemons(Protocol):
    """Supervises the daemons of claims (``node.mps.supervisor.MpsSupervisor``)."""

    def use(self, resources: Iterable[MpsResource]) -> None:
        """Serve these and no others."""

    def hold(self, holders: MpsHolders) -> None:
        """Note which claims have them."""

    async def running(self) -> tuple[MpsResource, ...]:
        """The daemons of claims that run, also those of earlier agents, with their devices and without limits."""

    async def ready(self, name: str) -> None:
        """Return when the daemon runs; raises ``MpsError``."""

    async def stopped(self, name: str) -> None:
        """Return when the daemon has ended."""

    async def run(self) -> None:
        """Supervise until cancelled."""


class ShareDaemons(Protocol):
    """Runs the daemons of shared resources, for both doors."""

    async def shares_ready(self, resource: str) -> None:
        """Return when shares of the resource can be used; raises ``MpsError``."""


@value
class SharingTools(Value):
    """The tools of this node, each None if it has none. ``daemons`` makes the supervisor."""

    slicer: TimeSlicer | None = None
    daemons: Callable[[], ClaimDaemons] | None = None
    shares: ShareDaemons | None = None


_NO_DRIVER = "this node has no NVIDIA driver that can do it (a recorded node has none)"


class ClaimSharing:
    """Makes and undoes the changes, by the claim's UID; for the event loop only. ``folder``: of its record."""

    def __init__(self, tools: SharingTools, folder: Path, boot: str) -> None:
        self._tools = tools
        self._folder = folder
        self._path = folder / FILE
        self._boot = boot
        self._done: dict[str, tuple[str, SharingWork]] = {}
        """By UID, the claim's name and the changes that were made or are about to be."""
        self._writing = asyncio.Lock()
        self._gpus: dict[str, asyncio.Lock] = {}
        """Locks by UUID of a GPU, held while its time slice and its record change."""
        self._daemons: ClaimDaemons | None = None
        self._needed = asyncio.Event()

    def of(self, uid: str) -> SharingWork:
        """The changes made for the claim."""
        return self._done[uid][1] if uid in self._done else SharingWork()

    def leftovers(self, owners: Collection[str]) -> tuple[str, ...]:
        """UIDs of claims with changes that must still be undone."""
        return tuple(sorted(self._done.keys() - set(owners)))

    async def recover(self, owners: Collection[str]) -> tuple[str, ...]:
        """Take over what an earlier process did for these claims and undo the rest; returns what failed, in words.

        ``owners``: claims that were prepared since the boot.
        """
        problems: list[str] = []
        try:
            self._done = await asyncio.to_thread(self._read)
        except FileError as error:
            problems.append(f"the time slices of claims may remain set when they are released: {error}")
            self._done = await self._running(owners)
        is_needed = any(work.daemon for _, work in self._done.values()) or await asyncio.to_thread(self._has_left)
        left = self.leftovers(owners)
        for uid in left:
            # When the supervisor starts, it ends daemons that are not served.
            name, work = self._done[uid]
            self._done[uid] = name, replace(work, daemon=None)
        if is_needed:
            self._serve()
        for uid in left:
            problems += await self.remove(ClaimReference("", "", uid))
        return tuple(problems)

    async def _running(self, owners: Collection[str]) -> dict[str, tuple[str, SharingWork]]:
        """The daemons of these claims that run, as far as they show what they are for: containers work with them."""
        if self._tools.daemons is None:
            return {}
        if self._daemons is None:
            self._daemons = self._tools.daemons()
        found = {each.name.removeprefix(_PREFIX): each for each in await self._daemons.running()}
        return {uid: (f"claim {uid}", SharingWork(daemon=each)) for uid, each in found.items() if uid in owners}

    async def run(self) -> None:
        """Supervise the claims' daemons until cancelled; the daemons continue to run."""
        await self._needed.wait()
        assert self._daemons is not None, "made when it was needed"
        await self._daemons.run()

    async def apply(self, claim: ClaimReference, work: SharingWork) -> None:
        """Make the changes; raises SharingNotDone or Unavailable, after undoing the changes for the claim alone."""
        for resource in work.shares:
            await self._share_ready(claim, resource)
        own, before = work.own, self.of(claim.uid)
        if before != own and not _differ_in_limits(before, own):
            await self.remove(claim)
        if not own:
            return
        missing = self._missing(own)
        if missing:
            raise SharingNotDone(f"claim {claim}: {missing}: {_NO_DRIVER}; leave sharing out of its parameters")
        async with self._changing(own.time_slices):
            self._take_over(own)
            await self._note(claim.uid, (str(claim), own))
            failed = await self._set(dict(own.time_slices))
        problems = [str(error) for error in failed.values()]
        if not problems and own.daemon is not None:
            problems = await self._start(own.daemon)
        if problems:
            # A change that was refused needs no undoing, which would be refused as well.
            changed = [each for each in own.time_slices if each[0] not in failed or failed[each[0]].is_uncertain]
            self._done[claim.uid] = str(claim), replace(own, time_slices=tuple(changed))
            await self.remove(claim)
            raise SharingNotDone(f"claim {claim}: {'; '.join(problems)}")

    async def remove(self, claim: ClaimReference) -> tuple[str, ...]:
        """Undo the changes for the claim alone; returns what remains for now, in words."""
        uid, own = claim.uid, self.of(claim.uid)
        if uid not in self._done:
            return ()
        name = self._done[uid][0]
        if own.daemon is not None:
            self._done[uid] = name, replace(own, daemon=None)
            self._serve()
            if self._daemons is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP):
                        await self._daemons.stopped(own.daemon.name)
        async with self._changing(own.time_slices):
            slices = self.of(uid).time_slices  # Skip GPUs that another claim has taken over meanwhile.
            failed = await self._set({uuid: TimeSlice.DEFAULT for uuid, _ in slices})
            problems = [str(error) for error in failed.values()]
            left = tuple(each for each in slices if each[0] in failed)
            try:
                await self._note(uid, (name, SharingWork(left)) if left else None)
            except Unavailable as error:
                problems.append(str(error))
        return tuple(problems)

    @contextlib.asynccontextmanager
    async def _changing(self, slices: Iterable[tuple[str, TimeSlice]]) -> AsyncIterator[None]:
        """Lock these GPUs: the holder of the lock decides, not the call that ends last."""
        async with contextlib.AsyncExitStack() as stack:
            for uuid in sorted({uuid for uuid, _ in slices}):
                await stack.enter_async_context(self._gpus.setdefault(uuid, asyncio.Lock()))
            yield

    def _missing(self, work: SharingWork) -> str:
        """The means that this node lacks, in words."""
        if work.daemon is not None and self._tools.daemons is None:
            return "MPS cannot be started"
        return "time slices cannot be set" if work.time_slices and self._tools.slicer is None else ""

    def _take_over(self, work: SharingWork) -> None:
        """Note that this claim now owns time slices that an earlier claim could not reset."""
        now = dict(work.time_slices)
        for uid, (name, earlier) in tuple(self._done.items()):
            kept = tuple(each for each in earlier.time_slices if each[0] not in now)
            if kept != earlier.time_slices:
                self._done[uid] = name, replace(earlier, time_slices=kept)
                if not self._done[uid][1]:
                    del self._done[uid]

    async def _share_ready(self, claim: ClaimReference, resource: str) -> None:
        from node.mps.daemon import MpsError  # Only nodes with MPS need it.

        problem = _NO_DRIVER
        if self._tools.shares is not None:
            try:
                async with asyncio.timeout(_START):
                    await self._tools.shares.shares_ready(resource)
            except TimeoutError:
                problem = f"its control daemon does not start within {_START:g} s"
            except MpsError as error:
                problem = str(error)
            else:
                return
        raise SharingNotDone(f"claim {claim}: MPS of {resource} does not work: {problem}")

    async def _start(self, daemon: MpsResource) -> list[str]:
        from node.mps.daemon import MpsError  # Only claims with MPS need it.

        self._serve()
        assert self._daemons is not None, "made when it was needed"
        try:
            async with asyncio.timeout(_START):
                await self._daemons.ready(daemon.name)
        except TimeoutError:
            return [f"MPS does not work: its control daemon does not start within {_START:g} s"]
        except MpsError as error:
            return [f"MPS does not work: {error}"]
        return []

    async def _set(self, lengths: Mapping[str, TimeSlice]) -> Mapping[str, TimeSliceError]:
        """Set time slices by UUID, on all GPUs at once; returns what failed."""
        slicer = self._tools.slicer
        if slicer is None:
            return {uuid: TimeSliceError(uuid, length, _NO_DRIVER) for uuid, length in lengths.items()}
        calls = (asyncio.to_thread(slicer.set, uuid, length) for uuid, length in lengths.items())
        failed = {}
        for uuid, result in zip(lengths, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(result, TimeSliceError):
                failed[uuid] = result
            elif isinstance(result, BaseException):
                raise result
        return failed

    def _serve(self) -> None:
        """Have the supervisor serve exactly the daemons on record."""
        from node.mps.service import MpsHolders  # Only claims with MPS need it.

        if self._tools.daemons is None:
            return
        if self._daemons is None:
            self._daemons = self._tools.daemons()
        daemons = [(name, work.daemon) for name, work in self._done.values() if work.daemon is not None]
        self._daemons.hold(MpsHolders({daemon.name: (name,) for name, daemon in daemons}, known=True))
        self._daemons.use([daemon for _, daemon in daemons])
        self._needed.set()

    async def _note(self, uid: str, done: tuple[str, SharingWork] | None) -> None:
        """Write to disk what will be done for a claim; raises Unavailable."""
        async with self._writing:
            if done is None:
                self._done.pop(uid, None)
            else:
                self._done[uid] = done
            try:
                await asyncio.to_thread(self._write, dict(self._done))
            except (FileError, OSError) as error:
                raise Unavailable(f"{error}; check the state folder and its disk") from error

    def _has_left(self) -> bool:
        """Whether an earlier process may have left daemons of claims."""
        return (self._folder / CLAIMS_RECORD).exists()

    def _write(self, done: Mapping[str, tuple[str, SharingWork]]) -> None:
        if not done:
            self._path.unlink(missing_ok=True)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        claims: JsonObject = {uid: _entry_json(name, work) for uid, (name, work) in done.items()}
        write_record(self._path, SCHEMA, {"boot": self._boot, "claims": claims})

    def _read(self) -> dict[str, tuple[str, SharingWork]]:
        """The work of an earlier process of this boot; raises FileError."""
        data = read_record(self._path, SCHEMA)
        if not isinstance(data, dict) or data.get("boot") != self._boot:
            return {}
        claims = data.get("claims")
        return {uid: _entry(uid, each) for uid, each in claims.items()} if isinstance(claims, dict) else {}


def _differ_in_limits(before: SharingWork, after: SharingWork) -> bool:
    """Whether a running daemon can be given what ``after`` says, so that it need not end."""
    one, other = before.daemon, after.daemon
    if one is None or other is None or before.time_slices != after.time_slices:
        return False
    uuids, others = ([each.uuid for each in daemon.devices] for daemon in (one, other))
    return uuids == others and one.multi_user == other.multi_user


def daemon_name(uid: str) -> str:
    """The name of a claim's own daemon, which no resource has."""
    return f"{_PREFIX}{uid}"


def is_of_claim(name: str) -> bool:
    """Whether a daemon of this name would be a claim's own; resources have a slash in theirs."""
    return name.startswith(_PREFIX) and "/" not in name


def _entry_json(name: str, work: SharingWork) -> JsonObject:
    entry: JsonObject = {"claim": name, "timeSlices": {uuid: length.value for uuid, length in work.time_slices}}
    if work.daemon is not None:
        devices: list[Json] = [[each.name, each.uuid, each.memory_limit] for each in work.daemon.devices]
        entry |= {"devices": devices, "threads": work.daemon.thread_percentage, "multiUser": work.daemon.multi_user}
    return entry


def _entry(uid: str, data: Json) -> tuple[str, SharingWork]:
    """An entry as this version writes it; the record's hash proves that nobody else wrote it."""
    from node.mps.daemon import MpsDevice, MpsResource  # Only where there is something on record.

    entry = data if isinstance(data, dict) else {}
    slices, devices, threads = entry.get("timeSlices"), entry.get("devices"), entry.get("threads")
    lengths = {length.value: length for length in TimeSlice}
    found = tuple(
        (uuid, lengths[number])
        for uuid, number in (slices.items() if isinstance(slices, dict) else ())
        if isinstance(number, int) and number in lengths
    )
    made = []
    for each in devices if isinstance(devices, list) else ():
        match each:
            case [str(name), str(uuid), int() | None as limit]:
                made.append(MpsDevice(name, uuid, limit))
    percentage = threads if isinstance(threads, int) else None
    daemon = MpsResource(daemon_name(uid), tuple(made), percentage, entry.get("multiUser") is True) if made else None
    return str(entry.get("claim", "")), SharingWork(found, daemon)
