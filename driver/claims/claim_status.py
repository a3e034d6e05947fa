"""Writes ``ResourceClaim.status.devices``: facts about a claim's NICs, and why its parameters were refused.

It writes after the kubelet has its answer and never fails a preparation. Each prepared NIC gets one entry; entries of
other drivers stay. Ostler does not move the network interface into the pod, and the entry says so: condition
``NetworkReady`` is false, and ``networkData`` names no interface in the pod, because there is none. The key of an entry
is driver, pool, device and share id. Its ``data`` has facts of the host that no attribute of a slice promises, as they
were when the device was prepared.

If a claim's parameters are refused, each of its devices gets the condition ``Ready`` false with the reason
``ParametersRefused``, and ``Ready`` true once the claim is prepared after all. The same happens if a partition of a GPU
cannot be made for it.

Every write begins by reading the claim. A claim that is gone, has been replaced by another of the same name, or has
lost its allocation is left alone; after a conflict the write starts again; an entry that is already there is not
written. A claim that is nested deeper than the reader goes is not written either: the write would lose the part that
was not read. The API server drops the entries together with the allocation, so a release removes nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Iterable
from copy import deepcopy
from typing import Protocol

from driver.claims.model import ClaimReference, PreparedDevice, Unavailable
from driver.devices.view import DoorView
from driver.parameters.decoding import API_VERSION
from kube.bodies import Json, JsonObject, is_deeper, object_at, one_line, text_at
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.clocks import SYSTEM, Clocks
from node.events import EventSink, EventType
from node.inventory.model import NIC_KINDS, Device, Version
from node.values import Value, value

log = logging.getLogger("ostler.driver")

PARAMETERS_REFUSED = "ParametersRefused"
MOST_REFUSED = 256
"""Refused claims to remember; the oldest are dropped first."""

AT_ONCE = 4
"""Status writes at a time: preparation takes precedence at the API server."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 60.0
"""Seconds between attempts at one claim, growing."""
ATTEMPTS = 20
"""Attempts at one claim, over about ten minutes; its status is not worth more."""


class StatusApi(Protocol):
    """The part of ``driver.resource_api.async_client.AsyncResourceApi`` that this module needs."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as v1, None if there is none; raises ``Unavailable``."""

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        """Replace the claim's status and return the stored claim.

        Raises WriteConflict, NotFound, Invalid and Forbidden of ``kube.errors``, and ``Unavailable`` for everything
        else.
        """


@value
class ClaimReport(Value):
    """What the status of a claim should say.

    ``nics``: entries of its NICs. ``problem``: why it cannot be prepared, with the condition's ``reason``; empty if it
    has been prepared since; None if it never had a problem.
    """

    nics: tuple[JsonObject, ...] = ()
    problem: str | None = None
    reason: str = PARAMETERS_REFUSED

    def entries(self, driver_name: str, claim: JsonObject) -> tuple[JsonObject, ...]:
        """The entries for the claim, which was just read."""
        ready = () if self.problem is None else ready_entries(driver_name, claim, self.problem, self.reason)
        return (*ready, *self.nics)


