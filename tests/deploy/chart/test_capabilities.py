"""The agent does its work without any capability: what the chart says of it, tried with the kernel's own means."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.making.commands import command

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a root without capabilities"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)"),
]

AS_IN_THE_POD = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def test_devices_are_served_by_a_root_without_capabilities() -> None:
    rights = subprocess.run([*AS_IN_THE_POD, "cat", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert "CapEff:\t0000000000000000" in rights.stdout
    # The command is the agent with the embedded kubelet: registration, both folders, the lock, answers, CDI.
    words = [sys.executable, "-m", "ostler", "sandbox", "--node", "l4-2", "--once"]
    answer = subprocess.run([*AS_IN_THE_POD, *words], capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0, answer.stderr
    assert len(json.loads(answer.stdout)["devices"]) >= 2


async def test_this_machines_hardware_is_read_by_a_root_without_capabilities() -> None:
    words = ("devices", "-o", "json")
    starting = [*AS_IN_THE_POD, sys.executable, "-m", "ostler", *words]
    without = subprocess.run(starting, capture_output=True, text=True, check=True, timeout=300)
    assert _names(without.stdout) == _names((await command(*words)).out)


def _names(output: str) -> list[tuple[str, str]]:
    found = json.loads(output)
    return [(device["name"], device["health"]["state"]) for device in found["devices"]]
