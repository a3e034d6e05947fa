"""``ostler quiesce`` says that the driver is free only where it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ostler.admin.serving import admin_endpoint
from ostler.agent.quiescence import DriverNotFree
from ostler.cli.main import main
from tests.ostler.cli.dra_door import View


class Quiescing(View):
    """An agent that lets go of the driver, or cannot."""

    def __init__(self, held: str = "") -> None:
        super().__init__(None)
        self._held = held

    async def quiesce(self, reason: str) -> tuple[int, tuple[str, ...]]:
        if self._held:
            raise DriverNotFree(self._held)
        return 2, (f"gpu-0000-3b-00-0 healthy -> unknown ({reason})",)


async def quiesce(folder: Path, view: View) -> int:
    endpoint = admin_endpoint(folder / "agent.sock", view)
    await endpoint.start()
    try:
        return await asyncio.to_thread(main, ["quiesce", "--reason", "580", "--socket", str(folder / "agent.sock")])
    finally:
        await endpoint.stop(0)


async def test_a_driver_that_is_let_go_of_is_said_to_be_free(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await quiesce(short_dir, Quiescing()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpu-0000-3b-00-0 healthy -> unknown (580)",
        "the driver is free of this agent; end with 'ostler resume'",
    ]


async def test_a_driver_that_is_held_by_a_call_is_not_said_to_be_free(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await quiesce(short_dir, Quiescing("a call into libnvidia-ml.so.1 does not return")) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "Unexpected" not in told.err, "a refusal, and no fault of the agent"
    assert told.err.strip().endswith(
        "the driver is left alone from now on, but this agent has not released it: a call into libnvidia-ml.so.1 does "
        "not return"
    )
