from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from node.inventory.net_facts import SubFunction
from tests.node.sysfs.tree import SysfsTree

PF = "pci0000:15/0000:15:01.0/0000:1a:00.0"
PATH = f"{PF}/mlx5_core.sf.2"


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_a_subfunction_has_its_number_and_its_driver(tree: SysfsTree) -> None:
    tree.subfunction(PATH, "88", "mlx5_core.sf")

    facts = tree.read()

    assert facts.subfunctions == (SubFunction("mlx5_core.sf.2", PATH, 88, "mlx5_core.sf"),)
    assert facts.errors == ()


def test_other_auxiliary_devices_are_none(tree: SysfsTree) -> None:
    for name in ("mlx5_core.eth.0", "mlx5_core.rdma.0", "ice.iwarp.1", "mlx5_core.sf.2.eth"):
        tree.subfunction(f"{PF}/{name}")

    facts = tree.read()

    assert (facts.subfunctions, facts.errors) == ((), ())


def test_a_kernel_without_the_auxiliary_bus_is_no_error(tree: SysfsTree) -> None:
    assert tree.read().errors == ()


def test_a_subfunction_that_is_bound_unbound_and_removed_is_seen(tree: SysfsTree) -> None:
    folder = tree.subfunction(PATH, "88", "mlx5_core.sf")
    source = tree.source()
    first = source.read().sysfs
    (folder / "driver").unlink()
    second = source.read().sysfs
    (tree.sys / "bus/auxiliary/devices/mlx5_core.sf.2").unlink()
    shutil.rmtree(folder)
    third = source.read().sysfs

    assert first is not None
    assert second is not None
    assert third is not None
    assert [[each.driver for each in facts.subfunctions] for facts in (first, second, third)] == [
        ["mlx5_core.sf"],
        [None],
        [],
    ]
    assert third.errors == ()


@pytest.mark.parametrize(("text", "problem"), [(None, "No such file or directory"), ("x", "'x' is not a number")])
def test_a_number_that_cannot_be_read_costs_itself_only_and_is_named(
    tree: SysfsTree, text: str | None, problem: str
) -> None:
    tree.subfunction(PATH, text, "mlx5_core.sf")

    facts = tree.read()

    assert facts.errors == (f"{tree.sys}/bus/auxiliary/devices/mlx5_core.sf.2/sfnum: {problem}",)
    assert facts.subfunctions == (SubFunction("mlx5_core.sf.2", PATH, None, "mlx5_core.sf"),)


def test_links_to_themselves_are_named_and_links_to_nothing_have_vanished(tree: SysfsTree) -> None:
    folder = tree.sys / "bus/auxiliary/devices"
    folder.mkdir(parents=True)
    (folder / "mlx5_core.sf.8").symlink_to("mlx5_core.sf.8")
    (folder / "mlx5_core.sf.9").symlink_to("../../../devices/pci0000:15/mlx5_core.sf.9")

    facts = tree.read()

    assert facts.subfunctions == ()
    assert facts.errors == (
        f"{folder}/mlx5_core.sf.8: link to 'mlx5_core.sf.8', not to the device's folder below devices",
    )
