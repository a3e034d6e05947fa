"""Claims that lost their device to a pod: who counts as one, since when, and until when."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.admission import DeviceLost, Losers
from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimError, Unavailable
from driver.claims.service import ClaimService
from node.events import EventBus
from node.ledger.events import ClaimRefused
from node.ledger.holds import HeldError, Hold, HoldState, plugin_owner
from node.ledger.ledger import Ledger
from node.rules import Door
from node.values import replace
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu
from tests.making.offered_devices import mig


def pods(device: str, state: HoldState = HoldState.LISTED, within: tuple[str, ...] = ()) -> Hold:
    return Hold(device, Door.PLUGIN, "team/pod", 1.0, plugin_owner(device), within=within, state=state)


def claims(device: str, uid: str = "uid-1", state: HoldState = HoldState.RESERVED, *, admin: bool = False) -> Hold:
    return Hold(device, Door.DRA, "team/claim", 1.0, uid, state=state, admin=admin)


class _Heard:
    """What was told of conflicts on ``bus``, by claim and device."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.bus = EventBus()
        self.bus.subscribe(DeviceLost, self._lost)

    def _lost(self, lost: DeviceLost) -> None:
        self.told.append((lost.uid, lost.error.wanted.device))


def taken_by(*holds: Hold) -> Ledger:
    ledger = Ledger()
    for hold in holds:
        ledger.restore(hold.owner, [hold])
    return ledger


def lose(losers: Losers, wanted: Hold, by: Hold) -> bool:
    return losers.lost(wanted.owner, wanted.holder, HeldError(wanted, by))


def test_a_device_is_contested_while_a_live_pod_has_it_and_a_claim_waits() -> None:
    losers, ledger = Losers(EventBus()), taken_by(pods(GPU0))
    assert losers.contested(ledger) == frozenset()
    lose(losers, claims(GPU0), pods(GPU0))
    assert losers.contested(ledger) == {GPU0}
    assert losers.by_device(ledger) == {GPU0: ("team/claim",)}
    losers.settled("uid-1")
    assert losers.contested(ledger) == frozenset()
    assert losers.by_device(ledger) == {}


def test_whoever_asks_which_claims_wait_changes_nothing() -> None:
    losers, ledger = Losers(EventBus()), taken_by(pods(GPU0))
    lose(losers, claims(GPU0), pods(GPU0))
    assert losers.by_device(Ledger()) == {}
    assert losers.by_device(ledger) == {GPU0: ("team/claim",)}


@pytest.mark.parametrize("state", [HoldState.ALLOCATED, HoldState.RECORDED])
def test_no_claim_is_evicted_before_the_pod_is_proved_to_live(state: HoldState) -> None:
    losers, ledger = Losers(EventBus()), taken_by(pods(GPU0, state))
    lose(losers, claims(GPU0), pods(GPU0, state))
    assert losers.contested(ledger) == frozenset()
    ledger.restore(plugin_owner(GPU0), [pods(GPU0)])
    assert losers.contested(ledger) == {GPU0}


def test_nobody_loses_a_device_that_is_about_to_be_free() -> None:
    losers = Losers(EventBus())
    drains = Hold(GPU0, None, "process 7", 1.0, "draining/x", state=HoldState.PENDING_RELEASE)
    for by in (drains, pods(GPU0, HoldState.PENDING_RELEASE), claims(GPU0, "uid-2", HoldState.PREPARED)):
        assert not lose(losers, claims(GPU0), by)
    assert losers.by_device(taken_by(pods(GPU0))) == {}


def test_who_only_looks_never_loses() -> None:
    losers, ledger = Losers(EventBus()), taken_by(pods(GPU0))
    assert not lose(losers, claims(GPU0, admin=True), pods(GPU0))
    assert losers.contested(ledger) == frozenset()


def test_a_conflict_ends_with_the_pods_hold_and_the_next_one_is_another() -> None:
    heard = _Heard()
    losers, ledger = Losers(heard.bus), taken_by(pods(GPU0))
    assert lose(losers, claims(GPU0), pods(GPU0))
    assert not lose(losers, claims(GPU0), pods(GPU0))
    ledger.release(plugin_owner(GPU0))
    assert losers.by_device(ledger) == {}, "also for whoever asks this first"
    assert losers.contested(ledger) == frozenset()
    assert lose(losers, claims(GPU0), pods(GPU0))
    assert heard.told == [("uid-1", GPU0), ("uid-1", GPU0)]


