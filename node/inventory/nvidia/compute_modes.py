"""Compute modes of GPUs: who may have a context on a GPU. MPS needs one that no other process can use.

Uses the current NVML session; blocks as long as the driver does.
"""

from __future__ import annotations

from collections.abc import Callable

from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_session import NvmlSessions

DEFAULT = 0
EXCLUSIVE_PROCESS = 3
_NAMES = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
_REASONS = {
    "NOT_SUPPORTED": "the GPU has no compute modes",
    "NO_PERMISSION": "the agent lacks the right; run it as root with CAP_SYS_ADMIN",
    "NOT_FOUND": "the driver no longer knows the GPU",
}


class ComputeModeError(Exception):
    """The compute mode of a GPU cannot be read or set."""

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"compute mode of {uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason


def mode_name(mode: int) -> str:
    """The driver's word for a mode."""
    return _NAMES.get(mode, str(mode))


class NvmlComputeModes:
    """Reads and sets compute modes through NVML; GPUs by UUID."""

    def __init__(self, sessions: NvmlSessions) -> None:
        self._sessions = sessions

    def read(self, uuid: str) -> int:
        """The mode of a GPU; raises ``ComputeModeError``."""
        return self._call(uuid, lambda binding, gpu: binding.number("nvmlDeviceGetComputeMode", gpu))

    def write(self, uuid: str, mode: int) -> None:
        """Set the mode of a GPU; raises ``ComputeModeError``."""

        def change(binding: Binding, gpu: Handle) -> int:
            binding.do("nvmlDeviceSetComputeMode", gpu, mode)
            return mode

        self._call(uuid, change)

    def _call(self, uuid: str, ask: Callable[[Binding, Handle], int]) -> int:
        binding = self._sessions.current
        if binding is None:
            raise ComputeModeError(uuid, "NVML is not open")
        try:
            with binding.shared():
                return ask(binding, binding.handle("nvmlDeviceGetHandleByUUID", uuid))
        except CallFailed as failed:
            raise ComputeModeError(uuid, _REASONS.get(failed.error, str(failed))) from failed
