"""Which processes compute on a device, as NVML and /proc say it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.inventory.devices import devices_of
from node.inventory.facts import NvmlFacts
from node.inventory.identity import Identities
from node.inventory.model import Device
from node.inventory.nvidia.nvml import NvmlSource
from node.inventory.nvidia.nvml_processes import NvmlProcesses, ProcessesUnknownError
from node.ledger.processes import Process
from node.values import replace
from tests.node.nvml import nodes, stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc

NODE_NAMESPACE = "pid:[4026531836]"


class Asking:
    """Hardware, the source that has it open, and who asks; ``proc`` shows the processes that are put there."""

    def __init__(self, hardware: InjectedNvml, proc: Path) -> None:
        self.hardware = hardware
        self.proc = proc
        self.source = NvmlSource(Path("/"), hardware.library, proc=proc)
        self.processes = NvmlProcesses(self.source.sessions, proc)
        self.namespace(NODE_NAMESPACE)

    def namespace(self, name: str) -> None:
        link = self.proc / "self" / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def run(self, pid: int, name: str) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "comm").write_text(f"{name}\n")

    def devices(self) -> dict[str, Device]:
        return {device.name: device for device in devices_of(self.source.read(), Identities())}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Asking]]:
    made: list[Asking] = []

    def serve(facts: NvmlFacts, without: tuple[str, ...] = ()) -> Asking:
        hardware = InjectedNvml(tmp_path / "driver", facts, without)
        monkeypatch.setenv(*next(iter(hardware.environment.items())))
        made.append(Asking(hardware, tmp_path / "proc"))
        return made[-1]

    yield serve
    for asking in made:
        asking.source.close()


GPU = "gpu-0000-1b-00-0"


def test_processes_are_told_by_pid_and_name(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    device = asking.devices()[GPU]
    assert asking.processes.compute_processes(device) == ()
    asking.run(4711, "python3")
    asking.hardware.processes(0, (4712, 4096), (4711, 1 << 30))
    assert asking.processes.compute_processes(device) == (Process(4711, "python3"), Process(4712, ""))
    asking.hardware.processes(0)
    assert asking.processes.compute_processes(device) == ()


def test_many_processes_are_told_all(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    asking.hardware.processes(0, *((pid, 1) for pid in range(100, 300)))
    told = asking.processes.compute_processes(asking.devices()[GPU])
    assert told is not None
    assert [process.pid for process in told] == list(range(100, 300))


def test_a_mig_device_tells_its_own_processes(served: Callable[..., Asking]) -> None:
    asking = served(nodes.partitioned())
    devices = asking.devices()
    first, second = devices["mig-0000-1b-00-0-4-4"], devices["mig-0000-1b-00-0-0-2-c1"]
    asking.hardware.processes(0, (10, 1, 1, 0), (11, 1, 5, 1))
    asking.hardware.processes(0, (10, 1, 1, 0), mig=0)
    asking.hardware.processes(0, (11, 1, 5, 1), mig=4)
    assert asking.processes.compute_processes(first) == (Process(10),)
    assert asking.processes.compute_processes(second) == (Process(11),)
    whole = asking.processes.compute_processes(devices[GPU])
    assert whole == (Process(10), Process(11))


def test_an_older_library_is_asked_by_its_own_call(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx(), ("nvmlDeviceGetComputeRunningProcesses_v3",))
    asking.hardware.processes(0, (10, 1))
    assert asking.processes.compute_processes(asking.devices()[GPU]) == (Process(10),)


def test_a_library_without_the_calls_never_tells(served: Callable[..., Asking]) -> None:
    calls = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    asking = served(nodes.hgx(), calls)
    assert asking.processes.compute_processes(asking.devices()[GPU]) is None


def test_a_board_that_does_not_tell_never_tells(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    asking.hardware.fail("nvmlDeviceGetComputeRunningProcesses_v3", "NOT_SUPPORTED", gpu=0)
    assert asking.processes.compute_processes(asking.devices()[GPU]) is None


def test_in_another_pid_namespace_nothing_is_told(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    asking.namespace("pid:[4026532000]")
    asking.hardware.processes(0, (10, 1))
    assert asking.processes.compute_processes(asking.devices()[GPU]) is None


def test_a_lost_gpu_cannot_tell_at_the_moment(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    device = asking.devices()[GPU]
    asking.hardware.lose(0)
    with pytest.raises(ProcessesUnknownError) as unknown:
        asking.processes.compute_processes(device)
    assert str(unknown.value) == (f"cannot read the processes on {GPU}: nvmlDeviceGetHandleByIndex says GPU_IS_LOST")
    asking.hardware.find(0)
    assert asking.processes.compute_processes(device) == ()


def test_without_a_session_it_cannot_be_told_at_the_moment(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    device = asking.devices()[GPU]
    asking.source.close()
    with pytest.raises(ProcessesUnknownError) as unknown:
        asking.processes.compute_processes(device)
    assert str(unknown.value) == f"cannot read the processes on {GPU}: NVML is not open"


def test_a_device_whose_number_another_one_has_now_is_found_by_its_uuid(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    device = asking.devices()[GPU]
    asking.hardware.processes(0, (10, 1))
    assert asking.processes.compute_processes(replace(device, index="3")) == (Process(10),)


def test_a_device_that_is_gone_is_not_taken_for_another(served: Callable[..., Asking]) -> None:
    asking = served(nodes.hgx())
    device = replace(asking.devices()[GPU], uuid="GPU-gone")
    with pytest.raises(ProcessesUnknownError, match="nvmlDeviceGetHandleByUUID says NOT_FOUND"):
        asking.processes.compute_processes(device)
