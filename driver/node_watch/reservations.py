"""What claims of this node's pods were allocated here, before the kubelet asks for it: one GET for each named claim.

A pod that is bound to the node has its devices, whether or not the kubelet has begun with it; until its claims are
prepared, their reservations keep the plugin door from allocating the same devices. Nothing here lists or watches
claims. A claim is read when a pod first names it, when other pods name it than before, and again, less and less often,
as long as it cannot be read or no pod of the node may use it; ``driver.node_watch.reading`` decides which is next. An
answer stays until the claim is read again or no pod names it any more, so a silent API server frees no device.

A claim that is prepared by then for one of these pods needs no GET, because its record says the same. Where no
device is for both doors and none is divided by layouts, nobody asks for reservations in that moment: claims are read
``LEAD`` later, when most of them are prepared, and the starts of their pods do not pay for it.

A node's identity may at first be refused a claim: the Node authorizer learns about the pod a moment later. An unread
claim reserves nothing. No device is given twice because of that: preparation asks the ledger, which refuses a device
that a pod has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from driver.claims.allocation import allocated_devices
from driver.claims.model import AllocatedDevice, ClaimError, Unavailable
from driver.claims.record import ClaimRecord
from driver.devices.shares import is_shared, with_defaults
from driver.node_watch.pods import NodePod
from driver.node_watch.reading import Key, ReadingOrder, ReadPace, ReadResult, ReadTurn
from kube.bodies import JsonObject, object_at, one_line, text_at
from kube.errors import KubeError, RequestError
from node.clocks import SYSTEM, Clocks
from node.events import EventBus
from node.inventory.model import NIC_KINDS, Device, DeviceKind
from node.ledger.holds import Hold, HoldState, slices_of, wholes_of
from node.rules import Door, Rule, rule_for
from node.sharing import Amounts, whole_amounts
from node.values import Value, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi


log = logging.getLogger("ostler.claims")

READS = 4
"""Claims that are read at a time: preparation needs the other connections."""
LEAD = 1.0
"""Seconds from a pod's binding to the first read of its claims where no device is for both doors."""
SHOWN = 3
"""Most claims, and pods, that ``problems`` names; the rest is counted."""
_LONGEST = 400
"""Characters shown of an error."""


@value
class _Found(Value):
    """A claim that has devices here. ``since``: when its reservation was first seen, Unix seconds."""

    reservation: Reservation
    since: float


@value
class ReservationsChanged(Value):
    """The reservations of this node's pods, or the pods that may use a claim, have changed."""


PreparedClaims = Callable[[Key, frozenset[str]], ClaimRecord | None]
"""The record of the claim with that namespace and name, if it is prepared for one of these pods, by UID."""


def nothing_prepared(_: Key, __: frozenset[str]) -> None:
    """Every claim is read."""


