"""Uevents over a mocked machine become Looks at devices' health before any scan; sweeps say the same afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.node.udev.conftest import UdevBed, UdevMachine, watching
from tests.node.udev.test_umockdev import NIC, ROOT

NAME, ADDRESS = "nic-0000-84-00-0", "0000:84:00.0"
DRIVER = "/sys/bus/pci/drivers/mlx5_core"
LINK = {"current_link_width": "16", "max_link_width": "16"}


@asynccontextmanager
async def one_nic(bed: UdevBed) -> AsyncIterator[tuple[str, UdevMachine]]:
    nic = await bed.add("pci", ADDRESS, ROOT, **NIC, **LINK)
    await bed.link(f"{nic}/driver", DRIVER)
    async with watching(env=bed.environment, module="tests.node.udev.health_watcher") as machine:
        yield nic, machine


async def told(machine: UdevMachine, source: str, kinds: list[str]) -> int:
    """Wait for a Look of a source; the generation of the snapshot at that time."""
    shown = await machine.writes(lambda shown: shown.get("source") == source and shown["found"].get(NAME) == kinds)
    return int(shown["generation"])


async def test_a_driver_that_is_unbound_is_told_before_a_scan_and_then_seen(bed: UdevBed) -> None:
    async with one_nic(bed) as (nic, machine):
        await bed.link(f"{nic}/driver", None)
        await bed.uevent(nic, "unbind")
        before = await told(machine, "kernel", ["unbound"])
        await told(machine, "sysfs", ["unbound"])
        # The sweep has taken over what the event said.
        after = await told(machine, "kernel", [])
        assert after >= before
        await bed.link(f"{nic}/driver", DRIVER)
        await bed.uevent(nic, "bind")
        await told(machine, "sysfs", [])


async def test_a_function_that_is_pulled_out_is_lost_at_once(bed: UdevBed) -> None:
    async with one_nic(bed) as (nic, machine):
        await bed.remove(nic)
        await told(machine, "kernel", ["lost"])


async def test_what_has_no_event_is_swept(bed: UdevBed) -> None:
    async with one_nic(bed) as (nic, machine):
        await bed.write(f"{nic}/current_link_width", "4")
        await bed.uevent(nic, "change")
        await told(machine, "sysfs", ["pcie-link"])
