"""``ostler cells check``: valid or not and why, who owns what, and where the cluster differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.making.cells import CONFIGURATION, Command, gpu, slice_of, tainted, written


@pytest.fixture
def ostler(cells_command: Callable[[str], Command]) -> Command:
    return cells_command("check")


def test_a_valid_file_shows_who_owns_what(ostler: Command, file: str) -> None:
    text, _ = ostler(file)
    assert text == (
        f"{file} is valid: its virtual clusters fit into the physical cells\n\n"
        "CHAIN        LEVEL        GPUS  CELLS  OWNED  LEFT  VIRTUAL CLUSTERS\n"
        "H100-NODE-4  H100-NODE-4  4     2      1      1     B 1\n"
        "             H100-2       2     4      2      0     A 1, B 1\n"
        "             H100         1     8      0      0     -\n"
    )


def test_json_has_the_same_and_the_drift(ostler: Command, file: str, tmp_path: Path) -> None:
    cluster = written(tmp_path, slice_of("node-1", [gpu(each) for each in range(4)]))
    found = json.loads(ostler(file, "--from", cluster, "-o", "json", code=1)[0])
    assert found["valid"] is True
    assert found["chains"][0]["levels"][1] == {
        "cellType": "H100-2",
        "gpus": 2,
        "cells": 4,
        "owned": {"A": 1, "B": 1},
        "left": 0,
    }
    assert found["drift"] == [
        "node node-2 is configured and publishes no GPUs; remove its cell, or look at the node's agent"
    ]
    assert found["bad"] == []


def test_a_fault_names_its_line_and_the_fix(ostler: Command, tmp_path: Path) -> None:
    (path := tmp_path / "cells.yaml").write_text(CONFIGURATION.replace("cellNumber: 1}\n  B", "cellNumber: 9}\n  B"))
    text, err = ostler(str(path), code=3)
    assert text == ""
    assert err.startswith(f"ostler: {path} line ")


def test_a_cluster_with_these_cells_has_no_drift(ostler: Command, file: str, tmp_path: Path) -> None:
    bodies = [slice_of(f"node-{n}", [gpu(each) for each in range(4)]) for n in (1, 2)]
    text, _ = ostler(file, "--from", written(tmp_path, *bodies))
    assert text.endswith("\n\nthe cluster has these cells\n")


def test_each_difference_is_one_sentence(ostler: Command, tmp_path: Path) -> None:
    (path := tmp_path / "cells.yaml").write_text(
        CONFIGURATION.replace(
            "  - {cellType: H100-NODE-4, cellAddress: node-1}\n",
            "  - cellType: H100-NODE-4\n    cellAddress: node-1\n    cellChildren:\n"
            "    - cellChildren: [{cellAddress: '0'}, {cellAddress: '2'}]\n"
            "    - cellChildren: [{cellAddress: '1'}, {cellAddress: '3'}]\n",
        )
    )
    bodies = [
        slice_of("node-1", [tainted(0), *(gpu(each) for each in range(1, 4))]),
        slice_of("node-2", [gpu(each) for each in range(6)]),
        slice_of("node-3", [gpu(0)]),
    ]
    text, _ = ostler(str(path), "--from", written(tmp_path, *bodies), code=1)
    assert text.partition("\n\n")[2].partition("-\n\n")[2] == (
        "GPU 0 of node node-1 is bad: taint ostler.dev/health=unhealthy\n"
        "cell node-1/0 has GPU 0,2 of node node-1, which are in different cells: 0,1 and 2,3; give it GPUs of one"
        " cell\n"
        "cell node-1/1 has GPU 1,3 of node node-1, which are in different cells: 0,1 and 2,3; give it GPUs of one"
        " cell\n"
        "node node-2 publishes GPU 4,5, which no cell has; add it\n"
        "node node-3 publishes 1 GPU and is not configured; add its cell\n"
    )


def test_a_gpu_that_is_gone_is_named(ostler: Command, file: str, tmp_path: Path) -> None:
    bodies = [slice_of("node-1", [gpu(each) for each in range(3)]), slice_of("node-2", [gpu(n) for n in range(4)])]
    text, _ = ostler(file, "--from", written(tmp_path, *bodies), code=1)
    assert text.endswith("\nnode node-1 has no GPU 3, which the configuration names; remove it\n")