class ClaimStatusWriter:
    """The door's ``ClaimReporter``: writes its reports while ``run`` runs; for the event loop only."""

    def __init__(
        self,
        driver_name: str,
        api: StatusApi,
        *,
        events: EventSink,
        clocks: Clocks = SYSTEM,
    ) -> None:
        self.problem = ""
        """Why the last status write failed; empty if it succeeded."""
        self._driver_name = driver_name
        self._api = api
        self._events = events
        self._clock = clocks.clock
        self._random = clocks.random
        self._view: DoorView | None = None
        self._wanted: dict[str, tuple[ClaimReference, tuple[PreparedDevice, ...] | ClaimReport]] = {}
        self._refused: dict[str, None] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._woken = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many claims wait for a status write."""
        return len(self._wanted) + len(self._writing)

    def apply(self, view: DoorView) -> None:
        """Take the current devices, for the facts about NICs."""
        self._view = view
        self._woken.set()

    def prepared(self, claim: ClaimReference, devices: tuple[PreparedDevice, ...]) -> None:
        """Write the claim's status; also for claims that an earlier process prepared."""
        self._wanted[claim.uid] = (claim, devices)
        self._woken.set()

    def refused(self, claim: ClaimReference, problem: str, reason: str = PARAMETERS_REFUSED) -> None:
        """Write that the claim is not ready, and why; ``reason`` is the condition's."""
        self._wanted[claim.uid] = (claim, ClaimReport(problem=problem, reason=reason))
        self._refused[claim.uid] = None
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._woken.set()

    def released(self, claim: ClaimReference) -> None:
        """Stop writing the claim's status."""
        self._refused.pop(claim.uid, None)
        self._wanted.pop(claim.uid, None)
        writing = self._writing.pop(claim.uid, None)
        if writing is not None:
            writing.cancel()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                if self._view is not None:
                    for uid in [uid for uid in self._wanted if uid not in self._writing]:
                        claim, said = self._wanted.pop(uid)
                        report = self._report(claim, said, self._view)
                        if report is not None:
                            self._begin(group, claim, report)
                await self._woken.wait()

    def _report(
        self, claim: ClaimReference, said: tuple[PreparedDevice, ...] | ClaimReport, view: DoorView
    ) -> ClaimReport | None:
        """The report to write; None if there is nothing to write."""
        if isinstance(said, ClaimReport):
            return said
        nics = nic_entries(self._driver_name, said, view)
        if claim.uid in self._refused:
            del self._refused[claim.uid]
            return ClaimReport(nics, problem="")
        return ClaimReport(nics) if nics else None

    def _begin(self, group: asyncio.TaskGroup, claim: ClaimReference, report: ClaimReport) -> None:
        task = self._writing[claim.uid] = group.create_task(self._write(claim, report), name=f"status of {claim}")

        def ended(_: asyncio.Task[None]) -> None:
            if self._writing.get(claim.uid) is task:
                del self._writing[claim.uid]
            self._woken.set()

        task.add_done_callback(ended)

    async def _write(self, claim: ClaimReference, report: ClaimReport) -> None:
        delay = FIRST_DELAY
        for _ in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._attempt(claim, report)
            except WriteConflict:
                # Somebody else wrote in between: the next attempt reads the claim again.
                pass
            except Unavailable as error:
                self._tell(claim, str(error), event=False)
            except Forbidden as error:
                self._tell(claim, self._right(error.message), event=True)
                return
            except Invalid as error:
                lacks_driver_right = "resourceclaims/driver" in error.message
                self._tell(claim, self._right(error.message) if lacks_driver_right else str(error), event=True)
                return
            except NotFound:
                return
            else:
                return
            await asyncio.sleep(delay * (1 + self._random()) / 2)
            delay = min(2 * delay, LONGEST_DELAY)
        log.warning("gave up writing the claim's status", extra={"claim": str(claim), "reason": self.problem})

    async def _attempt(self, claim: ClaimReference, report: ClaimReport) -> None:
        found = await self._api.claim(claim.namespace, claim.name)
        if found is None or text_at(found, "metadata", "uid") != claim.uid:
            return
        if is_deeper(found, DEPTH - 1):
            deep = f"claim {claim} nests deeper than {DEPTH - 1} levels, so its status is not written"
            self._tell(claim, f"{deep}; shorten its parameters", event=False)
            return
        changed = merged(found, self._driver_name, report.entries(self._driver_name, found), self._clock())
        if changed is None:
            return
        kept = await self._api.replace_claim_status(changed)
        if not object_at(kept, "status").get("devices"):
            gate = "the API server does not keep status.devices: its feature gate DRAResourceClaimDeviceStatus is off"
            self._tell(claim, gate, event=False)
            return
        self.problem = ""
        log.debug("claim's status written", extra={"claim": str(claim)})

    def _right(self, message: str) -> str:
        return (
            f"the API server does not let the agent write status.devices of NICs' claims ({message}); give the agent's "
            "account the verbs update and patch on resourceclaims/status, and associated-node:update and "
            f"associated-node:patch on resourceclaims/driver (resourceNames: [{self._driver_name}]) of "
            "resource.k8s.io; claims work without it"
        )

    def _tell(self, claim: ClaimReference, problem: str, *, event: bool) -> None:
        """Log each problem once, and post an event if a person has to act."""
        if problem == self.problem:
            return
        self.problem = problem
        log.warning("cannot write the claim's status", extra={"claim": str(claim), "reason": problem})
        if event:
            self._events.emit(EventType.WARNING, "ClaimStatusRefused", problem)


FACTS = (
    *("driver", "eswitchMode", "firmwareVersion", "ifName", "linkType", "linkUp", "mtu", "pciAddress"),
    *("pfName", "pfPciAddress", "rdmaDevice", "sriovFunction", "vfIndex"),
)
"""Known attributes to put into ``data``."""
LONGEST_MESSAGE = 2048
"""Characters of a condition's message; the API accepts more, but nobody reads them."""
LONGEST_ADDRESS = 128
"""Bytes of ``hardwareAddress`` that the API accepts."""


