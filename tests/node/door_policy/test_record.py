"""What is remembered of a node's doors between two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.door_policy import NAME, SCHEMA, KnownDoors, LastLook, NodeWords, Taints, TaintSupport, load, save
from node.files import JsonValue, WriteFailed, write_record
from node.values import replace

KNOWN = KnownDoors(NodeWords("dra", None), TaintSupport(Taints.KEPT, "kept by v1.36.0", "v1.36.0"))


def test_what_was_known_is_known_again(tmp_path: Path) -> None:
    assert load(tmp_path) == (KnownDoors(), "")
    save(tmp_path, KNOWN)
    assert load(tmp_path) == (KNOWN, "")


def test_the_last_look_is_known_again_and_a_record_of_an_older_version_has_none(tmp_path: Path) -> None:
    looked = replace(KNOWN, counters=True, look=LastLook(1700000000.25, "https://10.96.0.1:443"))
    save(tmp_path, looked)
    assert load(tmp_path) == (looked, "")
    write_record(tmp_path / NAME, SCHEMA, {"taints": "kept", "taintsText": "kept", "server": "v1.36.0"})
    assert load(tmp_path)[0].look == LastLook()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "the record is not an object"),
        ({"taints": "perhaps"}, "taints is 'perhaps', not one of kept, dropped, unknown"),
        ({"taints": "kept", "label": 7}, "label is not a string"),
        ({"taints": 1}, "taints is not a string"),
        ({"taints": "kept", "counters": "yes"}, "counters is not true or false"),
        ({"taints": "kept", "lookedAt": "now"}, "lookedAt is not a time in seconds"),
        ({"taints": "kept", "lookedAt": True}, "lookedAt is not a time in seconds"),
        ({"taints": "kept", "lookedAt": 10**400}, "lookedAt is not a time in seconds"),
        ({"taints": "kept", "lookedAt": -1}, "lookedAt is not a time in seconds"),
        ({"taints": "kept", "lookedAt": 1.0, "lookedAtServer": 1}, "lookedAtServer is not a string"),
    ],
)
def test_a_damaged_record_is_set_aside_and_told(tmp_path: Path, data: JsonValue, reason: str) -> None:
    write_record(tmp_path / NAME, SCHEMA, data)
    known, problem = load(tmp_path)
    assert known == KnownDoors()
    assert problem == f"{tmp_path / NAME} is damaged: {reason}; it was set aside as {NAME}.damaged-1"
    assert load(tmp_path) == (KnownDoors(), "")


def test_a_folder_that_is_not_there_is_told_when_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match=r"node-doors.json cannot be written: No such file or directory"):
        save(tmp_path / "none", KNOWN)
