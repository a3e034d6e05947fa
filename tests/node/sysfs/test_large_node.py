"""The largest node: what a scan finds of it, and what the next one has to do when nothing has changed."""

from __future__ import annotations

from pathlib import Path

from tests.node.sysfs import large_node
from tests.node.sysfs.rendering import render, source
from tests.node.sysfs.tree import BRIDGE, SysfsTree


def test_a_rescan_of_the_largest_node_gives_the_very_values_of_the_first(tmp_path: Path) -> None:
    facts = large_node.facts()
    render(facts, tmp_path)
    tree = SysfsTree(tmp_path)
    for path in large_node.dull_functions():
        tree.pci(path, BRIDGE)
    reader = source(facts, tmp_path)

    first = reader.read().sysfs
    assert first is not None
    assert (len(first.pci), len(first.interfaces), len(first.rdma), first.errors) == (312, 288, 288, ())

    again = reader.read().sysfs
    assert again is not None
    assert all(new is old for new, old in zip(again.pci, first.pci, strict=True))
    assert all(new is old for new, old in zip(again.interfaces, first.interfaces, strict=True))
    assert all(new is old for new, old in zip(again.rdma, first.rdma, strict=True))


def test_a_rescan_does_not_read_what_cannot_change(tmp_path: Path) -> None:
    facts = large_node.facts()
    render(facts, tmp_path)
    reader = source(facts, tmp_path)
    first = reader.read().sysfs
    # Whoever read these again would find them gone.
    fixed = ("class", "vendor", "device", "revision", "net/*/ifindex", "net/*/type", "infiniband/*/node_guid")
    files = [file for name in fixed for file in tmp_path.glob(f"sys/devices/**/0000:*/{name}")]
    assert len(files) > 3 * len(facts.interfaces)
    for file in files:
        file.unlink()
    assert reader.read().sysfs == first
