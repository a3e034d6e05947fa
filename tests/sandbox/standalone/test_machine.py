"""The NUMA nodes of the machine, from each of their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.nodes import path
from sandbox.standalone.machine import MachineError, NumaTopology, numa_topology, own_topology, recorded_topology


def _file(folder: Path, text: str) -> str:
    file = folder / "numa.yaml"
    file.write_text(text)
    return str(file)


def test_number_of_nodes_is_enough() -> None:
    assert numa_topology("3") == NumaTopology((0, 1, 2), {0: [10, 20, 20], 1: [20, 10, 20], 2: [20, 20, 10]})


def test_file_names_nodes_and_distances(tmp_path: Path) -> None:
    text = "numaNodes:\n- {id: 2, distances: [10, 31]}\n- {id: 0, distances: [32, 11]}\n"
    found = numa_topology(_file(tmp_path, text))
    assert found.nodes == (0, 2)
    assert found.distances == {0: [11, 255, 32], 2: [31, 255, 10]}


def test_json_is_taken_and_distances_may_be_left_out(tmp_path: Path) -> None:
    found = numa_topology(_file(tmp_path, '{"numaNodes": [{"id": 0}, {"id": 1}]}'))
    assert found == NumaTopology((0, 1), {0: [10, 20], 1: [20, 10]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "must be a mapping with the key numaNodes, is [1]"),
        ("{nodes: []}", "nodes: unknown key; the only key is numaNodes"),
        ("{numaNodes: 2}", "numaNodes: must be a list of 1 to 64 nodes, is 2"),
        ("{numaNodes: []}", "numaNodes: must be a list of 1 to 64 nodes, is []"),
        ("{numaNodes: [0]}", "numaNodes[0]: must be a mapping with id and distances, is 0"),
        ("{numaNodes: [{id: 0, cpus: 4}]}", "numaNodes[0].cpus: unknown key; must be id or distances"),
        ("{numaNodes: [{id: -1}]}", "numaNodes[0].id: must be a number from 0 to 63, is -1"),
        ("{numaNodes: [{id: true}]}", "numaNodes[0].id: must be a number from 0 to 63, is True"),
        ("{numaNodes: [{id: 1}, {id: 1}]}", "numaNodes[1].id: 1 stands there twice; every node has its own id"),
        (
            "{numaNodes: [{id: 0, distances: [10, x]}]}",
            "numaNodes[0].distances: must be a list of numbers from 0 to 255, is [10, 'x']",
        ),
        (
            "{numaNodes: [{id: 0, distances: [10]}, {id: 1}]}",
            (
                "numaNodes[0].distances: must be 2 numbers, one for each node, is 1 numbers; "
                "leave distances out at every node for 10 and 20"
            ),
        ),
        (
            "{numaNodes: [{id: 0, distances: [10, 20]}, {id: 1}]}",
            (
                "numaNodes[1].distances: must be 2 numbers, one for each node, is missing; "
                "leave distances out at every node for 10 and 20"
            ),
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = _file(tmp_path, text)
    with pytest.raises(MachineError) as error:
        numa_topology(file)
    assert str(error.value) == f"{file}: {problem}"


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"^--numa: /nonexistent: No such file or directory$"):
        numa_topology("/nonexistent")
    with pytest.raises(MachineError, match=r"^--numa: must be 1 to 64 nodes, is 65; or name a file$"):
        numa_topology("65")
    with pytest.raises(MachineError, match=r"numa\.yaml: "):
        numa_topology(_file(tmp_path, "{"))


def test_recorded_node_has_the_nodes_of_its_devices() -> None:
    assert recorded_topology(path("h100-sxm-8")).nodes == (0, 1)


def test_own_nodes_are_those_of_sysfs(tmp_path: Path) -> None:
    for node, distances in (("node0", "10 21\n"), ("node4", "22 10\n")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "distance").write_text(distances)
    assert own_topology(tmp_path) == NumaTopology((0, 4), {0: [10, 255, 255, 255, 21], 4: [22, 255, 255, 255, 10]})
    (tmp_path / "node4" / "distance").write_text("10\n")
    assert own_topology(tmp_path).distances[0] == [10, 255, 255, 255, 20]
    assert own_topology(tmp_path / "none") == NumaTopology((0,), {0: [10]})
