"""A recorded node instead of hardware: for the sandbox, for tests and for bug reports.

The file is read again when it changes, so that editing it is a hardware event. A file that cannot be read at the start
is the caller's error; one that breaks later is logged once and the last facts stay, since a half-saved file is no node
without GPUs.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from node.inventory.facts import NodeFacts
from node.inventory.recordings.anonymous import anonymize
from node.inventory.recordings.document import SCHEMA, Recording, RecordingError, dump, load
from node.named_files import read_named_file

if TYPE_CHECKING:
    from node.inventory.recordings.partitions import RecordedPartitions

__all__ = ["SCHEMA", "RecordedSource", "Recording", "RecordingError", "anonymize", "dump", "load", "read"]

MAX_RECORDING = 16 << 20
"""Bytes of a recorded node; one with 8 GPUs and 64 functions of NICs has some 100 KiB."""

log = logging.getLogger("ostler.inventory")


def read(path: Path) -> Recording:
    """The recorded node in a file. Raises RecordingError."""
    try:
        text = read_named_file(path, MAX_RECORDING).decode()
    except OSError as error:
        raise RecordingError(str(path), 0, "", f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecordingError(str(path), 0, "", f"no UTF-8 text: {error.reason} at byte {error.start}") from error
    return load(text, str(path))


class RecordedSource:
    """Source of every section of a recorded node; ``partitions``: those made of its GPUs."""

    name = "recorded"

    def __init__(self, path: Path, partitions: RecordedPartitions | None = None) -> None:
        self._path = path
        self.partitions = partitions
        self._seen: tuple[int, int] | None = None
        self._facts: NodeFacts | None = None

    def read(self) -> NodeFacts:
        """The recorded facts; raises RecordingError only while there are none yet."""
        seen = self._stamp()
        if self._facts is None:
            self._facts = read(self._path).facts
        elif seen != self._seen:
            try:
                self._facts = read(self._path).facts
            except RecordingError as error:
                log.error(  # noqa: TRY400 - the error names file, line and key; a traceback says nothing more
                    "cannot read the recorded node again; its last facts stay in use",
                    extra={"path": str(self._path), "error": str(error)},
                )
        self._seen = seen
        return self._facts if self.partitions is None else self.partitions.shown(self._facts)

    def close(self) -> None:
        """Forget what was read."""
        self._seen = self._facts = None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - asked at every scan
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
