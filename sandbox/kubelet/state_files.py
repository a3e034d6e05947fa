"""The kubelet's state files: each is read whole, and written by a temporary file beside it and a rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from node.kubelet.checkpoint import FILE_NAME, Checkpoint, CheckpointNotFoundError, decode, encode
from node.opening import KUBELET_STATE, read_regular


def write_state(path: Path, data: bytes, *, durable: bool) -> None:
    """Replace the file; raises OSError, and then the old one is still there. ``durable``: synced before the rename."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class CheckpointFile:
    """``kubelet_internal_checkpoint`` in the device plugin folder."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def read(self) -> Checkpoint:
        """The file's content; raises ``KubeletStateError`` in one of its forms, or OSError."""
        try:
            text = read_regular(self.path, KUBELET_STATE)
        except FileNotFoundError as error:
            raise CheckpointNotFoundError from error
        return decode(text)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; raises OSError, and then the old one is still there."""
        write_state(self.path, encode(checkpoint), durable=True)
