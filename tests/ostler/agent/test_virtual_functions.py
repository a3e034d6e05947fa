"""The agent makes the virtual functions that the configuration asks for, and reports what keeps it from that."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.events import EventBus
from node.inventory.identity import IdentityStore
from node.inventory.loop import Inventory, SnapshotPublished
from node.inventory.model import Snapshot
from node.inventory.nics.function_maker import SysfsVfMaker, VfRecord
from node.inventory.sysfs.source import SysfsSource
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState
from node.rules import Door
from node.virtual_functions import VfMaking
from ostler.agent.doors import open_books
from ostler.agent.edges import Edges
from ostler.agent.virtual_functions import VirtualFunctions
from ostler.config.load import load_bytes
from ostler.config.settings import Settings
from ostler.metrics.counters import HoldsMetrics
from sandbox.node import SandboxNode
from tests.making.events import RecordedEvents
from tests.making.nic_facts import PF
from tests.making.sriov_kernel import SriovKernel, physical
from tests.waiting import eventually

NAME, OTHER = "nic-0000-86-00-0", "0000:87:00.0"
HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"


class _Rig:
    """The part with a real inventory, ledger and disk; only the kernel is the test's. ``events``: reason and text."""

    def __init__(self, kernel: SriovKernel, settings: Settings, *, visible: float = 30.0) -> None:
        self.kernel = kernel
        edges, bus = Edges(), EventBus(logging.getLogger("test"))
        self.events = RecordedEvents()
        self.books = open_books(settings, edges, _NoProcesses(), self.events, HoldsMetrics())
        self.inventory = Inventory(
            (SysfsSource(kernel.sys, kernel.root / "host", kernel.root / "proc"),),
            IdentityStore(settings.state_dir / "identities.json", "boot"),
            bus,
            clocks=edges,
            min_interval=0.01,
        )
        self.snapshots: list[Snapshot] = []
        bus.subscribe(SnapshotPublished, lambda event: self.snapshots.append(event.snapshot))
        self.held: list[list[str]] = []
        """The devices in the ledger, at every change."""
        self.books.bus.subscribe(HoldsChanged, lambda _: self.held.append([*self.holds()]))
        self.part = VirtualFunctions(
            settings,
            SysfsVfMaker(kernel.sys, kernel),
            self.books,
            self.inventory,
            bus,
            record=VfRecord(settings.state_dir, "boot"),
            events=self.events,
            clocks=edges,
            patience=(0.0, visible),
        )

    def holds(self) -> list[str]:
        return sorted(hold.device for hold in self.books.ledger.all)


class _NoProcesses:
    def compute_processes(self, device: object) -> None:
        return None


def settings(kernel: SriovKernel, items: str) -> Settings:
    state = kernel.root / "state"
    state.mkdir(exist_ok=True)
    text = f"{HEADER}state: {{directory: {state}}}\nvirtualFunctions: {items}\n"
    return load_bytes("c.yaml", text.encode(), {}, {}).settings


def four(extra: str = "") -> str:
    return f"[{{devices: {{}}, count: 4{extra}}}]"


@asynccontextmanager
async def running(rig: _Rig) -> AsyncIterator[_Rig]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rig.inventory.run())]
            await rig.inventory.first.wait()
            tasks.append(group.create_task(rig.part.run()))
            yield rig
            for task in tasks:
                task.cancel()
    finally:
        await rig.inventory.close()


async def until_told(rig: _Rig, reason: str, count: int = 1) -> list[str]:
    await eventually(lambda: len(rig.events.of(reason)) >= count)
    return rig.events.of(reason)


def functions(rig: _Rig) -> list[str]:
    return sorted(each.name for each in rig.inventory.snapshot.devices if each.text("sriovFunction") == "vf")


