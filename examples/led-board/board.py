# ruff: noqa: INP001 - a program, not a package
"""A DRA driver for a board of LEDs, on ostler's library: what a driver of your own needs beside its hardware.

The board is a text file, one LED a line: a name, a colour, and "broken" where it is. Change the file while the driver
runs, and the slices follow. A container that is given an LED finds its name and colour in an environment variable.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from pathlib import Path

from driver.claims.allocation import allocation_of
from driver.claims.model import ClaimError, ClaimReference, PreparedDevice
from driver.door.door import DraDoor
from driver.door.registration import DoorOptions, DraDoorObserver
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from driver.slices.controller import Controller
from driver.slices.model import DriverResources, Pool, node_owner, pack
from driver.slices.options import Options
from kube.bodies import JsonObject
from kube.client import Client
from kube.kubeconfig import from_kubeconfig
from node.cdi.spec import CdiDevice, Spec, encode
from node.edits.model import ContainerEdits
from node.events import EventBus, EventType
from node.files import write_whole

DRIVER = "led.example.com"
KIND = f"{DRIVER}/claim"

log = logging.getLogger("led-board")


class _Board:
    """The LEDs by name: colour, and whether they shine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.leds: dict[str, tuple[str, bool]] = {}

    def changed(self) -> bool:
        """Look at the hardware."""
        before, lines = self.leds, self._path.read_text().splitlines()
        self.leds = {name: (colour, rest != ["broken"]) for name, colour, *rest in (line.split() for line in lines)}
        return before != self.leds

    def devices(self) -> list[JsonObject]:
        """The LEDs as devices of a ResourceSlice; a taint keeps new pods from those that do not shine."""
        return [_device(name, colour, shines) for name, (colour, shines) in sorted(self.leds.items())]


def _device(name: str, colour: str, shines: bool) -> JsonObject:
    device: JsonObject = {"name": name, "attributes": {"colour": {"string": colour}}}
    if not shines:
        device["taints"] = [{"key": f"{DRIVER}/broken", "effect": "NoSchedule"}]
    return device


class LedClaims:
    """Prepares and releases claims: a CDI file each, written before the kubelet is answered."""

    def __init__(self, board: _Board, api: AsyncResourceApi, cdi: Path) -> None:
        self._board = board
        self._api = api
        self._cdi = cdi

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """The same answer each time, however often the kubelet asks."""
        allocation = allocation_of(await self._api.claim(claim.namespace, claim.name), claim, DRIVER)
        edits = []
        for number, each in enumerate(allocation.devices):
            if each.device not in self._board.leds:
                raise ClaimError(f"claim {claim}: there is no LED {each.device} on this board (any more)")
            shown = f"{each.device} {self._board.leds[each.device][0]}"
            edits.append(CdiDevice(f"{claim.uid}-{each.device}", ContainerEdits(env=((f"LED_{number}", shown),))))
        write_whole(self._file(claim), encode(Spec(KIND, tuple(edits))), 0o644)
        return tuple(
            PreparedDevice((each.main_request,), each.pool, each.device, (f"{KIND}={claim.uid}-{each.device}",))
            for each in allocation.devices
        )

    async def unprepare(self, claim: ClaimReference) -> None:
        """Without asking the API server: the claim may be gone."""
        self._file(claim).unlink(missing_ok=True)

    def _file(self, claim: ClaimReference) -> Path:
        return self._cdi / f"{DRIVER}-claim_{claim.uid}.json"


class LoggedEvents:
    """What an operator should know, in the log."""

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Log it."""
        log.log(logging.WARNING if kind is EventType.WARNING else logging.INFO, "%s: %s", reason, message)


async def publish(board: _Board, controller: Controller, node: str) -> None:
    """Look at the board twice a second; the controller writes what changed, and only that."""
    await asyncio.to_thread(controller.wait_synced, 3600.0)
    while True:
        if board.changed():
            slices = pack(board.devices(), controller.stored(node))
            controller.update(DriverResources({node: Pool(slices)}))
        await asyncio.sleep(0.5)


async def main(arguments: argparse.Namespace) -> None:
    """Serve until the process is ended; the slices stay, and go with the Node."""
    client = Client(from_kubeconfig(arguments.kubeconfig), random=random.random, user_agent=DRIVER)
    api = ResourceApi(client)
    board = _Board(arguments.board)
    owner = node_owner(arguments.node)
    controller = Controller(Options(api, DRIVER, owner, wait_for_update=True)).start()
    options = DoorOptions(DRIVER, arguments.node, arguments.plugins, arguments.registry, health=False)
    claims = LedClaims(board, AsyncResourceApi(lambda: api), arguments.cdi)
    door = DraDoor(options, claims, events=LoggedEvents(), observer=DraDoorObserver(), bus=EventBus())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(door.run())
        tasks.create_task(publish(board, controller, arguments.node))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--board", type=Path, required=True, help="the text file")
    parser.add_argument("--node", required=True, help="name of the Node")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, default=Path("/var/lib/kubelet/plugins"))
    parser.add_argument("--registry", type=Path, default=Path("/var/lib/kubelet/plugins_registry"))
    parser.add_argument("--cdi", type=Path, default=Path("/var/run/cdi"))
    asyncio.run(main(parser.parse_args()))
