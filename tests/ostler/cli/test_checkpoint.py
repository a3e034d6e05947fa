"""``ostler checkpoint``: what it prints of whole, damaged and missing files, and with which exit code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node.kubelet.checkpoint import Checkpoint, CheckpointEntry, encode
from node.kubelet.dra_state import ClaimInfo, DeviceState, DraState
from node.kubelet.dra_state import encode as encode_claims
from ostler.cli.main import main
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.recorded_cases import cases_in

_CASES = {
    case["theme"]: case["text"]
    for case in cases_in(Path(__file__).parents[2] / "vectors" / "kubelet" / "resource_managers.jsonl")
}
_ANSWER = api_pb2.ContainerAllocateResponse(
    envs={"IDS": "g0,g1"},
    mounts=[api_pb2.Mount(container_path="/data", host_path="/x")],
    devices=[api_pb2.DeviceSpec(container_path="/dev/g0", host_path="/dev/g0", permissions="rw")],
    cdi_devices=[api_pb2.CDIDevice(name="a.b/x=g0")],
    annotations={"k": "v"},
).SerializeToString()


def devices(*ids: str, pod: str = "pod-1", registered: tuple[str, ...] = ("g0", "g1")) -> bytes:
    entry = CheckpointEntry(pod, "main", "a.b/x", {-1: ids[:1], 0: ids[1:]}, _ANSWER)
    return encode(Checkpoint((entry,), {"a.b/x": registered}))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A kubelet's root folder with all four files, whole."""
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "device-plugins" / "kubelet_internal_checkpoint").write_bytes(devices("g1", "g0"))
    claim = ClaimInfo(
        "uid-1", "claim", "ns", ("pod-1",), {"d.example": (DeviceState("n1", "gpu-0", None, ("r",), ("c",)),)}
    )
    (tmp_path / "dra_manager_state").write_bytes(encode_claims(DraState((claim,))))
    (tmp_path / "cpu_manager_state").write_text(_CASES["cpu two pods, written by 1.37"])
    (tmp_path / "memory_manager_state").write_text(_CASES["memory two pods, written by 1.35"])
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["checkpoint", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_show_lists_who_has_what_by_all_files_of_a_node(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "show", node)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    for row in (
        ["pod-1", "main", "a.b/x", "-", "g1"],
        ["pod-1", "main", "a.b/x", "0", "g0"],
        ["pod-1", "main", "a.b/x", "IDS=g0,g1", "/data", "/dev/g0", "a.b/x=g0", "k=v"],
        ["a.b/x", "g0,g1"],
        ["uid-1", "ns/claim", "pod-1"],
        ["uid-1", "d.example", "n1", "gpu-0", "-", "r", "c"],
        ["default", "CPUs", "0,4-6"],
        ["pod-a", "main", "1-2", "-"],
        ["1", "2", "1,10"],
        ["0", "memory", "34359738368", "1073741824", "33285996544", "4294967296", "28991029248"],
        ["pod-b", "c", "memory", "1,10", "4294967296"],
    ):
        assert row in rows, row
    assert out.count("state, intact\n") == 4


def test_show_as_json_has_every_column_under_its_name(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "show", "-o", "json", node / "dra_manager_state")
    file = json.loads(out)["files"][0]
    assert code == 0
    assert (file["kind"], file["damaged"]) == ("dra-manager", False)
    assert file["content"]["devices"] == [
        {
            "claim_uid": "uid-1",
            "driver": "d.example",
            "pool": "n1",
            "device": "gpu-0",
            "share": "-",
            "requests": ["r"],
            "cdi_devices": ["c"],
        }
    ]
    assert file["next_start"] == [
        {
            "kubelets": ["1.34", "1.35", "1.36", "1.37"],
            "start": "restores",
            "text": "restores these claims, and asks the drivers to prepare each again when a pod needs it",
            "error": "",
        }
    ]


def test_verify_ends_with_1_if_any_file_is_damaged(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = node / "dra_manager_state"
    bad.write_bytes(bad.read_bytes().replace(b"gpu-0", b"gpu-1"))
    code, out, _ = ran(capsys, "verify", node)
    assert code == 1
    assert f"{bad}: dra-manager state, damaged (checksum): its data gives " in out
    assert (
        "  no kubelet starts: failed to get checkpoint dra_manager_state: checkpoint is corrupted\n"
        f"  what to do: drain the node, stop the kubelet and remove {bad}\n"
    ) in out
    assert "gpu-1" not in out
    code, out, _ = ran(capsys, "verify", "-o", "json", bad)
    found = json.loads(out)["files"][0]
    assert code == 1
    assert found["damage"]["form"] == "checksum"
    assert found["damage"]["text"] == (
        f"its data gives {found['damage']['expected']}, the file says {found['damage']['found']}"
    )
    assert found["fix"] == f"drain the node, stop the kubelet and remove {bad}"
    assert "content" not in found


def test_a_damaged_file_is_shown_all_the_same(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = node / "cpu_manager_state"
    bad.write_text(_CASES["cpu 1.36: one assignment changed"])
    code, out, _ = ran(capsys, "show", bad)
    assert code == 1
    assert ["pod-a", "main", "1-3", "-"] in [line.split() for line in out.splitlines()]


def test_files_that_cannot_be_read_do_not_hide_the_others(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = node / "empty"
    empty.mkdir()
    code, out, err = ran(capsys, "verify", node / "none", empty, node / "cpu_manager_state")
    assert code == 1
    assert "cpu-manager state, intact" in out
    assert err == (
        f"ostler: cannot read {node}/none: No such file or directory\n"
        f"ostler: {empty} has no state file of a kubelet (kubelet_internal_checkpoint, dra_manager_state, "
        "cpu_manager_state, memory_manager_state)\n"
    )


def test_the_manager_can_be_named(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "x").write_text("{}")
    assert ran(capsys, "verify", node / "x")[0] == 1
    code, out, _ = ran(capsys, "verify", "--kind", "dra-manager", node / "x")
    assert (code, out.splitlines()[0]) == (0, f"{node}/x: dra-manager state, intact")
    with pytest.raises(SystemExit) as ended:
        ran(capsys, "verify", "--kind", "gpu", node / "x")
    assert ended.value.code == 2
    assert "invalid" in capsys.readouterr().err


def test_names_from_a_file_cannot_steer_the_terminal(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = node / "device-plugins" / "kubelet_internal_checkpoint"
    file.write_bytes(devices("\x1b[31m", pod="p\nq"))
    _, out, _ = ran(capsys, "show", file)
    assert "\x1b" not in out
    assert "\\x1b[31m" in out
    assert "p\\nq" in out


def difference(capsys: pytest.CaptureFixture[str], before: Path, after: Path) -> list[dict[str, Any]]:
    code, out, err = ran(capsys, "diff", "-o", "json", before, after)
    assert (code, err) == (0, "")
    changes: list[dict[str, Any]] = json.loads(out)["changes"]
    return changes


def test_diff_names_what_was_added_removed_and_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    before.write_bytes(devices("g0", "g1"))
    after.write_bytes(devices("g0", "g2", registered=("g0",)))
    key = {"pod_uid": "pod-1", "container": "main", "resource": "a.b/x", "numa_node": "0"}
    assert difference(capsys, before, after) == [
        {"change": "changed", "table": "allocations", **key, "column": "devices", "before": ["g1"], "after": ["g2"]},
        {
            "change": "changed",
            "table": "resources",
            "resource": "a.b/x",
            "column": "healthy_devices",
            "before": ["g0", "g1"],
            "after": ["g0"],
        },
    ]
    after.write_bytes(encode(Checkpoint(None, {"a.b/x": ("g1", "g0")})))
    assert [(each["change"], each["table"]) for each in difference(capsys, before, after)] == [
        ("removed", "allocations"),
        ("removed", "allocations"),
        ("removed", "answers"),
    ]
    assert {each["change"] for each in difference(capsys, after, before)} == {"added"}
    code, out, _ = ran(capsys, "diff", before, after)
    assert code == 0
    assert out.splitlines()[0].split() == ["CHANGE", "TABLE", "OF", "WHAT", "BEFORE", "AFTER"]
    assert out.splitlines()[1].split() == [
        "removed",
        "allocations",
        "pod-1",
        "main",
        "a.b/x",
        "-",
        "devices",
        "g0",
        "-",
    ]


def test_files_of_different_versions_that_say_the_same_do_not_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for manager in ("cpu", "memory"):
        for version in ("1.35", "1.37"):
            (tmp_path / version).write_text(_CASES[f"{manager} two pods, written by {version}"])
        code, out, err = ran(capsys, "diff", tmp_path / "1.35", tmp_path / "1.37")
        assert (code, out, err) == (0, "nothing changed\n", "")


def test_a_device_that_stands_twice_in_a_claim_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = DeviceState("n1", "gpu-0")
    for name, found in (("a", (device,)), ("b", (device, device))):
        state = DraState((ClaimInfo("u", "c", "ns", (), {"d": found}),))
        (tmp_path / name).write_bytes(encode_claims(state))
    changed = difference(capsys, tmp_path / "a", tmp_path / "b")
    assert [(each["change"], each["device"]) for each in changed] == [("added", "gpu-0")]


def test_diff_compares_a_damaged_file_too_and_ends_with_1(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, bad = node / "cpu_manager_state", node / "copy"
    bad.write_text(_CASES["cpu 1.36: one assignment changed"])
    code, out, err = ran(capsys, "diff", whole, bad)
    assert code == 1
    assert ["changed", "cpus", "pod-a", "main", "cpus", "1-2", "1-3"] in [line.split() for line in out.splitlines()]
    assert err.startswith(f"ostler: {bad}: cpu-manager state, damaged (checksum): its data gives ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "{bad} says nothing that can be compared: json: cannot unmarshal array into Go value of type state."),
        (
            '{"machineState": {}}',
            "{whole} is cpu-manager state and {bad} is memory-manager state: only files of one kind can be compared",
        ),
        (None, "cannot read {bad}: No such file or directory"),
    ],
)
def test_what_cannot_be_compared_is_said(
    node: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    whole, bad = node / "cpu_manager_state", node / ("copy" if content != "[]" else "x/cpu_manager_state")
    bad.parent.mkdir(exist_ok=True)
    if content is not None:
        bad.write_text(content)
    code, out, err = ran(capsys, "diff", whole, bad)
    assert (code, out) == (1, "")
    assert err.startswith("ostler: " + said.format(whole=whole, bad=bad))
