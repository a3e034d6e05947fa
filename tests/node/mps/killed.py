"""A process that shares GPUs by MPS and kills itself at one of its steps: ``python -m tests.node.mps.killed FOLDER N``.

Steps are before and after every compute mode that is set, every record that is written, and every file system that is
mounted or unmounted, and before and after the start of a daemon. With ``kernel`` as a third word file systems are real,
and only steps around them and the start count. The process serves a share, gives it back, and exits with 0 if nothing
killed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from node.clocks import SYSTEM
from node.events import EventType
from node.inventory.nvidia.compute_modes import ComputeModeError
from node.mps.daemon import MpsDaemon, MpsDevice, MpsHome, MpsResource
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.mounts import KernelMounts
from node.mps.service import MpsHolders, MpsPace
from node.mps.supervisor import MpsSupervisor
from node.values import replace
from tests.making.mps import FolderMounts, MpsStandIn

NAME = "nvidia.com/gpu.shared"
RESOURCE = MpsResource(NAME, (MpsDevice("gpu-0", "GPU-0", 1 << 30), MpsDevice("gpu-1", "GPU-1", 1 << 30)), 50)
PACE = MpsPace(look=0.05, linger=0.0, first_pause=0.05, longest_pause=0.1)


class Steps:
    """Kills this process at the Nth step."""

    left = 0
    only_storage = False
    """Whether only steps around file systems and the start of a daemon count, which come in one order."""

    @classmethod
    def step(cls, *, storage: bool = False) -> None:
        cls.left -= storage or not cls.only_storage
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FileModes:
    """Compute modes in a file, as hardware keeps them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, uuid: str) -> int:
        try:
            modes: dict[str, int] = json.loads(self._path.read_text())
            return modes[uuid]
        except (OSError, KeyError) as error:
            raise ComputeModeError(uuid, str(error)) from error

    def write(self, uuid: str, mode: int) -> None:
        Steps.step()
        modes = json.loads(self._path.read_text()) | {uuid: mode}
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(modes))
        temporary.rename(self._path)
        Steps.step()


class StepRecord(MpsRecord):
    """A record with a step before and after every write."""

    def write(self) -> None:
        Steps.step()
        super().write()
        Steps.step()


class _Stepping:
    """A step before and after every mount."""

    def mount(self, folder: Path, size: int, files: int) -> None:
        """See ``Mounts``."""
        Steps.step(storage=True)
        super().mount(folder, size, files)  # type: ignore[misc]
        Steps.step(storage=True)

    def unmount(self, folder: Path) -> bool:
        """See ``Mounts``."""
        Steps.step(storage=True)
        is_gone: bool = super().unmount(folder)  # type: ignore[misc]
        Steps.step(storage=True)
        return is_gone


class StepFolders(_Stepping, FolderMounts):
    """Mounts that are folders."""


class StepKernel(_Stepping, KernelMounts):
    """Mounts of the kernel."""


class _NoEvents:
    """Nobody is told."""

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """See ``EventRecorder``."""


def supervisor(folder: Path, home: MpsHome, pace: MpsPace = PACE) -> MpsSupervisor:
    """A supervisor of the node below this folder."""
    modes, record = ExclusiveModes(FileModes(folder / "modes.json")), StepRecord(folder / "mps.json")
    return MpsSupervisor(home, modes, record, clocks=SYSTEM, events=_NoEvents(), on_changed=lambda: None, pace=pace)


async def serve(folder: Path, home: MpsHome) -> None:
    """Serve one share and take it back, and end when the daemon has been stopped."""
    made = supervisor(folder, home)
    made.use((RESOURCE,))
    running = asyncio.create_task(made.run())
    await made.ready(NAME)
    made.hold(MpsHolders({NAME: ("team/a",)}, known=True))
    await asyncio.sleep(0.1)
    made.hold(MpsHolders({}, known=True))
    while (folder / "mps.json").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def main(folder: Path, number: int, *, kernel: bool = False) -> None:
    """Serve a share with a kill at this step; 0 for none."""
    Steps.left, Steps.only_storage = number, kernel
    spawn = MpsDaemon._spawn

    def spawned(self: MpsDaemon, program: Path) -> object:
        Steps.step(storage=True)
        made = spawn(self, program)
        Steps.step(storage=True)
        return made

    MpsDaemon._spawn = spawned  # type: ignore[method-assign, assignment]
    home = MpsStandIn(folder).home
    mounts = StepKernel() if kernel else StepFolders(folder / "mounts.json")
    asyncio.run(serve(folder, replace(home, size=1 << 20, mounts=mounts)))


def die(folder: str, number: str) -> None:
    """``main`` in a process of ``tests.making.dying``."""
    main(Path(folder), int(number))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), kernel=sys.argv[3:] == ["kernel"])
