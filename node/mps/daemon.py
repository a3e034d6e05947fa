"""One MPS control daemon: its folders, its process, and the commands that it is given.

``nvidia-cuda-mps-control -f`` runs as a child in a session of its own, so that it outlives an agent that is killed; the
next agent finds it by the pid and start time on record (``adopt``). Commands are given by the same program, on its
standard input, which is the only interface that NVIDIA documents.

The program is the driver's and is run where it lies, not in a chroot, because the pipes would not be there. It runs in
a mount namespace of its own, where /dev/shm is the folder that it shares with pods (``node.mps.storage``). A driver
below a root of its own has its libraries linked into one folder, because a search path with all libraries of that root
would give the program another C library than its loader's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from asyncio.subprocess import Process
from collections.abc import Iterable
from pathlib import Path

from node.edits.mps import PIPE_VARIABLE, SHARED_MEMORY, pipe_folder
from node.mps.folders import LIBRARIES, link_libraries
from node.mps.mounts import KernelMounts, Mounts
from node.mps.processes import DEVICES_VARIABLE, PROGRAM, MpsProcess, find_process, served_devices
from node.mps.storage import MpsStorage, StorageUsage
from node.values import Value, replace, value

_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/nvidia/bin", "bin", "opt/bin")
_ANSWER = 5.0
"""Seconds for the answer to one command."""
_LONGEST = 1 << 16
"""Bytes of an answer; a pod that takes the daemon's place at its pipe can write without end."""
_PID = re.compile(r"[0-9]{1,10}")
_MOST_SERVERS = 64
"""Servers that get commands of their own; a pod that takes the daemon's place at its pipe can name thousands."""
_LIMITS = 30.0
"""Seconds for all commands that set limits: a pod in the daemon's place can delay each answer."""
_START = 15.0
"""Seconds from the start of the process to its first answer."""
_STOP = 5.0
"""Seconds from the command to quit, and from each signal, to the end of the process."""
_MIB = 1024 * 1024


class MpsError(Exception):
    """MPS does not work for a resource: why, and what to do."""


@value
class MpsHome(Value):
    """Where MPS is, as the agent sees it: its folder ``root``, the driver's root, and ``/proc``.

    ``size``: bytes of each daemon's file system; None where ``root`` is a file system that the operator provides.
    """

    root: Path = Path("/run/nvidia/mps")
    driver_root: Path = Path("/")
    proc: Path = Path("/proc")
    size: int | None = 256 << 20
    mounts: Mounts = KernelMounts()

    @property
    def storage(self) -> MpsStorage:
        """The folder in which daemons and pods store what they share."""
        return MpsStorage(self.root, self.mounts, self.size, Path(SHARED_MEMORY))


@value
class MpsDevice(Value):
    """A GPU that a daemon serves; ``memory_limit`` in bytes for each client, None for no limit."""

    name: str
    uuid: str
    memory_limit: int | None = None


@value
class MpsResource(Value):
    """The resource that one daemon serves; ``thread_percentage``: of each client, None for no limit.

    ``multi_user``: one server for clients of all users; otherwise those of another user wait until it ends.
    """

    name: str
    devices: tuple[MpsDevice, ...]
    thread_percentage: int | None = None
    multi_user: bool = False


async def _answer_to(asking: Process, command: bytes) -> bytes:
    """The answer of the process to the command; not much more than ``_LONGEST`` bytes of it."""
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


async def _end(asking: Process) -> None:
    """Kill the process if it still runs, and wait until it has ended.

    What it has written is read: asyncio waits for the end of the output as well, and stops reading what nobody takes.
    """
    assert asking.stdout is not None
    if asking.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            asking.kill()
    while await asking.stdout.read(_LONGEST):
        pass
    await asking.wait()


def find_program(driver_root: Path) -> Path | None:
    """The driver's control program; None where the driver has none."""
    candidates = (driver_root / folder / PROGRAM for folder in _PROGRAM_FOLDERS)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def hindrance(home: MpsHome) -> str:
    """Why no daemon can run here, with what to do; empty if one can. Blocks, longer on a node with many mounts."""
    if find_program(home.driver_root) is None:
        return (
            f"the driver in {home.driver_root} has no {PROGRAM}; install the driver's compute utilities, or set "
            "nvidia.driverRoot"
        )
    try:
        home.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        return home.storage.hindrance()
    except OSError as error:
        return f"{home.root} cannot be used: {error.strerror or error}; let the agent write to nvidia.mpsRoot"


