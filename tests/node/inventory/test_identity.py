from __future__ import annotations

import logging
from pathlib import Path

import pytest

from node.files import read_record, write_record
from node.inventory.devices import devices_of
from node.inventory.facts import NodeFacts
from node.inventory.identity import SCHEMA, Identities, IdentityStore
from tests.making.nvidia_facts import a100, gpu, mig, node, uuid

ONE = Identities((("0000:1b:00.0", uuid(0)),))
TWO = Identities((("0000:1b:00.0", uuid(0)), ("0000:2b:00.0", uuid(1))))


def test_every_gpu_with_address_and_uuid_is_learned_and_no_mig_device() -> None:
    found = devices_of(node(a100(0, mig(0, 0)), gpu(1)), Identities())
    assert Identities().updated(found, NodeFacts()) == TWO


def test_lost_gpu_is_not_forgotten() -> None:
    assert TWO.updated(devices_of(node(gpu(0)), Identities()), NodeFacts()) == TWO


def test_gpu_put_into_another_slot_is_forgotten_in_its_old_one() -> None:
    moved = devices_of(node(gpu(1, uuid=uuid(0))), Identities())
    assert ONE.updated(moved, NodeFacts()) == Identities((("0000:2b:00.0", uuid(0)),))


def test_replaced_gpu_is_known_by_its_new_uuid() -> None:
    replaced = devices_of(node(gpu(0, uuid="GPU-new")), Identities())
    assert ONE.updated(replaced, NodeFacts()).uuid_of("0000:1b:00.0") == "GPU-new"


def test_a_replaced_gpu_is_remembered_by_its_place_until_the_next_boot_or_until_it_is_back(tmp_path: Path) -> None:
    replaced = devices_of(node(gpu(0, uuid="GPU-new")), Identities())
    known = ONE.updated(replaced, NodeFacts())
    assert known.former == ((uuid(0), "0000:1b:00.0"),)
    path = tmp_path / "identities.json"
    IdentityStore(path, "boot-1").save(known)
    assert IdentityStore(path, "boot-1").load() == known
    assert IdentityStore(path, "boot-2").load().former == ()
    assert known.updated(devices_of(node(gpu(0)), Identities()), NodeFacts()).former == (("GPU-new", "0000:1b:00.0"),)


def test_identities_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "identities.json"
    IdentityStore(path).save(TWO)
    assert IdentityStore(path).load() == TWO
    assert path.stat().st_mode & 0o777 == 0o600


def test_unchanged_identities_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    IdentityStore(path).save(ONE)
    written = path.stat().st_ino
    store = IdentityStore(path)
    store.save(store.load())
    assert path.stat().st_ino == written
    store.save(TWO)
    assert path.stat().st_ino != written


def test_nothing_is_written_on_a_node_without_gpus(tmp_path: Path) -> None:
    IdentityStore(tmp_path / "identities.json").save(Identities())
    assert list(tmp_path.iterdir()) == []


def test_damaged_file_is_set_aside_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "identities.json"
    path.write_text("{")
    store = IdentityStore(path)
    assert store.load() == Identities()
    assert "gathers them again" in caplog.text
    assert (tmp_path / "identities.json.damaged-1").read_text() == "{"
    store.save(ONE)
    assert IdentityStore(path).load() == ONE


def test_file_of_a_newer_version_is_neither_used_nor_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "identities.json"
    write_record(path, "ostler.dev/identities/v2", {"gpus": []})
    before = path.read_bytes()
    store = IdentityStore(path)
    assert store.load() == Identities()
    store.save(ONE)
    assert store.load() == ONE
    assert path.read_bytes() == before
    assert "another version" in caplog.text


@pytest.mark.parametrize("data", [None, [], {"gpus": 7}, {"gpus": {"0000:1b:00.0": 7}}, {"other": {}}])
def test_record_of_another_form_is_no_memory(tmp_path: Path, data: object) -> None:
    path = tmp_path / "identities.json"
    write_record(path, SCHEMA, data)  # type: ignore[arg-type]
    assert IdentityStore(path).load() == Identities()


def test_unwritable_folder_is_told_once_and_memory_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the state folder should be")
    store = IdentityStore(blocked / "identities.json")
    with caplog.at_level(logging.WARNING):
        store.save(ONE)
        store.save(TWO)
    assert store.load() == TWO
    assert [record.message for record in caplog.records if "cannot be written" in record.message] == [
        "device identities cannot be written, they are kept in memory until they can"
    ]
    blocked.unlink()
    store.save(TWO)
    assert read_record(blocked / "identities.json", SCHEMA) == {
        "boot": "",
        "former": {},
        "gpus": dict(TWO.pairs),
        "nics": [],
    }


def test_store_without_a_path_remembers_in_memory() -> None:
    store = IdentityStore(None)
    store.save(ONE)
    assert store.load() == ONE
