"""The agent as a process that shares GPUs by MPS: the real binding on the stub library, and the stand-in daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from node.mps.mounts import KernelMounts, read_mounts
from node.mps.reports import CRASHED
from sandbox.node import SandboxNode
from tests.making.mounts import needs_mounts, propagating
from tests.making.mps import MpsStandIn
from tests.node.nvml import stub
from tests.ostler.agent.test_nvml import NvmlHardware
from tests.ostler.metrics.scraping import HTTP, samples, scrape
from tests.waiting import eventually

pytestmark = [*stub.needs_gcc, pytest.mark.needs_root, needs_mounts]

GPU = "nvidia.com/gpu.shared"


AnyNode = TypeVar("AnyNode", bound="SharingNode")


class SharingNode:
    """A node with eight GPUs that have compute modes, whose driver has the stand-in."""

    def __init__(self, folder: Path) -> None:
        self.hardware = NvmlHardware(folder, "h100-sxm-8")
        self.hardware.write(*(f"gpu{number}.compute_mode 0" for number in range(8)))
        self.driver = MpsStandIn(folder)
        self.root = self.driver.home.root
        self.records: list[Path] = []

    dev_root = "/"

    def configuration(self, *, dra: Mapping[str, object] | None = None, **rule: object) -> str:
        """One rule, which is given as its changes."""
        roots = {"driverRootMount": str(self.driver.home.driver_root), "mpsRoot": str(self.root)}
        nvidia = json.dumps({**roots, "devRoot": self.dev_root, "devRootMount": self.dev_root})
        made = {
            "name": GPU,
            "door": "both",  # only with an API server the end of the last pod is known at once
            "devices": {"vendor": "nvidia", "kind": "gpu"},
            "sharing": {"strategy": "mps", "replicas": 4},
            **rule,
        }
        text = json.dumps({key: value for key, value in made.items() if value is not None})
        head = f"apiVersion: ostler.dev/v1alpha1\nkind: Config\nnvidia: {nvidia}\ndra: {json.dumps(dra or {})}\n"
        return f"{head}resources: [{text}]\n"

    def box(self, *, dra: Mapping[str, object] | None = None, **rule: object) -> SandboxNode:
        """The node with one rule, which is given as its changes."""
        text = self.configuration(dra=dra, **rule)
        flags = {"--nvidia-library": str(self.hardware.library), **HTTP}
        return SandboxNode(None, flags=flags, configuration=text, reconcile_interval=0.05, cluster=True)

    @property
    def modes(self) -> set[str]:
        """The compute modes of the GPUs, as the driver has them."""
        changed = self.hardware.file.with_name(f"{self.hardware.file.name}.mig")
        lines = self.hardware.file.read_text() + (changed.read_text() if changed.exists() else "")
        return set(dict(re.findall(r"^gpu(\d)\.compute_mode (\d)$", lines, re.MULTILINE)).values())

    @property
    def daemons(self) -> list[int]:
        """Pids of control daemons below this driver's root."""
        found = []
        program = str(self.driver.binaries)
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
                if any(word.startswith(program) for word in words) and "-f" in words:
                    found.append(int(entry.name))
        return found


@contextlib.contextmanager
def with_hardware(made: AnyNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyNode]:
    """The node, whose daemons end with the test."""
    monkeypatch.setenv(stub.VARIABLE, str(made.hardware.file))
    with propagating(made.root):
        yield made
        for pid in made.daemons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharingNode]:
    with with_hardware(SharingNode(tmp_path), monkeypatch) as made:
        yield made


