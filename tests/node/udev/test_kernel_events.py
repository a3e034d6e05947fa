"""The kernel's own uevents: a burst leads to a handful of scans, lost ones to the right picture."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.udev.conftest import watching

LOOPBACK = Path("/sys/class/net/lo/uevent")
BURST = 1000

pytestmark = pytest.mark.needs_root


@pytest.fixture(autouse=True)
def writable() -> None:
    if os.geteuid() != 0 or not os.access(LOOPBACK, os.W_OK):
        pytest.skip("needs root rights and a writable /sys")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One test of this file at a time on this machine: every listener hears what any of them makes the kernel send."""
    with (Path(tempfile.gettempdir()) / "ostler-test-uevents.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def burst() -> None:
    with LOOPBACK.open("w") as file:
        for _ in range(BURST):
            file.write("change")
            file.flush()


async def test_one_event_is_followed_by_a_scan_at_once() -> None:
    async with watching("--lo") as watcher:
        before = watcher.latest
        with LOOPBACK.open("w") as file:
            file.write("change")
        # The next scan without an event is an hour away.
        shown = await watcher.writes(lambda shown: "facts" in shown)
        assert shown["scans"] == before["scans"] + 1


async def test_a_burst_leads_to_a_handful_of_scans() -> None:
    async with watching("--lo") as watcher:
        before = watcher.latest
        with watcher.held():
            burst()
        shown = await watcher.writes(
            lambda shown: shown.get("counts", {}).get("ostler_uevents", 0) >= before["counts"]["ostler_uevents"] + BURST
        )
        assert shown["counts"]["ostler_uevent_overflows"] == 0
        assert shown["scans"] - before["scans"] <= 5


async def test_lost_events_are_counted_and_end_in_the_right_picture() -> None:
    async with watching("--lo", "--buffer", "1") as watcher:
        before = watcher.latest
        with watcher.held():
            burst()
        shown = await watcher.writes(lambda shown: shown.get("counts", {}).get("ostler_uevent_overflows", 0) >= 1)
        assert shown["counts"]["ostler_uevents"] - before["counts"]["ostler_uevents"] < BURST
        assert shown["scans"] - before["scans"] <= 5
        # Listening goes on.
        scans = shown["scans"]
        with LOOPBACK.open("w") as file:
            file.write("change")
        await watcher.writes(lambda shown: shown.get("scans", 0) > scans)


async def test_an_unbind_that_the_kernel_tells_is_believed_until_the_driver_is_looked_for() -> None:
    functions = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not functions:
        pytest.skip("needs a PCI function")
    async with watching(functions[0].parent.name, module="tests.node.udev.health_watcher") as watcher:
        # A synthetic event: the function stays as it is.
        functions[0].write_text("unbind")
        await watcher.writes(lambda shown: shown.get("source") == "kernel" and shown["found"] == {"nic": ["unbound"]})
        await watcher.writes(lambda shown: shown.get("source") == "kernel" and shown["found"] == {"nic": []})


@pytest.mark.parametrize(
    ("namespace", "wanted"),
    [("--net", "kernel this network namespace is not"), ("--user", "polling this user namespace")],
)
def test_a_process_in_a_namespace_of_its_own_knows_what_it_misses(namespace: str, wanted: str) -> None:
    code = "from node.inventory.live.udev import look; found = look(); print(found.state.value, found.missed)"
    command = ["unshare", namespace, sys.executable, "-c", code]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in asked.stderr:
        pytest.skip("needs the right to make namespaces")
    assert asked.stdout.startswith(wanted), asked.stderr
