"""A node with two GPUs that claims were shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.withdrawn_node import WithdrawalRig


@pytest.fixture
def rig(tmp_path: Path) -> WithdrawalRig:
    return WithdrawalRig(tmp_path)
