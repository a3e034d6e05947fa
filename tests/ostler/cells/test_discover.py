"""``ostler cells discover``: cells of any cluster become a configuration that the scheduler accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostler.cells.discovery import discover
from ostler.cells.drift import configured_nodes
from ostler.cli.main import main
from sandbox.nodes import names
from scheduling.cells.configuration import CellsConfiguration, read_configuration
from tests.making.cells import CONFIGURATION, gpu, node_named, slice_of, tainted, written

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def ostler(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, code: int = 0) -> tuple[str, str]:
        assert main(["cells", "discover", *words]) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def types(configuration: CellsConfiguration) -> dict[str, tuple[str, int]]:
    return {name: (each.child_type, each.child_number) for name, each in configuration.cell_types.items()}


def test_cells_of_nodes_become_types_and_one_virtual_cluster_owns_everything(ostler: Command, tmp_path: Path) -> None:
    file = written(tmp_path, *(slice_of(f"node-{n}", [gpu(each) for each in range(4)]) for n in range(2)))
    text, err = ostler("--from", file)
    assert err == ""
    assert text == (
        f"""\
# The physical cells are those of {file}: 2 nodes, 8 GPUs.
physicalCluster:
  cellTypes:
    H100-2:
      childCellType: H100
      childCellNumber: 2
    H100-NODE-4:
      childCellType: H100-2
      childCellNumber: 2
      isNodeLevel: true
  physicalCells:
  - cellType: H100-NODE-4
    cellAddress: node-0
  - cellType: H100-NODE-4
    cellAddress: node-1
virtualClusters:
  default:
    virtualCells:
    - cellType: H100-NODE-4
      cellNumber: 2
