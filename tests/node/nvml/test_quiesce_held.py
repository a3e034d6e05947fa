"""An agent whose call into the driver never returns: quiesce says so, and succeeds once it has returned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ostler.cli.main import main
from sandbox.node import SandboxNode
from tests.node.nvml import stub
from tests.node.nvml.conftest import well
from tests.node.nvml.stub.injected import InjectedNvml
from tests.waiting import eventually

pytestmark = stub.needs_gcc


async def test_quiesce_says_that_a_call_holds_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = InjectedNvml(tmp_path, well())
    for name, text in hardware.environment.items():
        monkeypatch.setenv(name, text)
    box = SandboxNode(None, flags={"--nvidia-library": str(hardware.library)}, reconcile_interval=0.05)

    async def quiesce() -> int:
        return await asyncio.to_thread(main, ["quiesce", "--socket", str(box.root / "ostler.sock")])

    async with box:
        await box.registered()
        await eventually(lambda: hardware.listeners)
        hardware.hang("nvmlEventSetWait")
        await eventually(lambda: hardware.hanging)
        assert await quiesce() == 1
        assert "this agent has not released it: a call into" in capsys.readouterr().err
        status = await box.agent.status()
        assert status.quiesced
        assert [source.state for source in status.sources if source.name == "nvml"] == ["failed"]
        hardware.release()

        async def let_go() -> bool:
            return await quiesce() == 0

        await eventually(let_go)
        assert capsys.readouterr().out.endswith("the driver is free of this agent; end with 'ostler resume'\n")
        assert hardware.violations == ()