def nic_entries(driver_name: str, devices: Iterable[PreparedDevice], view: DoorView) -> tuple[JsonObject, ...]:
    """An entry, without times, for each of the devices that is a NIC: one per device, however many requests name it."""
    entries: dict[tuple[str, str, str | None], JsonObject] = {}
    for prepared in devices:
        offered = view.device(prepared.device)
        if offered is None or offered.device.kind not in NIC_KINDS:
            continue
        entry: JsonObject = {"driver": driver_name, "pool": prepared.pool, "device": prepared.device}
        if prepared.share_id is not None:
            entry["shareID"] = prepared.share_id
        entry["conditions"] = [
            _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container"),
            _network_condition(offered.device),
        ]
        entry["data"] = {"apiVersion": API_VERSION, "kind": "NicStatus", **_facts(offered.device)}
        address = offered.device.text("mac")
        if address and len(address.encode()) <= LONGEST_ADDRESS:
            entry["networkData"] = {"hardwareAddress": address}
        entries[prepared.pool, prepared.device, prepared.share_id] = entry
    return tuple(entries.values())


def ready_entries(
    driver_name: str, claim: JsonObject, problem: str = "", reason: str = PARAMETERS_REFUSED
) -> tuple[JsonObject, ...]:
    """An entry for each of our devices in the claim's allocation: ready, or the reason why it is not."""
    condition = (
        _condition("Ready", False, reason, one_line(problem, LONGEST_MESSAGE))
        if problem
        else _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container")
    )
    results = object_at(claim, "status", "allocation", "devices").get("results")
    entries: dict[tuple[str, ...], JsonObject] = {}
    for result in results if isinstance(results, list) else ():
        if text_at(result, "driver") != driver_name:
            continue
        names = ("driver", "pool", "device", "shareID")
        entry: JsonObject = {name: text_at(result, name) for name in names if text_at(result, name)}
        entries[_key(result)] = {**entry, "conditions": [condition]}
    return tuple(entries.values())


def merged(claim: JsonObject, driver_name: str, entries: Iterable[JsonObject], now: float) -> JsonObject | None:
    """The claim with these entries in its status; None if nothing needs to be written.

    Only entries for allocated devices go in, because the API server refuses all others. Our own entries for devices
    that are no longer allocated go out; those of other drivers stay. A condition whose status has not changed keeps its
    time.
    """
    results = object_at(claim, "status", "allocation", "devices").get("results")
    allocated = {_key(result) for result in results} if isinstance(results, list) else set()
    stored = object_at(claim, "status").get("devices")
    before = [entry for entry in stored if isinstance(entry, dict)] if isinstance(stored, list) else []
    old = {_key(entry): entry for entry in before}
    new = {_key(entry): _timed(entry, old.get(_key(entry)), now) for entry in entries if _key(entry) in allocated}
    kept = [entry for entry in before if _key(entry) not in new and _stays(entry, driver_name, allocated)]
    after: list[Json] = [*kept, *new.values()]
    if not new or (len(after) == len(before) and all(entry in before for entry in after)):
        return None
    changed = deepcopy(claim)
    status = changed["status"]
    assert isinstance(status, dict), "an allocation is part of the status"
    status["devices"] = after
    return changed


def _stays(entry: JsonObject, driver_name: str, allocated: set[tuple[str, ...]]) -> bool:
    return entry.get("driver") != driver_name or _key(entry) in allocated


def _key(entry: Json) -> tuple[str, ...]:
    return tuple(text_at(entry, name) for name in ("driver", "pool", "device", "shareID"))


def _network_condition(device: Device) -> JsonObject:
    interface = device.text("ifName")
    if interface:
        text = f"ostler moves no network interface: {interface} stays in the node's network namespace"
        return _condition("NetworkReady", False, "InterfaceNotMoved", text)
    text = f"the device has no network interface that could be moved (driver {device.text('driver') or 'none'})"
    return _condition("NetworkReady", False, "NoInterface", text)


def _condition(kind: str, status: bool, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def _facts(device: Device) -> JsonObject:
    found: JsonObject = {}
    for name in FACTS:
        content = device.pci_address if name == "pciAddress" else device.attribute(name)
        if content is not None:
            found[name] = str(content) if isinstance(content, Version) else content
    return found


def _timed(entry: JsonObject, old: JsonObject | None, now: float) -> JsonObject:
    """The entry with a time in each condition: the old entry's time if the status is the same."""
    conditions = entry["conditions"]
    earlier = (old or {}).get("conditions")
    known = {text_at(each, "type"): each for each in earlier} if isinstance(earlier, list) else {}
    timed: list[Json] = []
    for condition in conditions if isinstance(conditions, list) else []:
        before = known.get(text_at(condition, "type"), {})
        same = text_at(before, "status") == text_at(condition, "status")
        time = text_at(before, "lastTransitionTime") if same else ""
        timed.append({**object_at(condition), "lastTransitionTime": time or _timestamp(now)})
    return {**entry, "conditions": timed}


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
