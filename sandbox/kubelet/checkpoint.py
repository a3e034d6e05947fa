"""The device manager's checkpoint as a file: read whole, written whole."""

from __future__ import annotations

from pathlib import Path

from node.kubelet.checkpoint import FILE_NAME, Checkpoint, CheckpointNotFoundError, decode, encode
from node.opening import KUBELET_STATE, read_regular
from sandbox.kubelet.statefiles import write_state


class CheckpointFile:
    """``kubelet_internal_checkpoint`` in the device plugin folder."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def read(self) -> Checkpoint:
        """The file's content; raises ``CheckpointError`` in one of its forms, or OSError."""
        try:
            text = read_regular(self.path, KUBELET_STATE)
        except FileNotFoundError as error:
            raise CheckpointNotFoundError from error
        return decode(text)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; raises OSError, and then the old one is still there."""
        write_state(self.path, encode(checkpoint), durable=True)
