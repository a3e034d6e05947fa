"""The supervisor runs a real child process for a resource whose shares are in use, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.clocks import SYSTEM
from node.events import EventBus, EventType
from node.files import JsonValue, write_record
from node.health.signal import HealthEvent, Trouble
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.mps import daemon, modes
from node.mps.daemon import MpsDaemon, MpsDevice, MpsError, MpsResource
from node.mps.modes import MpsRecord
from node.mps.processes import PROGRAM
from node.mps.reports import CRASHED, ENDED, FAILED, STORAGE_BUSY, STORAGE_FULL, MpsMetrics
from node.mps.service import MpsHolders, MpsPace
from node.mps.storage import MpsStorage, StorageUsage
from node.mps.supervisor import MpsSupervisor
from tests.making.mps import GpuModes, MpsStandIn

NAME, OTHER = "nvidia.com/gpu.shared", "nvidia.com/gpu.small"
GIB = 2**30
GPUS = (MpsDevice("gpu-0", "GPU-0", 20 * GIB), MpsDevice("gpu-1", "GPU-1", 20 * GIB))
RESOURCE = MpsResource(NAME, GPUS, 25)
PACE = MpsPace(look=0.1, linger=0.2, first_pause=0.05, longest_pause=0.2)
HELD = MpsHolders({NAME: ("team/a", "team/b")}, known=True)
NOBODY = MpsHolders({}, known=True)


class Node:
    """A node with the stand-in; ``supervisor`` is of the agent that runs."""

    def __init__(self, folder: Path) -> None:
        self.driver = MpsStandIn(folder)
        self.modes = GpuModes("GPU-0", "GPU-1", "GPU-2")
        self.path = folder / "mps.json"
        self.events: list[tuple[str, str]] = []
        self.changes = 0
        self.bus = EventBus()
        self.lost: list[HealthEvent] = []
        self.bus.subscribe(HealthEvent, self.lost.append)
        self.mounts = self.driver.mounts
        self.metrics = MpsMetrics()
        self.supervisor = self._made()

    def _made(self) -> MpsSupervisor:
        return MpsSupervisor(
            self.driver.home,
            self.modes,
            MpsRecord(self.path),
            clocks=SYSTEM,
            events=self,
            bus=self.bus,
            metrics=self.metrics,
            on_changed=self._changed,
            pace=PACE,
        )

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        assert kind is EventType.WARNING
        self.events.append((reason, message))

    def _changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def agent(self, *resources: MpsResource) -> AsyncIterator[MpsSupervisor]:
        """An agent that serves these resources until it ends."""
        self.supervisor = self._made()
        self.supervisor.use(resources)
        running = asyncio.create_task(self.supervisor.run())
        try:
            yield self.supervisor
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def pids(self) -> dict[str, int]:
        """Of the daemons on record, by their resource."""
        record = MpsRecord(self.path)
        record.read()
        return {name: daemon.pid for name, daemon in record.daemons.items()}

    @property
    def pid(self) -> int | None:
        """Of the resource's daemon on record."""
        return self.pids.get(NAME)

    async def tell(self, command: str) -> None:
        daemon = MpsDaemon(RESOURCE, self.driver.home)
        try:
            await daemon.ask(command)
        except MpsError:
            assert command == "crash"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for pid in made.pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def is_clean(node: Node) -> bool:
    """Whether nothing of MPS is left on the node."""
    return (
        set(node.modes.modes.values()) == {DEFAULT}
        and not node.path.exists()
        and not (node.driver.home.root / NAME).exists()
    )


async def test_a_daemon_runs_from_the_first_need_to_the_last_share(node: Node) -> None:
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


async def test_a_daemon_is_not_stopped_while_a_share_is_given_out(node: Node) -> None:
    """Who has a share is noted after it was given out: the last release may be nearly ``linger`` seconds ago then."""
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        supervisor.hold(NOBODY)
        until_noted = asyncio.get_running_loop().time() + 2 * PACE.linger
        while asyncio.get_running_loop().time() < until_noted:
            supervisor.give(NAME)
            assert supervisor.is_ready(NAME)
            await asyncio.sleep(0.01)
        supervisor.hold(HELD)
        assert (node.pid, supervisor.is_ready(NAME)) == (pid, True)


