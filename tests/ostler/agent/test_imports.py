"""The modules that an agent loads before it registers with the kubelet: a budget, since each of them delays every pod.

The budget is that of an NVIDIA node with one door, and accounts for every module. ``imports.txt`` has our own one by
one. Packages of others may have so many modules (``PACKAGES``), and Python's own library may be there by the names of
``STANDARD``, besides what asyncio and gRPC load themselves in this version of Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
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
PACKAGES = {"grpc": 24, "google": 20, "pynvml": 1}
"""Most modules of each package of others; any other package must wait until the agent is registered."""
HOOKS = (
    "__main__",
    "_distutils_hack",
    "cython_runtime",
    "grpc_health",
    "grpc_reflection",
    "grpc_tools",
    "sitecustomize",
)
"""Of Python's start, of this test, and names for which gRPC looks."""
STANDARD = (
    "annotationlib ast bisect contextvars copy ctypes dataclasses datetime errno faulthandler fcntl fnmatch gc glob "
    "hashlib json pathlib posixpath pwd queue random string struct tempfile"
)
"""What the agent may take of Python's library; some of it is there in some versions alone."""
UNDERNEATH = """
import sys
from ostler.cli.imports import left_out
with left_out():
    import asyncio, grpc.aio, runpy
    import protos.deviceplugin.v1beta1.api_pb2_grpc
print(*sys.modules)
"""
"""What any plugin with asyncio and gRPC has loaded."""
SENTENCE = "import it in the function that uses it, or load it after the registration (ostler.agent.loading); if the \
kubelet cannot be served without it, change the budget"
PATIENCE = 120.0
"""Seconds that the agent's other parts wait for the kubelet here. In ``ostler.agent.loading`` it is one second, after
which an agent that starts slowly loads them before it registers."""
TELLS = """
import importlib.machinery, os, signal, sys, threading
told = threading.Event()
def tell(*_):
    with open({file!r} + ".new", "w") as file:
        file.write("\\n".join(sys.modules))
    os.rename({file!r} + ".new", {file!r})
    told.set()
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
            load = module._load
            def load_later(names):
                told.wait()
                load(names)
            module._load = load_later
        spec.loader.exec_module = execute_and_wait
        return spec
sys.meta_path.insert(0, Patient)
"""
"""Python loads this into the agent's process: it writes the names of all modules when it gets the signal.

What the agent loads in a thread waits for that: it begins with the call of Register, and would be counted or not.
"""


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


class _Listening(BareKubelet):
    """Asks the agent what it has loaded when it calls Register."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "device-plugins")
        self.hardware = Observed(root)
        self.agent = AgentPlugin(self, self.hardware, root, "agent")
        self.loaded: set[str] = set()

    async def Register(self, request: api_pb2.RegisterRequest, context: Context) -> api_pb2.Empty:
        self.agent.process.signal(signal.SIGUSR2)
        await eventually(self.hardware.file.exists, "the agent's modules")
        self.loaded = set(self.hardware.file.read_text().split())
        return await super().Register(request, context)


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in OURS}


def standard(modules: set[str]) -> set[str]:
    """The public modules of Python's library, by their first names."""
    first = {name.partition(".")[0] for name in modules}
    return {name for name in first & sys.stdlib_module_names if not name.startswith("_")}


def underneath() -> set[str]:
    found = subprocess.run([sys.executable, "-c", UNDERNEATH], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def over_budget(loaded: set[str], below: set[str], allowed: set[str]) -> list[str]:
    """What exceeds the budget, a line each; ``below``: loaded by any plugin, ``allowed``: our modules."""
    own = [f"{name} is not in {BUDGET.name}" for name in sorted(ours(loaded) - allowed)]
    library = [
        f"{name} of Python's library is not in STANDARD"
        for name in sorted(standard(loaded) - standard(below) - {*STANDARD.split()})
    ]
    counts = Counter(name.partition(".")[0] for name in loaded if not name.startswith("_cython_"))
    others = counts.keys() - {*OURS, *sys.stdlib_module_names, *HOOKS}
    packages = [
        f"{name} has {counts[name]} modules and PACKAGES allows {PACKAGES.get(name, 0)}"
        for name in sorted(others)
        if counts[name] > PACKAGES.get(name, 0)
    ]
    return [*own, *library, *packages]


async def test_an_agent_loads_before_it_registers_what_the_list_says(short_dir: Path) -> None:
    kubelet = _Listening(short_dir)
    async with kubelet, kubelet.agent:
        pass
    budget = set(BUDGET.read_text().split())
    more, fewer = over_budget(kubelet.loaded, underneath(), budget), sorted(budget - kubelet.loaded)
    assert not more, f"more is loaded before the registration: {'; '.join(more)}. For each: {SENTENCE}"
    assert not fewer, f"not loaded any more, so remove them from {BUDGET.name}: {fewer}"


def test_every_module_over_the_budget_is_named() -> None:
    loaded = {"node.new", "node.old", "yaml", "yaml.nodes", "ssl", "asyncio.events", "json.decoder", "pynvml"}
    assert over_budget(loaded, {"asyncio.events"}, {"node.old"}) == [
        "node.new is not in imports.txt",
        "ssl of Python's library is not in STANDARD",
        "yaml has 2 modules and PACKAGES allows 0",
    ]
