from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from driver.claims.model import ClaimError, ClaimReference, Unavailable
from driver.door import claim_calls, door
from driver.parameters.errors import ParameterError
from protos.dra.v1 import api_pb2 as v1
from protos.dra.v1 import api_pb2_grpc as v1_grpc
from protos.dra.v1beta1 import api_pb2 as v1beta1
from protos.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from tests.driver.door.kubelet import channel, named
from tests.making.dra_door import DRIVER, DoorSide, options
from tests.waiting import eventually


@pytest.fixture
async def side(short_dir: Path) -> AsyncIterator[DoorSide]:
    made = DoorSide(options(short_dir))
    async with made.running():
        await eventually(lambda: made.door.status().socket)
        yield made


@pytest.fixture
async def connection(side: DoorSide) -> AsyncIterator[grpc.aio.Channel]:
    socket = side.door.status().socket
    assert socket is not None
    async with channel(socket) as made:
        yield made


def request(*uids: str) -> v1.NodePrepareResourcesRequest:
    return v1.NodePrepareResourcesRequest(claims=[named(uid) for uid in uids])


async def test_v1_answers_every_field_of_a_device(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.share_id = "share-1"
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request("a"), timeout=60)
    (device,) = answer.claims["a"].devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("node-a", "one")
    assert list(device.cdi_device_ids) == [f"{DRIVER}/claim=a-one"]
    assert device.share_id == "share-1"
    assert side.reported.prepared_claims[0][0] == ClaimReference("default", "claim-a", "a")


async def test_a_device_without_a_share_has_no_share_id(connection: grpc.aio.Channel) -> None:
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request("a"), timeout=60)
    assert not answer.claims["a"].devices[0].HasField("share_id")


async def test_v1beta1_is_the_same_without_shares(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.share_id = "share-1"
    stub = v1beta1_grpc.DRAPluginStub(connection)
    claim = v1beta1.Claim(namespace="default", name="claim-a", uid="a")
    answer = await stub.NodePrepareResources(v1beta1.NodePrepareResourcesRequest(claims=[claim]), timeout=60)
    (device,) = answer.claims["a"].devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("node-a", "one")
    assert list(device.cdi_device_ids) == [f"{DRIVER}/claim=a-one"]
    released = await stub.NodeUnprepareResources(v1beta1.NodeUnprepareResourcesRequest(claims=[claim]), timeout=60)
    assert released.claims["a"].error == ""
    assert side.claims.unprepared == ["a"]
    assert "called NodeUnprepareResources v1beta1 OK" in side.counted.lines


async def test_a_bad_claim_costs_only_itself(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.errors["b"] = ClaimError("request gpu: device gpu-0 is not offered; select another")
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request("a", "b", "c"), timeout=60)
    assert set(answer.claims) == {"a", "b", "c"}
    assert answer.claims["b"].error == "request gpu: device gpu-0 is not offered; select another"
    assert not answer.claims["b"].devices
    assert answer.claims["a"].devices
    assert answer.claims["c"].devices
    assert "answered NodePrepareResources 3 1" in side.counted.lines


async def test_refused_parameters_are_reported_for_the_claims_status(
    side: DoorSide, connection: grpc.aio.Channel
) -> None:
    error = side.claims.errors["b"] = ParameterError("status.allocation", "kind", "is missing", "write GpuConfig")
    side.claims.errors["c"] = ClaimError("device gpu-0 is not offered")
    await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request("a", "b", "c"), timeout=60)
    assert [(claim.uid, text) for claim, text in side.reported.refused_claims] == [("b", str(error))]


