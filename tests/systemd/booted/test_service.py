"""The service's life: started, ready, killed, hanging, reloaded, stopped, with a kubelet that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.systemd.booted.conftest import CONFIG
from tests.systemd.booted.machine import BootedMachine
from tests.waiting import eventually

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(1800)]

RESOURCE = "nvidia.com/gpu"


@pytest.fixture
async def kubelet(machine: BootedMachine) -> AsyncIterator[Kubelet]:
    """A kubelet in the machine's folder, and the service started beside it."""
    folder = machine.root / "var/lib/kubelet"
    folder.mkdir(mode=0o750)
    kubelet = Kubelet(folder, reconcile_interval=0.2)
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


def _runs_anew(machine: BootedMachine, before: int) -> bool:
    """Whether the service runs, as another process than before."""
    return machine.pid() not in (0, before) and machine.show("SubState") == "running"


def _was_heard(machine: BootedMachine, before: str) -> bool:
    """Whether systemd has had a sign of life since."""
    return machine.show("WatchdogTimestampMonotonic") != before


def _drop_in(machine: BootedMachine, text: str) -> None:
    folder = machine.root / "etc/systemd/system/ostler.service.d"
    folder.mkdir(parents=True)
    (folder / "test.conf").write_text(text)
    machine.run("systemctl", "daemon-reload")


async def test_it_is_ready_when_start_returns_and_the_kubelet_gets_its_devices(
    machine: BootedMachine, kubelet: Kubelet
) -> None:
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    assert machine.show("ActiveState") == "active"
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)
    admission = await kubelet.admit(Pod("uid-1", "pod-1", containers=(Container("main", limits={RESOURCE: 2}),)))
    assert admission.admitted
    assert len(admission.devices["main"][RESOURCE]) == 2
    await eventually(lambda: machine.show("StatusText") == "active; ready", "the status line says ready")


async def test_without_a_kubelet_the_service_is_up_and_says_what_it_waits_for(machine: BootedMachine) -> None:
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    assert machine.show("ActiveState") == "active"
    waiting = f"active; not ready; resource {RESOURCE} is waiting"
    await eventually(lambda: machine.show("StatusText") == waiting, "the status line says what it waits for")
    assert {path.name for path in (machine.root / "var/lib/kubelet").iterdir()} >= {
        "device-plugins",
        "plugins_registry",
    }
    modes = machine.run(
        "stat", "--format=%a", "/var/lib/kubelet", "/var/lib/kubelet/device-plugins", "/run/cdi"
    ).split()
    assert modes == ["750", "750", "755"]


async def test_a_hanging_agent_is_ended_by_the_watchdog_and_started_again(
    machine: BootedMachine, kubelet: Kubelet
) -> None:
    _drop_in(machine, "[Service]\nWatchdogSec=6\n")
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)
    first = machine.pid()
    machine.kill("STOP")
    await eventually(partial(_runs_anew, machine, first), within=120)
    assert machine.show("NRestarts") == "1"
    # The journal is written by another process.
    await eventually(lambda: "Watchdog timeout" in machine.journal(), "the journal says why it was ended")
    await eventually(lambda: "Fatal Python error: Aborted" in machine.journal(), "the journal says where it hung")
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)


async def test_a_live_agent_is_left_alone_by_the_watchdog(machine: BootedMachine) -> None:
    _drop_in(machine, "[Service]\nWatchdogSec=4\n")
    machine.run("systemctl", "start", "ostler")
    first = machine.pid()
    stamp = machine.show("WatchdogTimestampMonotonic")
    for _ in range(4):  # Signs of life for longer than the watchdog has patience.
        await eventually(partial(_was_heard, machine, stamp), within=120)
        stamp = machine.show("WatchdogTimestampMonotonic")
    assert machine.pid() == first


async def test_a_killed_agent_is_started_again_however_often(machine: BootedMachine, kubelet: Kubelet) -> None:
    _drop_in(machine, "[Service]\nRestartSec=50ms\n")
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    for _ in range(7):  # More than systemd's own limit of five in ten seconds.
        killed = machine.pid()
        machine.kill("KILL")
        await eventually(partial(_runs_anew, machine, killed), within=120)
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)


@pytest.mark.parametrize("way", ["systemctl reload ostler", "systemctl kill --kill-whom=main --signal=HUP ostler"])
async def test_a_reload_puts_the_new_configuration_in_force(machine: BootedMachine, kubelet: Kubelet, way: str) -> None:
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)
    first = machine.pid()
    config = machine.root / "etc/ostler/config.yaml"
    config.write_text(config.read_text() + "resources: [{name: example.com/gpu, devices: {kind: gpu}}]\n")
    await eventually(machine.answers, "the agent's socket is there")
    await asyncio.to_thread(machine.run, *way.split())
    await kubelet.wait_for("example.com/gpu", healthy=8, within=120)
    assert machine.pid() == first
    await eventually(lambda: machine.show("ActiveState") == "active", "the reload is over")


async def test_a_reload_of_a_bad_configuration_fails_with_its_reason_and_changes_nothing(
    machine: BootedMachine, kubelet: Kubelet
) -> None:
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)
    await eventually(machine.answers, "the agent's socket is there")
    (machine.root / "etc/ostler/config.yaml").write_text(CONFIG + "resorces: []\n")
    told = machine.run("systemctl", "reload", "ostler", check=False, errors=True)
    assert "Job for ostler.service failed" in told
    await eventually(lambda: "resorces" in machine.journal(), "the journal says why")
    assert machine.show("ActiveState") == "active"
    assert machine.answers()


async def test_a_stop_leaves_nothing_but_the_state(machine: BootedMachine, kubelet: Kubelet) -> None:
    await asyncio.to_thread(machine.run, "systemctl", "start", "ostler")
    await kubelet.wait_for(RESOURCE, healthy=8, within=120)
    await asyncio.to_thread(machine.run, "systemctl", "stop", "ostler")
    assert machine.show("Result") == "success"
    left = machine.run("find", "/run/ostler", "/var/lib/kubelet", "/run/cdi", "-name", "*ostler*", check=False)
    assert left.split() == []
    assert machine.run("ls", "/run/cdi").split() == []
    assert machine.run("ls", "/var/lib/ostler").split() == ["identities.json", "lock"]
    assert machine.run("sh", "-c", "grep -l '[o]stler' /proc/[0-9]*/cmdline || true").split() == []


async def test_the_journal_has_levels(machine: BootedMachine) -> None:
    machine.run("systemctl", "start", "ostler")
    machine.kill("HUP")
    (machine.root / "etc/ostler/config.yaml").write_text("kind: [\n")
    machine.kill("HUP")
    problem = "the configuration is not usable"
    await eventually(lambda: problem in machine.journal("--priority=warning"), "the warning is in the journal")
    warnings = machine.journal("--priority=warning")
    assert "level=warning" in warnings
    assert "level=info" not in warnings
    assert "<4>" not in warnings


async def test_an_ostler_that_cannot_start_says_why_and_is_tried_again(machine: BootedMachine) -> None:
    _drop_in(machine, "[Service]\nRestartSec=50ms\n")
    (machine.root / "etc/ostler/config.yaml").write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\nhttp: 7\n")
    machine.run("systemctl", "start", "ostler", check=False)
    await eventually(lambda: int(machine.show("NRestarts")) >= 2, "it is started again")
    await eventually(lambda: "the configuration is not usable" in machine.journal(), "the journal says so")
    await eventually(lambda: "http" in machine.journal(), "the journal says why")
