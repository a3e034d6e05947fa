"""Recorded hardware that can break: a private copy of a recorded node in which GPUs are lost and come back.

The fault is written where a real one would show, in the facts, so that the agent meets it through the same code as on
real hardware. The copy is replaced whole, because the agent may read it at any moment.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from node.files import write_whole
from node.inventory.facts import GpuFacts, NodeFacts
from node.inventory.pci import pci_address
from node.inventory.recorded import dump, read


class NoSuchGpu(LookupError):
    """No GPU of the recorded node has this UUID, PCI address or index."""

    def __init__(self, wanted: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no GPU {wanted!r} on this node; known: {', '.join(known)}")
        self.wanted = wanted
        self.known = known


class RecordedHardware:
    """A copy of the recorded node ``original`` at ``copy``."""

    def __init__(self, original: Path, copy: Path) -> None:
        self._recording = read(original)
        self.path = copy
        self._lost: dict[int, str] = {}
        self._write()

    @property
    def name(self) -> str:
        """Name of the recorded node."""
        return self._recording.name

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs as they were recorded."""
        nvml = self._recording.facts.nvml
        return nvml.gpus if nvml is not None else ()

    def find(self, wanted: str) -> int:
        """Index of the GPU with this UUID (or that of one of its MIG devices), PCI address, device name or index."""
        for gpu in self.gpus:
            if wanted in _names(gpu):
                return gpu.index
        raise NoSuchGpu(wanted, tuple(gpu.uuid or str(gpu.index) for gpu in self.gpus))

    def fail(self, index: int, error: str = "GPU_IS_LOST") -> None:
        """From now on every call about this GPU fails with ``error``."""
        self._lost[index] = error
        self._write()

    def heal(self, index: int) -> None:
        """The GPU is back."""
        self._lost.pop(index, None)
        self._write()

    def _write(self) -> None:
        facts = self._recording.facts
        recording = self._recording
        text = dump(
            _with_lost(facts, self._lost),
            name=recording.name,
            description=recording.description,
            recorded_at=recording.recorded_at,
        )
        write_whole(self.path, text.encode())


def _names(gpu: GpuFacts) -> set[str]:
    address = pci_address(gpu.bus_id) if gpu.bus_id else None
    label = address.replace(":", "-").replace(".", "-") if address else ""
    names = {str(gpu.index), gpu.uuid or "", address or "", f"gpu-{label}"}
    return (names | {mig.uuid or "" for mig in gpu.mig_devices}) - {""}


def _with_lost(facts: NodeFacts, lost: dict[int, str]) -> NodeFacts:
    if facts.nvml is None or not lost:
        return facts
    gpus = tuple(
        GpuFacts(gpu.index, error=lost[gpu.index], bus_id=gpu.bus_id) if gpu.index in lost else gpu
        for gpu in facts.nvml.gpus
    )
    return replace(facts, nvml=replace(facts.nvml, gpus=gpus))