async def test_every_release_has_an_entry(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.errors["b"] = Unavailable("the disk is full; free some space")
    wanted = v1.NodeUnprepareResourcesRequest(claims=[named("a"), named("b")])
    answer = await v1_grpc.DRAPluginStub(connection).NodeUnprepareResources(wanted, timeout=60)
    assert {uid: entry.error for uid, entry in answer.claims.items()} == {
        "a": "",
        "b": "the disk is full; free some space",
    }
    assert [claim.uid for claim in side.reported.released_claims] == ["a", "b"]


async def test_a_bug_is_the_claims_error_and_nobody_elses(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.errors["a"] = RuntimeError("oops")
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request("a", "b"), timeout=60)
    expected = "internal error: RuntimeError('oops'); the log of ostler on this node says where"
    assert answer.claims["a"].error == expected
    assert answer.claims["b"].devices


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    """Lines about claims: level, message, fields; seconds are checked here."""
    lines = []
    for record in caplog.records:
        fields = {
            name: getattr(record, name) for name in ("claim", "uid", "devices", "reason") if hasattr(record, name)
        }
        if "uid" in fields:
            assert "claim" not in fields or 0 <= vars(record)["seconds"] < 5
            lines.append((record.levelname, record.message, fields))
    return lines


async def test_each_claim_is_one_line_of_the_log(
    side: DoorSide, connection: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ostler.driver")
    stub = v1_grpc.DRAPluginStub(connection)
    side.claims.errors["b"] = ClaimError("device gpu-0 is not offered")
    await stub.NodePrepareResources(request("a"), timeout=60)
    await stub.NodePrepareResources(request("b"), timeout=60)
    await stub.NodeUnprepareResources(v1.NodeUnprepareResourcesRequest(claims=[named("a")]), timeout=60)
    await stub.NodeUnprepareResources(v1.NodeUnprepareResourcesRequest(claims=[named("b")]), timeout=60)
    await stub.NodePrepareResources(v1.NodePrepareResourcesRequest(claims=[v1.Claim(uid="/" * 200)]), timeout=60)
    named_a, named_b = ({"claim": f"default/claim-{uid}", "uid": uid} for uid in ("a", "b"))
    reason = {"reason": "device gpu-0 is not offered"}
    assert told(caplog) == [
        ("INFO", "claim prepared", {**named_a, "devices": ["one"]}),
        ("WARNING", "claim refused", {**named_b, **reason}),
        ("INFO", "claim released", named_a),
        ("WARNING", "claim not released", {**named_b, **reason}),
        ("WARNING", "claim refused", {"uid": "/" * 128, "reason": f"uid: {'/' * 128!r} is not a claim's UID"}),
    ]


async def test_no_claims_are_no_error(connection: grpc.aio.Channel) -> None:
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(request(), timeout=60)
    assert not answer.claims


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (v1.Claim(namespace="d", name="c", uid="../../etc"), "uid: '../../etc' is not a claim's UID"),
        (v1.Claim(namespace="d", name="c", uid=""), "uid: '' is not a claim's UID"),
        (v1.Claim(namespace="", name="c", uid="u"), "namespace: is empty; the kubelet must name the claim"),
        (v1.Claim(namespace="d", name="", uid="u"), "name: is empty; the kubelet must name the claim"),
    ],
)
async def test_a_claim_that_is_named_badly_never_gets_to_the_disk(
    side: DoorSide, connection: grpc.aio.Channel, claim: v1.Claim, error: str
) -> None:
    wanted = v1.NodePrepareResourcesRequest(claims=[claim, named("good")])
    answer = await v1_grpc.DRAPluginStub(connection).NodePrepareResources(wanted, timeout=60)
    assert answer.claims[claim.uid].error == error
    assert answer.claims["good"].devices
    assert side.claims.prepared == ["good"]


