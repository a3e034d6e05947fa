"""Registered with the kubelet, whatever happens to either side; every case over real sockets."""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.directories import Inotify
from node.sockets import FileId
from plugin.kubelet import KubeletFolders, RegistrationPath
from plugin.observer import PluginObserver
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.making.events import RecordedEvents
from tests.making.plugin_door import BOTH, door, offer_of, offered, running, socket_of, state
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
REGISTRY = (RegistrationPath.REGISTRY,)
REGISTER = (RegistrationPath.REGISTER,)
EITHER = pytest.mark.parametrize("paths", [REGISTRY, REGISTER], ids=["registry", "register"])
DEVICES = tuple(offered(f"g{index}", index // 2) for index in range(4))


class CountedAttempts(PluginObserver):
    def __init__(self) -> None:
        self.attempts = 0

    def attempted(self, resource: str, path: str) -> None:
        self.attempts += 1


@pytest.fixture
async def kubelet(short_dir: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(short_dir, reconcile_interval=0.05) as started:
        yield started


def pod(name: str, count: int, kind: str = "app") -> Pod:
    containers = [Container("app", limits={GPU: count if kind == "app" else 0})]
    if kind == "init":
        containers = [Container("init", "init", {GPU: count}), Container("app")]
    return Pod(f"uid-{name}", name, containers=tuple(containers))


@EITHER
async def test_a_resource_is_registered_and_its_devices_are_capacity(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        await eventually(lambda: state(served) == "registered")
        assert served.waiting_for() == ()
        admission = await kubelet.admit(pod("a", 2))
        assert admission.devices == {"app": {GPU: ("g0", "g1")}}
        assert socket_of(served).stat().st_mode & 0o777 == 0o600
    assert not list((short_dir / "plugins_registry").glob("ostler*"))
    assert not list((short_dir / "device-plugins").glob("ostler*"))


async def test_a_kubelet_that_answers_before_any_look_has_seen_it_is_called_once(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1.37 on it refuses a second call, and forgets whose stream it has."""
    look, one_before = KubeletFolders.socket_id, iter([FileId.of(short_dir)])
    monkeypatch.setattr(KubeletFolders, "socket_id", lambda kubelets: next(one_before, None) or look(kubelets))
    counted = CountedAttempts()
    async with Kubelet(short_dir, generation="1.37", reconcile_interval=0.05) as started:
        served = door(short_dir, paths=REGISTER, observer=counted)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await started.wait_for(GPU, healthy=4)
            await eventually(lambda: state(served) == "registered")
            assert counted.attempts == 1


@EITHER
async def test_a_change_is_one_message_and_nothing_is_shown_twice(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        before = kubelet.list_messages[GPU]
        served.apply(offer_of(GPU, offered("g0", healthy=False), *DEVICES[1:]))
        await kubelet.wait_for(GPU, healthy=3)
        served.apply(offer_of(GPU, *DEVICES))
        served.apply(offer_of(GPU, *DEVICES))
        await kubelet.wait_for(GPU, healthy=4)
        assert kubelet.list_messages[GPU] == before + 2
        last = kubelet.last_list(GPU)
        assert last is not None
        assert [device.ID for device in last.devices] == ["g0", "g1", "g2", "g3"]


@EITHER
@pytest.mark.parametrize("kind", ["app", "init"])
async def test_a_kubelet_restart_costs_no_running_pod(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...], kind: str
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        holder = pod("holder", 2, kind)
        assert (await kubelet.admit(holder)).admitted
        for _ in range(3):
            await kubelet.stop()
            await eventually(lambda: state(served) in ("waiting", "offered", "failed"))
            await kubelet.start()
            await kubelet.wait_for(GPU, healthy=4)
            # Real kubelets admit pods again 0.9 s after their socket; here: as soon as the plugin is back.
            assert (await kubelet.admit(holder)).admitted


@EITHER
async def test_the_kubelet_may_come_later(short_dir: Path, paths: tuple[RegistrationPath, ...]) -> None:
    for name in ("device-plugins", "plugins_registry"):
        (short_dir / name).mkdir()
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        why = f"resource {GPU} is waiting: no kubelet answers at {short_dir}/device-plugins/kubelet.sock"
        await eventually(lambda: served.waiting_for() == (why,))
        async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
            await kubelet.wait_for(GPU, healthy=4)


@EITHER
async def test_a_dead_kubelets_socket_is_no_kubelet(short_dir: Path, paths: tuple[RegistrationPath, ...]) -> None:
    async with Kubelet(short_dir, reconcile_interval=0.05):
        pass
    import socket

    for name in ("device-plugins", "plugins_registry"):
        (short_dir / name).mkdir(exist_ok=True)
    path = short_dir / "device-plugins" / "kubelet.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    served = door(short_dir, paths=paths, patience=0.3)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await eventually(lambda: state(served) == "waiting")
        async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
            await kubelet.wait_for(GPU, healthy=4)


@EITHER
async def test_a_deleted_socket_is_noticed_and_replaced(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        for _ in range(3):
            old = socket_of(served)
            old.unlink()
            await eventually(lambda: socket_of(served) != old and state(served) == "registered")  # noqa: B023
            await kubelet.wait_for(GPU, healthy=4)


@EITHER
async def test_a_stream_that_the_kubelet_ends_is_opened_again(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        kubelet.disconnect(GPU)
        await kubelet.wait_for(GPU, healthy=0)
        await kubelet.wait_for(GPU, healthy=4)


@EITHER
async def test_without_inotify_a_restart_is_still_noticed(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    def limit() -> Inotify:
        raise OSError(errno.EMFILE, "Too many open files")

    served = door(short_dir, paths=paths, open_watch=limit)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        await kubelet.stop()
        await kubelet.start()
        await kubelet.wait_for(GPU, healthy=4)
        socket_of(served).unlink()
        await kubelet.wait_for(GPU, healthy=4)


async def test_a_kubelet_that_does_not_ask_is_registered_with_by_register(short_dir: Path) -> None:
    async with Kubelet(short_dir, watch_plugins=False) as kubelet:
        (short_dir / "plugins_registry").mkdir(exist_ok=True)
        served = door(short_dir, patience=0.3)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await kubelet.wait_for(GPU, healthy=4)
            await eventually(lambda: state(served) == "registered")
            assert socket_of(served).parent == short_dir / "device-plugins"
            assert not list((short_dir / "plugins_registry").iterdir()), "one path at a time"


async def test_without_a_registry_folder_register_is_used_at_once(short_dir: Path) -> None:
    async with Kubelet(short_dir, watch_plugins=False) as kubelet:
        shutil.rmtree(short_dir / "plugins_registry", ignore_errors=True)
        served = door(short_dir)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await kubelet.wait_for(GPU, healthy=4)


async def test_only_one_path_is_used_where_both_work(short_dir: Path, kubelet: Kubelet) -> None:
    served = door(short_dir, paths=BOTH)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        assert socket_of(served).parent == short_dir / "plugins_registry"
        assert kubelet.register_calls[GPU] == 0
        assert not list((short_dir / "device-plugins").glob("ostler*"))


class RefusingKubelet(api_pb2_grpc.RegistrationServicer):
    """Refuses the first Register calls."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.requests: list[api_pb2.RegisterRequest] = []

    async def Register(
        self, request: api_pb2.RegisterRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> api_pb2.Empty:
        self.requests.append(request)
        if len(self.requests) <= self.refusals:
            await context.abort(grpc.StatusCode.UNKNOWN, "not today")
        return api_pb2.Empty()


@asynccontextmanager
async def refusing(root: Path, refusals: int) -> AsyncIterator[RefusingKubelet]:
    (root / "device-plugins").mkdir()
    server = grpc.aio.server()
    servicer = RefusingKubelet(refusals)
    api_pb2_grpc.add_RegistrationServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{root}/device-plugins/kubelet.sock")
    await server.start()
    yield servicer
    await server.stop(None)


async def test_a_refused_register_is_tried_again_and_its_reason_shown(short_dir: Path) -> None:
    async with refusing(short_dir, 3) as kubelet:
        served = door(short_dir, paths=REGISTER)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await eventually(lambda: state(served) == "failed")
            assert served.waiting_for() == (f"resource {GPU} is failed: not today",)
            await eventually(lambda: len(kubelet.requests) == 4)
            await eventually(lambda: state(served) == "offered")
    request = kubelet.requests[-1]
    assert (request.version, request.resource_name) == ("v1beta1", GPU)
    assert "/" not in request.endpoint
    assert request.endpoint.startswith("ostler-nvidia.com-gpu-")
    assert request.options.get_preferred_allocation_available


async def test_a_refusal_by_notification_is_answered_without_an_error_and_told(short_dir: Path) -> None:
    async with Kubelet(short_dir, watch_plugins=False):
        (short_dir / "plugins_registry").mkdir(exist_ok=True)
        told = RecordedEvents()
        served = door(short_dir, told, paths=REGISTRY)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await eventually(lambda: state(served) == "offered")
            async with grpc.aio.insecure_channel(f"unix:{socket_of(served)}") as channel:
                stub = registration_pb2_grpc.RegistrationStub(channel)
                info = await stub.GetInfo(registration_pb2.InfoRequest(), timeout=60)
                assert (info.type, info.name, info.endpoint) == ("DevicePlugin", GPU, "")
                assert list(info.supported_versions) == ["v1beta1"]
                await stub.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(error="no room"), timeout=60)
            await eventually(lambda: state(served) == "failed")
            assert told.of("RegistrationRefused") == [f"{GPU}: no room"]
            assert served.waiting_for() == (f"resource {GPU} is failed: no room",)


async def test_a_wiped_socket_folder_is_served_again_when_it_is_back(short_dir: Path, kubelet: Kubelet) -> None:
    served = door(short_dir, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        await kubelet.stop()
        shutil.rmtree(short_dir / "device-plugins")
        # It may have failed before, because the kubelet did not answer.
        fix = "the folder does not exist; create it or correct the setting"
        await eventually(lambda: any(fix in reason for reason in served.waiting_for()))
        assert state(served) == "failed"
        await kubelet.start()
        await kubelet.wait_for(GPU, healthy=4)


async def test_a_world_writable_registry_is_told_with_the_fix_and_served_once_it_is_mended(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told = RecordedEvents()
    (short_dir / "plugins_registry").chmod(0o777)
    served = door(short_dir, told)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await eventually(lambda: state(served) == "failed")
        assert "anybody may write to the folder (mode 0777); run 'chmod o-w' on it" in told.of("SocketFailed")[0]
        (short_dir / "plugins_registry").chmod(0o750)
        await kubelet.wait_for(GPU, healthy=4)


async def test_a_thousand_devices_are_served(short_dir: Path, kubelet: Kubelet) -> None:
    served = door(short_dir)
    served.apply(offer_of(GPU, *(offered(f"GPU-{index:036d}", index % 2) for index in range(1000))))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=1000)
        admission = await kubelet.admit(pod("big", 500))
        assert admission.admitted
        assert len(admission.devices["app"][GPU]) == 500


async def test_a_list_that_is_too_large_is_told_and_the_other_resources_are_served(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told = RecordedEvents()
    served = door(short_dir, told)
    huge = offer_of("nvidia.com/huge", *(offered("x" * 80 + str(index)) for index in range(50_000)))
    small = offer_of(GPU, *DEVICES)
    served.apply(type(small)((*small.resources, *huge.resources)))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        assert "a list of 50000 devices has" in told.of("ListTooLarge")[0]
        assert kubelet.resources() == (GPU,)
        assert [status.problem != "" for status in served.status()] == [False, True]
        shrunk = offer_of("nvidia.com/huge", offered("one"))
        served.apply(type(small)((*small.resources, *shrunk.resources)))
        await kubelet.wait_for("nvidia.com/huge", healthy=1)


async def test_a_resource_without_devices_stays_with_an_empty_list_until_the_rules_forget_it(
    short_dir: Path, kubelet: Kubelet
) -> None:
    served = door(short_dir)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await kubelet.wait_for(GPU, healthy=4)
        served.apply(offer_of("nvidia.com/other", offered("o")))
        await kubelet.wait_for(GPU, healthy=0)
        assert kubelet.capacity().capacity[GPU] == 0
        await kubelet.wait_for("nvidia.com/other", healthy=1)
        served.apply(offer_of("nvidia.com/other", offered("o")), forget_missing=True)
        await eventually(lambda: len(list((short_dir / "plugins_registry").glob("ostler*"))) == 1)
        assert [status.name for status in served.status()] == ["nvidia.com/other"]


async def test_long_resource_names_get_a_socket_name_that_fits(short_dir: Path, kubelet: Kubelet) -> None:
    long = f"{'a' * 60}.{'b' * 60}.example.com/{'c' * 63}"
    served = door(short_dir)
    served.apply(offer_of(long, *DEVICES))
    async with running(served):
        await kubelet.wait_for(long, healthy=4)
        assert len(str(socket_of(served, long))) <= 107
