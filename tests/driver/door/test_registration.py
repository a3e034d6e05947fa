from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import grpc.aio
import pytest

from driver.door import door
from driver.door.registration import RegistrationState, registration_socket
from node.events import EventType
from node.kubelet.watcher_service import INQUIRY
from node.values import replace
from protos.drahealth.v1 import api_pb2 as health
from protos.drahealth.v1 import api_pb2_grpc as health_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc
from tests.driver.door.kubelet import DoorKubelet, channel
from tests.making.dra_door import DRIVER, DoorSide, offered, options, view
from tests.waiting import eventually


async def test_the_kubelet_is_told_every_version_the_newest_first(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet, side.running():
        await side.registered()
        (info,) = kubelet.infos
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
        status = side.door.status()
        assert status.state is RegistrationState.REGISTERED
        assert info.endpoint == str(status.socket)
        assert side.counted.lines == ["asked", "registered"]


async def test_health_that_is_off_is_neither_announced_nor_served(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, health=False))
    async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet, side.running():
        await side.registered()
        assert list(kubelet.infos[0].supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
        async with channel(kubelet.endpoints[0]) as connection:
            stream = health_grpc.DRAResourceHealthStub(connection).NodeWatchResources(
                health.NodeWatchResourcesRequest()
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_endpoint_is_the_path_that_the_kubelet_sees(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, plugins_dir_on_host=Path("/mnt/kubelet/plugins")))
    async with side.running():
        await side.serving()
        socket = side.door.status().registration_socket
        assert socket is not None
        async with channel(socket) as connection:
            info = await api_pb2_grpc.RegistrationStub(connection).GetInfo(api_pb2.InfoRequest(), timeout=60)
        claims = side.door.status().socket
        assert claims is not None
        assert info.endpoint == f"/mnt/kubelet/plugins/{DRIVER}/{claims.name}"


async def test_sockets_have_names_of_their_own_and_are_closed_to_others(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with side.running():
        await eventually(lambda: side.door.status().registration_socket)
        status = side.door.status()
        assert status.socket is not None
        assert status.registration_socket is not None
        assert status.socket.parent == short_dir / "plugins" / DRIVER
        assert status.registration_socket.name == f"{DRIVER}-{status.socket.stem.removeprefix('dra-')}-reg.sock"
        assert stat.S_IMODE(status.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(status.socket.parent.stat().st_mode) == 0o700
    assert not list((short_dir / "plugins" / DRIVER).iterdir())
    assert not list((short_dir / "plugins_registry").iterdir())


def test_a_name_too_long_for_a_socket_gives_way_to_a_hash(short_dir: Path) -> None:
    registry = short_dir / ("r" * 50)
    long = options(short_dir)
    changed = replace(long, registry_dir=registry, driver_name="gpu.dra-example-driver.sigs.k8s.io")
    name = registration_socket(changed, "01234567")
    assert name.startswith("dra-")
    assert name.endswith("-01234567-reg.sock")
    assert len(os.fsencode(registry / name)) <= 107


async def test_a_refusal_is_told_and_met_with_new_sockets(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    kubelet = DoorKubelet(short_dir / "plugins_registry")
    kubelet.verdict = "RegisterPlugin error -- plugin validation failed with err: no"
    async with kubelet.running(), side.running():
        await eventually(lambda: side.door.status().state is RegistrationState.FAILED)
        first = side.door.status().socket
        assert side.door.waiting_for() == (f"DRA driver {DRIVER} is failed: {kubelet.verdict}",)
        kind, reason, message = side.told.events[0]
        assert (kind, reason) == (EventType.WARNING, "DriverRegistrationRefused")
        assert message == f"the kubelet refused the DRA driver: {kubelet.verdict}"
        kubelet.verdict = ""
        await side.registered()
        assert side.door.status().socket != first
        assert side.counted.lines.count("failed") == 1
        await eventually(lambda: len(kubelet.instances) == 1)


async def test_a_kubelet_that_never_asks_is_offered_new_sockets(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, patience=0.05))
    async with side.running():
        first = await eventually(lambda: side.door.status().socket)
        assert side.door.waiting_for()[0].startswith(f"DRA driver {DRIVER} is waiting: no kubelet has asked yet in ")
        await eventually(lambda: side.door.status().socket not in (None, first))
        assert "failed" in side.counted.lines
        async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet:
            await side.registered()
            await eventually(lambda: kubelet.endpoints == [str(side.door.status().socket)], str(kubelet.endpoints))


async def test_a_socket_that_others_remove_is_served_anew_without_a_gap(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet, side.running():
        await side.registered()
        first = side.door.status().socket
        assert first is not None
        first.unlink()
        await eventually(lambda: side.door.status().socket != first)
        assert (await kubelet.prepare("a")).claims["a"].error == ""
        await side.registered()
        await eventually(lambda: kubelet.endpoints == [str(side.door.status().socket)])
        assert (await kubelet.prepare("b")).claims["b"].error == ""


async def test_a_registration_socket_that_others_remove_is_served_anew(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet, side.running():
        await side.registered()
        removed = side.door.status().registration_socket
        assert removed is not None
        removed.unlink()
        await eventually(lambda: side.door.status().registration_socket != removed)
        await side.registered()
        assert (await kubelet.prepare("a")).claims["a"].error == ""


async def test_a_restarted_kubelet_finds_the_driver_by_itself(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with side.running():
        for _ in range(2):
            async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet:
                await eventually(kubelet.known)
                await side.registered()
                assert (await kubelet.prepare("a")).claims["a"].error == ""
        assert side.counted.lines.count("registered") == 2


async def test_a_registry_that_is_missing_is_said_and_waited_for(short_dir: Path) -> None:
    chosen = options(short_dir)
    chosen.registry_dir.rmdir()
    side = DoorSide(chosen)
    async with side.running():
        await eventually(lambda: side.door.status().state is RegistrationState.FAILED)
        (line,) = side.door.waiting_for()
        assert f"{chosen.registry_dir}: the folder does not exist; create it or correct the setting" in line
        assert side.told.events[0][1] == "DriverSocketFailed"
        chosen.registry_dir.mkdir(mode=0o750)
        async with DoorKubelet(chosen.registry_dir).running():
            await side.registered()
    assert len(side.told.events) == 1


async def test_dead_sockets_of_a_predecessor_go_and_those_of_others_stay(short_dir: Path) -> None:
    chosen = options(short_dir)
    chosen.folder.mkdir(mode=0o700, parents=True)
    dead = [
        chosen.folder / "dra-00000000.sock",
        chosen.folder / ".ostler-11111111",
        chosen.registry_dir / f"{DRIVER}-00000000-reg.sock",
    ]
    foreign = [chosen.registry_dir / "gpu.example.com.other-reg.sock", chosen.registry_dir / "csi-00000000-reg.sock"]
    for path in (*dead, *foreign):
        _dead_socket(path)
    file = chosen.folder / "dra-22222222.sock"
    file.touch()
    side = DoorSide(chosen)
    async with side.running():
        await eventually(lambda: side.door.status().registration_socket)
        assert file.exists()
        assert not any(path.exists() for path in dead)
        assert all(path.exists() for path in foreign)


def _dead_socket(path: Path) -> None:
    """A socket whose server was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))


async def test_status_follows_a_kubelet_that_asks_and_says_nothing(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, patience=3600.0))
    async with side.running():
        await side.serving()
        socket = side.door.status().registration_socket
        assert socket is not None
        async with channel(socket) as connection:
            await api_pb2_grpc.RegistrationStub(connection).GetInfo(api_pb2.InfoRequest(), timeout=60)
        assert side.door.status().state is RegistrationState.OFFERED
        side.wait_for_kubelet(0.05)
        await eventually(lambda: side.door.status().registration_socket != socket)


async def asked(path: Path) -> api_pb2.PluginInfo:
    async with channel(path) as connection:
        info: api_pb2.PluginInfo = await api_pb2_grpc.RegistrationStub(connection).GetInfo(
            api_pb2.InfoRequest(), timeout=60
        )
        return info


async def notified(path: Path, problem: str = "") -> None:
    async with channel(path) as connection:
        status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
        await api_pb2_grpc.RegistrationStub(connection).NotifyRegistrationStatus(status, timeout=60)


async def registration(side: DoorSide) -> Path:
    await side.serving()
    path = side.door.status().registration_socket
    assert path is not None
    return path


async def test_kubelet_that_has_asked_and_says_nothing_is_why_it_is_not_ready(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, patience=3600.0))
    async with side.running():
        await asked(await registration(side))
        assert side.door.waiting_for() == (
            f"DRA driver {DRIVER} is offered: the kubelet has asked and has not said yet whether it accepts the driver",
        )


async def test_kubelet_that_listens_is_not_doubted_when_somebody_else_asks(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, patience=3600.0))
    side.door.apply(view(offered("gpu-0")))
    async with DoorKubelet(short_dir / "plugins_registry").running() as kubelet, side.running():
        await side.registered()
        async with channel(kubelet.endpoints[-1]) as connection:
            stream = health_grpc.DRAResourceHealthStub(connection).NodeWatchResources(
                health.NodeWatchResourcesRequest()
            )
            await stream.read()
            path = await registration(side)
            await asked(path)
            assert side.door.status().state is RegistrationState.REGISTERED
            stream.cancel()
            await eventually(lambda: not side.door.status().health_streams)
        await asked(path)
        assert side.door.status().state is RegistrationState.OFFERED, "it may be a kubelet that was restarted"


async def test_ostler_that_asks_other_sockets_is_not_taken_for_a_kubelet(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with DoorKubelet(short_dir / "plugins_registry").running(), side.running():
        await side.registered()
        async with channel(await registration(side)) as connection:
            stub = api_pb2_grpc.RegistrationStub(connection)
            await stub.GetInfo(api_pb2.InfoRequest(), timeout=60, metadata=(INQUIRY,))
        assert side.door.status().state is RegistrationState.REGISTERED


async def test_word_about_sockets_that_were_replaced_counts_for_nothing(short_dir: Path) -> None:
    side = DoorSide(options(short_dir, patience=0.05))
    async with side.running():
        first = await registration(side)
        await eventually(lambda: side.door.status().registration_socket not in (None, first))
        side.wait_for_kubelet(3600.0)
        since = side.counted.lines[:]
        await asked(first)
        await notified(first)
        await notified(first, "no")
        assert side.door.status().state is RegistrationState.WAITING
        assert [line for line in side.counted.lines[len(since) :] if line != "failed"] == []
        assert side.told.events == []


async def test_who_leaves_takes_no_word_of_a_kubelet(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with side.running():
        path = await registration(side)
        side.door.hand_over()
        assert side.door.waiting_for() == (
            f"DRA driver {DRIVER} is leaving: calls are passed to the instance that takes over",
        )
        await asked(path)
        await notified(path, "no")
        await notified(path)
        assert side.door.status().state is RegistrationState.LEAVING
        assert (side.counted.lines, side.told.events) == ([], [])


async def test_sockets_that_cannot_be_are_tried_again_in_time_and_not_with_every_change(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FIRST_DELAY", 60.0)
    chosen = options(short_dir)
    chosen.registry_dir.rmdir()
    side = DoorSide(chosen)
    async with side.running():
        await eventually(lambda: side.door.status().state is RegistrationState.FAILED)
        for number in range(30):
            (chosen.folder / f"file-{number}").touch()
            await asyncio.sleep(0.005)
        assert side.counted.lines.count("failed") == 1


async def test_sockets_that_cannot_be_are_told_once_and_tried_for_as_long_as_it_takes(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(door, "LONGEST_DELAY", 0.02)
    chosen = options(short_dir)
    chosen.registry_dir.rmdir()
    side = DoorSide(chosen)
    async with side.running():
        await eventually(lambda: side.counted.lines.count("failed") >= 20)
        assert len(side.told.events) == 1
        assert side.changes == 1


async def test_kubelet_that_says_the_same_twice_changes_nothing(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    async with side.running():
        path = await registration(side)
        await notified(path)
        before = side.changes
        await notified(path)
        assert side.changes == before
