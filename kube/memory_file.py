"""Key material that must have a path, kept off every disk.

TLS libraries read certificates and keys from files only, and a kubeconfig may hold them inline. An anonymous file in
memory has a path under /proc, works where the root file system is read-only, and is gone with the process, however
that ends.
"""

from __future__ import annotations

import os
import weakref


class MemoryFile:
    """A file in memory; ``path`` can be opened, by this process, as long as the object lives."""

    __slots__ = ("__weakref__", "path")

    def __init__(self, content: bytes) -> None:
        descriptor = os.memfd_create("ostler", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        self.path = f"/proc/self/fd/{descriptor}"