async def test_several_callers_wait_for_one_start(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await asyncio.gather(*(supervisor.ready(NAME) for _ in range(5)))
        assert node.driver.log(NAME).count("devices GPU-0,GPU-1") == 1


async def test_shares_held_since_before_the_agent_get_their_daemon(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(HELD)
        await until(lambda: node.pid is not None)


async def test_a_resource_that_is_not_shared_needs_nothing(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready("nvidia.com/gpu")
        assert is_clean(node)


async def test_a_crashed_daemon_is_told_with_its_pods_and_started_again(node: Node) -> None:
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


async def test_a_crashed_server_is_told_and_the_daemon_goes_on(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        await node.tell("client")
        await until(lambda: node.driver.log(NAME)[-1] == "get_server_list")
        await asyncio.sleep(0.3)
        await node.tell("crash-server")
        await until(lambda: bool(node.events))
        assert node.pid == pid
    ((reason, message),) = node.events
    assert reason == CRASHED
    assert message.startswith(f"{NAME} on gpu-0, gpu-1: MPS server 4001 ended; see ")
    assert message.endswith("server.log; team/a, team/b lost their GPU contexts; restart them")


async def test_a_daemon_that_does_not_start_withholds_its_devices_until_it_does(node: Node) -> None:
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


async def test_a_node_without_the_program_says_so_and_recovers(node: Node) -> None:
    program = node.driver.binaries / "nvidia-cuda-mps-control"
    away = program.rename(program.with_suffix(".away"))
    async with node.agent(RESOURCE) as supervisor:
        assert "has no nvidia-cuda-mps-control; install the driver's compute utilities" in supervisor.faults()["gpu-0"]
        with pytest.raises(MpsError, match="has no nvidia-cuda-mps-control"):
            await supervisor.ready(NAME)
        away.rename(program)
        await until(lambda: not supervisor.faults())
        await supervisor.ready(NAME)


async def test_a_node_where_nothing_can_be_mounted_says_so_and_recovers(node: Node) -> None:
    node.mounts.fault = "Operation not permitted"
    async with node.agent(RESOURCE) as supervisor:
        assert supervisor.faults()["gpu-0"] == (
            f"MPS does not work: the agent cannot mount a file system in {node.driver.home.root}: Operation not "
            "permitted; give the agent CAP_SYS_ADMIN and the calls mount, umount2 and unshare (docs/sharing.md says "
            "how)"
        )
        with pytest.raises(MpsError, match="cannot mount a file system"):
            await supervisor.ready(NAME)
        assert is_clean(node)
        node.mounts.fault = ""
        await until(lambda: not supervisor.faults())
        await supervisor.ready(NAME)


async def test_mounts_that_pods_do_not_get_are_no_use(node: Node) -> None:
    node.mounts.visible = False
    async with node.agent(RESOURCE) as supervisor:
        fault = supervisor.faults()["gpu-0"]
    assert f"what the agent mounts in {node.driver.home.root} stays in its own mount namespace" in fault
    assert "with mountPropagation: Bidirectional, or, in a systemd unit, give " in fault


async def test_what_an_agent_left_that_was_killed_before_the_daemon_is_removed(node: Node) -> None:
    storage = node.driver.home.storage
    node.driver.home.root.mkdir()
    for name in (NAME, OTHER):
        storage.make(name)
    (node.driver.home.root / "nvidia.com/gpu.empty").mkdir()
    async with node.agent(RESOURCE):
        await until(lambda: storage.names() == ("nvidia.com",))
    assert node.mounts.below(node.driver.home.root) == ()
    assert node.events == []


async def test_a_full_file_system_is_told_once_with_the_pods_that_have_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await node.tell("client")
        pid = node.pid
        monkeypatch.setattr(MpsStorage, "usage", lambda *_: StorageUsage(1 << 20, 1 << 20, 64, 7))
        await until(lambda: bool(node.events))
        looked = len(node.driver.log(NAME))
        await until(lambda: len(node.driver.log(NAME)) > looked + 2)
        assert node.pid == pid
        assert node.metrics.storage.values[(NAME,)] == 1.0
        assert node.metrics.clients.values[(NAME,)] == 2
        assert supervisor.faults() == {}
    assert node.events == [
        (
            STORAGE_FULL,
            (
                f"{NAME} on gpu-0, gpu-1: the file system of its MPS daemon is full (1 of 1 MiB, 7 of 64 files), so "
                "new processes of its pods may fail to use the GPU; one of team/a, team/b fills it: restart that "
                "pod, or raise nvidia.mpsFileSystemSize"
            ),
        )
    ]
    assert node.lost == [], "health policies may evict for lost servers, and none is lost"


async def test_a_full_file_system_of_all_daemons_is_not_laid_to_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MpsStorage, "usage", lambda *_: StorageUsage(1 << 20, 1 << 20, 64, 7, shared=True))
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await until(lambda: bool(node.events))
    assert node.events[0][1].endswith(
        "; a pod of any of the node's MPS daemons, which share it, fills it: restart that pod, or give nvidia.mpsRoot "
        "a larger one"
    )


async def test_a_file_system_in_use_is_detached_and_told(node: Node) -> None:
    node.mounts.busy = True
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
    ((reason, message),) = node.events
    folder = node.driver.home.root / NAME
    assert reason == STORAGE_BUSY
    assert (
        message
        == f"{NAME}: {folder} is still in use on the node; it was detached, and its memory is free when that ends"
    )


async def test_a_crashed_daemons_file_system_in_use_is_told_when_the_next_starts(node: Node) -> None:
    node.mounts.busy = True
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await node.tell("crash")
        await until(lambda: len(node.events) == 2)
        node.mounts.busy = False
    assert [reason for reason, _ in node.events] == [CRASHED, STORAGE_BUSY]


async def test_daemons_are_counted(node: Node) -> None:
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


async def test_a_mode_that_cannot_be_set_withholds_the_devices_and_changes_nothing(node: Node) -> None:
    node.modes.fault = "the agent lacks the right"
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError, match="compute mode of GPU-0: the agent lacks the right"):
            await supervisor.ready(NAME)
        assert node.driver.log(NAME) == []
        await until(lambda: not node.path.exists())
    assert node.pid is None


async def test_of_two_gpus_the_one_that_was_changed_is_set_back_if_the_other_cannot_be(node: Node) -> None:
    del node.modes.modes["GPU-1"]
    async with node.agent(RESOURCE) as supervisor:
        with pytest.raises(MpsError, match="compute mode of GPU-1: the driver no longer knows the GPU"):
            await supervisor.ready(NAME)
        await until(lambda: node.modes.modes["GPU-0"] == DEFAULT)


async def test_the_mode_that_a_gpu_had_comes_back(node: Node) -> None:
    node.modes.modes["GPU-1"] = 2
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        assert node.modes.modes["GPU-1"] == EXCLUSIVE_PROCESS
        supervisor.hold(NOBODY)
        await until(lambda: node.pid is None and not node.path.exists())
    assert node.modes.modes == {"GPU-0": DEFAULT, "GPU-1": 2, "GPU-2": DEFAULT}


async def test_the_next_agent_takes_over_a_daemon_with_shares(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    assert pid is not None
    assert node.modes.modes["GPU-0"] == EXCLUSIVE_PROCESS
    async with node.agent(RESOURCE) as supervisor:
        # Nobody is known to have a share yet, which is no reason to stop.
        await asyncio.sleep(0.5)
        assert node.pid == pid
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        assert node.pid == pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: node.pid not in (None, pid))
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))


