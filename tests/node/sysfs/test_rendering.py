"""A tree made of facts is read as the same facts: rendering and reading are each other's inverse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.inventory.facts import DeviceFile, SysfsFacts
from node.inventory.recordings.source import read
from node.inventory.sysfs.source import SysfsSource
from tests.making.recorded_cases import files_in
from tests.node.sysfs.rendering import mknod_device, ordered, render, source

NODES = files_in(Path(__file__).parents[3] / "sandbox/nodes", "*.yaml")


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.stem)
def test_every_recorded_node_is_read_from_its_tree_as_it_was_recorded(path: Path, tmp_path: Path) -> None:
    facts = read(path).facts.sysfs
    assert facts is not None
    render(facts, tmp_path)

    found = source(facts, tmp_path).read().sysfs

    assert found is not None
    assert found.errors == ()
    for name in SysfsFacts.__slots__:
        assert getattr(found, name) == getattr(ordered(facts), name)


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.stem)
def test_a_second_read_finds_the_same_as_the_first(path: Path, tmp_path: Path) -> None:
    facts = read(path).facts.sysfs
    assert facts is not None
    render(facts, tmp_path)
    reader = source(facts, tmp_path)

    assert reader.read() == reader.read()
    reader.close()
    assert reader.read() == source(facts, tmp_path).read()


@pytest.mark.skipif(os.geteuid() != 0, reason="device files are made by root")
def test_real_device_files_have_the_numbers_of_the_facts(tmp_path: Path) -> None:
    facts = SysfsFacts(device_files=(DeviceFile("/dev/dri/card1", "c", 226, 1), DeviceFile("/dev/kfd", "c", 235, 0)))
    try:
        render(facts, tmp_path, mknod_device)
    except PermissionError:
        pytest.skip("this container may not make device files")

    assert SysfsSource(tmp_path / "sys", tmp_path / "host", tmp_path / "proc").read().sysfs == facts
