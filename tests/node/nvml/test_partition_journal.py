"""The journal of partitions: another boot's is void, a damaged one is set aside, and a bad entry costs only itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.files import WriteFailed, read_record, write_record
from node.inventory.nvidia.partition_journal import FILE, SCHEMA
from node.partitions import PartitionError
from tests.making.mig_nodes import BOOT, Start, foreign
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc


def test_partitions_of_another_boot_are_void_and_what_exists_is_somebody_elses(
    start: Start, mig_hardware: InjectedNvml
) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.boot()
    foreign(made, "1g.10gb", 5)
    again = start(boot="another boot")
    assert again.maker.made() == ()
    assert again.maker.sweep(frozenset()) == ()
    again.maker.make(again.gpu(), again.shape("1g.10gb", 5), "claim")
    again.maker.remove("claim")
    assert again.existing() == [("1g.10gb", 5, 1)]


def test_a_damaged_journal_is_set_aside_and_what_it_named_stays(start: Start, tmp_path: Path) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    path = tmp_path / "state" / FILE
    path.write_bytes(path.read_bytes().replace(b"claim", b"clbim"))
    again = start()
    assert again.maker.made() == ()
    assert again.maker.fault.endswith(f"does not match; it was set aside as {FILE}.damaged-1")
    assert again.maker.sweep(frozenset()) == ()
    assert again.existing() == [("1g.10gb", 5, 1)]
    assert [each.name for each in path.parent.glob("*.damaged-*")] == [f"{FILE}.damaged-1"]
    again.maker.make(again.gpu(), again.shape("1g.10gb", 5), "claim")
    assert read_record(path, SCHEMA) is not None


def test_a_journal_of_another_version_is_left_until_there_is_something_to_write(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    path.parent.mkdir()
    write_record(path, "partitions/v99", {"boot": BOOT, "made": []})
    made = start()
    assert "has schema partitions/v99, this version knows" in made.maker.fault
    assert "v99" in path.read_text()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert read_record(path, SCHEMA) is not None


def test_what_a_killed_writer_left_is_removed_by_the_next_process(start: Start, tmp_path: Path) -> None:
    left = tmp_path / "state" / f".{FILE}.0123456789ab.tmp"
    left.parent.mkdir()
    left.touch()
    os.utime(left, (1, 1))
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert not left.exists()


def test_an_entry_that_is_not_valid_costs_only_itself(start: Start, tmp_path: Path) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    path = tmp_path / "state" / FILE
    data = read_record(path, SCHEMA)
    assert isinstance(data, dict)
    entries = data["made"]
    assert isinstance(entries, list)
    write_record(path, SCHEMA, {**data, "made": [{"owner": 7}, "nonsense", *entries]})
    assert [partition.owner for partition in start().maker.made()] == ["claim"]


def test_a_disk_that_takes_no_more_keeps_no_partition_from_being_removed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = start()
    for owner, at in (("gone", 5), ("stays", 3)):
        made.maker.make(made.gpu(), made.shape("1g.10gb", at), owner)
    path = tmp_path / "state" / FILE

    def full(*_: object, **__: object) -> None:
        raise WriteFailed(path, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("node.inventory.nvidia.partition_journal.write_record", full)
        (removed,) = made.maker.remove("gone")
        assert removed.shape.start == 5
        with pytest.raises(
            PartitionError, match="No space left on device; no partition is made without a record"
        ) as no:
            made.maker.make(made.gpu(), made.shape("1g.10gb", 4), "new")
        assert no.value.pending
    assert made.existing() == [("1g.10gb", 3, 1)]
    assert [each.owner for each in made.maker.made()] == ["stays"]
    again = start()
    assert [each.owner for each in again.maker.made()] == ["gone", "stays"], "the disk still has it"
    again.maker.sweep(frozenset({"stays"}))
    assert again.existing() == [("1g.10gb", 3, 1)]
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "next")
    assert [each.owner for each in start().maker.made()] == ["next", "stays"]
