"""Records: JSON with schema and hash; damaged ones are set aside, those of another version are left alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.files import (
    MAX_ASIDE,
    MAX_DEPTH,
    MAX_RECORD,
    MAX_VALUES,
    MOST_ASIDE,
    JsonValue,
    ReadFailed,
    RecordDamaged,
    RecordSchemaUnknown,
    WriteFailed,
    read_record,
    write_record,
    write_whole,
)

SCHEMA = "ostler.dev/things/v2"
KILLED = """
import os, sys
from pathlib import Path
from node.files import write_record
number = 0
while True:
    write_record(Path(sys.argv[1]), "ostler.dev/things/v2", {"number": number, "text": "x" * 5000})
    if not number:
        print("writing", flush=True)
    number += 1
"""


def test_record_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            writer.kill()
        data = read_record(path, SCHEMA)
        assert isinstance(data, dict)
        assert data["text"] == "x" * 5000


def test_record_is_json_with_schema_and_hash_of_the_raw_data(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, {"b": 1, "a": ["é"]})
    document = json.loads(path.read_bytes())
    raw = b'{"a":["\\u00e9"],"b":1}'
    assert document == {"schema": SCHEMA, "sha256": hashlib.sha256(raw).hexdigest(), "data": {"a": ["é"], "b": 1}}
    assert raw in path.read_bytes()


def test_absent_record_is_none(tmp_path: Path) -> None:
    assert read_record(tmp_path / "record.json", SCHEMA) is None


def test_data_in_another_order_with_its_own_hash_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    raw = b'{ "z": 1,  "a": 2 }'
    head = f'{{"schema":"{SCHEMA}","sha256":"{hashlib.sha256(raw).hexdigest()}","data":'
    path.write_bytes(head.encode() + raw + b"}\n")
    assert read_record(path, SCHEMA) == {"z": 1, "a": 2}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "it is not valid JSON: Expecting property name"),
        (b"\xff\xfe", "it is not valid JSON: "),
        (b"7", "it names no schema"),
        (b"{}", "it names no schema"),
        (b'{"schema":7}', "it names no schema"),
        (b'{"schema": "ostler.dev/things/v2", "data": {}}', "it was changed after it was written"),
        (b'{"schema": "ostler.dev/others/v9"}', "it was changed after it was written"),
        (b"[" * 100_000, "it is nested deeper than 101 levels"),
    ],
)
def test_content_that_is_no_record_is_set_aside(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(RecordDamaged) as caught:
        read_record(path, SCHEMA)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert str(caught.value).endswith("; it was set aside as record.json.damaged-1")
    assert caught.value.aside is not None
    assert caught.value.aside.read_bytes() == content
    assert read_record(path, SCHEMA) is None


def test_damaged_records_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for _ in range(3):
        path.write_bytes(b"{")
        with pytest.raises(RecordDamaged):
            read_record(path, SCHEMA)
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"record.json.damaged-{number}" for number in (1, 2, 3)]


def test_record_of_something_else_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, "ostler.dev/others/v2", {})
    with pytest.raises(RecordDamaged, match=r"it has schema 'ostler.dev/others/v2' instead of 'ostler.dev/things/v2'"):
        read_record(path, SCHEMA)


@pytest.mark.parametrize("version", ["v1", "v3", "v10"])
@pytest.mark.parametrize("layout", ["record", "other"])
def test_record_of_another_version_is_left_alone(tmp_path: Path, version: str, layout: str) -> None:
    path = tmp_path / "record.json"
    schema = f"ostler.dev/things/{version}"
    if layout == "record":
        write_record(path, schema, {"new": True})
    else:
        path.write_text(json.dumps({"schema": schema, "checksum": 1}, indent=1))
    before = path.read_bytes()
    with pytest.raises(RecordSchemaUnknown) as caught:
        read_record(path, SCHEMA)
    assert str(caught.value) == f"{path} has schema {schema}, this version knows {SCHEMA}; the file is left as it is"
    assert (caught.value.found, caught.value.known) == (schema, SCHEMA)
    assert path.read_bytes() == before


def test_record_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.symlink_to(path.name)
    with pytest.raises(ReadFailed) as caught:
        read_record(path / "inner.json", SCHEMA)
    assert str(caught.value) == f"{path}/inner.json cannot be read: Too many levels of symbolic links"


def test_a_link_in_a_records_place_is_set_aside_and_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "record.json", tmp_path / "other.json"
    write_record(other, SCHEMA, {"not": "ours"})
    path.symlink_to(other)
    with pytest.raises(RecordDamaged, match="it is a symbolic link, not a regular file; it was set aside"):
        read_record(path, SCHEMA)
    assert read_record(other, SCHEMA) == {"not": "ours"}
    assert (tmp_path / "record.json.damaged-1").is_symlink()


@pytest.mark.parametrize(("make", "kind"), [(Path.mkdir, "a folder"), (os.mkfifo, "a FIFO")])
def test_what_is_no_file_is_set_aside_so_that_the_next_write_can_be(
    tmp_path: Path, make: Callable[[Path], None], kind: str
) -> None:
    path = tmp_path / "record.json"
    make(path)
    expected = f"it is {kind}, not a regular file; it was set aside as record.json.damaged-1"
    with pytest.raises(RecordDamaged, match=re.escape(expected)):
        read_record(path, SCHEMA)
    write_record(path, SCHEMA, {})
    assert read_record(path, SCHEMA) == {}


LARGE = """
import resource, sys
from pathlib import Path
from node.files import RecordDamaged, read_record
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
try:
    read_record(Path(sys.argv[1]), "ostler.dev/things/v2")
except RecordDamaged as error:
    print(error.reason)