class Reservations:
    """Reads the claims that pods name while ``run`` runs; for the event loop only.

    ``driver``, ``pool``: whose devices count. ``prepared``: finds claims that need no read. Publishes
    ``ReservationsChanged``.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        driver: str,
        pool: str,
        *,
        clocks: Clocks = SYSTEM,
        bus: EventBus,
        pace: ReadPace = ReadPace(),  # noqa: B008 - frozen
        prepared: PreparedClaims = nothing_prepared,
    ) -> None:
        self._api = api
        self._prepared = prepared
        self._driver = driver
        self._pool = pool
        self._wholes: dict[str, tuple[str, ...]] = {}
        """By name of a divided device, the names of its parts."""
        self._slices: dict[str, tuple[int, int] | None] = {}
        """By name of a MIG device, the memory slices that it takes of its GPU."""
        self._sizes: dict[str, Amounts] = {}
        """By name of a device that can be shared, its whole capacity."""
        self._defaults: dict[str, Amounts] = {}
        """By name of a device that its rule shares, the amount of a share unless its claim says otherwise."""
        self._bus = bus
        self._clock = clocks.clock
        self._monotonic = clocks.monotonic
        self._order = ReadingOrder(pace, clocks)
        self._found: dict[Key, _Found] = {}
        self._problems: dict[Key, str] = {}
        self._cut: dict[str, str] = {}
        """By UID, the report on pods that name more claims than are followed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._at_once = True

    def holds(self) -> dict[str, tuple[Hold, ...]]:
        """The reservations, by the claim's UID, in the order in which claims were first seen reserved."""
        return {found.reservation.uid: self._holds_of(key) for key, found in self._found.items()}

    @property
    def unread(self) -> tuple[str, ...]:
        """Claims (``namespace/name``) that pods of the node name and that could not be read yet."""
        return tuple("/".join(key) for key in self._order.unanswered)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why claims may be out of date: the first few by name, one line each, and how many more."""
        return (
            *_few(tuple(self._cut.values()), "pods name more claims than are read"),
            *_few(tuple(self._problems.values()), "claims cannot be read"),
        )

    def place(self, devices: Iterable[Device], rules: Collection[Rule] = ()) -> bool:
        """Take the node's devices, which of them are parts of others, and how rules share them.

        Returns whether ``holds`` may change.
        """
        devices = tuple(devices)
        before = self._wholes, self._slices, self._sizes, self._defaults
        self._wholes = {each.name: wholes for each in devices if (wholes := wholes_of(each))}
        self._slices = {each.name: slices_of(each) for each in devices if each.kind is DeviceKind.MIG}
        self._sizes = {each.name: whole_amounts(each) for each in devices if each.kind not in NIC_KINDS}
        self._defaults = _default_shares(devices, rules)
        return bool(self._found) and (self._wholes, self._slices, self._sizes, self._defaults) != before

    def read_at_once(self, *, at_once: bool) -> None:
        """Whether reservations matter in the moment in which a pod is bound; they do until this is called."""
        if at_once is not self._at_once:
            self._at_once = at_once
            self._order.set_lead(0.0 if at_once else LEAD, self._monotonic())
            self._woken.set()

    def apply(self, pods: Iterable[NodePod]) -> None:
        """Take the pods of the node that have not ended."""
        pods = tuple(pods)
        self._report_cut(pods)
        before = self._users()
        for key in self._order.apply(pods, self._monotonic()):
            self._problems.pop(key, None)
            self._found.pop(key, None)
        self._woken.set()
        if self._users() != before:
            self._bus.publish(ReservationsChanged())

    def _users(self) -> dict[Key, frozenset[str]]:
        """By claim, the pods that may come to use its devices."""
        return {key: self._order.users(key) for key in self._found}

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                self._woken.clear()
                due = self._begin()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - self._monotonic())):
                        await self._woken.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    def _begin(self) -> float | None:
        """Start the reads that are due; returns when the next one is, None if only a change can tell."""
        while len(self._tasks) < READS:
            now = self._monotonic()
            turn = self._order.take(now)
            if turn is None:
                return self._order.next_at(now)
            task = asyncio.create_task(self._read(turn), name="claim of a pod")
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._woken.set()

    async def _read(self, turn: ReadTurn) -> None:
        namespace, name = turn.key
        answer, heard, retry_after = ReadResult.LATER, False, None
        try:
            record = self._prepared(turn.key, self._order.users(turn.key))
            if record is not None:
                found: Reservation | None = reservation_of_record(record, self._pool)
            else:
                # One attempt: a failed read gets another turn here.
                body = await self._api.call(lambda api: api.claim(namespace, name, attempts=1))
                found = reservation_of(body, self._driver, self._pool)
        except (KubeError, Unavailable, ClaimError) as error:
            self._failed(turn, error)
            retry_after = error.retry_after if isinstance(error, RequestError) else None
        except Exception as error:
            # A mistake of ours: log and status report it, the last answer stays, and it is read again.
            log.exception("a claim of a pod cannot be read")
            self._failed(turn, error)
        else:
            heard = True
            answer = self._heard(turn, found)
        finally:
            self._order.done(turn, self._monotonic(), answer, heard=heard, retry_after=retry_after)

    def _heard(self, turn: ReadTurn, found: Reservation | None) -> ReadResult:
        """Take the API server's answer about a claim."""
        key = turn.key
        if not self._order.counts(turn):
            return ReadResult.ABSENT
        self._problems.pop(key, None)
        known = self._found.get(key)
        before = self._holds_of(key)
        if found is None or not found.devices:
            self._found.pop(key, None)
        else:
            since = known.since if known is not None and known.reservation.uid == found.uid else self._clock()
            self._found[key] = _Found(found, since)
        if self._holds_of(key) != before:
            self._bus.publish(ReservationsChanged())
        if found is not None and found.usable_by(self._order.users(key)):
            return ReadResult.SETTLED
        return ReadResult.LATER if key in self._found else ReadResult.ABSENT

    def _failed(self, turn: ReadTurn, error: Exception) -> None:
        key = turn.key
        problem = f"claim {'/'.join(key)} cannot be read: {one_line(str(error), _LONGEST)}"
        if self._order.counts(turn) and problem != self._problems.get(key):
            self._problems[key] = problem
            log.info("a claim of a pod will be read later", extra={"claim": "/".join(key), "error": str(error)})

    def _report_cut(self, pods: Iterable[NodePod]) -> None:
        """Report once that a pod names more claims than are read."""
        cut = {
            pod.uid: f"pod {pod} names {len(pod.claims) + pod.unlisted} claims, and only the first {len(pod.claims)} "
            "are read: the devices of the others are not reserved before the kubelet asks for them; name fewer claims"
            for pod in pods
            if pod.unlisted
        }
        for uid in cut.keys() - self._cut.keys():
            log.info("a pod names more claims than are read", extra={"problem": cut[uid]})
        self._cut = cut

    def _holds_of(self, key: Key) -> tuple[Hold, ...]:
        found = self._found.get(key)
        if found is None:
            return ()
        return tuple(
            Hold(
                device.device,
                Door.DRA,
                "/".join(key),
                found.since,
                owner=found.reservation.uid,
                share=device.share_id or "",
                admin=device.admin_access,
                within=self._wholes.get(device.device, ()),
                slices=self._slices.get(device.device),
                state=HoldState.RESERVED,
                amounts=self._amounts(device),
                whole=self._sizes.get(device.device, ()) if device.share_id is not None else (),
                pods=tuple(sorted(self._order.users(key))),
            )
            for device in found.reservation.devices
        )

    def _amounts(self, device: AllocatedDevice) -> Amounts:
        """The amount that a share takes of its device, as it will count when the claim is prepared."""
        if device.share_id is None:
            return device.amounts
        return tuple(sorted({**dict(self._defaults.get(device.device, ())), **dict(device.amounts)}.items()))


