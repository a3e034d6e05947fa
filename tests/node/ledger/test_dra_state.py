from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.kubelet.dra_state import (
    ClaimInfo,
    DeviceHealth,
    DeviceState,
    DraState,
    decode,
    decode_health,
    encode,
    encode_health,
)
from node.kubelet.gojson import CorruptedStateError, JsonError, KubeletStateError
from tests.making.recorded_cases import cases_in, files_in

_FOLDER = Path(__file__).parents[2] / "vectors" / "kubelet"
_STATES = files_in(_FOLDER / "dra", "*.dra_manager_state.json")
_HEALTH = files_in(_FOLDER / "dra", "*.dra_health_state.json")
_RECORDED = [case for case in cases_in(_FOLDER / "state_files.jsonl") if case["file"] == "dra-manager"]

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_texts = st.none() | st.lists(_text, max_size=3).map(tuple)
_devices = st.builds(DeviceState, _text, _text, st.none() | _text, _texts, _texts)
_claims = st.builds(
    ClaimInfo,
    _text,
    _text,
    _text,
    st.none() | st.sets(_text, max_size=3).map(lambda pods: tuple(sorted(pods, key=str.encode))),
    st.none() | st.dictionaries(_text, st.none() | st.lists(_devices, max_size=2).map(tuple), max_size=2),
)
_states = st.builds(DraState, st.none() | st.lists(_claims, max_size=3).map(tuple))


def _file(data: object, checksum: int | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode()) if checksum is None else checksum}).encode()


@pytest.mark.parametrize("path", _STATES, ids=lambda path: path.name.partition(".")[0])
def test_recorded_states_are_read_and_written_byte_for_byte(path: Path) -> None:
    text = path.read_bytes()
    assert encode(decode(text)) == text


@pytest.mark.parametrize("path", _HEALTH, ids=lambda path: path.name.partition(".")[0])
def test_recorded_health_is_read_and_written_byte_for_byte(path: Path) -> None:
    text = path.read_bytes()
    assert encode_health(decode_health(text)) == text


def test_a_recorded_state_says_who_has_what() -> None:
    claims = {claim.name: claim for claim in decode(_STATES[-1].read_bytes()).claims or ()}
    shared = claims["shared"]
    assert len(shared.pods or ()) == 2
    assert shared.drivers is not None
    devices = shared.drivers["fake.example.com"]
    assert [device.device for device in devices or ()] == ["dev-1", "dev-1"]


@given(_states)
def test_what_is_written_is_read_back(state: DraState) -> None:
    assert decode(encode(state)) == state


@pytest.mark.parametrize("case", _RECORDED, ids=lambda case: f"{case['id']}-{case['theme']}")
def test_state_file_has_the_kubelets_verdict_and_reading(case: dict[str, Any]) -> None:
    text = case["text"].encode()
    if case["valid"]:
        written = json.loads(json.loads(encode(decode(text)))["Data"])
        assert written["ClaimInfoStateList"] == case["data"]["ClaimInfoStateList"]
    else:
        with pytest.raises(KubeletStateError) as refused:
            decode(text)
        # The kubelet itself puts these words in front of the reader's.
        assert case["error"] == f"failed to get checkpoint dra_manager_state: {refused.value}"


def test_an_empty_object_is_a_file_that_was_never_filled() -> None:
    assert decode(b"{}") == DraState()
    assert decode(encode(DraState())) == DraState()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b"[]", "json: cannot unmarshal array into Go value of type state.Checkpoint"),
        (b'{"Data":5}', "json: cannot unmarshal number into Go struct field Checkpoint.Data of type string"),
        (
            b'{"Checksum":4294967296}',
            "json: cannot unmarshal number 4294967296 into Go struct field Checkpoint.Checksum of type uint32",
        ),
        (
            _file({"ClaimInfoStateList": {}}),
            "Go struct field CheckpointData.ClaimInfoStateList of type state.ClaimInfoStateList",
        ),
        (
            _file({"ClaimInfoStateList": [{"ClaimUID": 1}]}),
            "number into Go struct field ClaimInfoState.ClaimInfoStateList.ClaimUID of type types.UID",
        ),
    ],
)
def test_what_is_no_state_is_unreadable_in_the_kubelets_words(text: bytes, message: str) -> None:
    with pytest.raises(JsonError) as refused:
        decode(text)
    assert str(refused.value).endswith(message)


def test_a_wrong_checksum_is_corruption() -> None:
    with pytest.raises(CorruptedStateError, match="checkpoint is corrupted") as refused:
        decode(_file({}, checksum=7))
    assert (refused.value.found, refused.value.expected) == (7, zlib.crc32(b"{}"))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_state_or_a_named_error(text: bytes) -> None:
    for read in (decode, decode_health):
        with contextlib.suppress(KubeletStateError):
            read(text)


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-21T06:03:57.138486842Z", 1795241037138486842),
        ("2026-11-21T08:03:57.5+02:00", 1795241037500000000),
    ],
)
def test_times_are_nanoseconds_whatever_their_zone(written: str, nanoseconds: int) -> None:
    device = {"PoolName": "n1", "DeviceName": "dev-0", "Health": "Healthy", "LastUpdated": written}
    text = json.dumps({"d.example": {"Devices": {"n1/dev-0": device}}}).encode()
    assert decode_health(text) == {"d.example": (DeviceHealth("n1", "dev-0", "Healthy", nanoseconds),)}


@given(st.integers(0, 253402300799 * 10**9), st.integers(-(2**63), 2**63 - 1), _text)
def test_health_that_is_written_is_read_back(updated: int, timeout: int, message: str) -> None:
    health = {"d.example": (DeviceHealth("n1", "dev-0", "Unhealthy", updated, timeout, message),)}
    assert decode_health(encode_health(health)) == health


def test_a_time_that_is_none_is_unreadable() -> None:
    text = b'{"d":{"Devices":{"a/b":{"LastUpdated":"yesterday"}}}}'
    with pytest.raises(JsonError, match='parsing time "yesterday"'):
        decode_health(text)