"""


@pytest.mark.parametrize("size", [100_000_000, 16_000_000])
def test_a_file_of_any_size_and_content_costs_little_memory(tmp_path: Path, size: int) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b'{"schema":"' + b"a" * size)
    done = subprocess.run([sys.executable, "-c", LARGE, str(path)], capture_output=True, text=True, check=True)
    assert f"the limit is {MAX_RECORD}" in done.stdout or "it is not valid JSON" in done.stdout
    assert (tmp_path / "record.json.damaged-1").stat().st_size == MAX_ASIDE


def test_a_sparse_file_of_3_gb_is_refused_by_its_size_and_takes_no_disk_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(RecordDamaged, match=f"the file is {3 << 30} bytes; the limit is {MAX_RECORD}"):
        read_record(path, SCHEMA)
    assert (tmp_path / "record.json.damaged-1").stat().st_size == MAX_ASIDE


def test_a_huge_file_with_a_second_name_is_not_shortened_under_that_name(tmp_path: Path) -> None:
    path, other = tmp_path / "record.json", tmp_path / "other"
    other.write_bytes(b"x" * (MAX_ASIDE + 1))
    os.link(other, path)
    with pytest.raises(RecordDamaged):
        read_record(path, SCHEMA)
    assert other.stat().st_size == MAX_ASIDE + 1
    assert list(tmp_path.iterdir()) == [other]


def test_a_folder_keeps_the_newest_damaged_files_of_all_its_records(tmp_path: Path) -> None:
    for number in range(3):
        for name in ("identities", "health", "claim-1", "claim-2"):
            (tmp_path / f"{name}.json").write_text(f"damage {number}")
            with pytest.raises(RecordDamaged):
                read_record(tmp_path / f"{name}.json", SCHEMA)
    names = ("identities", "health", "claim-1", "claim-2")
    assert {each.name for each in tmp_path.iterdir()} == {
        f"{name}.json.damaged-{number}" for name in names for number in (2, 3)
    }
    assert len(list(tmp_path.iterdir())) == MOST_ASIDE


def test_a_folder_in_a_records_place_does_not_break_the_bound_of_the_others(tmp_path: Path) -> None:
    for number in range(2 * MOST_ASIDE):
        (tmp_path / "record.json").mkdir() if number % 2 else (tmp_path / "record.json").write_text("damage")
        with pytest.raises(RecordDamaged):
            read_record(tmp_path / "record.json", SCHEMA)
    assert len(list(tmp_path.iterdir())) == MOST_ASIDE


def test_data_that_no_reader_accepts_is_not_written_and_the_old_record_stays(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, "old")
    with pytest.raises(WriteFailed, match=rf"the record is \d+ bytes; the limit is {MAX_RECORD}"):
        write_record(path, SCHEMA, "x" * MAX_RECORD)
    assert read_record(path, SCHEMA) == "old"


@pytest.mark.parametrize("count", [MAX_VALUES - 1, MAX_VALUES])
def test_writer_and_reader_accept_the_same_number_of_values(tmp_path: Path, count: int) -> None:
    path = tmp_path / "record.json"
    data: JsonValue = [0] * count
    if count == MAX_VALUES:
        with pytest.raises(WriteFailed, match=f"its data has more than {MAX_VALUES} values"):
            write_record(path, SCHEMA, data)
        assert not path.exists()
    else:
        write_record(path, SCHEMA, data)
        assert read_record(path, SCHEMA) == data


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_writer_and_reader_accept_the_same_depth(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "record.json"
    data: JsonValue = []
    for _ in range(depth - 1):
        data = [data]
    if depth > MAX_DEPTH:
        with pytest.raises(WriteFailed, match=f"its data nests deeper than {MAX_DEPTH} levels"):
            write_record(path, SCHEMA, data)
        assert not path.exists()
    else:
        write_record(path, SCHEMA, data)
        assert read_record(path, SCHEMA) == data


def test_the_largest_record_that_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, "")
    text = "x" * (MAX_RECORD - path.stat().st_size)
    write_record(path, SCHEMA, text)
    assert path.stat().st_size == MAX_RECORD
    assert read_record(path, SCHEMA) == text


json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@in_one_folder
@given(json_values)
def test_what_is_written_is_read(tmp_path: Path, data: JsonValue) -> None:
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, data)
    assert read_record(path, SCHEMA) == data


@in_one_folder
@given(st.data())
def test_any_changed_byte_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, {"gpus": {"0000:1b:00.0": "GPU-1"}})
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    with pytest.raises((RecordDamaged, RecordSchemaUnknown)):
        read_record(path, SCHEMA)
    for aside in tmp_path.glob("*.damaged-*"):
        aside.unlink()


def test_what_need_not_outlive_a_power_cut_is_written_whole_and_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    path = tmp_path / "record.json"
    write_record(path, SCHEMA, {"a": 1}, durable=False)
    assert read_record(path, SCHEMA) == {"a": 1}
    assert (synced, list(tmp_path.iterdir())) == ([], [path])
    write_record(path, SCHEMA, {"a": 2})
    assert len(synced) == 2, "the file and its folder"
    synced.clear()
    write_whole(path, b"{}", replaceable=True)
    assert (path.read_bytes(), len(synced)) == (b"{}", 1), "the file, so that what is found is whole"


def test_who_sweeps_a_folder_itself_does_not_have_it_looked_through_at_every_write(tmp_path: Path) -> None:
    left = tmp_path / ".record.json.0123456789ab.tmp"
    left.write_bytes(b"")
    os.utime(left, (1, 1))
    write_record(tmp_path / "record.json", SCHEMA, {}, sweep=False)
    assert left.exists()
    write_record(tmp_path / "record.json", SCHEMA, {})
    assert not left.exists()
