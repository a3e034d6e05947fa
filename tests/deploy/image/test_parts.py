"""The programs of the image's build stage, and what they say when something is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from deploy.image import lock, packages, runtime
from tests.deploy.image.base import ToolMissing, program
from tests.deploy.image.build import ROOT, inputs

LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGE = ROOT / "deploy/image"


def names(text: str) -> list[str]:
    return re.findall(r"(?m)^([A-Za-z0-9._-]+)==", text)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", name)[0]).lower()


def test_every_dependency_is_in_the_subset_and_nothing_of_the_development_group() -> None:
    found = names(lock.runtime_subset(LOCK))
    assert {normal(name) for name in PROJECT["project"]["dependencies"]} <= set(found)
    assert "urllib3" in found, "what the dependencies need"
    assert {normal(name) for name in PROJECT["dependency-groups"]["dev"]} & set(found) == set()
    assert "setuptools" not in found, "what only development tools need"


def test_entries_of_the_subset_are_the_lock_files_own() -> None:
    subset = lock.runtime_subset(LOCK)
    for entry in re.split(r"(?m)^(?=[a-z])", subset)[1:]:
        assert entry in LOCK
        assert "--hash=sha256:" in entry


def test_a_file_that_does_not_say_what_asked_for_packages_is_refused() -> None:
    with pytest.raises(lock.LockFileError) as refused:
        lock.runtime_subset("grpcio==1.85.1 \\\n    --hash=sha256:00\n")
    assert str(refused.value) == (
        "no package says '# via ostler (pyproject.toml)'; make the lock file anew with 'make lock'"
    )


def test_what_others_than_the_lock_files_maker_write_is_refused() -> None:
    with pytest.raises(lock.LockFileError) as refused:
        lock.runtime_subset("# made by a tool\nalpha @ https://example.com/alpha.whl\n")
    assert str(refused.value) == (
        "not understood in the lock file: 'alpha @ https://example.com/alpha.whl'; make it anew with 'make lock'"
    )


def test_only_what_the_project_and_its_dependencies_ask_for_is_taken() -> None:
    text = (
        "alpha==1.0 \\\n    --hash=sha256:aa\n    # via ostler (pyproject.toml)\n"
        "beta==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:bb\n    # via\n    #   alpha\n    #   gamma\n"
        "gamma==3.0 \\\n    --hash=sha256:cc\n    # via ostler (pyproject.toml:dev)\n"
        "delta==4.0 \\\n    --hash=sha256:dd\n    # via gamma\n"
    )
    subset = lock.runtime_subset("# made by a tool\n" + text)
    assert names(subset) == ["alpha", "beta"]
    assert "beta==2.0 ; sys_platform == 'linux'" in subset


def test_what_makes_the_wheel_is_pinned_with_hashes() -> None:
    lines = (IMAGE / "build-requirements.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+ --hash=sha256:[0-9a-f]{64}", line) for line in pinned)
    (backend,) = PROJECT["build-system"]["requires"]
    assert normal(backend) in names("\n".join(pinned))


def test_every_package_of_the_wheel_is_in_the_builds_context() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= let_in
    assert {"LICENSE", "README.md", "pyproject.toml", "requirements.lock"} <= let_in
    assert not [path for path in inputs() if "tests" in path.relative_to(ROOT).parts]


def test_nothing_in_the_build_names_an_architecture() -> None:
    for path in sorted(IMAGE.iterdir()):
        if path.is_file():
            assert not re.search(r"x86.?64|amd64|aarch64|arm64", path.read_text()), path.name


def test_the_base_is_a_build_argument_with_a_public_default() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    assert re.findall(r"(?m)^FROM (.*)$", text) == ["${BASE} AS build", "scratch"]
    # With or without a digest, which 'make base-digest' adds.
    (base,) = re.findall(r"(?m)^ARG BASE=(.*)$", text)
    assert re.fullmatch(r"docker\.io/library/python:3\.11-slim-bookworm(@sha256:[0-9a-f]{64})?", base)


def environment(folder: Path) -> Path:
    site = folder / "opt/ostler/lib/python3.11/site-packages"
    for name in ("good.py", "example.py", "some/__init__.py", "some/tests/test_some.py", "pip/__init__.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("def f():\n    raise ValueError\n")
    for name in ("ostler", "python3", "activate", "normalizer"):
        (folder / "opt/ostler/bin").mkdir(exist_ok=True)
        (folder / "opt/ostler/bin" / name).write_text("")
    return site


def test_packages_are_compiled_for_the_place_where_they_will_be(tmp_path: Path) -> None:
    site = environment(tmp_path)
    packages.settle(tmp_path / "opt/ostler")
    left = {str(path.relative_to(site)) for path in site.rglob("*.py")}
    assert left == {"good.py", "some/__init__.py"}
    assert {path.name for path in (tmp_path / "opt/ostler/bin").iterdir()} == {"ostler", "python3"}
    (compiled,) = site.glob("__pycache__/good.*.pyc")
    assert b"/opt/ostler/lib/python3.11/site-packages/good.py" in compiled.read_bytes()
    assert str(tmp_path).encode() not in compiled.read_bytes()
    assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00", "by hash, not compared with the source"


def test_a_package_that_does_not_compile_stops_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = environment(tmp_path)
    (site / "good.py").write_text("def\n")
    with pytest.raises(SystemExit, match=r"packages in .* do not compile; the messages above say which"):
        packages.settle(tmp_path / "opt/ostler")
    assert "good.py" in capfd.readouterr().out


def test_a_standard_library_that_does_not_compile_stops_the_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "usr/lib/python3").mkdir(parents=True)
    (tmp_path / "usr/lib/python3/broken.py").write_text("def\n")
    with pytest.raises(runtime.RuntimeIncomplete) as refused:
        runtime._compile(tmp_path, Path("/usr/lib/python3"))
    assert str(refused.value) == "modules in /usr/lib/python3 do not compile; the messages above say which"
    assert "broken.py" in capfd.readouterr().out


def test_a_base_without_a_library_is_named_with_it(tmp_path: Path) -> None:
    with pytest.raises(runtime.RuntimeIncomplete) as refused:
        runtime._loaded([tmp_path / "lacking.so"])
    assert re.fullmatch(
        r".*/lacking\.so cannot be loaded \(.*\); use a base with glibc that has it", str(refused.value)
    )


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissing, match="buildah is missing: install the package buildah"):
        program("buildah")
