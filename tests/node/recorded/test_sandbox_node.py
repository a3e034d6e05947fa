"""A node in a box that does not come up, or whose agent dies, leaves nothing behind and says what happened."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path

import pytest

from node.inventory.recordings.source import RecordingError
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.terminal import Prompt
from tests.waiting import eventually

# Processes are found by their command lines.
pytestmark = pytest.mark.usefixtures("executed_ostler")


def processes(root: Path) -> list[str]:
    """Processes whose command line names the folder."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(root).encode() in line.read_bytes():
                found.append(line.parent.name)
        except OSError:
            continue
    return found


async def test_a_start_that_is_cut_short_leaves_no_agent_behind() -> None:
    box = SandboxNode(path("l4-2"))
    starting = asyncio.create_task(box.__aenter__())
    await eventually(lambda: processes(box.root))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert processes(box.root) == []


def test_a_recording_that_cannot_be_read_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(folder))
    with pytest.raises(RecordingError):
        SandboxNode(tmp_path / "none.yaml")
    assert not folder.exists()


async def test_an_agent_that_died_is_told_at_the_prompt_and_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as box:
        await box.registered()
        box.agent.send(signal.SIGKILL)
        await eventually(lambda: not processes(box.root))
        prompt = Prompt(box)
        await prompt._do("status")
        assert capsys.readouterr().out.startswith("   the agent does not answer: ")
        await prompt._do("kill-agent")
        await prompt._do("status")
        assert "nvidia.com/gpu: 2/2 registered" in capsys.readouterr().out
