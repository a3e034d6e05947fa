"""Whether a source is a recorded node. Finding out does not load what reads one, which is most of the agent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from node.opening import opened

_HEAD = 4096
"""Bytes of a file in which a recorded node says its schema."""
_KEY = b"schema: "


def is_recorded(source: str) -> bool:
    """Whether this is the name of a shipped node, or a file that ``ostler record`` wrote."""
    file = Path(source)
    # The reader of the file says why it cannot be read.
    with suppress(OSError):
        if file.is_file():
            return _says_schema(_head(file))
        if file.exists():
            return False
    # Here and not above: files of objects need neither.
    from sandbox.nodes import names

    return source in names()


def _head(file: Path) -> bytes:
    with opened(file, links=True) as descriptor:
        return os.read(descriptor, _HEAD)


def _says_schema(head: bytes) -> bool:
    if _KEY not in head:
        return False
    from node.inventory.recordings.source import SCHEMA

    return _KEY + SCHEMA.encode() in head
