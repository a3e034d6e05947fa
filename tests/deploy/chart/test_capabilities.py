"""The agent does its work without any capability: what the chart says of it, tried with the kernel's own means."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.making.commands import command
from tests.making.tours import AS_IN_THE_POD, EXECUTED, rights_of_executed, tour_of

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a root without capabilities"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)"),
]


def test_devices_are_served_by_a_root_without_capabilities(run_dir: Path) -> None:
    rights = subprocess.run([*AS_IN_THE_POD, "cat", "/proc/self/status"], capture_output=True, text=True, check=True)
    assert "CapEff:\t0000000000000000" in rights.stdout
    # The tour is an agent with the embedded kubelet: registration, both folders, the lock, answers, CDI, claims.
    assert rights_of_executed() == AS_IN_THE_POD
    assert len(tour_of(EXECUTED, run_dir)["devices"]) >= 2


async def test_this_machines_hardware_is_read_by_a_root_without_capabilities() -> None:
    words = ("devices", "-o", "json")
    starting = [*AS_IN_THE_POD, sys.executable, "-m", "ostler", *words]
    without = subprocess.run(starting, capture_output=True, text=True, check=True, timeout=300)
    assert _names(without.stdout) == _names((await command(*words)).out)


def _names(output: str) -> list[tuple[str, str]]:
    found = json.loads(output)
    return [(device["name"], device["health"]["state"]) for device in found["devices"]]
