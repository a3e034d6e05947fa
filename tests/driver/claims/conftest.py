"""Fixtures of the claims' tests."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making.claim_partitions import Parts
from tests.making.claim_service import ClaimNode
from tests.making.claim_sharing import Sharer


@pytest.fixture
def node(tmp_path: Path) -> ClaimNode:
    """A node with four GPUs and no claims."""
    return ClaimNode(tmp_path)


@pytest.fixture
def sharer(tmp_path: Path) -> Iterator[Sharer]:
    """A node with the driver's programs; daemons that the test leaves are ended."""
    made = Sharer(tmp_path / "node")
    yield made
    for pid in made.pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A node whose two GPUs are given in parts."""
    return Parts(tmp_path / "node")
