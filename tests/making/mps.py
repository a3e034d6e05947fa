"""Stand-ins for ``nvidia-cuda-mps-control`` and ``nvidia-smi`` that run as real processes, and GPUs' compute modes.

The stand-in keeps to what NVIDIA documents: ``-f`` serves in the foreground on the pipe folder's ``control``, and
without arguments the program sends its standard input there. Three commands are for tests alone: ``client`` starts a
server as a client would, ``crash-server`` ends it, ``crash`` ends the daemon. Files beside the program make it
misbehave: ``refuse-start``, ``deaf``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from node.inventory.nvidia.compute_modes import ComputeModeError
from node.mps import daemon
from node.mps.daemon import MpsHome
from node.mps.folders import clear
from node.mps.mounts import KernelMount, Result
from node.mps.processes import PROGRAM

# The stand-in is a Python program: on a machine that others use, too, it starts and answers late.
daemon._START = daemon._ANSWER = 120.0

_SCRIPT = """#!{python} -SE
import _socket, os, sys  # socket takes as long to import as Python to start
pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
here = os.path.dirname(os.path.abspath(__file__))
path = "control"  # relative: the path of a socket is short
try:
    os.chdir(pipe)
except OSError:
    sys.exit("no pipe folder")

def note(text):
    try:
        with open(os.path.join(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log"), "a") as log:
            log.write(text + chr(10))
    except OSError:
        pass  # The file system is full.

def read(connection, end):
    text = b""
    while not (end and text.endswith(end)) and (more := connection.recv(4096)):
        text += more
    return text.decode()

def serve():
    if os.path.exists(os.path.join(here, "refuse-start")):
        sys.exit(3)
    note("devices " + os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    note("arguments " + " ".join(sys.argv[1:]))
    note("libraries " + os.environ.get("LD_LIBRARY_PATH", ""))
    if os.path.exists(path):
        os.unlink(path)
    server = _socket.socket(_socket.AF_UNIX)
    server.bind(path)
    os.chmod(path, 0o666)
    server.listen(8)
    servers, serial = [], 4000
    while True:
        client = _socket.socket(fileno=server._accept()[0])
        try:
            command = read(client, bytes([10])).strip()
        except OSError:
            continue  # Whoever asks was killed.
        note(command)
        if os.path.exists(os.path.join(here, "deaf")):
            continue
        answer = ""
        if command == "get_server_list":
            answer = chr(10).join(str(each) for each in servers)
        elif command == "get_default_active_thread_percentage":
            answer = "100.0"
        elif command.startswith("get_client_list"):
            answer = "5001" + chr(10) + "5002"
        elif command == "client":
            serial += 1
            servers.append(serial)
        elif command == "crash-server":
            servers.clear()
        elif command == "crash":
            os._exit(9)
        try:
            client.sendall(answer.encode())
        except OSError:
            pass  # Whoever asked was killed.
        client.close()
        if command == "quit":
            return

def send():
    connection = _socket.socket(_socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        print("Cannot find MPS control daemon process")
        sys.exit(1)
    connection.sendall(sys.stdin.read().encode())
    sys.stdout.write(read(connection, b""))

serve() if sys.argv[1:2] == ["-f"] else send()
"""


class FolderMounts:
    """Implements ``Mounts`` for tests without rights: a file system is a folder, a file says which ones are mounted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fault = ""
        self.visible, self.busy = True, False
        self.sizes: list[tuple[int, int]] = []

    def mount(self, folder: Path, size: int, files: int) -> None:
        """See ``Mounts``."""
        self.sizes.append((size, files))
        self._write([*self._read(), str(folder)])

    def shrink(self, folder: Path) -> None:
        """See ``Mounts``."""

    def unmount(self, folder: Path) -> bool:
        """See ``Mounts``; what was in the file system is gone with it."""
        self._write([each for each in self._read() if each != str(folder)])
        clear(folder)
        return not self.busy

    def below(self, root: Path) -> tuple[Path, ...]:
        """See ``Mounts``."""
        return tuple(Path(each) for each in self._read() if root in Path(each).parents)

    def at(self, folder: Path) -> KernelMount | None:
        """See ``Mounts``."""
        device = "254:0" if folder in (Path("/"), Path("/run")) else "0:1"
        return KernelMount(1, device, "/", folder, "tmpfs", "ostler-mps", ("size=1m", "nr_inodes=64"), 1)

    def hindrance(self, root: Path, shared_memory: Path) -> str:
        """See ``Mounts``."""
        return self.fault

    def is_visible(self, root: Path) -> bool:
        """See ``Mounts``."""
        return self.visible

    def in_namespace(self, root: Path, shm: Path, shared_memory: Path, act: Callable[[], Result]) -> Result:
        """See ``Mounts``."""
        return act()

    def _read(self) -> list[str]:
        found: list[str] = json.loads(self._path.read_text()) if self._path.exists() else []
        return found

    def _write(self, mounted: list[str]) -> None:
        temporary = self._path.with_suffix(f".{threading.get_ident()}")
        temporary.write_text(json.dumps(mounted))
        temporary.rename(self._path)  # The agent's threads read it at any time.


class MpsStandIn:
    """A driver root with the stand-in in it, and the folders of a node with MPS."""

    def __init__(self, folder: Path) -> None:
        self.binaries = folder / "driver" / "usr" / "bin"
        self.binaries.mkdir(parents=True, exist_ok=True)
        program = self.binaries / PROGRAM
        program.write_text(_SCRIPT.replace("{python}", sys.executable))
        program.chmod(0o755)
        root = folder / "mps"
        self.mounts = FolderMounts(folder / "mounts.json")
        self.home = MpsHome(root, folder / "driver", mounts=self.mounts)

    def misbehave(self, how: str, *, now: bool = True) -> None:
        """Have the stand-in misbehave from now on, or behave again: ``refuse-start``, ``deaf``."""
        flag = self.binaries / how
        if now:
            flag.touch()
        else:
            flag.unlink()

    def log(self, resource: str) -> list[str]:
        """What the daemon of the resource was told, in order; empty once it is stopped."""
        log = self.home.root / resource / "log" / "control.log"
        return log.read_text().splitlines() if log.exists() else []


_SMI = """#!{python} -SE
import os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
if os.path.exists(os.path.join(here, "hang")):
    agent = os.getppid()
    while os.getppid() == agent:  # Nothing may stay behind when the agent was killed.
        time.sleep(0.05)
    sys.exit(1)
command, _, uuid, option, length = sys.argv[1:]
assert (command, option) == ("compute-policy", "--set-timeslice"), sys.argv
if os.path.exists(os.path.join(here, "refuse")):
    print("Failed to set timeslice policy for GPU: Not Supported")
    sys.exit(3)
path = os.path.join(here, "timeslice-" + uuid)
with open(path, "w") as policy:
    policy.write(length)
"""


class SmiStandIn:
    """``nvidia-smi`` below a driver root, as a real process that keeps the time slices of GPUs in files beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / "usr" / "bin"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.program = self._folder / "nvidia-smi"
        self.program.write_text(_SMI.replace("{python}", sys.executable))
        self.program.chmod(0o755)

    def misbehave(self, how: str, *, now: bool = True) -> None:
        """Have it misbehave from now on, or behave again: ``refuse``, ``hang``."""
        if now:
            (self._folder / how).touch()
        else:
            (self._folder / how).unlink()

    @property
    def slices(self) -> dict[str, int]:
        """Time slices that are not the default, by UUID."""
        found = {path.name.partition("-")[2]: int(path.read_text()) for path in self._folder.glob("timeslice-*")}
        return {uuid: length for uuid, length in found.items() if length}


class GpuModes:
    """Compute modes of GPUs; implements ``node.mps.supervisor.ComputeModes``."""

    def __init__(self, *uuids: str) -> None:
        self.modes = dict.fromkeys(uuids, 0)
        self.fault = ""

    def read(self, uuid: str) -> int:
        """The mode of a GPU."""
        if uuid not in self.modes:
            raise ComputeModeError(uuid, "the driver no longer knows the GPU")
        return self.modes[uuid]

    def write(self, uuid: str, mode: int) -> None:
        """Set it."""
        self.read(uuid)
        if self.fault:
            raise ComputeModeError(uuid, self.fault)
        self.modes[uuid] = mode
