"""``ostler status``: the DRA door's line, and what it says when claims cannot be served."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from driver.claims.model import ClaimState
from driver.door.registration import DoorStatus, RegistrationState
from driver.nri.status import NriState, NriStatus
from ostler.admin.dra import door_message, unpublished
from protos.agent.v1alpha1.agent_pb2 import Claim, DraStatus, ListClaimsResponse, ListSlicesResponse, Pool, PoolDevice
from sandbox.nodes import path
from tests.making.commands import command
from tests.ostler.agent.claimed_node import CLAIMED, ClaimedNode
from tests.waiting import eventually

STATES = {"gpu-0": "published", "gpu-1": "missing", "gpu-2": "surplus", "gpu-3": "withheld"}
POOL = Pool(
    name="worker-1",
    slices=1,
    devices=[PoolDevice(name=name, state=state) for name, state in STATES.items()],
    problem="the API server does not answer",
)
SLICES = ListSlicesResponse(driver="ostler.dev", pools=[POOL])
CLAIMS = ListClaimsResponse(claims=[Claim(name=state, uid=state, state=state) for state in ClaimState])


@pytest.fixture
async def box() -> AsyncIterator[ClaimedNode]:
    async with ClaimedNode() as started:
        yield started


async def ostler(*words: str) -> str:
    done = await command(*words)
    assert done.code == 0, done.err
    return done.out


def row(out: str) -> list[str]:
    """The cells of the DRA door's line."""
    return next(line for line in out.splitlines() if line.startswith("ostler.dev ")).split(maxsplit=5)


async def test_status_tells_devices_registration_and_claims_of_the_dra_door(box: ClaimedNode) -> None:
    await box.running("p")
    socket = box.agent.flags["--socket"]
    out = await ostler("status", "--socket", socket)
    header = next(line for line in out.splitlines() if line.startswith("DRA DRIVER"))
    assert header.split() == ["DRA", "DRIVER", "PUBLISHED", "REGISTRATION", "CLAIMS", "SOCKET", "DETAIL"]
    (claims_socket,) = box.driver_folder.glob("dra-*.sock")
    assert row(out) == ["ostler.dev", "8/8", "registered", "1", str(claims_socket)]
    document = json.loads(await ostler("status", "-o", "json", "--socket", socket))["dra"]
    assert document == {
        "driver": "ostler.dev",
        "registration": "registered",
        "socket": str(claims_socket),
        "health_streams": 1,
        "devices": 8,
        "published": 8,
        "claims": 1,
    }


async def test_what_cannot_be_published_is_a_reason_and_the_agent_is_ready_all_the_same(box: ClaimedNode) -> None:
    assert box.hardware is not None
    box.api.down()
    box.hardware.fail(7)
    await box.agent.rescan()
    await eventually(lambda: _has_problem(box), "the problem is known")
    out = await ostler("status", "--socket", box.agent.flags["--socket"])
    assert f"process {box.agent.pid}: active, ready" in out
    assert "\n  devices are not published through DRA: " in out
    assert "8/8" in row(out)
    assert row(out)[5]


async def _has_problem(box: ClaimedNode) -> bool:
    return bool((await box.door()).problem)


async def test_kubelet_that_does_not_come_is_why_the_agent_is_not_ready(box: ClaimedNode) -> None:
    await box.agent.stop()
    await box.kubelet.stop()
    await box.agent.start()
    status = await box.agent.status()
    assert not status.ready
    assert list(status.reasons)[-1:] == [
        f"DRA driver ostler.dev is waiting: no kubelet has asked yet in {box.registry}"
    ]
    assert row(await ostler("status", "--socket", box.agent.flags["--socket"]))[2] == "waiting"
    await box.kubelet.start()
    await eventually(lambda: _is_ready(box), "the kubelet has taken it")


async def _is_ready(box: ClaimedNode) -> bool:
    return (await box.agent.status()).ready


async def test_without_a_rule_for_claims_nothing_is_said_of_them() -> None:
    async with ClaimedNode(resources=[{**CLAIMED, "door": "plugin"}]) as box:
        out = await ostler("status", "--socket", box.agent.flags["--socket"])
        assert "DRA" not in out
        assert "nvidia.com/gpu" in out


async def test_tainted_and_withheld_devices_have_their_reason_among_the_slices() -> None:
    async with ClaimedNode(path("a100-mig-4")) as box:
        assert box.hardware is not None
        slices = json.loads(await ostler("slices", "-o", "json", "--socket", box.agent.flags["--socket"]))
        devices = slices["pools"][0]["devices"]
        published = [device["name"] for device in devices if device["state"] == "published"]
        withheld = [device for device in devices if device["state"] == "withheld"]
        assert (len(published), len(withheld)) == (2, 2)
        assert {device["why"] for device in withheld} == {
            "it is in MIG mode, so that only its MIG devices can be allocated to claims"
        }
        box.hardware.fail(box.hardware.find(published[0]))
        await box.agent.rescan()
        answer = await box.waits.published()
        assert answer is not None
        (tainted,) = [device for device in answer.pools[0].devices if device.taints]
        assert tainted.name == published[0]
        assert "the GPU is lost" in tainted.why
        door = await box.door()
        assert (door.devices, door.published) == (2, 2)


def test_summary_counts_what_is_published_of_what_should_be_and_claims_that_hold_devices() -> None:
    registered = DoorStatus(RegistrationState.REGISTERED, health_streams=2)
    assert door_message(registered, SLICES, CLAIMS) == DraStatus(
        driver="ostler.dev",
        registration="registered",
        health_streams=2,
        devices=2,
        published=1,
        claims=3,
        problem="the API server does not answer",
    )
    assert unpublished(SLICES) == "the API server does not answer"


def test_what_keeps_the_kubelet_away_is_said_before_what_keeps_slices_from_being_written() -> None:
    refused = DoorStatus(RegistrationState.FAILED, detail="the version is not supported")
    assert door_message(refused, SLICES, ListClaimsResponse()).problem == "the version is not supported"


@pytest.mark.parametrize(
    ("nri", "said"),
    [
        (None, ""),
        (NriStatus(NriState.CONNECTED, 1.0, runtime="containerd v2.1.0"), "connected to containerd v2.1.0"),
        (NriStatus(NriState.ABSENT, 1.0, "/run/nri.sock does not exist"), "absent: /run/nri.sock does not exist"),
    ],
)
def test_whether_the_runtime_reports_pods_is_part_of_the_summary(nri: NriStatus | None, said: str) -> None:
    assert door_message(DoorStatus(RegistrationState.REGISTERED), SLICES, CLAIMS, nri).nri == said
