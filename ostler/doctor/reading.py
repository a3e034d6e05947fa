"""Small files: text, or nothing where there is none to be read; and what this user may not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node.documents import parse_toml
from node.inventory.sysfs.files import read_now
from node.opening import read_regular

MAX_SETTINGS = 1 << 20
"""Bytes of a container runtime's settings; an ordinary file has 10 KiB."""


def text_of(path: Path) -> str | None:
    """The file's text without surrounding white space; None where it is missing or refused."""
    try:
        return read_now(str(path))
    except OSError:
        return None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings of a container runtime, which may be a link; raises OSError, ValueError."""
    return parse_toml(read_regular(path, MAX_SETTINGS, links=True))


def hidden(path: Path) -> bool:
    """Whether this user may not even see whether there is something at the path."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def number_of(path: Path) -> int | None:
    """The whole number in the file; None where there is none."""
    text = text_of(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