def test_no_pod_with_a_prepared_claim_is_evicted_with_the_one_that_waits() -> None:
    prepared = claims(GPU0, "uid-2", HoldState.PREPARED)
    losers, ledger = Losers(EventBus()), taken_by(prepared, pods(GPU0))
    lose(losers, claims(GPU0), pods(GPU0))
    assert losers.contested(ledger) == frozenset()
    ledger.release("uid-2")
    assert losers.contested(ledger) == {GPU0}


@pytest.mark.parametrize(
    ("prepared", "contested"),
    [
        (claims(GPU0, "uid-2", HoldState.PREPARED, admin=True), {GPU0}),
        (claims(GPU0, "uid-1", HoldState.PREPARED), set()),
        (claims(GPU1, "uid-2", HoldState.PREPARED), {GPU0}),
        (claims(GPU0, "uid-2", HoldState.RESERVED), {GPU0}),
    ],
)
def test_only_a_prepared_claim_that_uses_the_device_keeps_the_one_that_waits_from_being_evicted(
    prepared: Hold, contested: set[str]
) -> None:
    losers, ledger = Losers(EventBus()), taken_by(prepared, pods(GPU0))
    lose(losers, claims(GPU0), pods(GPU0))
    assert losers.contested(ledger) == contested


def test_a_claim_for_a_gpu_loses_to_a_pod_that_has_a_part_of_it() -> None:
    part = pods("mig-0", within=(GPU0,))
    losers, ledger = Losers(EventBus()), taken_by(part)
    lose(losers, claims(GPU0), part)
    assert losers.contested(ledger) == {GPU0}, "the device that the claim names is the one to be tainted"


STATES = st.sampled_from([HoldState.ALLOCATED, HoldState.LISTED, HoldState.RECORDED, HoldState.PENDING_RELEASE])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.sampled_from([GPU0, GPU1]), STATES),
        st.tuples(st.just("free"), st.sampled_from([GPU0, GPU1])),
        st.tuples(st.just("lose"), st.sampled_from([GPU0, GPU1]), st.sampled_from(["a", "b"])),
        st.tuples(st.just("settle"), st.sampled_from(["a", "b"])),
    ),
    max_size=30,
)


@given(STEPS)
def test_contested_is_what_a_listed_pod_has_and_a_claim_that_is_not_settled_waits_for(
    steps: list[tuple[str, ...]],
) -> None:
    losers, ledger = Losers(EventBus()), Ledger()
    waiting: set[tuple[str, str]] = set()
    for step in steps:
        if step[0] == "hold":
            ledger.restore(plugin_owner(step[1]), [pods(step[1], HoldState(step[2]))])
        elif step[0] == "free":
            ledger.release(plugin_owner(step[1]))
        elif step[0] == "lose":
            wanted = claims(step[1], step[2])
            by = ledger.obstacle(wanted)
            if by is not None and (lose(losers, wanted, by) or by.state is not HoldState.PENDING_RELEASE):
                waiting.add((step[2], step[1]))
        else:
            losers.settled(step[1])
            waiting = {pair for pair in waiting if pair[0] != step[1]}
        states = {hold.device: hold.state for hold in ledger.all}
        waiting = {
            pair for pair in waiting if states.get(pair[1], HoldState.PENDING_RELEASE) is not HoldState.PENDING_RELEASE
        }
        assert losers.contested(ledger) == {device for _, device in waiting if states[device] is HoldState.LISTED}


class _Counter(ClaimObserver):
    """Counts lost devices."""

    def __init__(self) -> None:
        self.losses = 0

    def lost(self) -> None:
        self.losses += 1


async def losing(node: ClaimNode, **more: object) -> ClaimService:
    """A service whose claim 1 has just lost its device."""
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(**more)
    service.ledger.take(plugin_owner(GPU0), [pods(GPU0)])
    with pytest.raises(Unavailable):
        await service.prepare(reference())
    return service


async def test_a_refused_claim_is_told_and_counted_once_however_often_the_kubelet_asks(node: ClaimNode) -> None:
    counter = _Counter()
    service = await losing(node, observer=counter)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await service.prepare(reference())
    assert service.contested() == {GPU0}
    assert service.losers() == {GPU0: ("default/claim-1",)}
    assert counter.losses == 1
    why = f"device {GPU0} is held through the plugin door by team/pod"
    assert node.events.of("ClaimLostDevice") == [
        f"claim default/claim-1 (uid-1) was allocated a device that it cannot have: {why}"
    ]


async def test_whoever_shows_the_devices_hears_of_the_loss_and_of_its_end(node: ClaimNode) -> None:
    service = await losing(node)
    before = node.changes
    assert before > 0
    service.settled("uid-1")
    assert node.changes == before + 1
    assert service.contested() == frozenset()


