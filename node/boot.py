"""Which boot of the node this is: what was true of an earlier one may not be true any more."""

from __future__ import annotations

from pathlib import Path

from node.opening import read_kernel_text


def boot_id(proc: Path = Path("/proc")) -> str:
    """The kernel's id of this boot, empty where it cannot be read: then boots cannot be told apart."""
    try:
        return read_kernel_text(proc / "sys/kernel/random/boot_id").strip()
    except OSError:
        return ""
