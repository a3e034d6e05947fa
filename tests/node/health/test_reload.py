"""A policy that is changed while the agent runs: what the reload says to be in force is in force."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ostler.cli.main import main
from sandbox.node import SandboxNode
from sandbox.nodes import path

TEXT = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"


async def ostler(box: SandboxNode, *words: str) -> int:
    return await asyncio.to_thread(main, [*words, "--socket", str(box.root / "ostler.sock")])


async def test_a_policy_that_is_reloaded_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"{TEXT}health: {{dryRun: true}}\n")
    box = SandboxNode(path("l4-2"), arguments=["--config", str(config)], reconcile_interval=0.05)
    async with box:
        await box.registered()
        assert await ostler(box, "health", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["dry_run"] is True
        config.write_text(TEXT)
        assert await ostler(box, "reload") == 0
        assert "health: the new configuration is in force" in capsys.readouterr().out
        assert await ostler(box, "health", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["dry_run"] is False
