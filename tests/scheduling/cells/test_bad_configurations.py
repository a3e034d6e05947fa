"""Configurations that are refused: one sentence names the line, what is wrong and the fix."""

from __future__ import annotations

import pytest

from scheduling.cells.configuration import CellsConfigurationError, read_configuration

GOOD = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: NODE, cellAddress: n2, pinnedCellId: mine}
virtualClusters:
  a:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]
  b:
    virtualCells: [{cellType: RACK.NODE.PAIR, cellNumber: 2}]
    pinnedCells: [{pinnedCellId: mine}]
"""

CHANGED = {
    "typing error in a key": (
        "physicalCells:",
        "physicalCell:",
        "line 6: physicalCluster has the unknown key 'physicalCell'; write 'physicalCells'",
    ),
    "pinned cells at the wrong place": (
        "    pinnedCells: [{pinnedCellId: mine}]",
        "pinnedCells: [{pinnedCellId: mine}]",
        "line 14: the file has the unknown key 'pinnedCells'; remove it, or use one of kubeApiServerAddress,",
    ),
    "key twice": ("  b:\n", "  a:\n", "line 12: virtualClusters has the key 'a' twice; remove one of them"),
    "tab": (
        "  a:\n",
        "\ta:\n",
        "line 10: not valid YAML: found character that cannot start any token; correct the text",
    ),
    "list instead of map": (
        "  cellTypes:\n    PAIR:",
        "  cellTypes:\n  - PAIR:",
        "line 3: cellTypes must be a map, not a list; write it as keys and values",
    ),
    "map instead of list": (
        "[{cellType: RACK.NODE, cellNumber: 1}]",
        "{cellType: RACK.NODE, cellNumber: 1}",
        "line 11: virtualClusters.a.virtualCells must be a list, not a map; write one '-' for each item",
    ),
    "number as text": (
        "childCellNumber: 2}\n    NODE",
        'childCellNumber: "2"}\n    NODE',
        "line 3: cellTypes.PAIR.childCellNumber is '2'; write a whole number of at least 1",
    ),
    "no children": (
        "childCellNumber: 2}\n    NODE",
        "childCellNumber: 0}\n    NODE",
        "line 3: cellTypes.PAIR.childCellNumber is '0'; write a whole number of at least 1",
    ),
    "half a cell": (
        "cellNumber: 1",
        "cellNumber: 1.5",
        "line 11: virtualClusters.a.virtualCells.cellNumber is '1.5'; write a whole number of at least 0",
    ),
    "negative number": (
        "cellNumber: 1",
        "cellNumber: -1",
        "line 11: virtualClusters.a.virtualCells.cellNumber is '-1'; write a whole number of at least 0",
    ),
    "no number": (
        "{cellType: RACK.NODE, cellNumber: 1}",
        "{cellType: RACK.NODE}",
        "line 11: virtualClusters.a.virtualCells has no cellNumber for 'RACK.NODE'; write how many cells it owns",
    ),
    "no child type": (
        "{childCellType: GPU, childCellNumber: 2}",
        "{childCellNumber: 2}",
        "line 3: cellTypes.PAIR.childCellType is missing; name the type of its children",
    ),
    "no child number": (
        "{childCellType: GPU, childCellNumber: 2}",
        "{childCellType: GPU}",
        "line 3: cellTypes.PAIR.childCellNumber is missing; write how many children it has",
    ),
    "node level that is no boolean": (
        "isNodeLevel: true",
        "isNodeLevel: maybe",
        "line 4: cellTypes.NODE.isNodeLevel is 'maybe'; write true or false",
    ),
    "type in itself": (
        "childCellType: GPU",
        "childCellType: RACK",
        "line 3: the cell type 'PAIR' contains itself: PAIR -> RACK -> NODE -> PAIR; end the types in a leaf type",
    ),
    "two node levels": (
        "{childCellType: NODE, childCellNumber: 2}",
        "{childCellType: NODE, childCellNumber: 2, isNodeLevel: true}",
        "line 5: RACK and NODE are both node level in one chain; set isNodeLevel on one of them",
    ),
    "no node level": (
        ", isNodeLevel: true",
        "",
        "line 7: the top cell type 'RACK' is neither a node nor made of nodes; set isNodeLevel on the type that is one",
    ),
    "name with a dot": (
        "    PAIR: {",
        "    PA.IR: {",
        "line 3: the cell type 'PA.IR' has a dot, a slash or no name; rename it",
    ),
    "unknown physical type": (
        "- {cellType: NODE, cell",
        "- {cellType: NOD, cell",
        "line 8: physicalCells has the unknown cellType 'NOD'; cellTypes has NODE, PAIR, RACK",
    ),
    "no type": (
        "- {cellType: NODE, cell",
        "- {cell",
        "line 8: a cell of physicalCells has no cellType; name one of cellTypes",
    ),
    "too few children": (
        "[{cellAddress: n0}, {cellAddress: n1}]",
        "[{cellAddress: n0}]",
        "line 7: the cell '0' has 1 in cellChildren, but its type 'RACK' has 2; list all of them, or none",
    ),
    "wrong child type": (
        "{cellAddress: n0}",
        "{cellAddress: n0, cellType: PAIR}",
        "line 7: the cell type 'PAIR' does not fit here; write 'NODE' or omit it",
    ),
    "node twice": (
        "{cellAddress: n1}",
        "{cellAddress: n0}",
        "line 7: the node 'n0' is in the chain 'RACK' already, on line 7; list a node once in a chain",
    ),
    "device in two cells": (
        "cellAddress: n2",
        "cellAddress: n1",
        "line 8: device 0 of node 'n1' is in a cell already, on line 7; give each device to one leaf",
    ),
    "leaf that is no index": (
        "{cellAddress: n0}",
        "{cellAddress: n0, cellChildren: [{cellChildren: [{cellAddress: x}, {cellAddress: 1}]}, {}]}",
        "line 7: the leaf 'x' on node 'n0' is not a device index; write a whole number",
    ),
    "address with a slash": (
        "cellAddress: n2",
        "cellAddress: a/n2",
        "line 8: cellAddress 'a/n2' is empty or has a slash; write one element; omit it to count",
    ),
    "pinned id twice": (
        "{cellAddress: n0}",
        "{cellAddress: n0, pinnedCellId: mine}",
        "line 8: pinnedCellId 'mine' is used by another cell; give each pinned cell its own id",
    ),
    "unknown chain": (
        "cellType: RACK.NODE,",
        "cellType: ROW.NODE,",
        "line 11: virtualClusters.a.virtualCells wants 'ROW.NODE', but 'ROW' is not the type of a top cell in",
    ),
    "type of another chain": (
        "cellType: RACK.NODE,",
        "cellType: RACK.H,",
        "line 11: virtualClusters.a.virtualCells wants 'RACK.H', but 'H' is not below 'RACK'; below it are",
    ),
    "unknown pinned cell": (
        "[{pinnedCellId: mine}]",
        "[{pinnedCellId: yours}]",
        "line 14: virtualClusters.b.pinnedCells names the pinned cell 'yours', which no physical cell has; pinned in",
    ),
    "pinned cell of two clusters": (
        "  a:\n",
        "  a:\n    pinnedCells: [{pinnedCellId: mine}]\n",
        "line 15: the pinned cell 'mine' belongs to a already; give a pinned cell to one virtual cluster once",
    ),
    "quotas that do not fit": (
        "cellNumber: 1",
        "cellNumber: 2",
        "line 13: virtual clusters want 2 cells 'PAIR' of the chain 'RACK', but 0 are left; lower a cellNumber or add",
    ),
    "cluster with a slash": (
        "  a:\n",
        "  a/b:\n",
        "line 11: the virtual cluster 'a/b' has a slash or no name; rename it",
    ),
    "too many leaves": (
        "{childCellType: NODE, childCellNumber: 2}",
        "{childCellType: NODE, childCellNumber: 2000000}",
        "line 7: one cell 'RACK' has 8000000 leaves; the limit is 1000000; check childCellNumber",
    ),
}


def test_good_configuration_is_read() -> None:
    configuration = read_configuration(GOOD, "cells.yaml")
    assert [each.address for each in configuration.physical_cells] == ["0", "n2"]
    assert configuration.ladder("RACK") == ("GPU", "PAIR", "NODE", "RACK")
    leaves = [leaf for pair in configuration.physical_cells[1].children for leaf in pair.children]
    assert [leaf.address for leaf in leaves] == ["n2/0/0", "n2/0/1", "n2/1/2", "n2/1/3"]


@pytest.mark.parametrize("name", CHANGED)
def test_mistake_is_refused_with_line_and_fix(name: str) -> None:
    old, new, message = CHANGED[name]
    assert old in GOOD
    with pytest.raises(CellsConfigurationError) as refused:
        read_configuration(GOOD.replace(old, new, 1), "cells.yaml")
    assert str(refused.value).startswith(f"cells.yaml {message}"), str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n"])
def test_empty_file_is_refused(text: str) -> None:
    with pytest.raises(CellsConfigurationError, match=r"cells\.yaml: the file is empty; write physicalCluster and"):
        read_configuration(text, "cells.yaml")


@pytest.mark.parametrize("key", ["physicalCluster", "virtualClusters"])
def test_missing_part_is_named(key: str) -> None:
    with pytest.raises(CellsConfigurationError, match=f"line 1: {key} is missing; add {key}"):
        read_configuration(_without(key), "cells.yaml")


def _without(key: str) -> str:
    first, second = GOOD.split("virtualClusters:\n")
    return f"virtualClusters:\n{second}" if key == "physicalCluster" else first
