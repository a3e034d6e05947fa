"""``ostler cells view``: free, used, bad and broken, as text, picture and data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.making.cells import CONFIGURATION, Command, gpu, pod, slice_of, tainted, written


@pytest.fixture
def ostler(cells_command: Callable[[str], Command]) -> Command:
    return cells_command("view")


@pytest.fixture
def pods(tmp_path: Path) -> str:
    group = {"affinityGroup": {"name": "train", "members": [{"podNumber": 1, "leafCellNumber": 2}]}}
    return written(
        tmp_path,
        pod("a", "node-1", 0, 1, spec=group),
        pod("b", "node-1", 2, spec={"virtualCluster": "B", "priority": -1}),
        pod("broken", "node-2", 1, 2),
        pod("lost", "node-9", 0),
        pod("waits"),
        {"kind": "Pod", "metadata": {"name": "another"}},
        name="pods.json",
    )


PICTURE = """\
8 GPUs in 2 cells: 2 free, 5 used, 1 bad

H100-NODE-4
  node-1  [aa b.]  1 of 4 free
  node-2  [!c c.]  1 of 4 free, pinned as mine

a  train (A, priority 1): 2 GPUs
b  team/b (B, opportunistic): 1 GPU
c  team/broken (A, priority 1): 2 GPUs
!  GPU 0 of node node-2: ostler.dev/health=unhealthy

broken islands: 1
  pod team/broken has GPUs 1,2 of node node-2 in a cell of 4; a cell of 2 would hold them
pod team/lost has GPU 0 of node node-9, which no cell has
"""


def test_a_line_for_each_node_a_letter_for_each_group(ostler: Command, file: str, pods: str, tmp_path: Path) -> None:
    cluster = written(tmp_path, slice_of("node-2", [tainted(0), *(gpu(each) for each in range(1, 4))]))
    assert ostler(file, "--pods", pods, "--from", cluster)[0] == PICTURE


def test_without_pods_everything_is_free(ostler: Command, file: str) -> None:
    assert ostler(file)[0].startswith("8 GPUs in 2 cells: 8 free, 0 used, 0 bad\n")


def test_the_picture_is_one_svg_file_that_names_every_group(ostler: Command, file: str, pods: str) -> None:
    text, _ = ostler(file, "--pods", pods, "-o", "svg")
    root = ET.fromstring(text)
    texts = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "b", "c"} <= set(texts)
    assert any(each.startswith("train (A, priority 1)") for each in texts)
    assert any("pod team/broken has GPUs 1,2" in each for each in texts)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"


def test_names_cannot_break_the_picture(ostler: Command, file: str, tmp_path: Path) -> None:
    group = {"affinityGroup": {"name": "</svg>\u001b[2J", "members": [{"podNumber": 1, "leafCellNumber": 1}]}}
    pods = written(tmp_path, pod("a", "node-1", 0, spec=group), name="pods.json")
    text, _ = ostler(file, "--pods", pods, "-o", "svg")
    ET.fromstring(text)
    assert "\x1b" not in text + ostler(file, "--pods", pods)[0]


def test_data_have_the_same(ostler: Command, file: str, pods: str) -> None:
    found = json.loads(ostler(file, "--pods", pods, "-o", "json")[0])
    leaf = found["cells"][0]["children"][0]["children"][0]
    assert leaf == {
        "cellType": "H100",
        "address": "node-1/0/0",
        "gpu": 0,
        "user": {"group": "train", "virtualCluster": "A", "priority": 1},
    }
    assert found["broken"] == [{"pod": "team/broken", "node": "node-2", "gpus": [1, 2], "cell": 4, "needed": 2}]
    assert yaml.safe_load(ostler(file, "--pods", pods, "-o", "yaml")[0]) == found


def test_cells_above_nodes_are_named(ostler: Command, tmp_path: Path) -> None:
    head, _, tail = CONFIGURATION.partition("  physicalCells:\n")
    rack = "    RACK: {childCellType: H100-NODE-4, childCellNumber: 2}\n  physicalCells:\n"
    rack += "  - cellType: RACK\n    cellAddress: r1\n    cellChildren:\n    - {cellAddress: node-1}\n"
    rack += "    - {cellAddress: node-2, pinnedCellId: mine}\n"
    owned = tail[tail.index("virtualClusters") :].replace("H100-NODE-4.H100-2", "RACK.H100-NODE-4.H100-2")
    text = head + rack + owned
    (path := tmp_path / "cells.yaml").write_text(text)
    shown = ostler(str(path))[0]
    assert "\nRACK r1: 8 free\n  node-1  [.. ..]  4 of 4 free\n" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "pods.yaml: not valid YAML: "),
        (
            json.dumps(pod("a", spec={"priority": 2000})),
            "pods.yaml: pod team/a: annotation hivedscheduler.microsoft.com/pod-scheduling-spec: priority is 2000; it",
        ),
    ],
)
def test_pods_that_cannot_be_read_are_named(
    ostler: Command, file: str, tmp_path: Path, text: str, message: str
) -> None:
    (path := tmp_path / "pods.yaml").write_text(text)
    _, err = ostler(file, "--pods", str(path), code=2)
    assert message in err
