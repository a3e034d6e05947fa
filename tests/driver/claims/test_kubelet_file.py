"""The kubelet's file, also as a container sees it that was given the file alone: the one that it began with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.contracts import ClaimStep
from driver.claims.kubelet import KubeletClaims, KubeletFile, read_kubelet_claims
from driver.claims.model import ClaimReadForbidden, Unavailable
from node.clocks import SystemClocks
from node.kubelet.dra_state import FILE_NAME, ClaimInfo, DeviceState, DraState, encode
from tests.making.claim_service import DRIVER, GPU0, GPU1, POOL, ClaimNode, DieAt, Killed, claim, reference, result

MISSING = KubeletClaims({}, "missing")
STALE = KubeletClaims({}, "replaced", stale=True)


@pytest.fixture
def container(node: ClaimNode) -> Iterator[Callable[[], None]]:
    """Begins a container of the driver on the node: what it sees of the kubelet's file is what is there now."""
    with ExitStack() as mounts:

        def begin() -> None:
            mounts.enter_context(node.in_a_container())

        yield begin


def _file(*uids: str) -> KubeletClaims:
    return KubeletClaims({uid: ClaimInfo(uid, uid, "default") for uid in uids})


def test_a_file_that_the_kubelet_has_replaced_is_told_from_one_that_is_new(node: ClaimNode) -> None:
    node.kubelet_knows(1)
    with node.in_a_container():
        assert read_kubelet_claims(node.options.kubelet_root).lacks("any")
        node.kubelet_knows()
        found = read_kubelet_claims(node.options.kubelet_root)
    assert not found.lacks("any")
    seen = node.options.kubelet_root / FILE_NAME
    assert (found.stale, found.fault) == (True, f"{seen} was replaced since this container started")


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_whatever_is_in_the_file_is_claims_or_a_fault(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("kubelet")
    (root / FILE_NAME).write_bytes(content)
    found = read_kubelet_claims(root)
    assert found.fault or not found.claims


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"Data":1}', b'{"Data":"{}","Checksum":-1}', b"\x00" * 4096])
def test_garbage_in_the_file_is_a_fault_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert f"{tmp_path / FILE_NAME} cannot be used: " in read_kubelet_claims(tmp_path).fault


async def test_what_an_old_file_said_counts_for_what_was_not_asked_for_since() -> None:
    said = [_file("a"), STALE, STALE, STALE]

    async def read() -> KubeletClaims:
        return said.pop(0)

    file = KubeletFile(read)
    file.asked("early")
    assert (await file.claims()).lacks("early"), "asked for before the file was read, and not in it"
    file.asked("b")
    known = await file.claims()
    assert (known.lacks("a"), known.lacks("b"), known.lacks("c")) == (False, False, True)
    file.released("b")
    assert (await file.claims()).lacks("b")
    file.asked("b")
    assert not (await file.claims()).lacks("b")


async def test_what_is_asked_for_while_the_file_is_read_is_not_known_from_it() -> None:
    async def read() -> KubeletClaims:
        file.asked("a")
        return _file()

    file = KubeletFile(read)
    assert not (await file.claims()).lacks("a")


async def test_an_old_file_that_was_never_seen_new_says_nothing_nor_does_a_missing_one() -> None:
    said = [STALE, _file(), MISSING]

    async def read() -> KubeletClaims:
        return said.pop(0)

    file = KubeletFile(read)
    assert not (await file.claims()).lacks("a")
    assert (await file.claims()).lacks("a")
    assert not (await file.claims()).lacks("a")


async def test_a_later_reading_is_not_undone_by_an_earlier_one_that_took_longer() -> None:
    async def read() -> KubeletClaims:
        if said:
            found = said.pop(0)
            file.asked("a")
            await file.claims()
            return found
        return STALE if ended else _file("a")

    ended, said = False, [_file()]
    file = KubeletFile(read)
    assert not (await file.claims()).lacks("a")
    ended = True
    assert not (await file.claims()).lacks("a"), "the later reading had it"


