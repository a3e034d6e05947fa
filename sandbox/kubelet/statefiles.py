"""How a kubelet writes its state files: a temporary file beside it, and a rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