class MpsDaemon:
    """The daemon of one resource. For the event loop; nothing here is retried."""

    def __init__(self, resource: MpsResource, home: MpsHome) -> None:
        self.resource = resource
        self.storage = home.storage
        self._home = home
        # Not one of asyncio's, which kills its children when the loop is closed.
        self._child: subprocess.Popen[bytes] | None = None
        self.process: MpsProcess | None = None
        """The running process; None if there is none."""

    @property
    def log(self) -> Path:
        """The folder of its logs."""
        return self.storage.log(self.resource.name)

    @property
    def _pipe(self) -> Path:
        return Path(pipe_folder(str(self._home.root), self.resource.name))

    async def start(self) -> str:
        """Start it and return when it answers; returns the remains of its earlier folders, in words.

        Raises ``MpsError``, with no process left.
        """
        reason = await asyncio.to_thread(hindrance, self._home)
        if reason:
            raise MpsError(reason)
        program, left = await asyncio.to_thread(self._prepare)
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
        return left

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
        """Take over a daemon that an earlier agent started; whether it runs and answers.

        ``resource`` then has the GPUs that it was started for, which may be others than those to serve now.
        """
        if find_process(process.pid, self._home.proc) != process:
            return False
        self.process = process
        if not self.storage.has(self.resource.name):
            # Somebody unmounted its file system: no pod could get at its pipes.
            await self.kill()
            return False
        try:
            await self.ask("get_default_active_thread_percentage")
        except MpsError:
            await self.kill()
            return False
        served = served_devices(process, self._home.proc)
        if served is not None:
            known = [device for device in self.resource.devices if device.uuid in served]
            others = sorted(served - {device.uuid for device in known})
            devices = (*known, *(MpsDevice(uuid, uuid) for uuid in others))
            self.resource = replace(self.resource, devices=devices)
        return True

    async def limit(self, resource: MpsResource) -> None:
        """Set the limits of ``resource``, which has the same devices, for new clients; raises ``MpsError``.

        A default counts for the next server alone, so running servers get the limit, too.
        """
        try:
            async with asyncio.timeout(_LIMITS):
                await self._limit(resource)
        except TimeoutError as error:
            raise MpsError(f"{PROGRAM} does not take the limits of its clients within {_LIMITS:g} s") from error

    async def _limit(self, resource: MpsResource) -> None:
        self.resource = resource
        running = sorted(await self.servers())[:_MOST_SERVERS]
        for device in resource.devices:
            if device.memory_limit is not None:
                limit = f"{device.uuid} {device.memory_limit // _MIB}M"
                await self.ask(f"set_default_device_pinned_mem_limit {limit}")
                for server in running:
                    await self.ask(f"set_device_pinned_mem_limit {server} {limit}")
        if resource.thread_percentage is not None:
            await self.ask(f"set_default_active_thread_percentage {resource.thread_percentage}")
            for server in running:
                await self.ask(f"set_active_thread_percentage {server} {resource.thread_percentage}")

    async def servers(self) -> frozenset[int]:
        """Pids of its servers; raises ``MpsError``."""
        answer = await self.ask("get_server_list")
        return frozenset(int(word) for word in answer.split() if _PID.fullmatch(word))

    async def clients(self, servers: Iterable[int]) -> int:
        """How many processes are clients of these servers, as far as the daemon says in the time for one answer."""
        count = 0
        # The server has ended, or the daemon has no such command, or answers late: no reason to end it.
        with contextlib.suppress(MpsError, TimeoutError):
            async with asyncio.timeout(_ANSWER):
                for server in sorted(servers)[:_MOST_SERVERS]:
                    answer = await self.ask(f"get_client_list {server}")
                    count += sum(_PID.fullmatch(word) is not None for word in answer.split())
        return count

    def tidy(self) -> StorageUsage:
        """Shorten its logs; how full its file system is then. Blocks; raises OSError."""
        self.storage.shorten_logs(self.resource.name)
        return self.storage.usage(self.resource.name)

    async def ask(self, command: str) -> str:
        """The answer to a command; raises ``MpsError``."""
        program = self._program()
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
            await _end(asking)
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

    async def stop(self) -> str:
        """End the process and remove its folders; its clients lose their server. What stays for now, in words."""
        if self.is_running:
            with contextlib.suppress(MpsError):
                await self.ask("quit")
                await self._ends()
        await self.kill()
        try:
            return await asyncio.to_thread(self.storage.remove, self.resource.name)
        except OSError as error:
            return f"{error.filename or self._pipe.parent} cannot be removed: {error.strerror or error}"

    async def kill(self) -> None:
        """End the process by signals if it still runs; its folders stay for a person who looks for the reason."""
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

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [program, "-f", *(("-multiuser-server",) if self.resource.multi_user else ())],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                umask=0o022,
            )

        return self.storage.acting(self.resource.name, start)

    def _prepare(self) -> tuple[Path, str]:
        """Make the folders; the program to run, and what stays of older folders. Raises ``MpsError``."""
        program = self._program()
        try:
            left = self.storage.make(self.resource.name)
            if self._home.driver_root != Path("/"):
                link_libraries(self._home.driver_root, self._libraries)
        except OSError as error:
            path = error.filename or self._home.root
            raise MpsError(f"{path} cannot be made: {error.strerror or error}; check nvidia.mpsRoot") from error
        return program, left

    def _program(self) -> Path:
        """The control program; raises ``MpsError`` where an update of the driver has just removed it."""
        program = find_program(self._home.driver_root)
        if program is None:
            raise MpsError(
                f"the driver in {self._home.driver_root} no longer has {PROGRAM}; ostler tries again, so finish the "
                "driver's update"
            )
        return program

    @property
    def _libraries(self) -> Path:
        return self._home.root / LIBRARIES

    def _environment(self) -> dict[str, str]:
        root = self._home.driver_root
        # The daemon starts nvidia-cuda-mps-server by its name.
        environment = {
            PIPE_VARIABLE: str(self._pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
            DEVICES_VARIABLE: ",".join(device.uuid for device in self.resource.devices),
            "PATH": os.pathsep.join(str(root / folder) for folder in _PROGRAM_FOLDERS),
        }
        if root != Path("/"):
            environment["LD_LIBRARY_PATH"] = str(self._libraries)
        return environment