async def test_claims_of_an_earlier_container_are_released_on_what_the_file_said_at_the_begin(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.kubelet_knows(2)
    container()
    service = await node.started()
    node.kubelet_knows(2, 3)
    assert await service.collect() == 0, "the API server gives it to a pod"
    node.reader.drop(1)
    assert await service.collect() == 1
    assert node.events.events == []


async def test_a_claim_that_was_in_the_file_at_the_begin_stays(node: ClaimNode, container: Callable[[], None]) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.kubelet_knows(1)
    container()
    service = await node.started()
    node.reader.drop(1)
    node.reader.put(claim(2, result(GPU0)))
    with pytest.raises(Unavailable):
        await service.prepare(reference(2))
    assert await service.collect() == 0
    assert node.events.events == [], "the kubelet has it, as can be seen"
    node.kubelet_knows()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        assert await service.collect() == 0
    assert len(node.events.of("ClaimLeftBehind")) == 1


async def test_a_container_that_never_saw_the_file_new_says_so_when_it_matters(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    node.kubelet_knows()
    container()
    node.kubelet_knows(1)
    service = await node.started()
    await service.prepare(reference())
    node.reader.drop(1)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        assert await service.collect() == 0
    [told] = node.events.of("ClaimLeftBehind")
    assert told.endswith("dra_manager_state was replaced since this container started; restart this agent's container")
    assert node.events.of("KubeletClaimsUnknown") == [], "every node would say so"


async def test_a_call_without_time_to_wait_still_has_the_holder_looked_at(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.with_options(device_wait=0.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.kubelet_knows()
    container()
    service = await node.started()
    node.kubelet_knows(1)
    await service.prepare(reference())
    node.reader.drop(1)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        await service.collect()
    assert len(node.events.of("ClaimLeftBehind")) == 1


@pytest.mark.parametrize("fault", ["", "the API server does not answer"])
async def test_a_claim_that_was_asked_for_since_stays_until_the_next_container(
    node: ClaimNode, container: Callable[[], None], fault: str
) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.kubelet_knows()
    container()
    service = await node.started()
    node.kubelet_knows(1)
    node.reader.fault = fault
    await service.prepare(reference())
    node.reader.fault = ""
    node.reader.drop(1)
    assert await service.collect() == 0
    assert node.events.events == [], "nobody waits for it"
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"held through the dra door by default/claim-1"):
            await service.prepare(reference(2))
        assert await service.collect() == 0
    [told] = node.events.of("ClaimLeftBehind")
    assert told == (
        f"claim default/claim-1 (uid-1) keeps {GPU0}, though according to the API server no pod uses it, but "
        "the kubelet has not released it, and its record cannot be read: only an old version of the kubelet's file is "
        "visible here; restart this agent's container"
    )
    with pytest.raises(Unavailable):
        await service.prepare(reference(2))
    assert await service.collect() == 0
    assert len(node.events.events) == 1, "it is told once"
    await service.close()
    node.kubelet_knows()
    container()
    service = await node.started()
    assert await service.collect() == 1
    assert len(await service.prepare(reference(2))) == 1


async def test_a_claim_that_waits_for_one_in_use_is_no_news(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    with pytest.raises(Unavailable):
        await service.prepare(reference(2))
    await service.collect()
    assert node.events.of("ClaimLeftBehind") == []
    node.reader.drop(1)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        await service.collect()
    assert node.events.of("ClaimLeftBehind")[0].endswith("cannot be used: No such file or directory; fix that")


async def test_a_claim_that_cannot_be_asked_for_keeps_no_other_from_being_told_of(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)), claim(3, result(GPU0)), claim(4, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    node.reader.drop(2)
    node.reader.faults["claim-1"] = Unavailable("the API server does not answer")
    for _ in range(2):
        for number in (3, 4):
            with pytest.raises(Unavailable):
                await service.prepare(reference(number))
        assert await service.collect() == 0
    [told] = node.events.of("ClaimLeftBehind")
    assert told.startswith("claim default/claim-2 ")


async def test_a_claim_that_the_account_may_not_read_is_told_of_when_another_one_waits_for_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.kubelet_knows()
    node.reader.faults["claim-1"] = ClaimReadForbidden("claim-1 is refused", "no relationship found")
    assert await service.collect() == 0
    assert node.events.events == [], "nobody waits for it"
    for _ in range(2):
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        assert await service.collect() == 0
    [told] = node.events.of("ClaimLeftBehind")
    assert told == (
        f"claim default/claim-1 (uid-1) keeps {GPU0}, though the kubelet has not released it and the API server does "
        "not let this agent see whether a pod has it: no relationship found; give the agent's account the verb get "
        "on resourceclaims by a ClusterRole"
    )
    node.reader.faults.clear()
    node.reader.drop(1)
    assert await service.collect() == 1, "it has the verb now"


async def test_the_kubelet_gets_two_minutes_before_people_are_told(node: ClaimNode) -> None:
    passed = 0.0
    node.with_options(kubelet_release=120.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started(clocks=SystemClocks(monotonic=lambda: time.monotonic() + passed))
    await service.prepare(reference())

    async def waited_for() -> int:
        with pytest.raises(Unavailable):
            await service.prepare(reference(2))
        await service.collect()
        return len(node.events.of("ClaimLeftBehind"))

    node.reader.drop(1)
    assert await waited_for() == 0
    passed = 60.0
    assert await waited_for() == 0
    node.reader.put(claim(1, result(GPU0)))
    passed = 121.0
    assert await waited_for() == 0, "somebody has it again"
    node.reader.drop(1)
    assert await waited_for() == 0
    passed = 242.0
    assert await waited_for() == 1
    await service.unprepare(reference())
    node.reader.put(claim(1, result(GPU0)))
    await service.prepare(reference())
    node.reader.drop(1)
    assert await waited_for() == 1
    passed = 363.0
    assert await waited_for() == 2, "it was another time"


async def test_a_claim_of_an_earlier_boot_goes_by_the_api_server_where_the_file_cannot_be_read(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    node.reader.drop(1)
    assert await service.collect() == 0
    node.boot = "boot-2"
    service = await node.started()
    assert await service.collect() == 1
    assert {hold.owner for hold in service.ledger.all} == {"uid-2"}


async def test_a_claim_that_is_known_from_the_file_alone_does_not_go_by_the_api_server(node: ClaimNode) -> None:
    node.kubelet_knows(1, devices={1: (GPU0,)})
    service = await node.started()
    node.kubelet_file.unlink()
    await service.collect()
    assert {hold.owner for hold in service.ledger.all} == {"uid-1"}, "a container may have it, answered by whomever"
    service = await node.started()
    assert await service.collect() == 0, "nor after a restart"


async def test_a_uid_in_the_file_that_is_none_makes_no_file(node: ClaimNode) -> None:
    info = ClaimInfo("../../evil", "claim-1", "default", ("pod-1",), {DRIVER: (DeviceState(POOL, GPU0),)})
    node.kubelet_file.write_bytes(encode(DraState((info,))))
    service = await node.started()
    assert service.records() == ()
    assert not list(node.root.rglob("evil*"))


async def test_a_late_duplicate_is_not_refused_by_a_file_that_is_too_old(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    node.kubelet_knows()
    container()
    service = await node.started()
    node.kubelet_knows(1)
    await service.prepare(reference())
    await service.unprepare(reference())
    assert len(await service.prepare(reference())) == 1, "it may have come back for good"


async def test_what_is_left_of_a_released_claim_is_swept_in_a_container_too(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    node.kubelet_knows()
    container()
    service = await node.started()
    node.kubelet_knows(1)
    await service.prepare(reference())
    left = next((node.root / "cdi").iterdir())
    await service.unprepare(reference())
    left.write_text("{}")
    await service.collect()
    assert not left.exists()


async def test_a_kill_before_the_answer_leaves_nothing_in_a_container_either(
    node: ClaimNode, container: Callable[[], None]
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    node.kubelet_knows()
    container()
    with pytest.raises(Killed):
        await (await node.started(steps=DieAt(ClaimStep.DESCRIBED))).prepare(reference())
    node.kubelet_knows(2)
    service = await node.started()
    node.reader.drop(1)
    assert await service.collect() == 1
