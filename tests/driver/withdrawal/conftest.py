"""A node with two GPUs that claims were shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.withdrawn_node import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
