"""Changes on a node that MPS must undo: the compute modes of GPUs, with the record of them and of the daemons.

The mode that a GPU had is on disk before it is changed, so that the next agent can set it back after a kill.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from node.files import FileError, JsonValue, read_record, write_record
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS, ComputeModeError, mode_name
from node.mps.daemon import MpsError
from node.mps.processes import MpsProcess

SCHEMA = "mps/v1"
RECORD = "mps.json"
"""Name of the record of resources' daemons in the state folder."""
_PATIENCE = 15.0
"""Seconds that a daemon waits for a GPU that another one has: longer than that one lingers and takes to end."""
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
        """Held from reading the state until it is on disk: resources write in threads of their own."""
        self.modes: dict[str, int] = {}
        self.daemons: dict[str, MpsProcess] = {}

    def read(self) -> str:
        """Read the state that an earlier agent left; returns why it cannot be used, empty if it can."""
        try:
            data = read_record(self._path, SCHEMA)
        except FileError as error:
            return str(error)
        if not isinstance(data, dict):
            return ""
        modes, daemons = data.get("modes"), data.get("daemons")
        if isinstance(modes, dict):
            self.modes = {uuid: mode for uuid, mode in modes.items() if isinstance(mode, int)}
        if isinstance(daemons, dict):
            for name, one in daemons.items():
                match one:
                    case [int(pid), int(started)]:
                        self.daemons[name] = MpsProcess(pid, started)
        return ""

    def rebuild(self, name: str, process: MpsProcess, uuids: Iterable[str]) -> None:
        """Enter a running daemon and its devices, whose record was unusable.

        What mode its GPUs had is not known any more; nearly all have the default.
        """
        self.daemons[name] = process
        self.modes |= dict.fromkeys(_gpus(uuids), DEFAULT)

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
                raise MpsError(
                    f"the compute mode of the GPUs cannot be recorded: {error}; check the state folder and its disk"
                ) from error


def _gpus(uuids: Iterable[str]) -> list[str]:
    """Those that have a compute mode: a MIG device has none, and its GPU's must be the default."""
    return [uuid for uuid in uuids if not uuid.startswith(_MIG)]


class ExclusiveModes:
    """Gives GPUs to the processes of one daemon alone, and back; for the event loop. One for the process.

    Daemons have names; ``record`` is where their supervisor keeps what a GPU had before. A daemon waits until another
    one has given a GPU back, even another supervisor's: the mode that the GPU has until then is not the one to restore.
    """

    def __init__(self, modes: ComputeModes, *, patience: float = _PATIENCE) -> None:
        self._modes = modes
        self._patience = patience
        self._taken: dict[str, tuple[str, MpsRecord]] = {}
        """By UUID the daemon that has the GPU to itself."""
        self._stuck: dict[str, int] = {}
        """The modes that could not be set back."""
        self._given_back = asyncio.Event()
        """Set, and replaced, with every GPU that is given back."""
        self._lock = asyncio.Lock()
        """Held while compute modes and their records change."""

    async def take(self, name: str, record: MpsRecord, uuids: Iterable[str]) -> None:
        """Give the GPUs to this daemon's processes alone; what they had is on disk before.

        Raises ``MpsError`` if that cannot be written or another daemon keeps a GPU, and ``ComputeModeError``.
        """
        gpus = _gpus(uuids)
        await self._turn(name, gpus)
        self._taken |= dict.fromkeys(gpus, (name, record))
        async with self._lock:
            for uuid in gpus:
                mode = await asyncio.to_thread(self._modes.read, uuid)
                if uuid not in record.modes:
                    record.modes[uuid] = self._stuck.get(uuid, mode)
                    await asyncio.to_thread(record.write)
                if mode != EXCLUSIVE_PROCESS:
                    await asyncio.to_thread(self._modes.write, uuid, EXCLUSIVE_PROCESS)

    def keep(self, name: str, record: MpsRecord, uuids: Iterable[str]) -> None:
        """Note that this daemon has had the GPUs to itself since an earlier agent."""
        self._taken |= {uuid: (name, record) for uuid in uuids if uuid in record.modes}

    async def give_back(self, name: str, record: MpsRecord, uuids: Iterable[str]) -> None:
        """Set modes back, but for GPUs that another daemon has; one that cannot be set stays on record.

        Raises ``MpsError``.
        """
        problems = []
        async with self._lock:
            for uuid in uuids:
                mode, by = record.modes.get(uuid), self._taken.get(uuid)
                if by is not None and by[0] != name:
                    if by[1] is not record:
                        record.modes.pop(uuid, None)
                    continue
                self._taken.pop(uuid, None)
                if mode is None:
                    continue
                try:
                    # Where it could not be changed, it could not be set back either.
                    if await asyncio.to_thread(self._modes.read, uuid) != mode:
                        await asyncio.to_thread(self._modes.write, uuid, mode)
                except ComputeModeError as error:
                    self._stuck[uuid] = mode
                    problems.append(
                        f"{uuid} stays in compute mode EXCLUSIVE_PROCESS, not {mode_name(mode)}: {error.reason}"
                    )
                else:
                    del record.modes[uuid]
                    self._stuck.pop(uuid, None)
            await asyncio.to_thread(record.write)
        self._given_back.set()
        self._given_back = asyncio.Event()
        if problems:
            raise MpsError("; ".join(problems))

    async def _turn(self, name: str, gpus: Iterable[str]) -> None:
        """Wait until no other daemon has one of these GPUs; raises ``MpsError``."""
        until = asyncio.get_running_loop().time() + self._patience
        while kept := [(uuid, self._taken[uuid][0]) for uuid in gpus if self._taken.get(uuid, (name,))[0] != name]:
            try:
                async with asyncio.timeout_at(until):
                    await self._given_back.wait()
            except TimeoutError as error:
                uuid, other = kept[0]
                raise MpsError(
                    f"{uuid} still belongs to the MPS control daemon of {other}, which ends with its last share; "
                    "'ostler holds' says who has one"
                ) from error
