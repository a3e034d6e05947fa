"""The checkpoint's file: read whole, written whole (temporary file, fsync, rename) as kubelets do."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from node.checkpoint import FILE_NAME, Checkpoint, CheckpointNotFoundError, decode, encode


class CheckpointFile:
    """``kubelet_internal_checkpoint`` in the device plugin folder."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def read(self) -> Checkpoint:
        """The file's content; raises ``CheckpointError`` in one of its forms, or OSError."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError as error:
            raise CheckpointNotFoundError from error
        return decode(text)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; raises OSError, and then the old one is still there."""
        descriptor, name = tempfile.mkstemp(prefix=".", dir=self.path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(encode(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