async def test_an_agent_that_ends_without_shares_leaves_nothing(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await supervisor.ready(NAME)
    assert is_clean(node)


async def test_what_a_killed_agent_left_is_set_back_by_the_next(node: Node) -> None:
    record = MpsRecord(node.path)
    record.modes = {"GPU-0": DEFAULT, "GPU-2": DEFAULT}
    record.write()
    node.modes.modes.update({"GPU-0": EXCLUSIVE_PROCESS, "GPU-2": EXCLUSIVE_PROCESS})
    async with node.agent(RESOURCE):
        await until(lambda: node.modes.modes["GPU-2"] == DEFAULT)
        await until(lambda: is_clean(node))


async def test_a_daemon_of_a_resource_that_no_rule_has_any_more_is_ended(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    assert pid is not None
    async with node.agent(MpsResource(OTHER, GPUS[:1])):
        await until(lambda: not (node.driver.home.root / NAME).exists())
        await until(lambda: node.modes.modes["GPU-1"] == DEFAULT)
    text = "no rule shares it by MPS any more, so its control daemon was ended; restart pods that still have shares"
    assert node.events == [(ENDED, f"{NAME}: {text}")]


@pytest.mark.parametrize(("uuid", "whose"), [("GPU-2", "MPS of an earlier agent"), ("GPU-0", NAME)])
async def test_a_mode_of_before_that_cannot_be_set_back_is_told_at_the_start(node: Node, uuid: str, whose: str) -> None:
    record = MpsRecord(node.path)
    record.modes = {uuid: DEFAULT}
    record.write()
    node.modes.modes[uuid] = EXCLUSIVE_PROCESS
    node.modes.fault = "the agent lacks the right"
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await until(lambda: bool(node.events))
    text = f"{uuid} stays in compute mode EXCLUSIVE_PROCESS, not DEFAULT: the agent lacks the right"
    assert node.events == [(FAILED, f"{whose}: {text}")]


async def test_a_damaged_record_is_set_aside(node: Node) -> None:
    node.path.write_text("{")
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
    assert (node.path.parent / "mps.json.damaged-1").exists()


def test_what_is_written_last_is_what_was_known_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two resources write their common record at the same time, in threads."""
    record, slow, written = MpsRecord(tmp_path / "mps.json"), threading.Event(), threading.Event()

    def write(path: Path, schema: str, data: JsonValue) -> None:
        if not slow.is_set():
            slow.set()
            written.wait(0.3)  # Until the other one has been written, if it may be.
        write_record(path, schema, data)

    monkeypatch.setattr(modes, "write_record", write)
    record.modes["GPU-0"] = DEFAULT
    first = threading.Thread(target=record.write)
    first.start()
    assert slow.wait(20)
    record.modes["GPU-1"] = DEFAULT
    record.write()
    written.set()
    first.join()
    found = MpsRecord(tmp_path / "mps.json")
    found.read()
    assert found.modes == {"GPU-0": DEFAULT, "GPU-1": DEFAULT}


async def test_a_program_that_goes_as_the_daemon_starts_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "hindrance", lambda _: "")
    (node.driver.binaries / PROGRAM).unlink()
    with pytest.raises(MpsError, match=f"/driver no longer has {PROGRAM}; ostler tries again, so finish"):
        await MpsDaemon(RESOURCE, node.driver.home).start()


async def test_a_new_gpu_waits_until_no_share_is_in_use(node: Node) -> None:
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


async def test_the_next_agent_knows_which_gpus_a_daemon_was_started_for(node: Node) -> None:
    async with node.agent(MpsResource(NAME, (*GPUS[:1], MpsDevice("gpu-2", "GPU-2")), 25)) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        assert node.pid == pid
        assert set(supervisor.faults()) == {"gpu-1"}
        assert "runs without it; it is added when no share" in supervisor.faults()["gpu-1"]
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
        await supervisor.ready(NAME)
        assert "devices GPU-0,GPU-1" in node.driver.log(NAME)


async def test_other_limits_reach_a_running_daemon(node: Node) -> None:
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


async def test_two_resources_have_a_daemon_each(node: Node) -> None:
    small = MpsResource(OTHER, (MpsDevice("gpu-2", "GPU-2"),))
    async with node.agent(RESOURCE, small) as supervisor:
        await asyncio.gather(supervisor.ready(NAME), supervisor.ready(OTHER))
        assert "devices GPU-0,GPU-1" in node.driver.log(NAME)
        log = node.driver.log(OTHER)
        assert "devices GPU-2" in log
        assert not [line for line in log if line.startswith("set_default")]


async def test_a_driver_below_a_root_of_its_own_has_its_libraries_linked(node: Node) -> None:
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


async def test_a_daemon_that_stops_answering_is_replaced(node: Node) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        pid = node.pid
        node.driver.misbehave("deaf")
        await until(lambda: bool(node.events))
        node.driver.misbehave("deaf", now=False)
        await until(lambda: node.pid not in (None, pid))
    assert "does not answer 'get_server_list'" in node.events[0][1]
