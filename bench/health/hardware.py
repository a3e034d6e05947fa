"""The hardware of the health benchmark: GPUs behind the stub NVML library, and NICs that are half mocked and half real.

NICs are PCI functions of a umockdev test bed whose interfaces are real veth pairs: umockdev serves /sys and uevents to
the agent, and the real kernel rtnetlink. The other end of a pair is the cable: set down, the interface in the NIC loses
its carrier.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.hardware import Hardware as Rendered
from bench.health.agents import DescribedHardware
from bench.kubelet import WITHIN, NothingCame
from node.inventory.network.rtnetlink import NEWLINK, dump_links, parse_link
from node.netlink import NetlinkSocket, group_mask
from tests.node.nvml import stub

RECORDED = "h100-sxm-8"
COUNT = 8
FELL_OFF = 79
"""The XID of a GPU that has fallen off the bus."""
_XID_EVENT, _WHOLE = 0x8, 0xFFFFFFFF
PRELOAD = "libumockdev-preload.so.0"
ROOT = "/sys/devices/pci0000:80"
DRIVER = "/sys/bus/pci/drivers/mlx5_core"
FUNCTION = {"class": "0x020000", "vendor": "0x15b3", "device": "0x1021", "numa_node": "-1"}
ERRORS = "aer_dev_nonfatal"
_RTNLGRP_LINK = 1


class Gpus:
    """Eight GPUs below ``root``; one agent at a time may use them."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        rendered = Rendered(RECORDED, root)
        self.hardware = DescribedHardware(rendered.flags, rendered.environment)
        description = rendered.environment[stub.VARIABLE]
        self._description = Path(description)
        self._well = self._description.read_text(encoding="utf-8")
        self._events = Path(f"{description}.events")
        self._registered = Path(f"{description}.registered")

    async def listened_to(self) -> None:
        """Wait until the agent waits for events of all GPUs; raises ``NothingCame``."""
        try:
            async with asyncio.timeout(WITHIN):
                while not self._registered.exists() or self._registered.stat().st_size < COUNT:
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise NothingCame("the agent does not wait for NVML's events") from error

    def lose(self, index: int) -> float:
        """A GPU falls off the bus and no event tells of it; when that was."""
        began = time.perf_counter()
        # No wait for events fails either: what is left is to ask the GPU.
        stub.write(self._description, self._well + stub.lost(index, answering=["nvmlEventSetWait"]))
        return began

    def find(self) -> float:
        """Every GPU answers again; when that was."""
        began = time.perf_counter()
        stub.write(self._description, self._well)
        return began

    def fail(self, index: int) -> float:
        """A GPU reports an XID; when that was."""
        began = time.perf_counter()
        with self._events.open("a") as events:
            events.write(f"{index} {_XID_EVENT} {FELL_OFF} {_WHOLE} {_WHOLE}\n")
        return began


class MissingTestBed(Exception):
    """Something that the benchmark needs is not on this machine."""


def check() -> None:
    """Raise ``MissingTestBed`` where NICs cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise MissingTestBed("veth pairs need root rights and iproute2")
    if ctypes.util.find_library("umockdev") is None or shutil.which("umockdev-wrapper") is None:
        raise MissingTestBed("mocked NICs need libumockdev0 and umockdev")


def interface_of(number: int) -> str:
    """The interface of that number, of this process alone; the other end of its pair has an ``x`` behind it."""
    return f"ob{os.getpid()}n{number}"


@contextmanager
def cables(numbers: range) -> Iterator[None]:
    """Veth pairs that are up, gone afterwards."""
    names = [interface_of(number) for number in numbers]
    try:
        for name in names:
            ip(f"link add {name} type veth peer name {name}x", f"link set {name}x up", f"link set {name} up")
        yield
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(f"link delete {name}")


def ip(*lines: str) -> None:
    """Run these commands of iproute2 in one process; raises CalledProcessError."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Signal:
    """When a change was begun, and when the kernel told of it.

    The agent may have acted before the latter: it has a socket of its own, and may look for another reason.
    """

    asked: float
    told: float