async def test_claims_do_not_wait_for_each_other(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.gates["slow"] = asyncio.Event()
    stub = v1_grpc.DRAPluginStub(connection)
    slow = asyncio.ensure_future(stub.NodePrepareResources(request("slow"), timeout=60))
    await eventually(lambda: side.claims.prepared == ["slow"])
    assert (await stub.NodePrepareResources(request("quick"), timeout=60)).claims["quick"].devices
    side.claims.gates["slow"].set()
    assert (await slow).claims["slow"].devices


async def test_200_claims_at_once_are_each_answered(side: DoorSide, connection: grpc.aio.Channel) -> None:
    stub = v1_grpc.DRAPluginStub(connection)
    answers = await asyncio.gather(
        *(stub.NodePrepareResources(request(f"u{number}"), timeout=60) for number in range(200))
    )
    assert all(answer.claims[f"u{number}"].devices for number, answer in enumerate(answers))


async def test_a_call_is_answered_before_its_deadline(
    side: DoorSide, connection: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float | None] = []

    def patience(seconds: float | None) -> float:
        left.append(seconds)
        return 0.2

    monkeypatch.setattr(claim_calls, "_patience", patience)
    side.claims.gates["slow"] = asyncio.Event()
    stub = v1_grpc.DRAPluginStub(connection)
    answer = await stub.NodePrepareResources(request("slow", "quick"), timeout=120)
    assert answer.claims["quick"].devices
    late = "not finished within 0.2 s; the work continues, and the kubelet asks again"
    assert answer.claims["slow"].error == late
    assert left[0] is not None
    assert 0 < left[0] < 125  # gRPC adds a little.
    side.claims.gates["slow"].set()


@pytest.mark.parametrize(("deadline", "patience"), [(45.0, 43.0), (4.0, 2.0), (3.0, 1.5), (0.0, 0.0), (None, None)])
def test_a_call_leaves_two_seconds_to_its_answer_or_half_of_its_time(
    deadline: float | None, patience: float | None
) -> None:
    assert claim_calls._patience(deadline) == patience


async def test_a_repeated_call_joins_what_is_under_way(side: DoorSide, connection: grpc.aio.Channel) -> None:
    side.claims.gates["a"] = asyncio.Event()
    stub = v1_grpc.DRAPluginStub(connection)
    first = stub.NodePrepareResources(request("a"), timeout=60)
    waiting = asyncio.ensure_future(first)
    await eventually(lambda: side.claims.prepared == ["a"])
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: "called NodePrepareResources v1 CANCELLED" in side.counted.lines)
    calls = side.door._calls
    await calls.idle()
    second = asyncio.ensure_future(stub.NodePrepareResources(request("a"), timeout=60))
    await eventually(lambda: calls._calls == 1, "the second call under way")
    side.claims.gates["a"].set()
    assert (await second).claims["a"].devices
    assert side.claims.prepared == ["a"], "prepared twice"


async def test_the_end_lets_calls_under_way_finish(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRACE", "LAST_WORDS"):
        monkeypatch.setattr(door, name, 120.0)
    side = DoorSide(options(short_dir))
    async with side.running():
        socket = await side.serving()
        side.claims.gates["a"] = asyncio.Event()
        async with channel(socket) as connection:
            stub = v1_grpc.DRAPluginStub(connection)
            call = asyncio.ensure_future(stub.NodePrepareResources(request("a"), timeout=60))
            await eventually(lambda: side.claims.prepared == ["a"])
            ending = asyncio.ensure_future(side.end())
            await eventually(lambda: side.door._calls._refuses, "the end has begun")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.NodePrepareResources(request("b"), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert refused.value.details() == "ostler is stopping on this node; the kubelet asks again when it is back"
            side.claims.gates["a"].set()
            assert (await call).claims["a"].devices
            await ending
            assert not socket.exists()


async def test_the_end_waits_a_moment_and_then_leaves_nothing_behind(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "GRACE", 0.1)
    monkeypatch.setattr(door, "LAST_WORDS", 0.1)
    side = DoorSide(options(short_dir))
    async with side.running(), channel(await side.serving()) as connection:
        side.claims.gates["a"] = asyncio.Event()
        stub = v1_grpc.DRAPluginStub(connection)
        call = asyncio.ensure_future(stub.NodePrepareResources(request("a"), timeout=60))
        await eventually(lambda: side.claims.prepared == ["a"])
        async with asyncio.timeout(60):
            await side.end()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call
        assert [task for task in asyncio.all_tasks() if "ClaimCalls" in repr(task)] == []


async def test_grpcurl_finds_every_service_by_reflection(side: DoorSide, connection: grpc.aio.Channel) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub = reflection_pb2_grpc.ServerReflectionStub(connection)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    stream = stub.ServerReflectionInfo(iter([asked]))
    services = {each.name for answer in [await stream.read()] for each in answer.list_services_response.service}
    assert {
        "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    } <= services
