"""One instance leaves the kubelet to another: no call is refused, and claims have one keeper at a time."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from driver.claims.model import Unavailable
from driver.door import claim_calls, door, health_stream
from driver.door.registration import RegistrationState
from protos.dra.v1 import api_pb2 as dra
from protos.dra.v1 import api_pb2_grpc as dra_grpc
from protos.drahealth.v1 import api_pb2, api_pb2_grpc
from tests.driver.door.kubelet import DoorKubelet, channel, named
from tests.making.dra_door import DRIVER, DoorSide, offered, options, view
from tests.waiting import eventually

NOBODY = "ostler hands over on this node, and no other instance has taken over in time"


async def relieve(old: DoorSide) -> asyncio.Task[bool]:
    """The first half of the end, as the agent goes about it: everything that decides ends."""
    old.door.hand_over()
    await old.end()
    return asyncio.create_task(old.door.leave(120.0))


async def test_calls_are_answered_by_the_successor_all_the_while(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ostler.driver")
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        assert (await kubelet.prepare("a")).claims["a"].devices[0].device_name == "old"
        leaving = await relieve(old)
        assert old.door.status().state is RegistrationState.LEAVING
        early = asyncio.create_task(kubelet.prepare("b"))
        released = asyncio.create_task(kubelet.unprepare("a"))
        await asyncio.sleep(0.1)
        assert not early.done(), "answered by an instance that decides nothing any more"
        async with new.running():
            assert (await early).claims["b"].devices[0].device_name == "new"
            assert (await released).claims["a"].error == ""
            assert await leaving
            await new.registered()
            await eventually(lambda: kubelet.endpoints == [str(new.door.status().socket)], str(kubelet.endpoints))
            assert (await kubelet.prepare("c")).claims["c"].devices[0].device_name == "new"
    assert old.claims.prepared == ["a"]
    assert old.claims.unprepared == []
    assert new.claims.unprepared == ["a"]
    left = [record for record in caplog.records if record.message == "call left to the instance that takes over"]
    path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert (path, "OK") in [(vars(record)["method"], vars(record)["code"]) for record in left]


async def test_the_kubelet_always_has_an_instance(short_dir: Path) -> None:
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        failures: list[BaseException] = []
        stop = asyncio.Event()

        async def ask() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    answer = await kubelet.prepare(f"u{number}")
                    assert not answer.claims[f"u{number}"].error
                except Exception as error:  # noqa: BLE001 - every fault is what is looked for
                    failures.append(error)
                await asyncio.sleep(0.005)

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        leaving = await relieve(old)
        async with new.running():
            assert await leaving
            await eventually(lambda: len(kubelet.instances) == 1)
            await asyncio.sleep(0.1)
            stop.set()
            await asyncio.gather(*asking)
    assert failures == []


async def test_a_call_under_way_is_finished_where_it_began(short_dir: Path) -> None:
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    old.claims.gates["a"] = asyncio.Event()
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        call = asyncio.create_task(kubelet.prepare("a"))
        await eventually(lambda: old.claims.prepared == ["a"])
        leaving = await relieve(old)
        async with new.running():
            await new.registered()
            await asyncio.sleep(0.1)
            assert not leaving.done(), "left while a call is under way"
            old.claims.gates["a"].set()
            assert (await call).claims["a"].devices[0].device_name == "old"
            assert await leaving


async def test_what_could_not_be_finished_here_is_the_successors(short_dir: Path) -> None:
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    old.claims.gates["a"] = asyncio.Event()
    old.claims.errors["a"] = Unavailable("this instance begins nothing any more")
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        call = asyncio.create_task(kubelet.prepare("a"))
        await eventually(lambda: old.claims.prepared == ["a"])
        leaving = await relieve(old)
        old.claims.gates["a"].set()
        async with new.running():
            assert (await call).claims["a"].devices[0].device_name == "new"
            assert await leaving


async def test_without_a_successor_the_end_comes_in_time(short_dir: Path) -> None:
    chosen = options(short_dir)
    old = DoorSide(chosen)
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        old.door.hand_over()
        await old.end()
        call = asyncio.create_task(kubelet.prepare("a"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            assert not await old.door.leave(0.3)
        # By the end of the server, or by the kubelet, which has seen the name go.
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call
        assert not list(chosen.registry_dir.iterdir())
        assert not list(chosen.folder.iterdir())
    assert old.claims.prepared == []


async def test_calls_that_wait_when_the_end_comes_are_told_why(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "LAST_WORDS", 120.0)
    chosen = options(short_dir)
    old = DoorSide(chosen)
    async with old.running(), channel(await old.serving()) as connection:
        old.door.hand_over()
        await old.end()
        stub = dra_grpc.DRAPluginStub(connection)
        request = dra.NodePrepareResourcesRequest(claims=[named("a")])
        calls = [asyncio.ensure_future(stub.NodePrepareResources(request, timeout=45)) for _ in range(3)]
        assert not await asyncio.wait_for(old.door.leave(0.2), 100)
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNAVAILABLE, NOBODY)


async def test_a_call_that_no_successor_takes_says_so(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_calls, "_patience", lambda _: 0.2)
    chosen = options(short_dir)
    old = DoorSide(chosen)
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        old.door.hand_over()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.prepare("a")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == NOBODY
        await old.end()
        await old.door.leave(0.0)


async def test_an_older_instance_is_nobodys_successor(short_dir: Path) -> None:
    """Two that leave one after the other do not hand calls to and fro."""
    chosen = options(short_dir)
    first, second, third = (DoorSide(chosen, name) for name in ("first", "second", "third"))
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, first.running():
        await first.registered()
        first_leaves = await relieve(first)
        async with second.running():
            second.door.hand_over()
            await eventually(lambda: second.door.status().socket)
            second.door.hand_over()
            await second.end()
            second_leaves = asyncio.create_task(second.door.leave(120.0))
            call = asyncio.create_task(kubelet.prepare("a"))
            async with third.running():
                assert (await call).claims["a"].devices[0].device_name == "third"
                assert await second_leaves
                assert await first_leaves


async def test_only_the_successors_names_stay(short_dir: Path) -> None:
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    async with DoorKubelet(chosen.registry_dir).running() as kubelet, old.running():
        await old.registered()
        leaving = await relieve(old)
        async with new.running():
            await new.registered()
            assert await leaving
            await eventually(lambda: len(list(chosen.registry_dir.iterdir())) == 1)
            assert len(list(chosen.folder.iterdir())) == 1
            await eventually(lambda: kubelet.endpoints == [str(new.door.status().socket)], str(kubelet.endpoints))


async def test_names_of_a_predecessor_that_is_killed_while_it_leaves_go(short_dir: Path) -> None:
    chosen = options(short_dir)
    chosen.folder.mkdir(mode=0o700, parents=True)
    names = (chosen.folder / "dra-00000000.sock", chosen.registry_dir / f"{DRIVER}-00000000-reg.sock")
    servers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in names]
    for server, name in zip(servers, names, strict=True):
        server.bind(str(name))
        server.listen()
    new = DoorSide(chosen)
    async with new.running():
        await eventually(lambda: new.door.status().registration_socket)
        assert all(name.exists() for name in names), "a live predecessor's names were taken"
        for server in servers:
            server.close()
        async with DoorKubelet(chosen.registry_dir).running():
            await new.registered()
            await eventually(lambda: not any(name.exists() for name in names), "looked for every second", within=120)


async def test_health_is_told_again_when_a_predecessor_has_gone(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet up to 1.36 has forgotten it by then."""
    monkeypatch.setattr(health_stream, "FIRST_REPEAT", 30.0)
    chosen = options(short_dir)
    old, new = DoorSide(chosen, "old"), DoorSide(chosen, "new")
    for side in (old, new):
        side.door.apply(view(offered("gpu-0")))
    async with DoorKubelet(chosen.registry_dir).running(), old.running():
        await old.registered()
        leaving = await relieve(old)
        async with new.running(), channel(await new.serving()) as connection:
            stream = api_pb2_grpc.DRAResourceHealthStub(connection).NodeWatchResources(
                api_pb2.NodeWatchResourcesRequest()
            )
            first = await stream.read()
            assert await leaving
            assert old.door.status().health_streams == 0
            async with asyncio.timeout(60):
                assert (await stream.read()).devices == first.devices
            stream.cancel()


async def test_a_door_that_never_served_has_nothing_to_hand_over(short_dir: Path) -> None:
    chosen = options(short_dir)
    chosen.registry_dir.rmdir()
    side = DoorSide(chosen)
    async with side.running():
        await eventually(lambda: side.door.status().state is RegistrationState.FAILED)
        side.door.hand_over()
        await side.end()
        assert await side.door.leave(120.0)
