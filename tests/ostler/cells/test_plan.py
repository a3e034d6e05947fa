"""``ostler cells plan``: HiveD's scenarios as questions about a small cluster, and what is wrong with a question."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.making.cells import Command, gpu, node_named, pod, slice_of, written


@pytest.fixture
def ostler(cells_command: Callable[[str], Command]) -> Command:
    return cells_command("plan")


def test_a_gang_within_its_virtual_cluster_fits(ostler: Command, file: str) -> None:
    text, _ = ostler(file, "--vc", "A", "--gpus", "1", "--count", "2")
    assert text == (
        "plan (A, priority 0, 2 x 1 GPUs) fits now\n"
        "  node-1: GPU 0\n"
        "  node-1: GPU 1\n"
    )  # fmt: skip


def test_a_gang_beyond_its_virtual_cluster_waits(ostler: Command, file: str) -> None:
    text, _ = ostler(file, "--vc", "A", "--gpus", "4", code=1)
    assert text == "plan (A, priority 0, 1 x 4 GPUs) waits: insufficient capacity in virtual cluster 'A'\n"


def test_a_pinned_cell_is_used_by_those_who_name_it(ostler: Command, file: str) -> None:
    text, _ = ostler(file, "--vc", "B", "--gpus", "4", "--pinned", "mine", "--type", "H100")
    assert text == "plan (B, priority 0, 1 x 4 GPUs) fits now\n  node-2: GPU 0,1,2,3\n"


def test_an_opportunistic_gang_uses_what_others_leave(ostler: Command, file: str) -> None:
    found = json.loads(ostler(file, "--vc", "A", "--priority", "-1", "--gpus", "4", "-o", "json")[0])
    assert [(each["fits"], each["pods"][0]["gpus"]) for each in found] == [(True, [0, 1, 2, 3])]


def test_a_guaranteed_gang_says_whom_it_preempts(ostler: Command, file: str, tmp_path: Path) -> None:
    weak = {"priority": -1, "virtualCluster": "B"}
    running = [pod(f"o{n}", f"node-{n}", 0, 1, 2, 3, spec=weak) for n in (1, 2)]
    for each in running:
        each["metadata"]["annotations"] = {
            key: text.replace('["H100-2", "H100-2", "H100-2", "H100-2"]', '["", "", "", ""]')
            for key, text in each["metadata"]["annotations"].items()
        }
    pods = written(tmp_path, *running, name="pods.json")
    text, err = ostler(file, "--pods", pods, "--vc", "A", "--gpus", "2")
    assert err == ""
    assert text in (
        "plan (A, priority 0, 1 x 2 GPUs) fits once 1 pod ended, which it would preempt\n  node-1: team/o1\n",
        "plan (A, priority 0, 1 x 2 GPUs) fits once 1 pod ended, which it would preempt\n  node-2: team/o2\n",
    )
    found = json.loads(ostler(file, "--pods", pods, "--vc", "A", "--gpus", "2", "-o", "json")[0])
    assert found[0]["fits"] is False
    assert len(found[0]["victims"]) == 1


def test_gangs_of_a_manifest_are_placed_one_after_the_other(ostler: Command, file: str, tmp_path: Path) -> None:
    group = {"affinityGroup": {"name": "train", "members": [{"podNumber": 2, "leafCellNumber": 1}]}}
    pods = [pod("train-0", spec=group), pod("train-1", spec=group), pod("next", spec={"leafCellNumber": 1})]
    text, _ = ostler(file, "-f", written(tmp_path, *pods, name="train.json"), code=1)
    assert text.splitlines() == [
        "train (A, priority 1, 2 x 1 GPUs) fits now",
        "  node-1: GPU 0",
        "  node-1: GPU 1",
        "team/next (A, priority 1, 1 x 1 GPUs) waits: insufficient capacity in virtual cluster 'A'",
    ]


def test_running_pods_have_their_cells(ostler: Command, file: str, tmp_path: Path) -> None:
    pods = written(tmp_path, pod("a", "node-1", 0, 1), pod("waits"), name="pods.json")
    text, _ = ostler(file, "--pods", pods, "--vc", "A", "--gpus", "2", code=1)
    assert " waits: " in text


def test_nodes_that_are_bad_cordoned_or_gone_are_not_used(ostler: Command, file: str, tmp_path: Path) -> None:
    ask = ["--vc", "B", "--gpus", "4", "--pinned", "mine"]
    assert " waits: " in ostler(file, *ask, "--bad", "node-2", code=1)[0]
    four = [gpu(each) for each in range(4)]
    nodes = [node_named("node-1"), {**node_named("node-2"), "spec": {"unschedulable": True}}]
    cluster = written(tmp_path, slice_of("node-1", four), slice_of("node-2", four), *nodes)
    assert " waits: " in ostler(file, *ask, "--from", cluster, code=1)[0]
    unready = {**node_named("node-2"), "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    cluster = written(tmp_path, slice_of("node-2", four), unready)
    assert " waits: " in ostler(file, *ask, "--from", cluster, code=1)[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no gang is given; name its virtual cluster by --vc, or its manifest by -f"),
        (["--vc", "C"], "virtual cluster 'C' does not exist"),
        (["--vc", "A", "--priority", "1001"], "priority is 1001; it must be between -1 and 1000"),
        (["--vc", "A", "--gpus", "0"], "leafCellNumber is 0; it must be at least 1"),
        (["--vc", "A", "--pinned", "mine"], "virtual cluster 'A' has no pinned cell 'mine'"),
        (["--vc", "A", "--bad", "node-9"], "--bad node-9: no cell is on this node; "),
        (["--vc", "A", "-f", "x"], "--vc and -f both describe gangs; give one of them"),
    ],
)
def test_what_is_wrong_is_one_sentence(ostler: Command, file: str, words: list[str], message: str) -> None:
    text, err = ostler(file, *words, code=2)
    assert text == ""
    assert err.startswith("ostler: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_manifest_without_pods_of_the_scheduler_is_told(ostler: Command, file: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"kind": "Pod", "metadata": {"name": "a"}}, name="train.json")
    _, err = ostler(file, "-f", path, code=2)
    assert err == (
        f"ostler: {path}: no pod without a place has the annotation hivedscheduler.microsoft.com/pod-scheduling-spec; "
        "add it, or describe a gang by --vc\n"
    )


def test_running_pods_that_the_scheduler_refuses_are_left_out(ostler: Command, file: str, tmp_path: Path) -> None:
    broken = pod("a", "node-1", 0, 1, spec={"leafCellNumber": 1})
    text, err = ostler(file, "--pods", written(tmp_path, broken, name="pods.json"), "--vc", "A", "--gpus", "2")
    assert err.startswith("ostler: pod team/a is left out: ")
    assert "fits now" in text
