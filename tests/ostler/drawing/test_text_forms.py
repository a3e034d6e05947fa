"""Matrix, tree and JSON."""

from __future__ import annotations

import json

import pytest

from node.topology.model import Topology
from ostler.drawing.scene import Scene, captions_of
from ostler.drawing.text_forms import draw_matrix, draw_tree, topology_document
from protos.agent.v1alpha1 import agent_pb2
from sandbox.nodes import names
from tests.ostler.drawing.scenes import hostile, recorded


def test_the_matrix_has_gpus_then_nics_and_their_legends() -> None:
    lines = draw_matrix(recorded("l4-2")).splitlines()
    assert lines[0].split() == ["GPU0", "GPU1", "NIC0", "NIC1", "NUMA", "node"]
    assert lines[1].split() == ["GPU0", "X", "NODE", "NODE", "NODE", "0"]
    assert lines[3].split() == ["NIC0", "NODE", "NODE", "X", "PIX", "0"]
    assert "  PIX  = at most one PCIe bridge on each side" in lines
    assert not any("SYS" in line for line in lines)
    assert lines[-2:] == ["  NIC0: eno8303 0000:01:00.0", "  NIC1: eno8403 0000:01:00.1"]


def test_links_go_before_pcie_and_say_what_they_are() -> None:
    text = draw_matrix(recorded("dgx1-v100-8"))
    assert text.splitlines()[1].split()[1:9] == ["X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"]
    assert "  NV#  = joined by # NVLinks" in text
    assert "  XG#  = joined by # XGMI links" in draw_matrix(recorded("mi300x-8"))


def test_the_tree_goes_from_numa_nodes_to_devices() -> None:
    lines = draw_tree(recorded("dgx1-v100-8")).splitlines()
    assert lines[:4] == [
        "dgx1-v100-8",
        "├─ NUMA node 0",
        "│  └─ host bridge pci0000:00",
        "│     ├─ switch 0000:03:00.0",
    ]
    assert lines[4] == "│     │  ├─ GPU0  0000:06:00.0  Tesla V100-SXM2-32GB  -"
    assert any(line.endswith("mlx5_0 ib0            up 100G") for line in lines)
    assert (
        "  2 NVLinks: GPU0-GPU3, GPU0-GPU4, GPU1-GPU2, GPU1-GPU5, GPU2-GPU3, GPU4-GPU7, GPU5-GPU6, GPU6-GPU7" in lines
    )
    assert "      pair-0: GPU0, GPU3" in lines


def test_the_tree_says_what_the_node_needs_a_nic_for() -> None:
    assert "carries the node's default route" in draw_tree(recorded("h100-sxm-8"))


def test_switches_and_meshes_are_said_in_one_line() -> None:
    assert "  18 NVLinks to switches: GPU0, GPU1, GPU2" in draw_tree(recorded("h100-sxm-8"))
    assert "  1 XGMI link between each two GPUs" in draw_tree(recorded("mi300x-8"))


@pytest.mark.parametrize("name", names())
def test_every_device_is_in_every_form_once(name: str) -> None:
    scene = recorded(name)
    labels = [place.label for place in scene.topology.places]
    rows = draw_matrix(scene).splitlines()[1 : len(labels) + 1]
    assert [row.split()[0] for row in rows] == labels
    branches = [line.split()[-1] for line in _heads(draw_tree(scene))]
    assert sorted(branches) == sorted(labels)
    document = json.loads(json.dumps(topology_document(scene)))
    assert [place["label"] for place in document["places"]] == labels
    assert len(document["pairs"]) == len(labels) * (len(labels) - 1) // 2


def _heads(tree: str) -> list[str]:
    """The lines of devices up to their label."""
    lines = [line for line in tree.split("\n\n", maxsplit=1)[0].splitlines() if "─ GPU" in line or "─ NIC" in line]
    return [line.partition("─ ")[2].split()[0] for line in lines]


def test_json_has_places_cells_and_pairs() -> None:
    document = topology_document(recorded("l4-2"))
    assert document["node"] == "l4-2"
    assert document["pairs"] == [
        {"a": "gpu-0000-17-00-0", "b": "gpu-0000-65-00-0", "proximity": "NODE", "links": 0},
        {"a": "gpu-0000-17-00-0", "b": "nic-0000-01-00-0", "proximity": "NODE", "links": 0},
        {"a": "gpu-0000-17-00-0", "b": "nic-0000-01-00-1", "proximity": "NODE", "links": 0},
        {"a": "gpu-0000-65-00-0", "b": "nic-0000-01-00-0", "proximity": "NODE", "links": 0},
        {"a": "gpu-0000-65-00-0", "b": "nic-0000-01-00-1", "proximity": "NODE", "links": 0},
        {"a": "nic-0000-01-00-0", "b": "nic-0000-01-00-1", "proximity": "PIX", "links": 0},
    ]
    cells = document["cells"]
    assert isinstance(cells, dict)
    assert cells["level"] == "node"


def test_a_node_without_devices_says_so() -> None:
    empty = Scene("bare", Topology())
    assert draw_matrix(empty) == "no GPUs and no NICs\n"
    assert draw_tree(empty) == "bare\nno GPUs and no NICs\n"
    assert topology_document(empty)["cells"] is None


@pytest.mark.parametrize("draw", [draw_matrix, draw_tree])
def test_no_control_character_of_a_device_reaches_a_terminal(draw: object) -> None:
    text = draw_tree(hostile()) if draw is draw_tree else draw_matrix(hostile())
    assert all(character.isprintable() for line in text.split("\n") for character in line)


def test_captions_tell_link_speed_and_state() -> None:
    def attribute(name: str, **value: object) -> agent_pb2.Attribute:
        return agent_pb2.Attribute(name=name, **value)  # type: ignore[arg-type]

    up, speed = attribute("linkUp", bool_value=True), attribute("linkSpeedMbps", int_value=2500)
    rate = attribute("rdmaRateGbps", int_value=400)
    down = attribute("linkUp", bool_value=False)
    devices = [
        agent_pb2.Device(name="a", kind="nic", attributes=[up, speed]),
        agent_pb2.Device(name="b", kind="rdma", attributes=[up, rate, attribute("sriovVfs", int_value=8)]),
        agent_pb2.Device(name="c", kind="nic", attributes=[down, speed]),
        agent_pb2.Device(name="d", kind="nic", attributes=[attribute("driver", string_value="vfio-pci")]),
        agent_pb2.Device(name="e", kind="gpu", health=agent_pb2.Health(state="lost")),
        agent_pb2.Device(name="f", kind="nic", attributes=[up], health=agent_pb2.Health(state="unhealthy")),
    ]
    captions = captions_of(devices)
    assert [(captions[name].state, captions[name].well) for name in "abcdef"] == [
        ("up 2.5G", True),
        ("up 400G", True),
        ("down", False),
        ("", None),
        ("lost", False),
        ("unhealthy", None),
    ]
    assert (captions["b"].remark, captions["d"].title) == ("8 VFs", "vfio-pci")
