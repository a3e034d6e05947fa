"""A folder in which the commands of a document can be run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.docs.markdown import ROOT, blocks


def workplace(tmp_path: Path) -> Path:
    """A folder with ``ostler`` as a command and the repository's folders that documents name."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "ostler"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ostler "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    for folder in ("deploy", "examples", "sandbox"):
        (work / folder).symlink_to(ROOT / folder)
    return work


def put_files(document: str, work: Path) -> None:
    """Write the files that a document shows under a name."""
    for block in blocks(document):
        if block.file:
            (work / block.file).write_text(block.text)
