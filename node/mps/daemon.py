"""One MPS control daemon: its folders, its process, and the commands that it is given.

``nvidia-cuda-mps-control -f`` runs as a child in a session of its own, so that it outlives an agent that is killed; the
next agent finds it by the pid and start time on record (``adopt``). Commands are given by the same program, on its
standard input, which is the only interface that NVIDIA documents.

The program is the driver's and is run where it lies, not in a chroot: the pipes and /dev/shm would not be there. A
driver below a root of its own has its libraries linked into one folder, because a search path with all libraries of
that root would give the program another C library than its loader's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from asyncio.subprocess import Process
from pathlib import Path

from node.edits.mps import PIPE_VARIABLE, log_folder, pipe_folder, shm_folder
from node.mps.folders import link_libraries, make_folders, remove
from node.opening import read_kernel_text, read_regular
from node.values import Value, value

PROGRAM = "nvidia-cuda-mps-control"
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/nvidia/bin", "bin", "opt/bin")
_ANSWER = 5.0
"""Seconds for the answer to one command."""
_LONGEST = 1 << 16
"""Bytes of an answer; a pod that takes the daemon's place at its pipe can write without end."""
_PID = re.compile(r"[0-9]{1,10}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
"""A resource's name or a claim's daemon: what daemons are for, and their folders below the root."""
_START = 15.0
"""Seconds from the start of the process to its first answer."""
_STOP = 5.0
"""Seconds from the command to quit, and from each signal, to the end of the process."""
_LARGEST = 1 << 20
"""Bytes of a process's command line or environment that are read."""
_MIB = 1024 * 1024


class MpsError(Exception):
    """MPS does not work for a resource: why, and what to do."""


@value
class MpsHome(Value):
    """Where MPS is, as the agent sees it: its folder ``root``, the driver's root, ``/dev/shm`` and ``/proc``."""

    root: Path = Path("/run/nvidia/mps")
    driver_root: Path = Path("/")
    shared_memory: Path = Path("/dev/shm")  # noqa: S108 - where CUDA has it
    proc: Path = Path("/proc")


@value
class MpsDevice(Value):
    """A GPU that a daemon serves; ``memory_limit`` in bytes for each client, None for no limit."""

    name: str
    uuid: str
    memory_limit: int | None = None


@value
class MpsResource(Value):
    """What one daemon is for; ``thread_percentage``: of each client, None for no limit.

    ``multi_user``: one server for clients of all users; otherwise those of another user wait until it ends.
    """

    name: str
    devices: tuple[MpsDevice, ...]
    thread_percentage: int | None = None
    multi_user: bool = False


@value
class MpsProcess(Value):
    """A daemon's process; ``started`` (clock ticks since the boot) tells it from a later one with its pid."""

    pid: int
    started: int


async def _answer_to(asking: Process, command: bytes) -> bytes:
    """What the process writes when it has read the command; not much more than ``_LONGEST`` bytes of it."""
    assert asking.stdin is not None
    assert asking.stdout is not None
    with contextlib.suppress(ConnectionError):  # It has ended: its output says why.
        asking.stdin.write(command)
        await asking.stdin.drain()
    asking.stdin.close()
    output = b""
    while len(output) <= _LONGEST:
        more = await asking.stdout.read(_LONGEST)
        if not more:
            await asking.wait()
            break
        output += more
    return output


def find_program(driver_root: Path) -> Path | None:
    """The driver's control program; None where the driver has none."""
    candidates = (driver_root / folder / PROGRAM for folder in _PROGRAM_FOLDERS)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def hindrance(home: MpsHome) -> str:
    """Why no daemon can run here, with what to do; empty where one can."""
    if find_program(home.driver_root) is None:
        return (
            f"the driver in {home.driver_root} has no {PROGRAM}; install the driver's compute utilities, or set "
            "nvidia.driverRoot"
        )
    shm = Path(shm_folder(str(home.root)))
    try:
        shm.mkdir(mode=0o755, parents=True, exist_ok=True)
        shm.chmod(0o1777)
        same = shm.samefile(home.shared_memory)
    except OSError as error:
        return f"{shm} cannot be used: {error.strerror or error}; let the agent write to nvidia.mpsRoot"
    if same:
        return ""
    return f"the agent's {home.shared_memory} is not {shm}, which pods get; see docs/sharing.md for how to mount it"


class MpsDaemon:
    """The daemon of one resource. For the event loop; nothing here is retried."""

    def __init__(self, resource: MpsResource, home: MpsHome) -> None:
        self.resource = resource
        self._home = home
        # Not one of asyncio's, which kills its children when the loop is closed.
        self._child: subprocess.Popen[bytes] | None = None
        self.process: MpsProcess | None = None
        """The running process; None while there is none."""

    @property
    def log(self) -> Path:
        """The folder of its logs."""
        return Path(log_folder(str(self._home.root), self.resource.name))

    @property
    def _pipe(self) -> Path:
        return Path(pipe_folder(str(self._home.root), self.resource.name))

    async def start(self) -> None:
        """Start it and return when it answers; raises ``MpsError``, with no process left."""
        reason = hindrance(self._home)
        if reason:
            raise MpsError(reason)
        program = await asyncio.to_thread(self._prepare)
        try:
            self._child = await asyncio.to_thread(self._spawn, program)
        except OSError as error:
            raise MpsError(f"{program} cannot be run: {error.strerror or error}") from error
        self.process = find_process(self._child.pid, self._home.proc)
        try:
            async with asyncio.timeout(_START):
                await self._first_answer()
        except TimeoutError as error:
            await self.kill()
            raise MpsError(f"{PROGRAM} does not answer within {_START:g} s; see {self.log}") from error
        except MpsError:
            await self.kill()
            raise

    async def _first_answer(self) -> None:
        assert self._child is not None
        while True:
            if self._child.poll() is not None:
                raise MpsError(f"{PROGRAM} ended with exit code {self._child.returncode}; see {self.log}")
            with contextlib.suppress(MpsError):
                await self.ask("get_default_active_thread_percentage")
                return
            await asyncio.sleep(0.05)

    async def adopt(self, process: MpsProcess) -> bool:
        """Take over a daemon that an earlier agent started; whether it runs and answers."""
        if find_process(process.pid, self._home.proc) != process:
            return False
        self.process = process
        try:
            await self.ask("get_default_active_thread_percentage")
        except MpsError:
            await self.kill()
            return False
        return True

    async def limit(self) -> None:
        """Set the limits of clients that come from now on; raises ``MpsError``.

        A default is of the next server alone, so servers that run are told, too.
        """
        running = sorted(await self.servers())
        for device in self.resource.devices:
            if device.memory_limit is not None:
                limit = f"{device.uuid} {device.memory_limit // _MIB}M"
                await self.ask(f"set_default_device_pinned_mem_limit {limit}")
                for server in running:
                    await self.ask(f"set_device_pinned_mem_limit {server} {limit}")
        if self.resource.thread_percentage is not None:
            await self.ask(f"set_default_active_thread_percentage {self.resource.thread_percentage}")
            for server in running:
                await self.ask(f"set_active_thread_percentage {server} {self.resource.thread_percentage}")

    async def servers(self) -> frozenset[int]:
        """Pids of its servers; raises ``MpsError``."""
        answer = await self.ask("get_server_list")
        return frozenset(int(word) for word in answer.split() if _PID.fullmatch(word))

    async def ask(self, command: str) -> str:
        """The answer to a command; raises ``MpsError``."""
        program = find_program(self._home.driver_root)
        if program is None:
            raise MpsError(f"the driver in {self._home.driver_root} no longer has {PROGRAM}")
        try:
            asking = await asyncio.create_subprocess_exec(
                program,
                env=self._environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise MpsError(f"{program} cannot be run: {error.strerror or error}") from error
        try:
            async with asyncio.timeout(_ANSWER):
                output = await _answer_to(asking, f"{command}\n".encode())
        except TimeoutError as error:
            raise MpsError(f"{PROGRAM} does not answer {command!r} within {_ANSWER:g} s") from error
        finally:
            if asking.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    asking.kill()
                await asking.wait()
        if len(output) > _LONGEST:
            raise MpsError(f"{PROGRAM} answers {command!r} with more than {_LONGEST} bytes")
        text = output.decode(errors="replace").strip()
        if asking.returncode != 0:
            said = f": {text.splitlines()[0][:200]}" if text else ""
            raise MpsError(f"{PROGRAM} refuses {command!r}{said}")
        return text

    async def ended(self, interval: float) -> None:
        """Return when the process has ended. A kernel that does not announce it is asked every ``interval`` seconds."""
        if self.process is None:
            return
        try:
            descriptor = os.pidfd_open(self.process.pid)
        except OSError:
            while self.is_running:  # noqa: ASYNC110 - there is nothing to wait for
                await asyncio.sleep(interval)
            return
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, end.set)
        try:
            # The pid may have been another process' by the time it was opened.
            if self.is_running:
                await end.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def leave(self) -> None:
        """Leave the process to the next agent."""
        if self._child is not None:
            self._child.returncode = 0  # Or Python complains of a child that nobody waited for.

    async def stop(self) -> None:
        """End the process and remove its folders; its clients lose their server."""
        if self.is_running:
            try:
                await self.ask("quit")
                has_ended = await self._ends()
            except MpsError:
                has_ended = False
            if not has_ended:
                await self.kill()
        self.process = self._child = None
        with contextlib.suppress(OSError):  # Pods may write to them; the next removal removes the rest.
            await asyncio.to_thread(remove, self._home.root, self._pipe.parent)

    async def kill(self) -> None:
        """End the process by signals; its folders stay for whoever looks for the reason."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process is None or not self.is_running:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            if await self._ends():
                break
        self.process = self._child = None

    async def _ends(self) -> bool:
        try:
            async with asyncio.timeout(_STOP):
                await self.ended(0.05)
        except TimeoutError:
            return False
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.process is not None and find_process(self.process.pid, self._home.proc) == self.process

    def _spawn(self, program: Path) -> subprocess.Popen[bytes]:
        """Start the process; raises OSError."""
        return subprocess.Popen(
            [program, "-f", *(("-multiuser-server",) if self.resource.multi_user else ())],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            umask=0o022,
        )

    def _prepare(self) -> Path:
        """Make the folders; the program to run. Raises ``MpsError``."""
        program = find_program(self._home.driver_root)
        assert program is not None
        try:
            make_folders(self._home.root, self._pipe, self.log)
            if self._home.driver_root != Path("/"):
                link_libraries(self._home.driver_root, self._libraries)
        except OSError as error:
            path = error.filename or self._home.root
            raise MpsError(f"{path} cannot be written: {error.strerror or error}; check nvidia.mpsRoot") from error
        return program

    @property
    def _libraries(self) -> Path:
        return self._home.root / "lib"

    def _environment(self) -> dict[str, str]:
        root = self._home.driver_root
        # The daemon starts nvidia-cuda-mps-server by its name.
        environment = {
            PIPE_VARIABLE: str(self._pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
            "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in self.resource.devices),
            "PATH": os.pathsep.join(str(root / folder) for folder in _PROGRAM_FOLDERS),
        }
        if root != Path("/"):
            environment["LD_LIBRARY_PATH"] = str(self._libraries)
        return environment


def find_process(pid: int, proc: Path) -> MpsProcess | None:
    """The process with this pid; None for one that is gone or only waits to be reaped."""
    try:
        # The name in parentheses may hold blanks and parentheses itself.
        fields = read_kernel_text(proc / str(pid) / "stat").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else MpsProcess(pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def find_daemons(home: MpsHome) -> tuple[tuple[str, MpsProcess], ...]:
    """Control daemons that an agent started, with the name of each; blocks.

    Anybody can start a process that looks like one. So a pod's process, which has a pid namespace of its own, and one
    of another user are never among these, nor one with a name that leads out of MPS's root.
    """
    found = []
    for entry in home.proc.iterdir() if home.proc.is_dir() else ():
        if not entry.name.isdecimal():
            continue
        try:
            command = read_regular(entry / "cmdline", _LARGEST)
            if f"{PROGRAM}\0-f".encode() not in command or not _can_be_of_agent(entry, home.proc):
                continue
            environment = read_regular(entry / "environ", _LARGEST)
        except OSError:
            continue  # It has ended, is somebody else's, or is larger than any that an agent starts.
        head = f"{PIPE_VARIABLE}={home.root}/".encode()
        pipe = next((each for each in environment.split(b"\0") if each.startswith(head)), b"")
        name = pipe.removeprefix(head).decode(errors="replace").removesuffix("/pipe")
        process = find_process(int(entry.name), home.proc)
        if _NAME.fullmatch(name) and process is not None:
            found.append((name, process))
    return tuple(found)


def _can_be_of_agent(entry: Path, proc: Path) -> bool:
    """Whether a process has the user and the pid namespace of this one; raises OSError."""
    if entry.stat().st_uid != os.geteuid():
        return False
    return (entry / "ns/pid").readlink() == (proc / "self/ns/pid").readlink()