"""
    )


@pytest.mark.parametrize("name", [each for each in names() if each not in ("sriov-2", "mi300x-cpx-8", "gaudi2-8")])
def test_every_recorded_node_gives_a_configuration_with_its_gpus(ostler: Command, name: str) -> None:
    text, _ = ostler("--from", name)
    (node,) = configured_nodes(read_configuration(text))
    assert node.name == name
    assert node.indices == frozenset(range(len(node.indices)))


def test_pairs_that_are_not_neighbours_are_written_out(ostler: Command) -> None:
    text, _ = ostler("--from", "dgx1-v100-8")
    (node,) = configured_nodes(read_configuration(text))
    pairs = sorted(sorted(indices) for _, indices in node.cells if len(indices) == 2)
    assert pairs == [[0, 3], [1, 2], [4, 7], [5, 6]]


def test_groups_of_nodes_are_cells_above_them(ostler: Command, tmp_path: Path) -> None:
    domain: dict[str, Any] = {"attributes": {"clique": {"string": "9f.1"}}}
    four = [gpu(each, **domain) for each in range(4)]
    bodies = [slice_of(f"node-{n}", four if n < 2 else [gpu(each) for each in range(4)]) for n in range(4)]
    racks = [node_named(f"node-{n}", rack_id="a b" if n < 3 else "c", zone="z") for n in range(4)]
    file = written(tmp_path, *bodies, *racks)
    configuration = read_configuration(ostler("--from", file)[0])
    assert [(top.cell_type, top.address) for top in configuration.physical_cells] == [
        ("2-H100-NODE-4", "9f-1"),
        ("H100-NODE-4", "node-2"),
        ("H100-NODE-4", "node-3"),
    ]
    above = read_configuration(ostler("--from", file, "--above", "rack.id", "--above", "zone")[0])
    assert [(top.cell_type, top.address) for top in above.physical_cells] == [
        ("2-H100-NODE-4", "9f-1"),
        ("2-H100-NODE-4", "z"),
    ], "node-2 is alone in its rack, and with node-3 in its zone"


def test_nodes_of_another_shape_or_product_have_types_of_their_own(ostler: Command, tmp_path: Path) -> None:
    flat = [gpu(each, cells=()) for each in range(4)]
    mixed = [gpu(each, product="L4" if each > 1 else "H100") for each in range(4)]
    file = written(
        tmp_path,
        slice_of("a", [gpu(each) for each in range(4)]),
        slice_of("b", flat),
        slice_of("c", mixed),
    )
    configuration = read_configuration(ostler("--from", file)[0])
    assert types(configuration) == {
        "H100-2": ("H100", 2),
        "H100-NODE-4": ("H100-2", 2),
        "H100-NODE-4-v2": ("H100", 4),
        "H100-NODE-2": ("H100", 2),
        "L4-NODE-2": ("L4", 2),
    }
    assert [(each.name, sorted(each.indices)) for each in configured_nodes(configuration)] == [
        ("a", [0, 1, 2, 3]),
        ("b", [0, 1, 2, 3]),
        ("c", [0, 1]),
        ("c", [2, 3]),
    ]


def test_uneven_levels_are_left_out_and_told(ostler: Command, tmp_path: Path) -> None:
    devices = [gpu(each, cells=(), attributes={"cell4": {"string": "x" if each < 3 else "y"}}) for each in range(4)]
    text, err = ostler("--from", written(tmp_path, slice_of("a", devices)))
    assert err == (
        "ostler: node a: its cells of one level have 1, 3 GPUs; HiveD's have equally many, so the level is left out\n"
    )
    assert types(read_configuration(text)) == {"H100-NODE-4": ("H100", 4)}
    some = [gpu(0), gpu(1), gpu(2, cells=()), gpu(3, cells=())]
    _, err = ostler("--from", written(tmp_path, slice_of("a", some)))
    assert err.count("node a: some GPUs publish no cell of one level, so the level is left out\n") == 2


def test_bad_gpus_stay_in_their_cells_and_are_named(ostler: Command, tmp_path: Path) -> None:
    devices = [tainted(0), gpu(1), tainted(2, "ostler.dev/other-door", "plugin"), gpu(3)]
    text, err = ostler("--from", written(tmp_path, slice_of("a", devices)))
    assert err == "ostler: GPU 0 of node a (gpu-0) is bad: taint ostler.dev/health=unhealthy\n"
    assert "# GPU 0 of node a (gpu-0) is bad: taint ostler.dev/health=unhealthy.\n" in text
    assert "cellNumber: 1" in text


def test_shared_and_divided_gpus_are_no_cells(ostler: Command, tmp_path: Path) -> None:
    mig: dict[str, Any] = {"attributes": {"migEnabled": {"bool": True}}}
    devices = [gpu(0, allowMultipleAllocations=True), gpu(1, **mig)]
    text, err = ostler("--from", file := written(tmp_path, slice_of("a", devices)), code=1)
    assert text == ""
    assert err == (
        "ostler: node a: gpu-0 is left out: its rule shares it, and a cell is a whole GPU\n"
        "ostler: node a: gpu-1 is left out: it is in MIG mode, and a cell is a whole GPU\n"
        f"ostler: {file} publishes no whole GPU; offer GPUs through claims (door: dra or both), or name another source "
        "by --from\n"
    )


def test_the_newest_generation_counts_and_a_gpu_of_two_drivers_once() -> None:
    old = slice_of("a", [gpu(9)], generation=1)
    new = slice_of("a", [gpu(0), gpu(1)], generation=2)
    place = {"resource.kubernetes.io/pcieRoot": {"string": "pci0"}, "resource.kubernetes.io/numaNode": {"int": 0}}
    other = slice_of("a", [gpu(each, cells=(), attributes=place) for each in range(2)], driver="gpu.example.com")
    (node,) = discover([other, old, new]).nodes
    assert [(each.name, each.groups[0][1]) for each in node.devices] == [("gpu-0", "c2-0"), ("gpu-1", "c2-0")]
    (node,) = discover([other]).nodes
    assert node.shape == (1, 2), "by PCIe root and NUMA node"
    assert discover([{}, {"spec": {"nodeName": "a", "devices": [1, {"attributes": []}]}}]).nodes == ()


def test_virtual_clusters_and_pins_are_kept(ostler: Command, tmp_path: Path) -> None:
    (kept := tmp_path / "cells.yaml").write_text("webServerAddress: ':9999'\n" + CONFIGURATION)
    file = written(tmp_path, *(slice_of(f"node-{n}", [gpu(each) for each in range(4)]) for n in (1, 2, 3)))
    made = read_configuration(ostler("--from", file, "--keep", str(kept))[0])
    before = read_configuration(kept.read_text())
    assert made.virtual_clusters == before.virtual_clusters
    assert made.extender == before.extender
    assert [top.pinned_id for top in made.physical_cells] == ["", "mine", ""]
    _, err = ostler(
        "--from", written(tmp_path, slice_of("node-1", [gpu(each) for each in range(4)])), "--keep", str(kept), code=3
    )
    assert (
        "ostler: the pinned cell mine is left out: it is not a whole node of the cluster; write pinnedCellId where it "
        "belongs\n"
    ) in err
    assert f"ostler: the virtual clusters of {kept} do not fit the cells of " in err
    assert err.endswith("; change them, then run this again\n")


def test_a_file_that_cannot_be_kept_is_named(ostler: Command, tmp_path: Path) -> None:
    _, err = ostler("--keep", str(tmp_path / "none.yaml"), "--from", "l4-2", code=2)
    assert err == f"ostler: {tmp_path}/none.yaml: cannot be read (No such file or directory); give a file that exists\n"
    (tmp_path / "bytes.yaml").write_bytes(b"\xff")
    _, err = ostler("--keep", str(tmp_path / "bytes.yaml"), "--from", "l4-2", code=2)
    assert err == f"ostler: {tmp_path}/bytes.yaml: the byte 0xff is not UTF-8; save the file as UTF-8\n"


def test_json_has_the_same(ostler: Command) -> None:
    text, _ = ostler("--from", "l4-2", "-o", "json")
    assert json.loads(text)["virtualClusters"] == {
        "default": {"virtualCells": [{"cellType": "NVIDIA-L4-NODE-2", "cellNumber": 1}]}
    }