def _default_shares(devices: Iterable[Device], rules: Collection[Rule]) -> dict[str, Amounts]:
    if all(rule.sharing is None for rule in rules):
        return {}
    ruled = ((each, rule_for(each, rules)) for each in devices if each.kind not in NIC_KINDS)
    return {
        each.name: with_defaults((), each, rule.sharing)
        for each, rule in ruled
        if rule is not None and rule.sharing is not None and is_shared(each, rule.sharing)
    }


def _few(problems: tuple[str, ...], more: str) -> tuple[str, ...]:
    """The first problems, and how many more there are."""
    if len(problems) <= SHOWN:
        return problems
    return (*problems[:SHOWN], f"{len(problems) - SHOWN} more {more}")


@value
class Reservation(Value):
    """An allocated claim. ``devices``: those of our driver and pool; ``users``: UIDs that may use the claim.

    ``grouped``: it is reserved for something other than a pod (a PodGroup), whose pods it does not name.
    """

    uid: str
    devices: tuple[AllocatedDevice, ...] = ()
    users: frozenset[str] = frozenset()
    grouped: bool = False

    def usable_by(self, pods: frozenset[str]) -> bool:
        """Whether one of these pods may use the claim, as far as the claim shows."""
        return self.grouped or bool(self.users & pods)


def reservation_of(body: JsonObject | None, driver: str, pool: str) -> Reservation | None:
    """The claim's reservation, None if there is no claim or it is not allocated.

    Raises ``ClaimError`` if a field has a wrong type.
    """
    uid = text_at(body, "metadata", "uid")
    if body is None or not uid or not object_at(body, "status", "allocation"):
        return None
    listed = object_at(body, "status").get("reservedFor")
    users = listed if isinstance(listed, list) else []
    return Reservation(
        uid,
        tuple(device for device in allocated_devices(body, driver) if device.pool == pool),
        frozenset(text_at(each, "uid") for each in users),
        any(text_at(each, "resource") != "pods" for each in users),
    )


def reservation_of_record(record: ClaimRecord, pool: str) -> Reservation:
    """The reservation of a prepared claim."""
    devices = tuple(
        AllocatedDevice(each.request, each.pool, each.device, each.share_id, each.admin_access, each.amounts)
        for each in record.devices
        if each.pool == pool
    )
    return Reservation(record.claim.uid, devices, frozenset(record.users))
