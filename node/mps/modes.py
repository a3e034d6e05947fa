"""What MPS changes on a node and must set back: the compute modes of GPUs, and the record of them and of the daemons.

The mode that a GPU had is on disk before it is changed, so that the next agent can set it back after a kill.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from node.files import FileError, JsonValue, read_record, write_record
from node.inventory.nvidia.compute_modes import EXCLUSIVE_PROCESS, ComputeModeError, mode_name
from node.mps.daemon import MpsError
from node.mps.processes import MpsProcess

log = logging.getLogger("ostler.mps")

SCHEMA = "mps/v1"
RECORD = "mps.json"
"""Name of the record of resources' daemons in the state folder."""
_MIG = "MIG-"
"""Begins the UUIDs of MIG devices."""


class ComputeModes(Protocol):
    """Reads and sets the compute mode of GPUs, known by UUID; both block and raise ``ComputeModeError``."""

    def read(self, uuid: str) -> int:
        """The mode as NVML counts it."""

    def write(self, uuid: str, mode: int) -> None:
        """Set it."""


class MpsRecord:
    """State that must survive the agent: GPUs' modes before MPS, by UUID, and the daemons' processes, by resource."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        """Held from the look at what is known to its being on the disk: resources write in threads of their own."""
        self.modes: dict[str, int] = {}
        self.daemons: dict[str, MpsProcess] = {}

    def read(self) -> None:
        """Read what an earlier agent left; a damaged record is set aside and logged."""
        try:
            data = read_record(self._path, SCHEMA)
        except FileError as error:
            log.warning("the record of MPS is unusable", extra={"error": str(error)})
            return
        if not isinstance(data, dict):
            return
        modes, daemons = data.get("modes"), data.get("daemons")
        if isinstance(modes, dict):
            self.modes = {uuid: mode for uuid, mode in modes.items() if isinstance(mode, int)}
        if isinstance(daemons, dict):
            for name, one in daemons.items():
                match one:
                    case [int(pid), int(started)]:
                        self.daemons[name] = MpsProcess(pid, started)

    def write(self) -> None:
        """Put it on the disk; raises ``MpsError``."""
        with self._writing:
            modes, daemons = self.modes.copy(), self.daemons.copy()
            try:
                if not modes and not daemons:
                    self._path.unlink(missing_ok=True)
                else:
                    processes: JsonValue = {name: [one.pid, one.started] for name, one in daemons.items()}
                    write_record(self._path, SCHEMA, {"modes": {**modes}, "daemons": processes})
            except (FileError, OSError) as error:
                raise MpsError(f"the compute mode of the GPUs cannot be recorded: {error}") from error


class ExclusiveModes:
    """Gives GPUs to one process alone, and back; for the event loop. ``record``: has what they had before."""

    def __init__(self, modes: ComputeModes, record: MpsRecord) -> None:
        self._modes = modes
        self._record = record
        self._lock = asyncio.Lock()
        """Held while compute modes and their record change."""

    async def take(self, uuids: Iterable[str]) -> None:
        """Give the GPUs to one process alone; what they had is on disk before.

        Raises ``MpsError`` if that cannot be written, and ``ComputeModeError``.
        """
        async with self._lock:
            for uuid in uuids:
                if uuid.startswith(_MIG):
                    continue  # It has no mode of its own, and its GPU's must be the default.
                mode = await asyncio.to_thread(self._modes.read, uuid)
                if uuid not in self._record.modes:
                    self._record.modes[uuid] = mode
                    await asyncio.to_thread(self._record.write)
                if mode != EXCLUSIVE_PROCESS:
                    await asyncio.to_thread(self._modes.write, uuid, EXCLUSIVE_PROCESS)

    async def give_back(self, uuids: Iterable[str]) -> None:
        """Set modes back; one that cannot be set stays on record. Raises ``MpsError``."""
        problems = []
        async with self._lock:
            for uuid in uuids:
                mode = self._record.modes.get(uuid)
                if mode is None:
                    continue
                try:
                    # Where it could not be changed, it could not be set back either.
                    if await asyncio.to_thread(self._modes.read, uuid) != mode:
                        await asyncio.to_thread(self._modes.write, uuid, mode)
                except ComputeModeError as error:
                    problems.append(
                        f"{uuid} stays in compute mode EXCLUSIVE_PROCESS, not {mode_name(mode)}: {error.reason}"
                    )
                else:
                    del self._record.modes[uuid]
            await asyncio.to_thread(self._record.write)
        if problems:
            raise MpsError("; ".join(problems))
