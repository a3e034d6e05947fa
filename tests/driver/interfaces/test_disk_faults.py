"""A disk that fails under the guards or the journal loses no interface, and the errors name the file and the fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driver.claims.model import ClaimReference
from driver.interfaces.journal import ClaimMove, InterfaceJournal, InterfaceMove
from driver.nri.sandboxes import Sandbox, SandboxRefused
from node.interfaces.model import HostSetup, InterfaceError, InterfaceSettings, MovableInterface
from tests.making.moved_interfaces import NIC1, InterfaceNode

FIX = "check the state folder and its disk"


@pytest.fixture
async def place(tmp_path: Path) -> InterfaceNode:
    """A node with a prepared claim for one NIC."""
    made = InterfaceNode(tmp_path)
    await made.prepared(NIC1)
    return made


async def test_without_its_guard_the_sandbox_fails_and_the_interface_comes_back_when_the_disk_works(
    place: InterfaceNode,
) -> None:
    guards = place.guard().parent
    guards.touch()  # A file in the place of the folder.
    sandbox = place.sandbox()
    with pytest.raises(SandboxRefused, match=f"claim default/claim-1: .*{guards}.*; {FIX}; moreover .*; {FIX}"):
        await place.interfaces.run(sandbox)
    assert place.mover.place(NIC1) == sandbox.netns
    assert FIX in place.interfaces.places()[NIC1].problem
    guards.unlink()
    await place.interfaces.retry()
    assert place.is_home()
    assert place.interfaces.places() == {}


async def test_a_move_that_cannot_be_forgotten_is_taken_back_again(place: InterfaceNode) -> None:
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    (name,) = place.journal
    file = place.node.root / "state" / "interfaces" / "journal" / name
    file.unlink()
    file.mkdir()
    with pytest.raises(InterfaceError, match=f"{re.escape(str(file))}.*; {FIX}"):
        await place.interfaces.stop(sandbox)
    assert place.mover.place(NIC1) == "host"
    file.rmdir()
    await place.interfaces.retry()
    assert place.is_home()


async def test_a_guard_that_cannot_be_removed_at_the_start_is_reported_and_no_move_is_forgotten(
    place: InterfaceNode,
) -> None:
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    guard = place.guard(9)
    guard.mkdir(parents=True)
    await place.agent()
    (text,) = place.node.events.of("ClaimRecoveryIncomplete")
    left = f"what an earlier agent left of the interfaces of claim {guard.stem}"
    assert text.startswith(f"{left} still lets its containers start: ")
    assert text.endswith(FIX)
    assert NIC1 in place.interfaces.places()
    await place.interfaces.stop(sandbox)
    assert place.is_home()


def test_a_journal_file_under_the_name_of_another_claim_is_set_aside(tmp_path: Path) -> None:
    journal = InterfaceJournal(tmp_path / "journal")
    interface = InterfaceMove(MovableInterface(NIC1, "eth1", InterfaceSettings()), HostSetup("eth1", 7, "", 1500))
    journal.write(ClaimMove(ClaimReference("default", "a", "uid-a"), "boot", Sandbox("s", "p", "n", "p"), (interface,)))
    journal.path("uid-a").rename(journal.path("uid-b"))
    moves, unreadable = journal.load()
    assert moves == {}
    assert "it is about claim uid-a" in unreadable["uid-b"]
    assert not journal.path("uid-b").exists()


async def test_the_interface_of_a_claim_that_nobody_has_on_record_is_taken_back(place: InterfaceNode) -> None:
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.node.record_path(1).unlink()
    place.node.kubelet_knows()
    service = await place.agent()
    assert place.interfaces.leftovers(()) == ("uid-1",)
    assert place.mover.place(NIC1) == sandbox.netns
    await service.collect()
    assert place.is_home()
