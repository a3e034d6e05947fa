"""A recorded node with more GPUs than nodes have: for many pods or claims at once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from node.inventory.facts import DeviceFile, GpuFacts, NodeFacts, NvmlFacts, SysfsFacts
from node.inventory.recordings.source import dump

MAJOR = 195
"""Of the driver's device files."""


def many_gpus(path: Path, count: int) -> Path:
    """A recording of so many GPUs (at most 4096), written to ``path``."""
    text = dump(_facts(count), name="gpus", description="Many GPUs.", recorded_at=datetime.fromtimestamp(0, UTC))
    path.write_text(text)
    return path


def gpu_uuid(index: int) -> str:
    """What the GPU of that index is called."""
    return f"GPU-{UUID(int=index)}"


def _facts(count: int) -> NodeFacts:
    gpus = (
        GpuFacts(index, bus_id=_address(index), uuid=gpu_uuid(index), name="GPU", minor=index) for index in range(count)
    )
    files = [DeviceFile("/dev/nvidiactl", "c", MAJOR, 255)]
    files += [DeviceFile(f"/dev/nvidia{index}", "c", MAJOR, index) for index in range(count)]
    return NodeFacts(nvml=NvmlFacts(gpus=tuple(gpus)), sysfs=SysfsFacts(device_files=tuple(files)))


def _address(index: int) -> str:
    """A bus for each, as GPUs have it; bus 0 is the machine's own."""
    return f"{index // 255:08x}:{index % 255 + 1:02X}:00.0"
