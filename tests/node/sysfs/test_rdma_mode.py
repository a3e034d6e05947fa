from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.devices import host_of
from node.inventory.facts import NodeFacts, SysfsFacts
from node.inventory.sysfs.rdma_devices import rdma_exclusive


def _mode(sys: Path, text: str) -> None:
    folder = sys / "module/ib_core/parameters"
    folder.mkdir(parents=True)
    (folder / "netns_mode").write_text(text)


@pytest.mark.parametrize(("text", "exclusive"), [("Y\n", False), ("N\n", True)])
def test_the_module_parameter_tells_the_mode(tmp_path: Path, text: str, exclusive: bool) -> None:
    errors: list[str] = []
    _mode(tmp_path, text)
    assert rdma_exclusive(str(tmp_path), errors) is exclusive
    assert errors == []


def test_a_kernel_that_does_not_say_is_no_error(tmp_path: Path) -> None:
    errors: list[str] = []
    assert rdma_exclusive(str(tmp_path), errors) is None
    assert errors == []


def test_a_parameter_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    errors: list[str] = []
    (tmp_path / "module/ib_core/parameters/netns_mode").mkdir(parents=True)
    assert rdma_exclusive(str(tmp_path), errors) is None
    assert errors == [f"{tmp_path}/module/ib_core/parameters/netns_mode: Is a directory"]


@pytest.mark.parametrize(("fact", "exclusive"), [(None, False), (False, False), (True, True)])
def test_the_host_is_exclusive_only_where_the_kernel_says_so(fact: bool | None, exclusive: bool) -> None:
    assert host_of(NodeFacts(sysfs=SysfsFacts(rdma_exclusive=fact))).rdma_exclusive is exclusive
