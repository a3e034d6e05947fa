"""The hardware both plugins are measured on: a recorded node served as on a real one.

NVML is the stub library behind the real binding, so that every scan makes the real calls. /sys, /dev and /proc are
trees made from the record. Device files are made where that is allowed (as root); without them the agent's answers
have fewer device nodes, and the floor's as many as the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from node.inventory.facts import NvmlFacts, SysfsFacts
from node.inventory.recordings.source import read
from sandbox import nodes
from tests.node.nvml import stub
from tests.node.sysfs.rendering import mknod_device, render

LOST = 3
"""Index of the GPU that is lost and comes back."""


class Hardware:
    """The shipped node ``name`` below ``root``."""

    def __init__(self, name: str, root: Path) -> None:
        facts = read(nodes.path(name)).facts
        assert facts.nvml is not None
        assert facts.sysfs is not None
        self._nvml: NvmlFacts = facts.nvml
        self._root = root
        # In a folder of its own: the stub watches the folder, and a log line in it would cost the agent a wake-up.
        self._description = root / "nvml" / "node.txt"
        self._description.parent.mkdir(parents=True, exist_ok=True)
        self.library = stub.build(root / "driver")
        self.heal()
        _render(facts.sysfs, root)

    @property
    def environment(self) -> dict[str, str]:
        """What the stub library needs to know; the second is where capability files of MIG instances appear."""
        return {stub.VARIABLE: str(self._description), "NVML_STUB_PROC": str(self._root / "proc")}

    @property
    def flags(self) -> dict[str, str]:
        """Settings that make the agent see this node."""
        return {
            "--nvidia-library": str(self.library),
            "--nvidia-dev-root-mount": str(self._root / "host"),
            "--sys-root": str(self._root / "sys"),
            "--proc-root": str(self._root / "proc"),
        }

    def delay(self, calls: Mapping[str, int]) -> None:
        """From now on these calls of NVML take so many milliseconds; ``delays`` has what they took."""
        lines = "".join(f"delay.{call} {milliseconds}\n" for call, milliseconds in calls.items())
        stub.write(self._description, stub.describe(self._nvml) + lines)

    def delays(self) -> float:
        """Seconds that the delayed calls took so far, all together."""
        path = self._description.with_name(f"{self._description.name}.delays")
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(int(line.split()[1]) for line in lines) / 1e6

    def lose(self) -> None:
        """From now on every call on one GPU fails."""
        stub.write(self._description, stub.describe(self._nvml) + stub.lost(LOST))

    def heal(self) -> None:
        """All GPUs are well."""
        stub.write(self._description, stub.describe(self._nvml))


def announce(root: Path) -> None:
    """Have the kernel of this machine send an event of some PCI function, as for one that changed.

    Where that is not allowed or there is no PCI: a device file comes and goes, which is found by polling.
    """
    functions = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    try:
        functions[0].write_text("change")
    except (OSError, IndexError):
        file = root / "host/dev/nvidia255"
        file.unlink() if file.exists() else file.touch()


def _render(facts: SysfsFacts, root: Path) -> None:
    """With device files where they may be made; the rest is there at the first attempt that fails."""
    try:
        render(facts, root, mknod_device)
    except PermissionError:
        return
