"""Records of every released schema are read by this version; what it does not know it keeps."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.disk import RecordStore
from driver.claims.model import ClaimReference, RecordState
from driver.claims.record import SCHEMA, ClaimRecord, RecordedDevice, record_json, record_of
from driver.metadata.model import ClaimMetadata, DescribedDevice, DescribedRequest
from node.files import JsonValue, read_record, write_record
from node.values import replace
from tests.making.claim_service import GPU0, ClaimNode, claim, reference, result
from tests.making.recorded_cases import files_in

RELEASED = files_in(Path(__file__).parent / "records", "*.json")

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_unknown = st.dictionaries(st.sampled_from(["later", "also"]), st.none() | st.integers() | _text, max_size=2)
_amounts = st.dictionaries(_text, st.integers(0, 1 << 40), max_size=2).map(lambda found: tuple(sorted(found.items())))
_whole_devices = st.builds(
    RecordedDevice,
    _text,
    _text,
    _text,
    st.none() | _text,
    st.booleans(),
    st.lists(_text, max_size=2).map(tuple),
    st.lists(_text, max_size=2).map(tuple),
    unknown=_unknown,
)
_shares = st.builds(replace, _whole_devices, share_id=_text, amounts=_amounts, whole=_amounts)
_devices = _whole_devices | _shares
_described = st.builds(DescribedDevice, _text, _text, _text)
_metadata = st.builds(
    ClaimMetadata,
    _text,
    st.just(("v1beta1", "v1alpha1")),
    st.lists(st.builds(DescribedRequest, _text, st.lists(_described, max_size=2).map(tuple)), max_size=2).map(tuple),
)
_records = st.builds(
    ClaimRecord,
    st.builds(ClaimReference, _text, _text, st.just("uid-1")),
    st.sampled_from(RecordState),
    _text,
    st.floats(0, 2**33),
    st.lists(_devices, max_size=3).map(tuple),
    st.lists(_text, max_size=2).map(tuple),
    _text,
    metadata=st.none() | _metadata,
    unknown=_unknown,
)


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_records_of_released_versions_are_read(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "3c8f7f2e-6f0a-4f0e-9a53-0f4b8b1f6a11.json")
    stored = RecordStore(tmp_path).load()
    assert stored.unreadable == {}
    [record] = stored.records.values()
    assert record.claim == ClaimReference("team-a", "train-gpus-x7k2p", "3c8f7f2e-6f0a-4f0e-9a53-0f4b8b1f6a11")
    assert record.state.value in path.stem
    assert record.devices[0].device == "mig-0000-3b-00-0-1-2"
    assert record.devices[0].within == ("gpu-0000-3b-00-0",)
    assert record.devices[0].answer.requests == ("gpu",)
    assert record.devices[1].share_id == "0ac9e3b2-5a53-4a7e-8f0d-1f1f43e6d0aa"
    assert record.devices[2].admin_access
    assert record.users == ("5f8a1f5e-9c3e-4c64-8a4e-7c1b7c9f8f10",)
    assert bool(record.spec) == (record.state is RecordState.COMPLETED)


def test_there_is_a_record_of_every_state() -> None:
    assert {path.stem for path in RELEASED} >= {f"v1-{state.value}" for state in RecordState}


@given(_records)
def test_a_record_that_is_written_is_read_back(record: ClaimRecord) -> None:
    assert record_of(record_json(record), "uid-1") == record


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "a record must be an object"),
        ({"uid": "uid-9"}, "uid is 'uid-9', the file is that of 'uid-1'"),
        ({"uid": "uid-1", "state": "halfway"}, "state is 'halfway', must be one of started, completed"),
        ({"uid": "uid-1", "state": "started", "since": "now"}, "since is 'now' but must be a number"),
        ({"uid": "uid-1", "state": "started", "devices": {}}, "devices is {} but must be a list"),
        (
            {"uid": "uid-1", "state": "started", "devices": [{"shareID": "s", "amounts": 5}]},
            "amounts is 5 but must be an object",
        ),
        (
            {"uid": "uid-1", "state": "started", "devices": [{"shareID": "s", "whole": {"memory": -1}}]},
            "whole.memory is -1 but must be an amount of 0 or more",
        ),
        ({"uid": "uid-1", "state": "started", "devices": [1]}, "every item of devices must be an object"),
        ({"uid": "uid-1", "state": "started", "devices": [{"pool": 1}]}, "pool is 1 but must be a string"),
        ({"uid": "uid-1", "state": "started", "users": [1]}, "users must contain only strings"),
        ({"uid": "uid-1", "state": "started", "metadata": {"pod_claim": 1}}, "pod_claim must be of type str, not int"),
        ({"uid": "uid-1", "state": "started", "metadata": 5}, "ClaimMetadata is not an object"),
        ({"uid": "uid-1", "state": "started", "metadata": {"pod_claim": ""}}, "ClaimMetadata: missing"),
        ({"uid": "uid-1", "state": "started", "metadata": {"versions": "v1"}}, "versions is not a list"),
        (
            {"uid": "uid-1", "state": "started", "devices": [{"interface": {"settings": {"features": [["gro"]]}}}]},
            "features does not have 2 items",
        ),
    ],
)
def test_a_record_of_wrong_types_is_damaged_and_says_where(data: object, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        record_of(data, "uid-1")  # type: ignore[arg-type]


async def test_fields_of_later_versions_survive_a_rewrite(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    stored = read_record(node.record_path(1), SCHEMA)
    assert isinstance(stored, dict)
    assert isinstance(stored["devices"], list)
    [device] = stored["devices"]
    assert isinstance(device, dict)
    later: dict[str, JsonValue] = {**stored, "later": {"a": 1}, "devices": [{**device, "moved": True}]}
    write_record(node.record_path(1), SCHEMA, later)
    node.boot = "boot-2"
    await (await node.started()).prepare(reference())
    again = read_record(node.record_path(1), SCHEMA)
    assert again == {**later, "boot": "boot-2", "since": again["since"] if isinstance(again, dict) else 0}


def test_a_device_that_is_new_has_no_fields_of_the_old_one() -> None:
    old = ClaimRecord(
        reference(), RecordState.COMPLETED, devices=(RecordedDevice("r", "p", "d", unknown={"later": 1}),)
    )
    new = replace(old, devices=(RecordedDevice("r", "p", "e"),))
    assert old.kept_by(new) == new
    assert old.kept_by(replace(old, devices=(RecordedDevice("r", "p", "d"),))) == old