async def test_pods_share_by_mps_from_the_first_share_to_the_last(node: SharingNode) -> None:
    async with node.box() as box:
        await box.kubelet.wait_for(GPU, healthy=32)
        assert node.daemons == []
        first = await box.give(GPU, 1)
        assert first.admission.admitted
        assert first.response["envs"]["CUDA_MPS_PIPE_DIRECTORY"] == f"/mps/{GPU}/pipe"  # type: ignore[index]
        assert (node.root / GPU / "pipe").is_dir()
        assert node.modes == {"3"}
        (pid,) = node.daemons
        own = node.root / GPU
        limits = {"size=262144k", "nr_inodes=16384"}
        (mounted,) = (each for each in read_mounts(Path("/proc/self/mountinfo")) if each.point == own)
        assert limits <= set(mounted.options)
        seen = [each for each in read_mounts(Path(f"/proc/{pid}/mountinfo")) if each.point == Path("/dev/shm")]
        assert (seen[-1].device, seen[-1].root) == (mounted.device, "/shm")
        assert ("ostler_mps_daemons", frozenset({("resource", GPU)})) in samples(await scrape(box))
        second = await box.give(GPU, 2)
        assert second.admission.admitted
        assert node.daemons == [pid]
        assert first.response["envs"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"  # type: ignore[index]
        await box.over(first.pod)
        await box.over(second.pod)
        await eventually(lambda: node.daemons == [] and node.modes == {"0"}, "the daemon is stopped", within=60)
        assert not (node.root / GPU).exists()
        assert KernelMounts().below(node.root) == ()


async def test_a_killed_agents_daemon_goes_on_with_its_pods(node: SharingNode) -> None:
    async with node.box() as box:
        await box.kubelet.wait_for(GPU, healthy=32)
        given = await box.give(GPU, 1)
        (pid,) = node.daemons
        await box.restart_agent()
        await box.kubelet.wait_for(GPU, healthy=32)
        more = await box.give(GPU, 1)
        assert more.admission.admitted
        assert node.daemons == [pid]
        for pod in (given.pod, more.pod):
            await box.over(pod)
        await eventually(lambda: node.daemons == [] and node.modes == {"0"}, "the daemon is stopped", within=60)


async def test_an_agent_whose_rules_share_nothing_keeps_a_daemon_until_its_pod_has_ended(node: SharingNode) -> None:
    async with node.box() as box:
        await box.kubelet.wait_for(GPU, healthy=32)
        given = await box.give(GPU, 1)
        daemons = node.daemons
        assert (len(daemons), node.modes) == (1, {"3"})
        plain = node.configuration(sharing=None)
        assert plain is not None
        (box.root / "ostler.yaml").write_text(plain)
        await box.restart_agent()

        await eventually(lambda: _named(box, given.pod), "the pod is seen at the kubelet")
        await box.kubelet.wait_for(GPU, healthy=7, within=60)
        assert node.daemons == daemons
        await box.over(given.pod)
        await eventually(lambda: node.daemons == [] and node.modes == {"0"}, "the daemon is stopped", within=60)
        assert not (node.root / GPU).exists()
        await box.kubelet.wait_for(GPU, healthy=8, within=60)


async def test_pods_of_a_crashed_daemon_are_named(node: SharingNode) -> None:
    async with node.box() as box:
        await box.kubelet.wait_for(GPU, healthy=32)
        given = await box.give(GPU, 1)
        (pid,) = node.daemons
        await eventually(lambda: _named(box, given.pod), "the pod is seen at the kubelet")
        os.kill(pid, signal.SIGKILL)

        async def told() -> bool:
            events = (await box.agent.status()).events
            return any(event.reason == CRASHED and given.pod in event.message for event in events)

        await eventually(told, "the event names the pod", within=60)
        await eventually(lambda: node.daemons not in ([], [pid]), "another daemon runs", within=60)


async def _named(box: SandboxNode, pod: str) -> bool:
    devices = (await box.agent.holds()).devices
    return any(hold.holder == f"default/{pod}" for device in devices for hold in device.holds)


async def test_a_daemon_that_does_not_start_refuses_the_pod_and_withholds_the_gpus(node: SharingNode) -> None:
    node.driver.misbehave("refuse-start")
    async with node.box() as box:
        await box.kubelet.wait_for(GPU, healthy=32)
        refused = await box.give(GPU, 1)
        assert not refused.admission.admitted
        assert "MPS does not work: nvidia-cuda-mps-control ended with exit code 3" in str(refused.admission)
        await box.kubelet.wait_for(GPU, healthy=0)
        assert node.modes == {"0"} or await _becomes_default(node)
        node.driver.misbehave("refuse-start", now=False)
        await box.kubelet.wait_for(GPU, healthy=32, within=120)


async def _becomes_default(node: SharingNode) -> bool:
    await eventually(lambda: node.modes == {"0"}, "the compute modes are set back", within=60)
    return True
