"""``ostler WORDS`` in processes of their own, forked from one that has imported what an agent runs.

An agent's start is mostly its imports, and a test run starts a thousand agents. A fork has them already; all else is as
in a new process: its arguments, environment, folder, output and signals are its own. The tour of one node
(``tests.making.tours``) and tests of the command line start interpreters, so that the imports of a new process are
proved as well.

``python -m tests.making.forked_ostler DESCRIPTOR`` is the parent. It has no threads, so that it can fork, and receives
orders on that socket: one JSON object a packet, with the descriptors of output, errors and the status pipe. The status
pipe tells the child's process id, and its exit code when it has ended.

The imports take a second of a core. Workers that share one parent (``SHARED``) connect to it; it forks for each
connection, and the fork is that worker's parent: ``python -m tests.making.forked_ostler --listen DESCRIPTOR``.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from node.interfaces.namespace import NetworkNamespace
from sandbox.process import OstlerProcess, execute_ostler
from tests.making import recordings

PRELOADED = (
    "driver.publishing.node_slices",
    "driver.resource_api.client",
    "kube.events",
    "kube.kubeconfig",
    "kube.node_identity",
    "kubernetes.utils.keepalive",
    "node.cdi.spec",
    "node.health.kernel.links",
    "node.health.tracker",
    "node.inventory.live.hardware",
    "node.inventory.live.kernel_health",
    "node.inventory.live.links",
    "node.inventory.live.polls",
    "node.inventory.live.udev",
    "node.inventory.live.uevents",
    "node.inventory.nvidia.nvml_mig",
    "node.inventory.nvidia.nvml_processes",
    "node.inventory.nvidia.nvml_session",
    "node.inventory.nvidia.partition_maker",
    "node.inventory.nvidia.signals.polls",
    "node.inventory.nvidia.signals.source",
    "node.inventory.sysfs.source",
    "node.kubelet.dra_state",
    "node.kubelet.godump",
    "ostler.admin.health",
    "ostler.admin.holds",
    "ostler.admin.http",
    "ostler.admin.probes",
    "ostler.admin.service",
    "ostler.agent.dra_parts",
    "ostler.agent.dra_service",
    "ostler.agent.health_record",
    "ostler.cli.doctor",
    "ostler.cli.main",
    "ostler.cli.run",
    "ostler.metrics.exposition",
    "ostler.metrics.gauges",
    "protos.podresources.v1.api_pb2",
    "urllib.request",
    "urllib3",
)
"""What ``ostler run`` imports by the time that it has published its devices, some of it only then; and doctor."""

SHARED = "OSTLER_TEST_FORKS"
"""Environment variable: the path of the socket of the parent that all workers share."""

CLONE_NEWNET = 0x40000000
LONGEST = 1 << 18
"""Bytes of an order."""

GRACE, LINGER = "OSTLER_TEST_GRACE", "OSTLER_TEST_LINGER"
"""Environment variables: seconds in place of ``ostler.cli.run.GRACE`` and ``ostler.agent.handover.LINGER``."""
SLOT_PATIENCE = 30.0
"""Seconds in place of ``plugin.serving.PATIENCE``, since kubelets of tests are slow as well."""
LONG_GRACE = "60"
"""Unless a test says otherwise: on a machine that others use, too, an orderly end may take longer than on a node."""


class ForkedOstler:
    """Starts processes as ``sandbox.process.execute_ostler`` does; the parent starts with the first one.

    The parent's environment is that of now, whatever the test that needs the first process has set. Where workers share
    a parent, no process that it forks sees the variable that names it.
    """

    def __init__(self) -> None:
        self._shared = os.environ.pop(SHARED, None)
        self._parent: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._environment = dict(os.environ)
        self._loader = _loader()

    async def start(
        self, words: Sequence[str], out: IO[bytes], err: IO[bytes], namespace: NetworkNamespace | None = None
    ) -> OstlerProcess:
        """Start ``ostler WORDS``, in the network namespace if one is given."""
        if _loader() != self._loader:
            # A fork cannot load its libraries anew.
            return await execute_ostler(words, out, err, namespace)
        return await self._ordered(words, out, err, str(namespace.path) if namespace is not None else "")

    async def _ordered(self, words: Sequence[str], out: IO[bytes], err: IO[bytes], network: str) -> OstlerProcess:
        if self._orders is None:
            self._orders = self._begin()
        order = {"words": list(words), "environment": dict(os.environ), "folder": str(Path.cwd()), "network": network}
        status, told = os.pipe()
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [out.fileno(), err.fileno(), told])
        finally:
            os.close(told)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(status, "rb", buffering=0)
        )
        try:
            pid = int(await reader.readline())
        except asyncio.CancelledError:
            # The parent kills a child that nobody waits for.
            transport.close()
            raise
        return ForkedProcess(pid, reader, transport)

    def _begin(self) -> socket.socket:
        if self._shared is not None:
            orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
            orders.connect(self._shared)
            return orders
        orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.making.forked_ostler", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                cwd=Path(__file__).parents[2],
            )
        return orders

    def close(self) -> None:
        """End the parent."""
        if self._orders is None:
            return
        if self._parent is None:
            # The fork for this worker ends its processes before itself.
            self._orders.shutdown(socket.SHUT_WR)
            self._orders.recv(1)
        self._orders.close()
        if self._parent is not None:
            self._parent.wait()


class ForkedProcess:
    """One child of the parent."""

    def __init__(self, pid: int, status: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = asyncio.create_task(self._ended(status, transport), name=f"end of process {pid}")

    async def _ended(self, status: asyncio.StreamReader, transport: asyncio.ReadTransport) -> int:
        try:
            self.returncode = int(await status.readline())
        finally:
            transport.close()
        return self.returncode

    def send_signal(self, number: int, /) -> None:
        """Send it a signal; raises ProcessLookupError when it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end; the exit code, below 0 for a signal."""
        return await asyncio.shield(self._end)


def _loader() -> dict[str, str]:
    """Variables that the loader and the interpreter read at their start."""
    return {name: value for name, value in os.environ.items() if name.startswith(("LD_", "PYTHON"))}


def _become(order: Mapping[str, Any], out: int, err: int) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, out, err)):
        os.dup2(descriptor, number)
    os.closerange(3, 4096)
    if order["network"]:
        _enter(order["network"])
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["ostler", *order["words"]]
    _give_time(float(os.environ.pop(GRACE, LONG_GRACE)), os.environ.pop(LINGER, None))
    main = importlib.import_module("ostler.cli.main").main
    try:
        return int(main())
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _enter(network: str) -> None:
    namespace = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {network}")
    os.close(namespace)


def _give_time(grace: float, linger: str | None) -> None:
    run: Any = importlib.import_module("ostler.cli.run")
    run.GRACE = grace
    serving: Any = importlib.import_module("plugin.serving")
    serving.PATIENCE = SLOT_PATIENCE
    if linger is not None:
        handover: Any = importlib.import_module("ostler.agent.handover")
        handover.LINGER = run.LINGER = float(linger)
        defaults = handover.Handover.__init__.__kwdefaults__
        assert "linger" in defaults
        defaults["linger"] = float(linger)


def _fork(order: Mapping[str, Any], out: int, err: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = _become(order, out, err)
    except BaseException:  # noqa: BLE001 - whatever it is, the log shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def prepare() -> None:
    """Import what an agent imports, for the forks of this process."""
    for name in PRELOADED:
        importlib.import_module(name)
    recordings.read_often()
    # A collection in a child would copy all pages.
    gc.collect()
    gc.freeze()


def listen(listener: socket.socket) -> None:
    """Fork a parent for each worker that connects, until the input ends; what it needs is imported with the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parents: list[int] = []
    while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
        if not parents:
            prepare()
        orders, _ = listener.accept()
        if not (parent := os.fork()):
            try:
                listener.close()
                serve(orders)
            except BaseException:  # noqa: BLE001 - whatever it is, it is shown
                traceback.print_exc()
            finally:
                os._exit(0)
        parents.append(parent)
        orders.close()
    for parent in parents:
        os.waitpid(parent, 0)


def serve(orders: socket.socket) -> None:
    """Carry out orders until the socket is closed, and say how their processes end."""
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Control-C ends the tests, which end their processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([orders.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                told = running.pop(ended[0])
                _tell(told, os.waitstatus_to_exitcode(ended[1]))
                os.close(told)
        if orders.fileno() in readable:
            packet, descriptors, _, _ = socket.recv_fds(orders, LONGEST, 3)
            if not packet:
                break
            out, err, told = descriptors
            pid = _fork(json.loads(packet), out, err)
            running[pid] = told
            os.close(out)
            os.close(err)
            if not _tell(told, pid):
                os.kill(pid, signal.SIGKILL)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _tell(pipe: int, number: int) -> bool:
    """Whether somebody reads it."""
    try:
        os.write(pipe, b"%d\n" % number)
    except BrokenPipeError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        listen(socket.socket(fileno=int(sys.argv[2])))
    else:
        prepare()
        serve(socket.socket(fileno=int(sys.argv[1])))
