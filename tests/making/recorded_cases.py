"""Recorded cases that tests go through. A test over no case would pass without a word, so none is an error here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def cases_in(path: Path) -> list[Any]:
    """The JSON values of a file with one on each line; at least one."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found, f"{path.name} has no line: a test over it would prove nothing"
    return found


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that match, sorted; at least one."""
    found = sorted(folder.glob(pattern))
    assert found, f"{folder.name} has no {pattern}: a test over them would prove nothing"
    return found
