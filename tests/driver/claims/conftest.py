"""Fixtures of the claims' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.claim_service import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with four GPUs and no claims."""
    return Node(tmp_path)
