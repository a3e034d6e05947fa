"""The modules that an agent loads before it registers with the kubelet: a list, since each of them delays every pod.

The list is that of an NVIDIA node with one door. It has our own modules one by one, and the packages of others by name.
Python's own library is left out, because it differs between versions.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from bench.hardware import Hardware
from bench.kubelet import BareKubelet, Context
from bench.plugins import AgentPlugin
from protos.deviceplugin.v1beta1 import api_pb2
from tests.node.nvml import stub
from tests.waiting import eventually

pytestmark = stub.needs_gcc

BUDGET = Path(__file__).with_name("imports.txt")
OURS = ("driver", "kube", "node", "ostler", "plugin", "protos", "sandbox", "scheduling", "systemd")
OTHERS = (
    "google.protobuf",
    "grpc",
    "grpc_health.v1",
    "grpc_reflection.v1alpha",
    "kubernetes",
    "prometheus_client",
    "pynvml",
    "pyudev",
    "urllib3",
    "yaml",
)
PATIENCE = 120.0
"""Seconds that the agent's other parts wait for the kubelet here. In ``ostler.agent.loading`` it is one second, after
which an agent that starts slowly loads them before it registers."""
TELLS = """
import importlib.machinery, os, signal, sys
def tell(*_):
    with open({file!r} + ".new", "w") as told:
        told.write("\\n".join(sys.modules))
    os.rename({file!r} + ".new", {file!r})
signal.signal(signal.SIGUSR2, tell)
class Patient(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "ostler.agent.loading":
            return None
        spec = super().find_spec(name, path, target)
        execute = spec.loader.exec_module
        def execute_and_wait(module):
            execute(module)
            assert module.LATEST
            module.LATEST = {patience}
        spec.loader.exec_module = execute_and_wait
        return spec
sys.meta_path.insert(0, Patient)
"""
"""Python loads this into the agent's process: it writes the names of all modules when it gets the signal."""


class Observed(Hardware):
    """Hardware of a process that tells what it has loaded, in ``file``."""

    def __init__(self, root: Path) -> None:
        super().__init__("h100-sxm-8", root)
        self.file = root / "modules"
        self._hooks = root / "hooks"
        self._hooks.mkdir()
        (self._hooks / "sitecustomize.py").write_text(TELLS.format(file=str(self.file), patience=PATIENCE))

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self._hooks), os.environ.get("PYTHONPATH", ""))))
        return {**super().environment, "PYTHONPATH": path}


class Listening(BareKubelet):
    """Asks the agent what it has loaded when it calls Register."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "device-plugins")
        self.hardware = Observed(root)
        self.agent = AgentPlugin(self, self.hardware, root, "agent")
        self.loaded: set[str] = set()

    async def Register(self, request: api_pb2.RegisterRequest, context: Context) -> api_pb2.Empty:
        self.agent.process.signal(signal.SIGUSR2)
        await eventually(self.hardware.file.exists, "the agent's modules")
        self.loaded = counted(self.hardware.file.read_text().split())
        return await super().Register(request, context)


def counted(modules: list[str]) -> set[str]:
    """Our modules, and the packages of others, among these."""
    ours = {name for name in modules if name.partition(".")[0] in OURS}
    return ours | {package for package in OTHERS if package in modules}


async def test_an_agent_loads_before_it_registers_what_the_list_says(short_dir: Path) -> None:
    kubelet = Listening(short_dir)
    async with kubelet, kubelet.agent:
        pass
    budget = set(BUDGET.read_text().split())
    more, fewer = sorted(kubelet.loaded - budget), sorted(budget - kubelet.loaded)
    assert not more, f"import these where they are used, or add them to {BUDGET.name} if the kubelet needs them: {more}"
    assert not fewer, f"not loaded any more, so remove them from {BUDGET.name}: {fewer}"