async def test_functions_are_made_while_the_physical_one_is_held(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        assert await until_told(rig, "VirtualFunctionsMade") == [f"4 virtual functions made of {NAME}"]
        await eventually(lambda: rig.part.making == VfMaking({PF: 4}) and rig.holds() == [])
        assert [NAME] in rig.held
        assert len(functions(rig)) == 4
    assert kernel.written == [(PF, "sriov_numvfs", "4")]
    assert VfRecord(tmp_path / "state", "boot").made == {PF: 4}


async def test_the_hold_lasts_until_the_functions_are_visible(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    kernel.late = True
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        await until_told(rig, "VirtualFunctionsMade")
        scans = len(rig.snapshots)
        assert rig.holds() == [NAME]
        kernel.appear(PF)
        await eventually(lambda: rig.holds() == [])
        assert len(rig.snapshots) > scans
        assert len(functions(rig)) == 4
    assert rig.events.of("VirtualFunctionsMissing") == []


async def test_functions_that_stay_away_are_told_and_the_physical_one_is_released(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    kernel.late = True
    async with running(_Rig(kernel, settings(kernel, four()), visible=0.05)) as rig:
        assert await until_told(rig, "VirtualFunctionsMissing") == [
            f"of the 4 virtual functions of {NAME} only 0 are visible after 0.05 s; see 'dmesg'"
        ]
        await eventually(lambda: rig.holds() == [])


@pytest.mark.parametrize(("probe", "asked"), [("1", ", driversAutoprobe: false"), ("0", "")])
async def test_functions_without_a_driver_are_fine_where_none_is_bound(tmp_path: Path, probe: str, asked: str) -> None:
    kernel = SriovKernel(tmp_path, physical(), probe=probe)
    async with running(_Rig(kernel, settings(kernel, four(asked)))) as rig:
        await until_told(rig, "VirtualFunctionsMade")
        await eventually(lambda: rig.holds() == [] and len(functions(rig)) == 4)
    assert rig.events.of("VirtualFunctionsMissing") == []


async def test_what_the_kernel_refuses_is_told_once_and_tried_again_with_a_reload(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    kernel.refuse["sriov_numvfs"] = errno.ENOMEM
    wanted = settings(kernel, four())
    async with running(_Rig(kernel, wanted)) as rig:
        (text,) = await until_told(rig, "VirtualFunctionsNotMade")
        assert text.startswith(f"4 virtual functions not made of {NAME}: the kernel found no room for them")
        await eventually(lambda: rig.holds() == [] and PF in rig.part.making.failures)
        await rig.inventory.rescan()
        await rig.inventory.rescan()
        assert kernel.written == []
        rig.part.use(wanted)
        await until_told(rig, "VirtualFunctionsMade")
        await eventually(lambda: rig.part.making == VfMaking({PF: 4}))
        assert len(rig.events.of("VirtualFunctionsNotMade")) == 1


async def test_a_driver_that_makes_fewer_is_told_once(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    kernel.room = 3
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        await until_told(rig, "VirtualFunctionsNotMade")
        await eventually(lambda: len(functions(rig)) == 3 and rig.holds() == [])
        await rig.inventory.rescan()
        (text,) = rig.events.of("VirtualFunctionsNotMade")
        assert text.endswith(f"{NAME}: the driver has made only 3 of 4; ask for at most 3, and see 'dmesg'")


async def test_a_number_that_differs_is_left_alone_and_told(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical(), physical(bus="87", made=2))
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        await until_told(rig, "VirtualFunctionsMade")
        (text,) = await until_told(rig, "VirtualFunctionsNotMade")
        assert text.startswith("4 virtual functions not made of nic-0000-87-00-0: it has 2 virtual functions, and a")
        await eventually(lambda: rig.holds() == [])
    assert kernel.read(OTHER, "sriov_numvfs") == "2"


async def test_a_function_that_a_pod_has_gets_them_when_it_is_free(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    rig = _Rig(kernel, settings(kernel, four()))
    rig.books.ledger.take("uid", [Hold(NAME, Door.DRA, "team/claim", 0.0, "uid", state=HoldState.PREPARED)])
    async with running(rig):
        (text,) = await until_told(rig, "VirtualFunctionsNotMade")
        assert f"device {NAME} is held through the dra door by team/claim (uid)" in text
        assert kernel.written == []
        rig.books.ledger.release("uid")
        await until_told(rig, "VirtualFunctionsMade")
        await eventually(lambda: rig.holds() == [])


async def test_hardware_that_comes_later_gets_them(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path)
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        kernel.plug(physical())
        rig.inventory.wake()
        await until_told(rig, "VirtualFunctionsMade")
        await eventually(lambda: rig.holds() == [])


async def test_a_switchdev_function_is_made_with_a_note(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    port = kernel.sys / "class/net/ens0np0"
    (port / "phys_switch_id").write_text("0a0b\n")
    (port / "phys_port_name").write_text("p0\n")
    async with running(_Rig(kernel, settings(kernel, four()))) as rig:
        (text,) = await until_told(rig, "VirtualFunctionsMade")
        assert text.endswith(
            "; its e-switch is in switchdev mode: each has a network only with its representor in a bridge"
        )
        await eventually(lambda: rig.holds() == [])


async def test_a_state_folder_that_takes_no_record_costs_only_that(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    rig = _Rig(kernel, settings(kernel, four()))
    (tmp_path / "state/virtual-functions.json").mkdir()
    async with running(rig):
        await until_told(rig, "VirtualFunctionsMade")
        await eventually(lambda: rig.holds() == [] and rig.part.making == VfMaking({PF: 4}))


def process_rules(kernel: SriovKernel) -> str:
    physical_one = {"devices": {"rootDevices": [PF]}, "count": 4}
    return json.dumps(
        {
            "apiVersion": "ostler.dev/v1alpha1",
            "kind": "Config",
            "roots": {"sys": str(kernel.sys)},
            "virtualFunctions": [physical_one],
            "resources": [
                {"name": "example.com/vf", "devices": {"functions": ["vf"]}},
                {"name": "example.com/pf", "devices": {"functions": ["pf"]}},
            ],
        }
    )


async def test_an_agent_makes_and_offers_them(tmp_path: Path) -> None:
    # The agent writes to plain files here, and the test does what the kernel would do then.
    kernel = SriovKernel(tmp_path, physical())
    async with SandboxNode(None, configuration=process_rules(kernel), reconcile_interval=0.05) as node:
        await eventually(lambda: kernel.read(PF, "sriov_numvfs") == "4")
        kernel.appear(PF)
        await node.agent.rescan()
        made = await eventually(lambda: _events(node, "VirtualFunctionsMade"))
        assert made == [f"4 virtual functions made of {NAME}"]
        told = await eventually(lambda: _reason(node, NAME, "ostler made its virtual functions"))
        # The interfaces of the tree are not those of this machine, so that any of them may be in use.
        assert told.startswith("the node itself uses it: may be used by the node itself")


async def _events(node: SandboxNode, reason: str) -> list[str]:
    return [event.message for event in (await node.agent.status()).events if event.reason == reason]


async def _reason(node: SandboxNode, name: str, part: str) -> str:
    found = next((each for each in (await node.agent.devices()).devices if each.name == name), None)
    return found.offer_reason if found is not None and part in found.offer_reason else ""
