"""Verdicts on state files: all recorded texts, every form of damage, what the next start does, and what is no file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from node.kubelet.checkpoint import Checkpoint, CheckpointEntry, encode
from node.kubelet.dra_state import DraState
from node.opening import KUBELET_STATE
from ostler.checkpoint.state_file import (
    FILE_NAMES,
    Start,
    StateFile,
    StateFileError,
    StateKind,
    examine,
    files_of,
    judge,
    recognised,
    start_words,
)
from ostler.checkpoint.tables import changes, tables
from tests.making.recorded_cases import cases_in, files_in

_FOLDER = Path(__file__).parents[2] / "vectors" / "kubelet"
_STATES = cases_in(_FOLDER / "state_files.jsonl")
_MANAGERS = cases_in(_FOLDER / "resource_managers.jsonl")
_KINDS = {name: kind for kind, name in FILE_NAMES.items()}
_FILES = files_in(_FOLDER / "checkpoints", "*.checkpoint.json") + files_in(_FOLDER / "dra", "*.dra_manager_state.json")
PATH = Path("/n/file")


def judged(text: bytes | str, kind: StateKind = StateKind.DEVICES) -> StateFile:
    return judge(PATH, text.encode() if isinstance(text, str) else text, kind)


def starts(file: StateFile) -> dict[str, Start]:
    return {release: each.start for each in file.starts for release in each.kubelets}


@pytest.mark.parametrize("case", _STATES, ids=lambda case: f"{case['file']}: {case['theme']}")
def test_a_recorded_text_is_whole_where_the_real_kubelet_uses_it(case: dict[str, Any]) -> None:
    file = judged(case["text"], StateKind(case["file"]))
    entries = (case.get("data") or {}).get("PodDeviceEntries") or ()
    lost = any(not entry["alloc_resp_parses"] for entry in entries)
    refused = Start.FORGETS if file.kind is StateKind.DEVICES else Start.REFUSES
    assert set(starts(file).values()) == {Start.RESTORES if case["valid"] else refused}
    assert list(starts(file)) == ["1.34", "1.35", "1.36", "1.37"]
    if case["valid"]:
        assert (file.damage is None) is not lost
        assert file.content is not None
    else:
        assert file.damage is not None
        if not case["error"].startswith("invalid character"):
            assert file.starts[0].error in case["error"]
            assert file.starts[0].error in file.starts[0].text
        assert file.damage.form in ("checksum", "json", "version")
        assert (file.damage.form == "checksum") is ("corrupted" in case["error"])
        assert (file.damage.form == "version") is (case["theme"] == "flat id list of the first format")
        assert file.fix == f"drain the node, stop the kubelet and remove {PATH}"
    if file.content is not None:
        assert changes(file.content, file.content) == []


@pytest.mark.parametrize("case", _MANAGERS, ids=lambda case: f"{case['file']}: {case['theme']} ({case['policy']})")
def test_every_release_is_judged_as_its_real_kubelet_decides(case: dict[str, Any]) -> None:
    file = judged(case["text"], _KINDS[case["file"]])
    for release, verdict in case["kubelets"].items():
        restores = verdict["error"] is None or "configured policy" in verdict["error"]
        start = next(each for each in file.starts if release in each.kubelets)
        # What a static policy refuses on every machine is not the reader's business, and so not recorded.
        contradicts = "does not start, because " in start.text
        assert start.start is (Start.RESTORES if restores and not contradicts else Start.REFUSES), release
    assert (file.damage is None) is (set(starts(file).values()) == {Start.RESTORES})
    if file.content is not None:
        assert changes(file.content, file.content) == []


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_files_of_a_real_kubelet_are_recognised_by_their_content_and_whole(path: Path) -> None:
    file = examine(path)
    assert file.kind is (StateKind.CLAIMS if "dra_manager" in path.name else StateKind.DEVICES)
    assert file.summary == f"{path}: {file.kind} state, intact"
    assert file.content is not None
    assert tables(file.content)


_DROPS = (
    "every kubelet restores these allocations; a resource has no devices until its plugin has registered; it drops "
    "entries with an unusable answer, and may give their devices to other pods"
)
_BEFORE_1_18 = (
    "damaged (version): it has the format of kubelets before 1.18 (error migrating v1 checkpoint state to v2 "
    "checkpoint state: containerID 'id' not found in initial containers list)"
)
_NO_STATE = (
    "{path} has neither the name nor the members of a state file of the kubelet (kubelet_internal_checkpoint, "
    "dra_manager_state, cpu_manager_state, memory_manager_state); if it is one, name its manager with --kind"
)
ENTRY = CheckpointEntry("pod", "c", "a.b/x", {0: ("d1",)}, b"")


@pytest.mark.parametrize(
    ("file", "summary", "start"),
    [
        (
            judged(encode(Checkpoint((ENTRY,), {})).replace(b"d1", b"d2")),
            "damaged (checksum): its data gives 3086626232, the file says 1299801237",
            "every kubelet starts without it (checkpoint is corrupted): it does not know which containers have devices",
        ),
        (
            judged(b""),
            "damaged (json): unexpected end of JSON input",
            "every kubelet starts without it (unexpected end of JSON input): it",
        ),
        (
            judged(b"\x00\x01"),
            "damaged (json): invalid character '\\x00' at byte 0 (Expecting value)",
            "every kubelet starts without it (invalid character",
        ),
        (
            judged(b'{"Data":' + b"[" * 100_000),
            "damaged (json): exceeded max depth",
            "every kubelet starts without it (exceeded max depth): it",
        ),
        (
            judged(b"[" + b"1," * 5_000_000 + b"1]"),
            "damaged (json): ",
            "every kubelet starts without it (",
        ),
        (
            judged(encode(Checkpoint((CheckpointEntry("pod", "c", "a.b/x", {0: ("d1",)}, b"\xff"),), {}))),
            (
                "damaged (content): the plugin's answer for container c of pod pod (a.b/x) is not a "
                "ContainerAllocateResponse"
            ),
            _DROPS,
        ),
        (
            judged(b'{"Data":"{}","Checksum":1}', StateKind.CLAIMS),
            "damaged (checksum): its data gives 2745614147, the file says 1",
            "no kubelet starts: failed to get checkpoint dra_manager_state: checkpoint is corrupted",
        ),
        (
            judged('{"policyName":"static","defaultCpuSet":"0-3","entries":{"id":"1"}}', StateKind.CPUS),
            _BEFORE_1_18,
            "kubelet 1.34 or 1.35 does not start: could not restore state from checkpoint: error migrating v1",
        ),
        (
            judged('{"policyName":"static","defaultCpuSet":"0-3","entries":{"p":{"c":"3"}}}', StateKind.CPUS),
            "damaged (content): container c of pod p has the CPUs 3, and some of them are in the default set 0-3 too",
            "no kubelet starts, because container c of pod p has the CPUs 3",
        ),
        (
            judged('{"policyName":"static","defaultCpuSet":"x"}', StateKind.CPUS),
            'damaged (content): could not parse default cpu set "x": strconv.Atoi: parsing "x": invalid syntax',
            "kubelet 1.34 to 1.36 does not start: could not restore state from checkpoint: could not parse default cpu",
        ),
        (
            judged('{"policyName":"Static","machineState":{},"checksum":0}', StateKind.MEMORY),
            "damaged (checksum): its data gives 3940083781, the file says 0",
            "kubelet 1.34 or 1.35 does not start: could not restore state from checkpoint: checkpoint is corrupted",
        ),
    ],
)
def test_damage_is_told_with_its_form_its_cause_and_the_next_start(file: StateFile, summary: str, start: str) -> None:
    assert file.summary.startswith(f"{PATH}: {file.kind} state, {summary}")
    assert start_words(file.starts[0]).startswith(start)
    assert "\n" not in file.summary


def test_a_file_that_only_older_kubelets_refuse_is_removed_before_one_of_them_starts() -> None:
    case = next(case for case in _MANAGERS if case["theme"] == "cpu 1.37: one assignment changed")
    file = judged(case["text"], StateKind.CPUS)
    assert starts(file) == {
        "1.34": Start.REFUSES,
        "1.35": Start.REFUSES,
        "1.36": Start.REFUSES,
        "1.37": Start.RESTORES,
    }
    assert file.is_accepted
    assert file.fix.startswith("before such a kubelet starts, drain the node")
    assert start_words(file.starts[-1]).startswith("kubelet 1.37 ")
    assert (
        file.starts[-1].text == "restores this if its cpuManagerPolicy is 'static'; with another one it does not start"
    )


def test_a_damaged_file_shows_what_it_says_all_the_same() -> None:
    damaged = judged(encode(Checkpoint((ENTRY,), {})).replace(b"d1", b"d2"))
    assert isinstance(damaged.content, Checkpoint)
    assert damaged.content.entries == (CheckpointEntry("pod", "c", "a.b/x", {0: ("d2",)}, b""),)
    data = json.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": []})
    claims = judged(json.dumps({"Data": data, "Checksum": 1}), StateKind.CLAIMS)
    assert claims.content == DraState(())
    assert judged(b'{"Data":"nothing","Checksum":1}', StateKind.CLAIMS).content is None


def test_a_copy_is_recognised_by_its_content_even_if_it_is_cut_off() -> None:
    for case in _STATES + _MANAGERS:
        kind = _KINDS[case["file"]] if case["file"] in _KINDS else StateKind(case["file"])
        if len(case["text"]) > 120:
            assert recognised(Path("/x/copy"), case["text"].encode()) is kind, case["theme"]
        assert recognised(Path("/x") / FILE_NAMES[kind], case["text"].encode()) is kind


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "cannot read {path}: No such file or directory"),
        ("fifo", "cannot read {path}: it is a FIFO, not a regular file"),
        (
            "huge",
            f"cannot read {{path}}: the file is {KUBELET_STATE + 1} bytes; the limit is {KUBELET_STATE}",
        ),
        ("other", _NO_STATE),
    ],
)
def test_what_is_no_state_file_is_told_in_one_sentence(tmp_path: Path, name: str, said: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "other").write_bytes(b"\xff\x00 nothing")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(KUBELET_STATE + 1)
    path = tmp_path / name
    with pytest.raises(StateFileError) as caught:
        examine(path)
    assert str(caught.value) == said.format(path=path)


def test_a_link_that_people_name_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(_FILES[0])
    assert examine(tmp_path / "link").damage is None


def test_a_folder_stands_for_the_files_of_its_kubelet(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match=f"{tmp_path} has no state file of a kubelet \\(kubelet_internal"):
        files_of(tmp_path)
    (tmp_path / "device-plugins").mkdir()
    wanted = [tmp_path / "device-plugins/kubelet_internal_checkpoint", tmp_path / "memory_manager_state"]
    for path in wanted:
        path.write_bytes(b"")
    assert files_of(tmp_path) == wanted
    assert files_of(tmp_path / "x") == [tmp_path / "x"]
