"""Commands that talk to a running agent, as a person would type them."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ostler.cli.main import main
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.making.commands import command

GPU = "nvidia.com/gpu"


@pytest.fixture
async def box() -> AsyncIterator[SandboxNode]:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as started:
        await started.registered()
        yield started


async def ostler(*words: str, code: int = 0) -> tuple[str, str]:
    done = await command(*words)
    assert done.code == code, done.err
    return done.out, done.err


async def test_status_tells_role_readiness_and_registration(box: SandboxNode) -> None:
    out, _ = await ostler("status", "--socket", box.agent.flags["--socket"])
    assert f"process {box.agent.pid}: active, ready" in out
    row = next(line for line in out.splitlines() if line.startswith(GPU))
    assert row.split()[1:4] == ["2/2", "registered", "registry"]
    out, _ = await ostler("status", "-o", "json", "--socket", box.agent.flags["--socket"])
    assert json.loads(out)["resources"][0]["open_streams"] == 1


async def test_devices_come_from_the_agent(box: SandboxNode) -> None:
    out, err = await ostler("devices", "--socket", box.agent.flags["--socket"])
    assert err == ""
    assert out.count("nvidia.com/gpu (Healthy)") == 2


async def test_rescan_tells_what_changed(box: SandboxNode) -> None:
    socket = box.agent.flags["--socket"]
    assert (await ostler("rescan", "--socket", socket))[0] == "nothing changed\n"
    assert box.hardware is not None
    box.hardware.fail(0)
    out, _ = await ostler("rescan", "--socket", socket)
    assert "health healthy -> unhealthy" in out
    out, _ = await ostler("devices", "--socket", socket)
    assert "nvidia.com/gpu (Unhealthy)" in out
    assert "the GPU is lost" in out


async def test_reload_without_changes_says_so(box: SandboxNode) -> None:
    assert (await ostler("reload", "--socket", box.agent.flags["--socket"]))[0] == "nothing changed\n"


async def test_probe_shows_services_options_and_list_of_a_plugin_socket(box: SandboxNode) -> None:
    socket = next((box.root / "kubelet" / "plugins_registry").glob("ostler*"))
    out, _ = await ostler("probe", str(socket), "-o", "json")
    document = json.loads(out)
    assert (
        "Allocate(v1beta1.AllocateRequest) returns (v1beta1.AllocateResponse)"
        in document["services"]["v1beta1.DevicePlugin"]
    )
    assert document["registration"]["name"] == GPU
    assert document["options"]["get_preferred_allocation_available"] is True
    assert len(document["list"]["devices"]) == 2


async def test_probe_shows_the_agents_own_service_and_the_kubelets_pods(box: SandboxNode) -> None:
    out, _ = await ostler("probe", box.agent.flags["--socket"], "-o", "json")
    document = json.loads(out)
    assert "ostler.agent.v1alpha1.Agent" in document["services"]
    assert document["status"]["ready"] is True
    out, _ = await ostler("probe", str(box.root / "kubelet" / "pod-resources" / "kubelet.sock"), "-o", "json")
    assert "pods" in json.loads(out)


async def test_the_socket_is_for_root_only(box: SandboxNode) -> None:
    assert Path(box.agent.flags["--socket"]).stat().st_mode & 0o777 == 0o600


async def test_an_agent_that_hangs_is_not_one_that_is_not_there(
    box: SandboxNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ostler.cli.holds.TIMEOUT", 0.5)
    socket = box.agent.flags["--socket"]
    box.agent.send(signal.SIGSTOP)
    try:
        assert await asyncio.to_thread(main, ["holds", "--socket", socket]) == 1
    finally:
        box.agent.send(signal.SIGCONT)
    assert f"the agent at {socket} has not answered in time" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["status", "holds", "devices"])
async def test_output_that_cannot_be_written_is_an_error_and_output_that_nobody_wants_is_none(
    box: SandboxNode, name: str
) -> None:
    words = [sys.executable, "-m", "ostler", name, "--socket", box.agent.flags["--socket"]]
    for output, code, said in (
        (">&-", 0, ""),
        (">/dev/full", 1, "ostler: standard output cannot be written: No space left on device\n"),
    ):
        process = await asyncio.create_subprocess_shell(
            f"env -u PYTHONUNBUFFERED {shlex.join(words)} {output}", stderr=asyncio.subprocess.PIPE
        )
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, err.decode()) == (code, said)
