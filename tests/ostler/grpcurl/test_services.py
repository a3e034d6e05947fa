"""Every service and every method of a running agent, found by reflection and called with the real grpcurl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.docs.markdown import blocks
from tests.docs.shell import commands
from tests.ostler.grpcurl.asking import ask, first, grpcurl, methods, services

GPU = "nvidia.com/gpu"
AGENT = "ostler.agent.v1alpha1.Agent"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
PLUGIN = "v1beta1.DevicePlugin"
REGISTRATION = "pluginregistration.Registration"

Calls = dict[str, tuple[dict[str, object], str]]
"""By method: the request, and what the answer has in it."""

COMMON: Calls = {
    f"{HEALTH}.Check": ({}, '"status": "SERVING"'),
    f"{REFLECTION}.ServerReflectionInfo": ({"list_services": ""}, HEALTH),
}
ADMIN_CALLS: Calls = {
    **COMMON,
    f"{AGENT}.GetStatus": ({}, '"registration": "registered"'),
    f"{AGENT}.ListDevices": ({}, '"offered_as": "Healthy"'),
    f"{AGENT}.GetTopology": ({}, '"places"'),
    f"{AGENT}.Rescan": ({}, '"generation"'),
    f"{AGENT}.Reload": ({}, "{"),
    f"{AGENT}.Quiesce": ({"reason": "driver 580"}, '"generation"'),
    f"{AGENT}.Resume": ({}, '"generation"'),
    f"{AGENT}.ListHolds": ({}, '"status"'),
    f"{AGENT}.ListHealth": ({}, '"state": "healthy"'),
}
REFUSED = {
    **dict.fromkeys((f"{AGENT}.ListSlices", f"{AGENT}.ListClaims"), "no resource is offered through DRA"),
    **dict.fromkeys((f"{AGENT}.{name}" for name in ("ReleaseHold", "ClearHealth")), "this node has no device"),
    f"{AGENT}.SetHealth": "state: must be healthy, degraded or unhealthy, not ''",
    f"{AGENT}.ReleaseBrake": "kind",
}
"""What a node without the DRA door says to these, and what is said to whoever names nothing."""
STREAMS = {f"{HEALTH}.Watch": '"status": "SERVING"', f"{PLUGIN}.ListAndWatch": '"health": "Healthy"'}


def plugin_calls(ids: list[str]) -> Calls:
    wanted = {"available_deviceIDs": ids, "allocation_size": 1}
    return {
        **COMMON,
        f"{PLUGIN}.GetDevicePluginOptions": ({}, '"get_preferred_allocation_available": true'),
        f"{PLUGIN}.GetPreferredAllocation": ({"container_requests": [wanted]}, '"deviceIDs"'),
        f"{PLUGIN}.Allocate": ({"container_requests": [{"devices_ids": ids[:1]}]}, "NVIDIA_VISIBLE_DEVICES"),
        f"{PLUGIN}.PreStartContainer": ({"devices_ids": ids[:1]}, "{"),
        f"{REGISTRATION}.GetInfo": ({}, f'"name": "{GPU}"'),
        f"{REGISTRATION}.NotifyRegistrationStatus": ({"plugin_registered": True}, "{"),
    }


@asynccontextmanager
async def node(*arguments: str) -> AsyncIterator[SandboxNode]:
    grpcurl()
    async with SandboxNode(path("l4-2"), arguments=arguments, reconcile_interval=0.05) as box:
        await box.registered()
        yield box


def admin_socket(box: SandboxNode) -> Path:
    return box.root / "ostler.sock"


async def plugin_socket(box: SandboxNode) -> Path:
    status = await box.agent.status()
    return Path(status.resources[0].socket)


async def call_all(socket: Path, calls: Calls) -> None:
    """Call every method that reflection tells of; one that ``calls`` and ``STREAMS`` do not know is a failure."""
    found = [method for service in await services(socket) for method in await methods(socket, service)]
    known = {*STREAMS, *REFUSED}
    assert {*found} == {*calls, *(method for method in known if method in found)}
    for method in found:
        name = "/".join(method.rsplit(".", 1))
        if method in STREAMS:
            assert STREAMS[method] in await first(socket, name, data={}), method
            continue
        if method in REFUSED:
            assert REFUSED[method] in (await ask(socket, name, data={})).err, method
            continue
        data, said = calls[method]
        answer = await ask(socket, name, data=data)
        assert (answer.code, answer.err) == (0, ""), method
        assert said in answer.out, method


async def test_every_method_of_the_agents_own_socket_is_listed_and_answers() -> None:
    async with node() as box:
        socket = admin_socket(box)
        assert await services(socket) == [HEALTH, REFLECTION, AGENT]
        await call_all(socket, ADMIN_CALLS)
        # The agent has resumed: what was called has changed nothing for the kubelet.
        await box.kubelet.wait_for(GPU, healthy=2)


async def test_every_method_of_a_plugins_socket_is_listed_and_answers() -> None:
    async with node() as box:
        socket = await plugin_socket(box)
        assert await services(socket) == [HEALTH, REFLECTION, REGISTRATION, PLUGIN]
        await call_all(socket, plugin_calls([device.id for device in box.kubelet.devices(GPU)]))
        assert (await box.give(GPU, 2)).admission.admitted, "the kubelet is served as before"


async def test_every_service_describes_itself_without_proto_files() -> None:
    async with node() as box:
        for socket in (admin_socket(box), await plugin_socket(box)):
            for service in await services(socket):
                answer = await ask(socket, "describe", service)
                assert answer.code == 0, answer.err
                assert f"{service} is a service:" in answer.out
        message = await ask(admin_socket(box), "describe", ".ostler.agent.v1alpha1.QuiesceRequest")
        assert "string reason = 1;" in message.out


async def test_health_of_each_service_can_be_asked_by_its_name() -> None:
    async with node() as box:
        for socket in (admin_socket(box), await plugin_socket(box)):
            for service in (name for name in await services(socket) if name != REFLECTION):
                answer = await ask(socket, f"{HEALTH}/Check", data={"service": service})
                assert json.loads(answer.out) == {"status": "SERVING"}, service
        nobody = await ask(admin_socket(box), f"{HEALTH}/Check", data={"service": "nobody"})
        assert "Code: NotFound" in nobody.err


async def test_a_stream_goes_on_with_every_change_and_ends_with_its_client() -> None:
    async with node() as box:
        assert box.hardware is not None
        socket = await plugin_socket(box)
        watching = asyncio.create_task(ask(socket, f"{PLUGIN}/ListAndWatch", data={}))
        await asyncio.sleep(0)
        await _streams(box, 2)
        box.hardware.fail(0)
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=1)
        await box.agent.stop()
        answer = await watching
        assert answer.out.count('"devices"') == 2
        assert answer.out.count('"health": "Unhealthy"') == 1


async def _streams(box: SandboxNode, count: int) -> None:
    async with asyncio.timeout(60):
        while (await box.agent.status()).resources[0].open_streams != count:
            await asyncio.sleep(0.01)


async def test_refusals_can_be_read() -> None:
    async with node() as box:
        socket = await plugin_socket(box)
        wanted = {"container_requests": [{"devices_ids": ["GPU-nobody"]}]}
        refused = await ask(socket, f"{PLUGIN}/Allocate", data=wanted)
        assert refused.err == f"ERROR:\n  Code: InvalidArgument\n  Message: {GPU}: unknown device ids GPU-nobody\n"
        misspelt = await ask(socket, f"{PLUGIN}/Allocate", data={"containers": []})
        assert "no known field named containers" in misspelt.err
        unknown = await ask(socket, f"{PLUGIN}/Free", data={})
        assert 'does not include a method named "Free"' in unknown.err


async def test_a_reload_that_is_refused_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\n")
    async with node("--config", str(config)) as box:
        config.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\nresource: []\n")
        answer = await ask(admin_socket(box), f"{AGENT}/Reload", data={})
        assert "Code: FailedPrecondition" in answer.err
        assert "resource" in answer.err
        assert str(config) in answer.err


@pytest.mark.parametrize("gone", [True, False], ids=["no-socket", "nobody-listens"])
async def test_a_socket_that_nobody_serves_is_told(short_dir: Path, gone: bool) -> None:
    socket = short_dir / "ostler.sock"
    if not gone:
        async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
            await box.agent.stop()
            socket = admin_socket(box)
            answer = await ask(socket, "list")
    else:
        answer = await ask(socket, "list")
    assert answer.code != 0
    assert str(socket) in answer.err


async def test_the_commands_of_the_page_run_as_they_are_written() -> None:
    async with node() as box:
        given = {
            "unix:///run/ostler/ostler.sock": f"unix://{admin_socket(box)}",
            "unix://$SOCKET": f"unix://{await plugin_socket(box)}",
            '"GPU-1"': f'"{box.kubelet.devices(GPU)[0].id}"',
        }
        typed = [each.words for block in blocks("docs/grpcurl.md") for each in commands(block.text) if each.words]
        asked = [words for words in typed if words[0] == "grpcurl"]
        assert len(asked) >= 10
        for words in asked:
            line = "\n".join(words)
            for written, meant in given.items():
                line = line.replace(written, meant)
            process = await asyncio.create_subprocess_exec(
                grpcurl(), *line.split("\n")[1:], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, err = await process.communicate()
            assert out, words
            assert process.returncode == 0 or b"DeadlineExceeded" in err, err
