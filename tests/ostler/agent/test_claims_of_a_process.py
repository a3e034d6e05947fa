"""Claims outlive what happens to the agent's process and to the kubelet: kill, hand-over, restart, new rules."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.recording import many_gpus
from node.kubelet.dra_state import DraState, encode
from sandbox.kubelet.dra.drivers import Wiping
from sandbox.process import AgentProcess
from tests.making import forked_ostler
from tests.ostler.agent.claimed_node import CLAIMED, GPU, PLUGIN, ClaimedNode
from tests.waiting import eventually

CLAIMS = 20


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    return many_gpus(tmp_path / "gpus.yaml", 32)


async def start_pods(box: ClaimedNode, numbers: Iterable[int]) -> list[str]:
    """Start so many pods one after the other, as a scheduler allocates; names of those that do not run yet."""
    outcomes = [await box.run_pod(f"p{number}") for number in numbers]
    return [outcome.pod for outcome in outcomes if not outcome.running]


async def check_all(box: ClaimedNode, count: int) -> None:
    """Every claim is prepared and none shares a device with another."""
    claims = (await box.claims()).values()
    devices = [device["device"] for claim in claims for device in claim["devices"]]
    assert [claim["state"] for claim in claims] == ["prepared"] * count
    assert len(set(devices)) == len(devices) == count
    assert len(box.cdi_files()) == count


async def test_agent_killed_while_twenty_claims_are_prepared_prepares_them_all_in_the_end(crowd: Path) -> None:
    async with ClaimedNode(crowd) as box:
        # All are allocated and wait for the driver, whose question is not answered.
        fault = box.api.faults.add("get", "hang", count=-1, resource="resourceclaims", by="ostler")
        first = asyncio.create_task(box.run_pod("p0"))
        await eventually(lambda: fault.hits, "the driver has begun")
        box.api.faults.clear()
        assert (await first).running
        pods = asyncio.create_task(start_pods(box, range(1, CLAIMS)))
        await eventually(lambda: len(box.cdi_files()) >= 5, "some are prepared")
        await box.agent.stop(signal.SIGKILL)
        await box.agent.start()
        for name in await pods:
            await box.runs_in_the_end(name)
        await check_all(box, CLAIMS)
        for number in range(CLAIMS):
            await box.control.end(f"p{number}")
        assert not await box.claims()
        assert not box.cdi_files()
        assert not list((box.root / "state" / "claims").glob("*.json"))


async def test_twenty_claims_at_once_and_a_kill_among_them(crowd: Path) -> None:
    async with ClaimedNode(crowd) as box:
        assert await start_pods(box, range(CLAIMS)) == []
        pods = [box.pod(f"p{number}") for number in range(CLAIMS)]
        ending = asyncio.gather(*(box.kubelet.end(pod) for pod in pods), return_exceptions=True)
        await eventually(lambda: len(box.cdi_files()) < CLAIMS, "some are released")
        await box.agent.stop(signal.SIGKILL)
        await box.agent.start()
        await ending

        async def released() -> bool:
            found = await asyncio.gather(*(box.kubelet.end(pod) for pod in pods), return_exceptions=True)
            return not any(found)

        await eventually(released, "all are released", within=120)
        assert not [claim for claim in (await box.claims()).values() if claim["state"] != "refused"]
        assert not box.cdi_files()


async def test_standby_takes_over_while_claims_are_prepared_and_none_is_refused(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kubelet changes over whenever this machine comes to it.
    monkeypatch.setenv(forked_ostler.LINGER, "60")
    async with ClaimedNode(crowd) as box:
        await box.running("before")
        standby = AgentProcess(
            box.agent.flags, arguments=["--config", str(box.root / "ostler.yaml")], log=tmp_path / "standby.log"
        )
        await standby.spawn()
        try:
            log = tmp_path / "standby.log"
            await eventually(lambda: "standby: another instance" in log.read_text(), "a standby waits")
            pods = asyncio.create_task(start_pods(box, range(CLAIMS)))
            await eventually(lambda: len(box.cdi_files()) >= 4, "under load")
            assert await asyncio.wait_for(box.agent.stop(), 120) == 0
            assert await asyncio.wait_for(pods, 120) == []
            await standby.answered()
            assert "the kubelet has changed over" in box.said()
            assert "not prepared" not in log.read_text()
            answer = await standby.claims()
            assert sorted(claim.state for claim in answer.claims) == ["prepared"] * (CLAIMS + 1)
            assert len({device.device for claim in answer.claims for device in claim.devices}) == CLAIMS + 1
            await asyncio.wait_for(box.kubelet.end(box.pod("before")), 120)
            assert len(box.cdi_files()) == CLAIMS
            assert len(list(box.registry.glob("*-reg.sock"))) == len(list(box.driver_folder.glob("dra-*.sock"))) == 1
        finally:
            await standby.stop()


async def test_kubelet_that_is_restarted_finds_the_driver_and_its_claims() -> None:
    async with ClaimedNode() as box:
        await box.running("p")
        files = box.cdi_files()
        for _ in range(3):
            await box.kubelet.restart()
            await eventually(lambda: _registered(box), "registered again")
        await eventually(lambda: len(box.stored()) == 8, "slices are back", within=120)
        assert box.cdi_files() == files
        await box.running("q")
        for name in ("p", "q"):
            await box.control.end(name)
        assert not box.cdi_files()


async def _registered(box: ClaimedNode) -> bool:
    drivers = box.kubelet.dra.drivers.instances("ostler.dev")
    return any(each.connected for each in drivers) and (await box.door()).registration == "registered"


async def _hup(box: ClaimedNode, *resources: object) -> None:
    reloads = box.said().count("configuration read again")
    box.reconfigure(*resources)  # type: ignore[arg-type]
    box.agent.send(signal.SIGHUP)
    await eventually(lambda: box.said().count("configuration read again") > reloads, "read again")


async def test_first_rule_for_claims_opens_the_dra_door_without_a_restart() -> None:
    async with ClaimedNode(resources=[PLUGIN]) as box:
        assert not (await box.agent.status()).HasField("dra")
        await box.kubelet.wait_for(GPU, healthy=8)
        await _hup(box, CLAIMED)
        await eventually(lambda: _registered(box), "registered", within=120)
        await eventually(lambda: len(box.stored()) == 8, "published", within=120)
        await eventually(lambda: box.kubelet.capacity().allocatable.get(GPU, 0) == 0, "not at the first door any more")
        await eventually(lambda: not box.tainted(), "offered at the second", within=120)
        await box.running("p")


async def test_last_rule_for_claims_that_goes_leaves_claims_in_order_until_they_are_released() -> None:
    async with ClaimedNode() as box:
        held = await box.running("p")
        (device,) = (name.rpartition("/")[2] for names in held.claims.values() for name in names)
        await _hup(box, PLUGIN)
        await eventually(lambda: len(box.stored()) == 1, "only the device that is held is published", within=120)
        await box.kubelet.wait_for(GPU, healthy=7)
        devices = {str(each["name"]): each for each in await box.devices()}
        assert str(devices[device]["offer_reason"]).startswith(
            f"held through the dra door by default/{next(iter(held.claims))} "
        )
        # Once more after a restart: no rule wants the door, and the claim needs it.
        await box.restart_agent()
        await eventually(lambda: _registered(box), "registered", within=120)
        await asyncio.wait_for(box.control.end("p"), 120)
        assert not box.cdi_files()
        await box.kubelet.wait_for(GPU, healthy=8, within=120)
        await box.restart_agent()
        await box.registered()

        async def is_without_claims() -> bool:
            return not (await box.agent.status()).HasField("dra")

        await eventually(is_without_claims, "the door for claims is not needed")
        assert not list(box.registry.glob("ostler.dev*"))


async def test_claim_that_went_while_the_agent_was_away_is_released_by_itself() -> None:
    async with ClaimedNode() as box:
        outcome = await box.running("p")
        await box.agent.stop(signal.SIGKILL)
        await box.kubelet.stop()
        (box.root / "kubelet" / "dra_manager_state").write_bytes(encode(DraState()))
        (name,) = outcome.claims
        box.api.store.patch("resourceclaims", name, {"metadata": {"finalizers": None}})
        box.api.store.delete("resourceclaims", name)
        await box.kubelet.start()
        await box.agent.start()
        # The first look is within five seconds of the start; the disk comes before what is shown.
        await eventually(lambda: not box.cdi_files(), "released", within=120)

        async def is_forgotten() -> bool:
            return not await box.claims()

        await eventually(is_forgotten, "forgotten")
        assert "claim released: no pod uses it any more" in box.said()


async def test_thousand_devices_are_published_claimed_and_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A kubelet deletes the slices of a driver that is away for half a minute, which a restart here may take.
    monkeypatch.setattr(Wiping, "absent", lambda *_: None)
    async with ClaimedNode(many_gpus(tmp_path / "gpus.yaml", 1000)) as box:
        assert len(box.stored()) == 1000
        door = await box.door()
        assert (door.devices, door.published, door.problem) == (1000, 1000, "")
        writes = len(box.slice_writes())
        assert writes == 16
        await box.running("p")
        await box.agent.rescan()
        await box.restart_agent()
        await box.registered()
        await box.control.end("p")
        assert len(box.slice_writes()) == writes, "nothing has changed"
