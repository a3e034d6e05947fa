"""Ends every daemon that a test leaves."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making.mps_node import MpsNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MpsNode]:
    made = MpsNode(tmp_path)
    yield made
    for pid in made.pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