async def test_a_claim_that_is_released_has_lost_nothing(node: ClaimNode) -> None:
    service = await losing(node)
    await service.unprepare(reference())
    assert service.contested() == frozenset()
    service.ledger.bus.publish(ClaimRefused("uid-1", HeldError(claims(GPU0), pods(GPU0))))
    assert service.contested() == frozenset(), "its pod is still there, and the kubelet is done with it"


async def test_a_claim_that_is_asked_for_again_after_its_release_can_lose(node: ClaimNode) -> None:
    service = await losing(node)
    await service.unprepare(reference())
    node.kubelet_knows(1)
    with pytest.raises(Unavailable):
        await service.prepare(reference())
    assert service.contested() == {GPU0}


async def test_a_claim_that_gets_its_device_after_all_has_not_lost_it(node: ClaimNode) -> None:
    service = await losing(node)
    service.ledger.release(plugin_owner(GPU0))
    await service.prepare(reference())
    assert service.losers() == {}


async def test_a_reservation_that_is_refused_is_a_loss_before_the_kubelet_asks(node: ClaimNode) -> None:
    service = await node.started()
    service.ledger.take(plugin_owner(GPU0), [pods(GPU0)])
    for error in service.ledger.reserve("uid-1", [claims(GPU0)]):
        service.ledger.bus.publish(ClaimRefused("uid-1", error))
    assert service.contested() == {GPU0}
    assert service.losers() == {GPU0: ("team/claim",)}


async def test_a_prepared_claim_has_lost_nothing_whatever_is_said_of_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    service.ledger.restore(plugin_owner(GPU0), [pods(GPU0)])
    service.ledger.bus.publish(ClaimRefused("uid-1", HeldError(claims(GPU0), pods(GPU0))))
    assert service.losers() == {}


async def test_a_claim_released_while_it_is_refused_is_no_loser(node: ClaimNode) -> None:
    node.reader.gate = asyncio.Event()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    service.ledger.take(plugin_owner(GPU0), [pods(GPU0)])
    asking = asyncio.create_task(service.prepare(reference()))
    await asyncio.sleep(0)
    await service.unprepare(reference())
    node.reader.gate.set()
    with pytest.raises(ClaimError, match="was released while it was being prepared"):
        await asking
    assert service.losers() == {}


async def test_all_that_a_claim_lost_is_told(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1, "b")))
    service = await node.started()
    service.ledger.take_each([pods(GPU0), pods(GPU1)])
    with pytest.raises(Unavailable):
        await service.prepare(reference())
    assert service.contested() == {GPU0, GPU1}


async def test_a_claim_for_a_gpu_whose_part_a_pod_has_is_refused_at_once(node: ClaimNode) -> None:
    part = mig(0, 0)
    node.with_options(device_wait=30.0)
    node.devices = (offered(gpu(0)), offered(part))
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    service.ledger.take(plugin_owner(part.name), [replace(pods(part.name), within=(GPU0,))])
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match=f"device {GPU0}, whose part {part.name} is held through the plugin door"):
            await service.prepare(reference())
    assert service.contested() == {GPU0}


def share(hold: Hold, name: str, percent: int) -> Hold:
    return replace(hold, share=name, amounts=(("compute", percent),), whole=(("compute", 100),))


def test_a_claim_that_pods_shares_leave_too_little_for_has_lost_until_one_of_them_ends() -> None:
    heard = _Heard()
    losers, ledger = Losers(heard.bus), Ledger()
    for number in range(3):
        hold = replace(share(pods(GPU0), str(number), 25), owner=plugin_owner(GPU0, str(number)))
        ledger.restore(hold.owner, [hold])
    wanted = share(claims(GPU0), "s", 50)
    error = ledger.conflict(wanted)
    assert error is not None
    assert losers.lost("uid-1", "team/claim", error)
    assert losers.by_device(ledger) == {GPU0: ("team/claim",)}
    assert losers.contested(ledger) == {GPU0}
    other = share(claims(GPU0, "uid-2", HoldState.RESERVED), "t", 25)
    ledger.take("uid-2", [other])
    assert losers.contested(ledger) == frozenset(), "the taint would evict that claim's pods, too"
    assert losers.by_device(ledger) == {GPU0: ("team/claim",)}
    ledger.release("uid-2")
    ledger.release(plugin_owner(GPU0, "0"))
    assert losers.by_device(ledger) == {}
    assert heard.told == [("uid-1", GPU0)]