class Bed:
    """The test bed's process, told by lines (``tests.node.udev.testbed``)."""

    def __init__(self, process: asyncio.subprocess.Process, root: str) -> None:
        self._process = process
        self.hardware = DescribedHardware(
            {"--nvidia-library": "/nonexistent/libnvidia-ml.so.1"}, {"LD_PRELOAD": PRELOAD, "UMOCKDEV_DIR": root}
        )

    async def make(self, number: int, *, wired: bool) -> None:
        """A function with its driver; ``wired``: with the interface of its number."""
        path = await self._do("add", "pci", f"0000:{0x84 + number:02x}:00.0", ROOT, FUNCTION | {ERRORS: _errors(0)})
        await self._do("link", f"{path}/driver", DRIVER)
        if wired:
            name = interface_of(number)
            attributes = {"operstate": "up", "carrier": "1", "type": "1", "mtu": "1500", "ifindex": f"{number + 2}"}
            await self._do("add", "net", f"net/{name}", path, attributes)

    async def unbind(self, number: int) -> Signal:
        """Have a function's driver let go of it; the event is sent after that."""
        path = f"{ROOT}/0000:{0x84 + number:02x}:00.0"
        asked = time.perf_counter()
        await self._do("link", f"{path}/driver", None)
        told = time.perf_counter()
        await self._do("uevent", path, "unbind")
        return Signal(asked, told)

    async def err(self, number: int) -> float:
        """Count an error of a function's PCIe link, of which nothing tells; when that was."""
        began = time.perf_counter()
        await self._do("write", f"{ROOT}/0000:{0x84 + number:02x}:00.0/{ERRORS}", _errors(1))
        return began

    async def _do(self, name: str, *arguments: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        await self._process.stdin.drain()
        return json.loads(await self._process.stdout.readline())


def _errors(number: int) -> str:
    return f"TOTAL_ERR_NONFATAL {number}"


@asynccontextmanager
async def bed(wired: int, bare: int) -> AsyncIterator[Bed]:
    """A test bed of so many NICs with an interface and so many without."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.node.udev.testbed",
        env={**os.environ, "LD_PRELOAD": PRELOAD},
        stdin=pipe,
        stdout=pipe,
    )
    try:
        assert process.stdout is not None
        root = (await process.stdout.readline()).decode().strip()
        if not Path(root).is_dir():
            raise MissingTestBed("the umockdev test bed does not start")
        made = Bed(process, root)
        for number in range(wired + bare):
            await made.make(number, wired=number < wired)
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@asynccontextmanager
async def carrier(name: str, *, up: bool) -> AsyncIterator[asyncio.Future[float]]:
    """When rtnetlink says of a link (that is up) that it has a carrier or none.

    The kernel itself holds back such a message for up to a second when there was one just before; that is not the
    agent's time. Raises ``NothingCame``.
    """
    loop = asyncio.get_running_loop()
    said: asyncio.Future[float] = loop.create_future()
    with NetlinkSocket(group_mask(_RTNLGRP_LINK)) as netlink:

        def read() -> None:
            at = time.perf_counter()
            try:
                # Every message that waits: other links of the machine may come and go faster than the loop turns.
                links = [parse_link(payload) for kind, payload in _waiting(netlink) if kind == NEWLINK]
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                # So fast that the kernel dropped messages: that one may be among them.
                with NetlinkSocket() as asking:
                    links = list(dump_links(asking))
            if not said.done() and any(
                link is not None and link.name == name and link.up and link.carrier is up for link in links
            ):
                said.set_result(at)

        loop.add_reader(netlink.fileno(), read)
        try:
            yield said
        finally:
            loop.remove_reader(netlink.fileno())


def _waiting(netlink: NetlinkSocket) -> Iterator[tuple[int, bytes]]:
    while notified := netlink.notifications():
        yield from notified


async def pull(number: int, *, up: bool = False) -> Signal:
    """Set the other end of a NIC's cable down or up, of which rtnetlink tells; raises ``NothingCame``."""
    name = interface_of(number)
    async with carrier(name, up=up) as said:
        asked = time.perf_counter()
        await asyncio.to_thread(ip, f"link set {name}x {'up' if up else 'down'}")
        try:
            return Signal(asked, await asyncio.wait_for(said, WITHIN))
        except TimeoutError as error:
            raise NothingCame(f"the kernel does not tell of the carrier of {name}") from error
