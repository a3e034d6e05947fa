"""Lists the processes that compute on a GPU or a MIG device, by NVML, on request.

It uses the current session and runs in threads beside the scan. It finds a device by its number in that session, and
accepts it only if it has the UUID in the snapshot. The answer is None if there will never be one: the driver has no
such call, or its pids are those of another namespace. It raises ProcessesUnknownError if there is none at the moment.
"""

from __future__ import annotations

from pathlib import Path

from node.inventory.model import Device, DeviceKind
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import NEVER
from node.inventory.nvidia.nvml_session import NvmlSessions
from node.ledger.processes import Process, sees_processes
from node.opening import read_kernel_text

_CALLS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
"""Calls NVML with the newest struct first; drivers before 510 lack it."""
_TRIES = 3
"""The list may outgrow the room made for it between two calls."""


class ProcessesUnknownError(OSError):
    """The processes on ``device`` are unknown at the moment, because of ``reason``."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(f"cannot read the processes on {device}: {reason}")


class NvmlProcesses:
    """Implements ``node.ledger.processes.ComputeProcesses``; ``proc`` has names and namespaces."""

    def __init__(self, sessions: NvmlSessions, proc: Path = Path("/proc")) -> None:
        self._sessions = sessions
        self._proc = proc
        self._seen: bool | None = None

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        """Processes on the device by pid; None if the driver never reports them. Blocks as long as the driver does.

        Raises ProcessesUnknownError.
        """
        if self._seen is None:
            self._seen = sees_processes(self._proc)
        if not self._seen:
            return None
        binding = self._sessions.current
        if binding is None:
            raise ProcessesUnknownError(device.name, "NVML is not open")
        try:
            with binding.shared():
                return self._of(binding, device)
        except CallFailed as failed:
            if failed.call in _CALLS and failed.error in NEVER:
                return None
            raise ProcessesUnknownError(device.name, f"{failed.call} says {failed.error}") from failed

    def _of(self, binding: Binding, device: Device) -> tuple[Process, ...]:
        return tuple(Process(pid, self._name_of(pid)) for pid in computing_pids(binding, _handle(binding, device)))

    def _name_of(self, pid: int) -> str:
        try:
            return read_kernel_text(self._proc / str(pid) / "comm").rstrip("\n")
        except OSError:
            return ""  # It ended meanwhile, or is hidden; the pid is reported anyway.


def computing_pids(binding: Binding, device: Handle) -> tuple[int, ...]:
    """The processes that compute on a GPU or a MIG device, sorted; for use inside ``Binding.shared``."""
    newest, older = _CALLS
    for attempt in range(1, _TRIES + 1):
        try:
            return _pids(binding, newest, device)
        except CallFailed as failed:
            if failed.error == "FUNCTION_NOT_FOUND":
                break
            if failed.error != "INSUFFICIENT_SIZE" or attempt == _TRIES:
                raise
    return _pids(binding, older, device)


def _pids(binding: Binding, call: str, device: Handle) -> tuple[int, ...]:
    return tuple(sorted({process.pid for process in binding.processes(call, device)}))


def _handle(binding: Binding, device: Device) -> Handle:
    """The device's handle. Raises CallFailed, also when the session has another device at its place."""
    gpu, _, part = (device.index or "").partition(":")
    if gpu.isdigit():
        handle = binding.handle("nvmlDeviceGetHandleByIndex", int(gpu))
        if device.kind is DeviceKind.MIG:
            handle = binding.handle("nvmlDeviceGetMigDeviceHandleByIndex", handle, int(part))
        if binding.text("nvmlDeviceGetUUID", handle) == device.uuid:
            return handle
    # Numbers change with sessions. Slow on busy nodes, hence not the first way.
    return binding.handle("nvmlDeviceGetHandleByUUID", device.uuid or "")
