"""What is installed besides the packages of the lock file: the project's own, under a name of their content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from systemd.release import INSTALLS, SOURCE, copy, identity, packages


def test_packages_are_copied_without_leftovers(tmp_path: Path) -> None:
    copy(SOURCE, tmp_path)
    version, folders = packages(SOURCE)
    names = {folder.name for folder in folders} | {f"ostler-{version}.dist-info"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert list(tmp_path.rglob("*.pyc")) == []
    assert (tmp_path / "sandbox/nodes/h100-sxm-8.yaml").exists()
    assert "Name: ostler" in (tmp_path / f"ostler-{version}.dist-info/METADATA").read_text()


def test_the_same_content_has_the_same_name_and_another_interpreter_another() -> None:
    assert identity(SOURCE, "a") == identity(SOURCE, "a")
    assert identity(SOURCE, "a") != identity(SOURCE, "b")


@pytest.mark.parametrize("changed", [*INSTALLS, "kube/client.py"])
def test_whatever_decides_what_is_installed_gives_another_name(changed: str, tmp_path: Path) -> None:
    for name in (*INSTALLS, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, tmp_path / name)
    shutil.copytree(SOURCE / "kube", tmp_path / "kube")
    before = identity(tmp_path, "a")
    with (tmp_path / changed).open("a") as file:
        file.write("# another\n")
    assert identity(tmp_path, "a") != before


def test_the_installation_takes_the_same_part_of_the_lock_file_as_the_image() -> None:
    command = 'lock.py" "$here/../requirements.lock"'
    assert command in (SOURCE / "systemd/install.sh").read_text()
    assert "python3 lock.py requirements.lock" in (SOURCE / "deploy/image/Dockerfile").read_text()
