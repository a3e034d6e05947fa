"""What is installed: the runtime's part of the lock file, and the project's packages."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from systemd.release import SOURCE, copy, identity, packages, runtime

LOCK = (SOURCE / "requirements.lock").read_text()
EXAMPLE = """\
# made by a tool
alpha==1.0 \\
    --hash=sha256:aa
    # via ostler (pyproject.toml)
beta==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb
    # via
    #   alpha
    #   gamma
gamma==3.0 \\
    --hash=sha256:cc
    # via ostler (pyproject.toml:dev)
delta==4.0 \\
    --hash=sha256:dd
    # via gamma
"""


def test_only_what_the_project_and_its_dependencies_ask_for_is_taken() -> None:
    found = runtime(EXAMPLE)
    assert [pin.name for pin in found] == ["alpha", "beta"]
    assert "sys_platform == 'linux'" in found[1].text
    assert all("--hash=sha256:" in pin.text and "#" not in pin.text for pin in found)


def test_every_dependency_of_the_project_is_taken_and_no_tool() -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())
    wanted = {line.split(">")[0].split("=")[0].lower().replace("_", "-") for line in project["project"]["dependencies"]}
    taken = {pin.name for pin in runtime(LOCK)}
    assert wanted <= taken
    assert taken.isdisjoint({"pytest", "mypy", "ruff", "grpcio-tools", "setuptools", "hypothesis"})


def test_a_lock_file_that_does_not_say_who_asks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing that ostler \(pyproject.toml\) asks for; make it anew by"):
        runtime("alpha==1.0 \\\n    --hash=sha256:aa\n")


def test_a_line_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not understood in the lock file: 'alpha @ https://.*'; make it anew"):
        runtime("alpha @ https://example.com/alpha.whl\n")


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
