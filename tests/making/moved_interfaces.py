"""A node whose NICs move into pods: namespaces that are files, and a mover that knows where each interface is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from driver.claims.model import ClaimReference
from driver.claims.service import ClaimService
from driver.devices.view import DraDevice
from driver.interfaces.claim_interfaces import ClaimInterfaces
from driver.interfaces.claim_mover import InterfacePace
from driver.interfaces.moving import InterfaceMoves, InterfaceStep
from driver.metadata.model import ClaimMetadata
from driver.nri.sandboxes import Sandbox
from node.clocks import SYSTEM
from node.interfaces.model import AttachedInterface, HostSetup, InterfaceError, MovableInterface
from node.ledger.ledger import Ledger
from node.rules import Doors, Rule
from tests.making.claim_service import ClaimNode, Killed, claim, reference, result
from tests.making.devices import nic

MOVING = Rule("example.com/nic", door=Doors.DRA, moves_interface=True)
NIC1, NIC2, NIC3 = (nic(number).name for number in (1, 2, 3))
PACE = InterfacePace(deadline=60.0, reading=60.0, missing=0.05, look=0.01, first_pause=0.01, longest_pause=0.02)


def movable(number: int) -> DraDevice:
    return DraDevice(nic(number, ifName=f"eth{number}", driver="mlx5_core"), MOVING, healthy=True)


class FakeMover:
    """Interfaces by name of their device, each in the host's namespace (``host``) or in a file's.

    ``faults``: by device and call (``look``, ``attach``, ``detach``), what it raises; ``gate``: holds ``attach`` back.
    An interface whose namespace is gone is where ``returns`` says: with the host, or nowhere for False.
    """

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.calls: list[str] = []
        self.faults: dict[tuple[str, str], str] = {}
        self.gate: threading.Event | None = None
        self.before: Callable[[str], None] = lambda _: None
        self.returns = True
        self.taken: dict[str, str] = {}
        """By a name that another interface got meanwhile, the name that one comes back with."""
        self.gone: set[str] = set()
        """Devices whose interfaces can never come back."""
        self.marks: dict[str, str] = {}

    def place(self, device: str) -> str:
        """Where the interface is: ``host``, a path, or nothing."""
        found = self.places.get(device, "host")
        if found in ("host", "") or Path(found).exists():
            return found
        return "host" if self.returns else ""

    def look(self, interface: MovableInterface) -> HostSetup:
        self._called("look", interface.device)
        if self.place(interface.device) != "host":
            raise InterfaceError(f"interface {interface.interface} is not on the node")
        return HostSetup(interface.interface, 7, "02:00:00:00:00:01", 1500, up=True)

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        if self.gate is not None:
            assert self.gate.wait(60)
        self._called("attach", interface.device)
        if self.place(interface.device) not in ("host", str(netns)):
            raise InterfaceError(f"interface {setup.interface} is not on the node")
        if not netns.exists():
            raise InterfaceError(f"the network namespace {netns} is gone")
        self.places[interface.device] = str(netns)
        self.marks[interface.device] = setup.interface
        self._called("attached", interface.device)
        return AttachedInterface(
            interface.device,
            interface.settings.name or interface.interface,
            setup.hardware_address,
            interface.settings.addresses or ("10.0.0.1/24",),
            setup.mtu,
        )

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> str:
        self._called("detach", interface.device)
        place = self.place(interface.device)
        if place not in ("host", "", str(netns)):
            return ""
        if place:
            self.places[interface.device] = "host"
            self.marks.pop(interface.device, None)
        return self.taken.get(setup.interface, setup.interface) if place else ""

    def is_gone(self, interface: MovableInterface, setup: HostSetup) -> bool:
        return interface.device in self.gone

    def marked(self, devices: Collection[str], netns: Path | None = None) -> Mapping[str, str]:
        where = "host" if netns is None else str(netns)
        return {device: self.marks[device] for device in devices & self.marks.keys() if self.place(device) == where}

    def _called(self, call: str, device: str) -> None:
        self.before(call)
        self.calls.append(f"{call} {device}")
        if (device, call) in self.faults:
            raise InterfaceError(self.faults[device, call])


class DieAtInterface:
    """Ends the 'process' at the nth time that a step is reached."""

    def __init__(self, step: InterfaceStep, times: int = 1) -> None:
        self.step = step
        self.left = times

    def reached(self, step: InterfaceStep, uid: str) -> None:
        if step is self.step:
            self.left -= 1
            if self.left == 0:
                raise Killed(step)


class InterfaceNode:
    """A node with movable NICs, one agent after the other on it, and its pods' sandboxes."""

    def __init__(self, root: Path, nics: int = 3) -> None:
        self.node = ClaimNode(root)
        self.node.devices = (*self.node.devices, *(movable(number) for number in range(1, nics + 1)))
        self.node.with_options(guard_dir=root / "guards")
        self.mover = FakeMover()
        self.reports: list[tuple[str, str, tuple[str, ...] | str]] = []
        self.movers = 0
        self._described: set[str] = set()
        self.followed: dict[str, Path] = {}
        """By device, the namespace in which the link of its interface is followed."""
        self.pace = PACE
        self.on_host_network: dict[str, str] = {}
        """Names of pods that are known to use the node's network, by UID."""
        self.interfaces: ClaimInterfaces

    async def agent(self, steps: Any = None, dying: Any = None) -> ClaimService:
        """An agent that has recovered and knows its devices; ``steps`` of interfaces, and ``dying`` of claims."""
        state = self.node.root / "state"
        ledger = Ledger()
        self.interfaces = ClaimInterfaces(
            InterfaceMoves(state, self.node.root / "guards", self._make_mover, self.node.boot, steps),
            self.node.root / "kubelet",
            ledger,
            events=self.node.events,
            reporter=self,
            links=self,
            clocks=SYSTEM,
            on_host_network=lambda uids: next(
                (self.on_host_network[each] for each in uids & self.on_host_network.keys()), ""
            ),
            pace=self.pace,
        )
        return await self.node.started(interfaces=self.interfaces, ledger=ledger, steps=dying)

    async def prepared(self, *devices: str) -> ClaimService:
        """An agent that has prepared the first claim, for these NICs or the first."""
        self.put(1, *(devices or (NIC1,)))
        service = await self.agent()
        await service.prepare(reference())
        return service

    def _make_mover(self) -> FakeMover:
        self.movers += 1
        return self.mover

    def describe(
        self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], metadata: ClaimMetadata | None
    ) -> str:
        # An agent that is killed afterwards has described them, and only then written the guard.
        assert claim.uid in self._described or not self.guard(int(claim.uid.removeprefix("uid-"))).exists()
        self._described.add(claim.uid)
        return ""

    def attached(self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], undescribed: str = "") -> None:
        self.reports.append(("attached", claim.uid, tuple(each.device for each in interfaces)))

    def detached(self, claim: ClaimReference, problem: str = "") -> None:
        self.reports.append(("detached", claim.uid, problem))

    def watch(self, device: str, netns: Path) -> None:
        self.followed[device] = netns

    def forget(self, device: str) -> None:
        self.followed.pop(device, None)

    def put(self, number: int, *devices: str, users: tuple[str, ...] = ("pod-1",)) -> None:
        self.node.reader.put(claim(number, *(result(device, "nic") for device in devices), users=users))

    def sandbox(self, number: int = 1, *, pod: str = "pod-1", **fields: Any) -> Sandbox:
        """A sandbox with a network namespace of its own."""
        netns = self.node.root / "netns" / f"cni-{number}"
        netns.parent.mkdir(exist_ok=True)
        netns.touch()
        return Sandbox(f"sandbox-{number}", pod, "default", pod, **{"netns": str(netns), **fields})

    def guard(self, number: int = 1) -> Path:
        return self.node.root / "guards" / f"uid-{number}.json"

    @property
    def journal(self) -> list[str]:
        folder = self.node.root / "state" / "interfaces" / "journal"
        return sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []

    @property
    def lost(self) -> list[str]:
        """Devices with a record of a lost interface."""
        folder = self.node.root / "state" / "interfaces" / "lost"
        return sorted(path.stem for path in folder.glob("*.json"))

    def is_home(self, *devices: str) -> bool:
        """Whether these interfaces, or all, are on the node, with nothing on record about them."""
        at_home = all(self.mover.place(each) == "host" for each in devices or (NIC1, NIC2, NIC3))
        return at_home and not self.journal
