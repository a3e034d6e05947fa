"""Whose sockets a new one takes the place of."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.registration import Predecessors, socket_name, staying_mark


@pytest.mark.parametrize("folder", ["registry", "x" * 60], ids=["readable names", "names by hash"])
def test_sockets_of_the_same_resource_are_found_and_those_of_others_are_not(folder: str, short_dir: Path) -> None:
    directory = short_dir / folder
    directory.mkdir()
    names = {resource: socket_name(resource, directory) for resource in ("nvidia.com/gpu", "nvidia.com/gpu-shared")}
    for name in (*names.values(), ".ostler-0123abcd", "nvidia.com-gpu-01234567.sock", "ostler-driver.sock"):
        (directory / name).touch()
    found = Predecessors(directory)
    found.find()
    for resource, name in names.items():
        assert found.of(resource) == (directory / name,)
    assert found.of("nvidia.com/mig-1g.10gb") == ()


def test_a_socket_with_a_mark_stays_until_the_kubelet_has_the_next(tmp_path: Path) -> None:
    marked, other = (tmp_path / socket_name("nvidia.com/gpu", tmp_path) for _ in range(2))
    for path in (marked, other, staying_mark(marked)):
        path.touch()
    found = Predecessors(tmp_path)
    found.find()
    assert (found.of("nvidia.com/gpu"), found.staying("nvidia.com/gpu")) == ((other,), (marked,))
    assert found.staying("nvidia.com/mig-1g.10gb") == ()


def test_what_comes_later_is_nobodys_predecessor(tmp_path: Path) -> None:
    found = Predecessors(tmp_path)
    found.find()
    (tmp_path / socket_name("nvidia.com/gpu", tmp_path)).touch()
    assert found.of("nvidia.com/gpu") == ()


def test_a_missing_folder_holds_no_predecessors(tmp_path: Path) -> None:
    found = Predecessors(tmp_path / "missing")
    found.find()
    assert found.of("nvidia.com/gpu") == ()
