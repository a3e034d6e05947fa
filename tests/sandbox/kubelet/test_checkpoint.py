from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.kubelet.checkpoint import (
    FILE_NAME,
    Checkpoint,
    CheckpointEntry,
    CheckpointNotFoundError,
    checksum,
    decode,
    encode,
)
from node.kubelet.gojson import CorruptedStateError, JsonError, KubeletStateError
from sandbox.kubelet.state_files import CheckpointFile
from tests.making.recorded_cases import cases_in, files_in

_FOLDER = Path(__file__).parents[2] / "vectors" / "kubelet"
_STATES = [case for case in cases_in(_FOLDER / "state_files.jsonl") if case["file"] == "device-manager"]

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_ids = st.none() | st.lists(_text, max_size=3).map(tuple)
_entries = st.builds(
    CheckpointEntry,
    _text,
    _text,
    _text,
    st.none() | st.dictionaries(st.integers(-1, 63), _ids, max_size=3),
    st.none() | st.binary(max_size=6),
)
_checkpoints = st.builds(
    Checkpoint,
    st.none() | st.lists(_entries, max_size=3).map(tuple),
    st.none() | st.dictionaries(_text, _ids, max_size=3),
)


def _data(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint in the form of the record, which does not tell null from an empty list."""
    entries = [
        {
            "PodUID": entry.pod_uid,
            "ContainerName": entry.container,
            "ResourceName": entry.resource,
            "DeviceIDs": None if entry.devices is None else {str(k): _list(v) for k, v in entry.devices.items()},
            "AllocResp": None if entry.response is None else base64.b64encode(entry.response).decode(),
        }
        for entry in checkpoint.entries or ()
    ]
    registered = None if checkpoint.registered is None else {k: _list(v) for k, v in checkpoint.registered.items()}
    return {"PodDeviceEntries": entries, "RegisteredDevices": registered}


def _list(ids: tuple[str, ...] | None) -> list[str] | None:
    return None if ids is None else list(ids)


@pytest.mark.parametrize("case", _STATES, ids=lambda case: f"{case['id']}-{case['theme']}")
def test_text_is_read_or_refused_as_by_the_kubelet(case: dict[str, Any]) -> None:
    if case["valid"]:
        expected = case["data"]
        for entry in expected["PodDeviceEntries"]:
            entry.pop("alloc_resp_parses")
        assert _data(decode(case["text"].encode())) == expected
    else:
        with pytest.raises(KubeletStateError) as caught:
            decode(case["text"].encode())
        assert str(caught.value) == case["error"]


@pytest.mark.parametrize("path", files_in(_FOLDER, "checkpoints/*.checkpoint.json"), ids=lambda path: path.name)
def test_file_of_a_live_kubelet_is_written_again_byte_for_byte(path: Path) -> None:
    assert encode(decode(path.read_bytes())) == path.read_bytes()


@given(_checkpoints)
def test_what_is_written_is_read_again(checkpoint: Checkpoint) -> None:
    assert decode(encode(checkpoint)) == checkpoint


@given(st.binary(max_size=40) | _text.map(lambda text: json.dumps({"Data": text}).encode()))
def test_garbage_is_refused_and_never_worse(text: bytes) -> None:
    with pytest.raises(KubeletStateError):
        decode(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"Data":{"PodDeviceEntries":{}}}', "checkpointData.Data.PodDeviceEntries of type []checkpoint"),
        (b'{"Data":{"PodDeviceEntries":[1]}}', "cannot unmarshal number into Go struct field checkpointData"),
        (b'{"Data":{"RegisteredDevices":{"r":"x"}}}', "cannot unmarshal string into Go struct field"),
        (b'{"Data":{"RegisteredDevices":{"r":[true]}}}', "cannot unmarshal bool into Go struct field"),
        (b'{"Data":{"PodDeviceEntries":[{"DeviceIDs":{"x":[]}}]}}', "cannot unmarshal number x into Go struct"),
        (b'{"Data":{"PodDeviceEntries":[{"AllocResp":"QUI"}]}}', "illegal base64 data at input byte 3"),
        (b'{"Checksum":NaN}', "invalid character 'N' looking for beginning of value"),
        (b"{" * 100_000, "invalid character"),
        (b"[" * 1_000_000, "exceeded max depth"),
        (b"", "unexpected end of JSON input"),
    ],
)
def test_unreadable_text_is_named_with_its_place(text: bytes, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        decode(text)
    assert message in str(caught.value)


def test_corruption_says_both_checksums() -> None:
    with pytest.raises(CorruptedStateError) as caught:
        decode(b'{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":7}')
    assert (caught.value.expected, caught.value.found) == (2932075448, 7)


def test_checksum_of_null_and_of_empty_differ() -> None:
    assert checksum(Checkpoint((), {})) == 2932075448
    assert checksum(Checkpoint(None, {"a.example/x": ("d1", "d0")})) == 391356096


def test_of_two_entries_of_one_holder_the_later_wins() -> None:
    first = CheckpointEntry("p", "c", "r", {-1: ("d0",)}, b"")
    later = CheckpointEntry("p", "c", "r", {0: ("d1", "d2"), 1: ("d2",)}, b"")
    assert Checkpoint((first, later)).held() == {("p", "c", "r"): later}
    assert later.ids == {"d1", "d2"}


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="checkpoint is not found"):
        CheckpointFile(tmp_path).read()


def test_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path)
    file.write(Checkpoint(None, {"r": ("a",)}))
    file.write(Checkpoint(None, {"r": ("b",)}))
    assert file.read() == Checkpoint(None, {"r": ("b",)})
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(OSError, match="directory"):
        CheckpointFile(tmp_path).write(Checkpoint())
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
