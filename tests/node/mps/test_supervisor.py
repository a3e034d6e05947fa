"""The supervisor runs a real child process for a resource whose shares are in use, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from node.health.signal import Trouble
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.mps import daemon
from node.mps.daemon import MpsDaemon, MpsDevice, MpsError, MpsResource
from node.mps.processes import PROGRAM
from node.mps.reports import CRASHED, FAILED, MpsMetrics
from tests.making.mps_node import GIB, GPUS, HELD, NAME, NOBODY, OTHER, PACE, RESOURCE, MpsNode, is_clean, until


async def test_a_daemon_runs_from_the_first_need_to_the_last_share(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await asyncio.sleep(0.1)
        assert is_clean(node)
        await supervisor.ready(NAME)
        assert node.modes.modes == {"GPU-0": EXCLUSIVE_PROCESS, "GPU-1": EXCLUSIVE_PROCESS, "GPU-2": DEFAULT}
        supervisor.hold(HELD)
        log = node.driver.log(NAME)
        assert "devices GPU-0,GPU-1" in log
        assert "set_default_device_pinned_mem_limit GPU-0 20480M" in log
        assert "set_default_device_pinned_mem_limit GPU-1 20480M" in log
        assert "set_default_active_thread_percentage 25" in log
        assert (node.driver.home.root / NAME / "shm").stat().st_mode & 0o7777 == 0o1777
        assert node.mounts.sizes == [(256 << 20, 16384)]
        pid = node.pid
        await asyncio.sleep(0.5)
        assert node.pid == pid
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
        assert supervisor.faults() == {}
    assert node.events == []


async def test_a_daemon_is_not_stopped_while_a_share_is_allocated(node: MpsNode) -> None:
    """Who has a share is noted after it was allocated: the last release may be nearly ``linger`` seconds ago then."""
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        node.now = time.monotonic()
        supervisor.hold(NOBODY)
        for _ in range(4):
            supervisor.give(NAME)
            assert supervisor.is_ready(NAME)
            # Only what this test lets pass counts as time, and not what this machine needs for the rest.
            node.now += PACE.linger / 2
            await asyncio.sleep(PACE.linger)
        supervisor.give(NAME)
        supervisor.hold(HELD)
        assert (node.pid, supervisor.is_ready(NAME)) == (pid, True)


async def test_several_callers_wait_for_one_start(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await asyncio.gather(*(supervisor.ready(NAME) for _ in range(5)))
        assert node.driver.log(NAME).count("devices GPU-0,GPU-1") == 1


async def test_whoever_waits_for_a_resource_that_is_withdrawn_is_told(node: MpsNode) -> None:
    node.supervisor.use((RESOURCE,))
    waiting = asyncio.create_task(node.supervisor.ready(NAME))
    await asyncio.sleep(0)
    node.supervisor.use(())
    with pytest.raises(MpsError, match="its GPUs can no longer be shared by MPS; 'ostler devices' says why"):
        await waiting


async def test_shares_held_since_before_the_agent_get_their_daemon(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(HELD)
        await until(lambda: node.pid is not None)


async def test_a_resource_that_is_not_shared_needs_nothing(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready("nvidia.com/gpu")
        assert is_clean(node)


async def test_a_crashed_daemon_is_told_with_its_pods_and_started_again(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        first = node.pid
        pipe = node.driver.home.root / NAME / "pipe"
        (pipe / "left").touch()
        mounted = os.open(pipe, os.O_RDONLY)
        await node.tell("crash")
        await until(lambda: node.pid not in (None, first))
        await supervisor.ready(NAME)
        assert [entry.name for entry in pipe.iterdir()] == ["control"]
        assert os.fstat(mounted).st_nlink == 0, "pods could fill the folder that their containers have mounted"
        os.close(mounted)
    assert node.events == [
        (
            CRASHED,
            (
                f"{NAME} on gpu-0, gpu-1: the MPS control daemon ended; team/a, team/b lost their GPU contexts; "
                "restart them"
            ),
        )
    ]
    assert [(event.device, event.kind) for event in node.lost] == [("gpu-0", Trouble.MPS), ("gpu-1", Trouble.MPS)]
    assert {event.detail for event in node.lost} == {f"MPS of {NAME}: the MPS control daemon ended"}


async def test_a_crashed_server_is_told_and_the_daemon_goes_on(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        await node.tell("client")
        await until(lambda: node.driver.log(NAME)[-1] == "get_server_list")
        await until(lambda: supervisor._services[NAME]._servers == {4001})
        await node.tell("crash-server")
        await until(lambda: bool(node.events))
        assert node.pid == pid
    ((reason, message),) = node.events
    assert reason == CRASHED
    assert message.startswith(f"{NAME} on gpu-0, gpu-1: MPS server 4001 ended; see ")
    assert message.endswith("server.log; team/a, team/b lost their GPU contexts; restart them")


async def test_a_daemon_that_does_not_start_withholds_its_devices_until_it_does(node: MpsNode) -> None:
    node.driver.misbehave("refuse-start")
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError, match="ended with exit code 3"):
            await supervisor.ready(NAME)
        faults = supervisor.faults()
        assert set(faults) == {"gpu-0", "gpu-1"}
        assert faults["gpu-0"].startswith("MPS does not work: nvidia-cuda-mps-control ended with exit code 3; see ")
        assert (node.driver.home.root / NAME / "log").is_dir()
        await until(lambda: set(node.modes.modes.values()) == {DEFAULT})
        node.driver.misbehave("refuse-start", now=False)
        supervisor.hold(NOBODY)
        await until(lambda: not supervisor.faults())
        await until(lambda: is_clean(node))
    assert [reason for reason, _ in node.events] == [FAILED]
    assert node.changes >= 2


async def test_a_node_without_the_program_says_so_and_recovers(node: MpsNode) -> None:
    program = node.driver.binaries / "nvidia-cuda-mps-control"
    away = program.rename(program.with_suffix(".away"))
    async with node.agent(RESOURCE) as supervisor:
        assert "has no nvidia-cuda-mps-control; install the driver's compute utilities" in supervisor.faults()["gpu-0"]
        with pytest.raises(MpsError, match="has no nvidia-cuda-mps-control"):
            await supervisor.ready(NAME)
        away.rename(program)
        await until(lambda: not supervisor.faults())
        await supervisor.ready(NAME)


async def test_daemons_are_counted(node: MpsNode) -> None:
    node.driver.misbehave("refuse-start")
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError):
            await supervisor.ready(NAME)
        node.driver.misbehave("refuse-start", now=False)
        await until(lambda: not supervisor.faults())
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        assert node.metrics.daemons.values == {(NAME,): 1}
        await node.tell("crash")
        await until(lambda: bool(node.metrics.crashes.counts[(NAME,)]))
        await supervisor.ready(NAME)
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
    assert node.metrics.daemons.values == {(NAME,): 0}
    assert node.metrics.crashes.counts == {(NAME,): 1}
    counts = node.metrics.starts.counts
    assert counts[(NAME, "failed")] >= 1
    assert counts[(NAME, "started")] >= 2


def test_daemons_of_claims_are_counted_together() -> None:
    metrics = MpsMetrics()
    for name, clients, ratio in (("claim-1", 2, 0.5), ("claim-2", 3, 0.25)):
        metrics.begin(name)
        metrics.started(name, well=True)
        metrics.found(name, clients, ratio)
    assert (metrics.daemons.values, metrics.clients.values) == ({("",): 2}, {("",): 5})
    assert metrics.storage.values == {("",): 0.5}
    metrics.ended("claim-1")
    assert (metrics.daemons.values, metrics.clients.values) == ({("",): 1}, {("",): 3})


async def test_a_program_that_goes_as_the_daemon_starts_is_told(node: MpsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "hindrance", lambda _: "")
    (node.driver.binaries / PROGRAM).unlink()
    with pytest.raises(MpsError, match=f"/driver no longer has {PROGRAM}; ostler tries again, so finish"):
        await MpsDaemon(RESOURCE, node.driver.home).start()


async def test_a_new_gpu_waits_until_no_share_is_in_use(node: MpsNode) -> None:
    wider = MpsResource(NAME, (*GPUS, MpsDevice("gpu-2", "GPU-2", 20 * GIB)), 25)
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        supervisor.use((wider,))
        assert "runs without it" in supervisor.faults()["gpu-2"]
        assert set(supervisor.faults()) == {"gpu-2"}
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
        assert supervisor.faults() == {}
        await supervisor.ready(NAME)
        assert "devices GPU-0,GPU-1,GPU-2" in node.driver.log(NAME)


async def test_other_limits_reach_a_running_daemon(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await node.tell("client")
        supervisor.use((MpsResource(NAME, (MpsDevice("gpu-0", "GPU-0", GIB), GPUS[1]), 50),))
        await until(lambda: "set_active_thread_percentage 4001 50" in node.driver.log(NAME))
        told = node.driver.log(NAME)
    assert "set_default_active_thread_percentage 50" in told
    assert "set_default_device_pinned_mem_limit GPU-0 1024M" in told
    assert "set_device_pinned_mem_limit 4001 GPU-0 1024M" in told, "a default is of the next server alone"


async def test_two_resources_have_a_daemon_each(node: MpsNode) -> None:
    small = MpsResource(OTHER, (MpsDevice("gpu-2", "GPU-2"),))
    async with node.agent(RESOURCE, small) as supervisor:
        await asyncio.gather(supervisor.ready(NAME), supervisor.ready(OTHER))
        assert "devices GPU-0,GPU-1" in node.driver.log(NAME)
        log = node.driver.log(OTHER)
        assert "devices GPU-2" in log
        assert not [line for line in log if line.startswith("set_default")]


async def test_a_driver_below_a_root_of_its_own_has_its_libraries_linked(node: MpsNode) -> None:
    libraries = node.driver.home.driver_root / "usr/lib64"
    libraries.mkdir(parents=True)
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.570.1", "libc.so.6"):
        (libraries / name).touch()
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        folder = node.driver.home.root / "lib"
        assert f"libraries {folder}" in node.driver.log(NAME)
        assert sorted(link.name for link in folder.iterdir()) == [
            "libcuda.so.1",
            "libcuda.so.570.1",
            "libnvidia-ml.so.1",
            "libnvidia-ml.so.570.1",
        ]
        assert (folder / "libcuda.so.1").readlink() == libraries / "libcuda.so.570.1"


async def test_a_daemon_that_stops_answering_is_replaced(node: MpsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_ANSWER", 5.0)
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        node.driver.misbehave("deaf")
        await until(lambda: bool(node.events))
        node.driver.misbehave("deaf", now=False)
        await until(lambda: node.pid not in (None, pid))
    assert "does not answer 'get_server_list'" in node.events[0][1]
