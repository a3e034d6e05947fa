"""Time slices of GPUs: how long one process runs before another has its turn.

NVML has no call for it, so the driver's own ``nvidia-smi`` runs in place, with the driver's NVML loaded first: a driver
below a root of its own is not where the loader looks. Blocks as long as the program does, at most ``SECONDS``: one
that hangs in the driver does not end when it is killed, and is left behind.
"""

from __future__ import annotations

import contextlib
import os
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

PROGRAM = "nvidia-smi"
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/nvidia/bin", "bin", "opt/bin", "usr/lib/wsl/lib")
SECONDS = 10.0
"""For one run; a driver that hangs keeps the program from ending."""
KILLED_WITHIN = 0.5
"""Seconds until a program that was killed is left behind."""
_SHOWN = 200
"""Most characters of the program's output in messages."""


class TimeSlice(IntEnum):
    """Lengths by name, as ``nvidia-smi compute-policy --set-timeslice`` counts them."""

    DEFAULT = 0
    SHORT = 1
    MEDIUM = 2
    LONG = 3


class TimeSliceError(Exception):
    """The time slice of a GPU cannot be set: why, and what to do. ``is_uncertain``: it may have been set."""

    def __init__(self, uuid: str, length: TimeSlice, reason: str, *, is_uncertain: bool = False) -> None:
        super().__init__(f"the time slice of {uuid} cannot be set to {length.name.title()}: {reason}")
        self.is_uncertain = is_uncertain


def leave(process: subprocess.Popen[Any]) -> None:
    """Kill it and wait only a moment: a process that is stuck in the driver may never end."""
    from subprocess import TimeoutExpired

    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(TimeoutExpired):
        process.wait(KILLED_WITHIN)


class TimeSlicer:
    """Sets time slices of GPUs; ``driver_root``: where the agent sees the driver's files."""

    def __init__(self, driver_root: Path, seconds: float = SECONDS) -> None:
        self._root = driver_root
        self._seconds = seconds

    def set(self, uuid: str, length: TimeSlice) -> None:
        """Set it for the GPU of this UUID; raises ``TimeSliceError``."""
        import subprocess  # Most agents start no process.

        program = self._program()
        if program is None:
            raise TimeSliceError(
                uuid,
                length,
                f"the driver in {self._root} has no {PROGRAM}, which alone can set it; install the driver's utilities, "
                "or set nvidia.driverRoot",
            )
        command = [str(program), "compute-policy", "-i", uuid, "--set-timeslice", str(length.value)]
        try:
            running = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            reason = f"{program} cannot be run: {error.strerror or error}"
            raise TimeSliceError(uuid, length, reason) from error
        try:
            output, _ = running.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired as error:
            leave(running)
            reason = f"{program} did not end within {self._seconds:g} s; check whether the driver answers"
            raise TimeSliceError(uuid, length, reason, is_uncertain=True) from error
        if running.returncode != 0:
            said = " ".join(output.decode(errors="replace").split())[:_SHOWN]
            reason = f"{program} refuses it with exit code {running.returncode}: {said or 'it says nothing'}"
            raise TimeSliceError(uuid, length, reason)

    def _program(self) -> Path | None:
        candidates = (self._root / folder / PROGRAM for folder in _PROGRAM_FOLDERS)
        return next((path for path in candidates if os.access(path, os.X_OK)), None)

    def _environment(self) -> dict[str, str]:
        from node.inventory.nvidia.nvml_library import FOLDERS, SONAME  # Only nodes with a driver get this far.

        environment = {"PATH": os.pathsep.join(str(self._root / folder) for folder in _PROGRAM_FOLDERS)}
        library = next((path for folder in FOLDERS if (path := self._root / folder / SONAME).exists()), None)
        if self._root != Path("/") and library is not None:
            environment["LD_PRELOAD"] = str(library)
        return environment
