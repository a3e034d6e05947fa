"""A node whose NICs can move into pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.moved_interfaces import InterfaceNode


@pytest.fixture
def place(tmp_path: Path) -> InterfaceNode:
    return InterfaceNode(tmp_path)
