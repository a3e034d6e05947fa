"""What the agent loads once the kubelet has its list: nothing on the event loop, which has calls to answer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from node.inventory.recordings.source import RecordedSource
from node.rules import Doors, Rule
from node.values import replace
from ostler.agent.agent import Agent
from ostler.agent.edges import Edges, Notifier
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.ostler.agent.claimed_node import GPU, ClaimedNode, configured
from tests.ostler.agent.here import settings
from tests.waiting import eventually

BOTH = {"name": "nvidia.com/gpu", "door": "both", "devices": {"kind": "gpu"}}

TELLING = '''
import os, sys, threading

class Telling:
    """Writes which thread looks for which module."""
    log = open(os.environ["LOADED"] + f".{os.getpid()}", "a", buffering=1)

    def find_spec(self, name, path=None, target=None):
        self.log.write(f"{threading.current_thread().name} {name}\\n")

sys.meta_path.insert(0, Telling())
'''


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The beginning of the names of the files in which every Python process tells what it loads."""
    (tmp_path / "sitecustomize.py").write_text(TELLING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded"))
    return tmp_path / "loaded"


def on_loop(loaded: Path, box: SandboxNode) -> list[str]:
    """Modules that the agent's main thread has looked for so far."""
    lines = loaded.with_name(f"{loaded.name}.{box.agent.pid}").read_text().splitlines()
    return [name for thread, _, name in (line.rpartition(" ") for line in lines) if thread == "MainThread"]


async def test_allocate_status_and_a_dra_door_load_nothing_on_the_event_loop(loaded: Path) -> None:
    async with ClaimedNode(path("h100-sxm-8"), resources=[BOTH]) as box:
        before = len(on_loop(loaded, box))
        assert (await box.give(GPU, 1)).ids
        await box.agent.status()
        await eventually(lambda: len(box.stored()) > 0, "the DRA door publishes")
        assert on_loop(loaded, box)[before:] == []


async def test_a_reload_that_opens_the_dra_door_loads_it_beside_the_event_loop(loaded: Path) -> None:
    plain = {"name": "nvidia.com/gpu", "devices": {"kind": "gpu"}}
    async with ClaimedNode(path("h100-sxm-8"), resources=[plain]) as box:
        before = len(on_loop(loaded, box))
        (box.root / "ostler.yaml").write_text(configured(BOTH))
        box.agent.send(signal.SIGHUP)
        await eventually(lambda: len(box.stored()) > 0, "the DRA door publishes")
        assert [name for name in on_loop(loaded, box)[before:] if name.startswith(("driver", "kube"))] == []


async def test_a_reload_that_is_given_up_while_modules_load_changes_nothing(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = settings(short_dir)
    after = replace(before, rules=(Rule("nvidia.com/gpu", door=Doors.BOTH),))
    agent = Agent(before, [RecordedSource(path("h100-sxm-8"))], lambda: after, Edges(notifier=Notifier({})))
    begun, go = asyncio.Event(), asyncio.Event()

    async def slowly(*_: str) -> None:
        begun.set()
        await go.wait()

    monkeypatch.setattr("ostler.agent.both_doors.load", slowly)
    reloading = asyncio.create_task(agent.reload())
    await asyncio.wait_for(begun.wait(), 120)
    reloading.cancel()
    await asyncio.wait([reloading])
    go.set()
    assert await agent.reload(), "the rules of before were in force"
    assert await agent.reload() == ()
