"""The agent process and its override file: what places devices, and what does not undo it."""

from __future__ import annotations

import signal
from pathlib import Path

from sandbox.configuration import configuration
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import ostler_output
from tests.waiting import eventually

KEPT = "the configuration is not usable, the old one stays in force"


def node(overrides: Path) -> SandboxNode:
    text = configuration(mig=False, topology=overrides)
    return SandboxNode(path("vm-flat-8"), configuration=text, reconcile_interval=0.05)


def shipped() -> str:
    return path("vm-flat-8").with_suffix(".topology.xml").read_text()


async def reload(box: SandboxNode) -> tuple[int, str, str]:
    return await ostler_output("reload", "--socket", str(box.root / "ostler.sock"))


async def paths(box: SandboxNode) -> dict[str, tuple[str, ...]]:
    return {place.name: tuple(place.path) for place in (await box.agent.topology()).places}


async def test_an_override_file_that_is_broken_meanwhile_leaves_all_places_as_they_were(tmp_path: Path) -> None:
    overrides = tmp_path / "t.xml"
    overrides.write_text(shipped())
    async with node(overrides) as box:
        await box.registered()
        before = await paths(box)
        overrides.write_text("<\x00garbage")
        code, _, err = await reload(box)
        assert code == 3
        assert err.startswith(f"ostler: {overrides}:1: not valid XML")
        overrides.unlink()
        code, _, err = await reload(box)
        assert (code, err) == (
            3,
            f"ostler: {overrides}: does not exist; correct the path (the whole file is ignored)\n",
        )
        overrides.write_text("<?xml version='1.0' encoding='gbk'?><system/>")
        box.agent.send(signal.SIGHUP)
        await eventually(lambda: KEPT in box.log.read_text())
        await box.agent.rescan()
        assert await paths(box) == before
        status = await box.agent.status()
        assert {event.reason for event in status.events} == {"ConfigRejected"}
        assert "Traceback" not in box.log.read_text()


async def test_a_mended_override_file_is_in_force_after_a_reload(tmp_path: Path) -> None:
    overrides = tmp_path / "t.xml"
    overrides.write_text("<system>")
    async with node(overrides) as box:
        await box.registered()
        assert list((await box.agent.topology()).overridden) == [], "served without the file"
        flat = await paths(box)
        overrides.write_text(shipped())
        code, out, _ = await reload(box)
        assert (code, out) == (0, "topology: 16 devices placed by the file, in force\n")

        async def placed() -> bool:
            topology = await box.agent.topology()
            return len(topology.overridden) == 16 and await paths(box) != flat

        await eventually(placed)
