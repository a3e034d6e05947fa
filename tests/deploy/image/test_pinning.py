"""The image's base: by digest, with a warning where it is not, and never without one in a release."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.image.pinning import DOCKERFILE, default_base, is_pinned, main

DIGEST = f"sha256:{'5a' * 32}"
TAGGED = "registry.example.com/python:3.11"
PINNED = f"{TAGGED}@{DIGEST}"
REMEDY = "run 'make base-digest', or give BASE=NAME@sha256:..."


@pytest.fixture
def dockerfile(tmp_path: Path) -> Path:
    path = tmp_path / "Dockerfile"
    path.write_text(f"# base\nARG BASE={TAGGED}\n\nFROM ${{BASE}} AS build\nFROM scratch\nARG BASE\n")
    return path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for skopeo, and keeps what it is asked; the file with what it says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    says = tmp_path / "says"
    says.write_text(f"echo {DIGEST}\n")
    program = folder / "skopeo"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n. {says}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return says


def run(dockerfile: Path, *words: str) -> int:
    return main([*words, "--dockerfile", str(dockerfile)])


def test_the_dockerfile_names_one_base() -> None:
    assert default_base(DOCKERFILE.read_text()).startswith("docker.io/library/python:3.11-slim-bookworm")


def test_a_base_by_digest_is_built_on_without_a_word(dockerfile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(dockerfile, "base", PINNED, "--release") == 0
    assert capsys.readouterr() == (f"{PINNED}\n", "")


def test_a_base_by_tag_is_built_on_with_a_warning(dockerfile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(dockerfile, "base") == 0
    out, err = capsys.readouterr()
    assert out == f"{TAGGED}\n"
    assert err == (f"warning: the base {TAGGED} has no digest, and its tag may name another image tomorrow: {REMEDY}\n")


@pytest.mark.parametrize("base", ["", TAGGED, "python", f"{TAGGED}@sha256:5a", f"{TAGGED}@sha512:{'5a' * 32}"])
def test_a_release_is_not_built_on_a_base_without_a_digest(
    dockerfile: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(dockerfile, "base", base, "--release") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error: the base {base or TAGGED} has no digest, and its tag may name another image tomorrow: "
        f"a release is not built on it; {REMEDY}\n"
    )


@pytest.mark.usefixtures("registry")
def test_the_registrys_digest_becomes_the_dockerfiles(
    dockerfile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dockerfile.read_text()
    assert run(dockerfile, "pin") == 0
    assert dockerfile.read_text() == before.replace(TAGGED, PINNED, 1)
    assert capsys.readouterr().out == f"{dockerfile} builds on {PINNED}\n"
    assert (tmp_path / "asked").read_text() == f"inspect --no-tags --format {{{{.Digest}}}} docker://{TAGGED}\n"
    assert run(dockerfile, "base", "--release") == 0


def test_a_digest_that_is_there_is_replaced_by_that_of_today(dockerfile: Path, registry: Path) -> None:
    assert run(dockerfile, "pin") == 0
    registry.write_text(f"echo sha256:{'6b' * 32}\n")
    assert run(dockerfile, "pin") == 0
    assert default_base(dockerfile.read_text()) == f"{TAGGED}@sha256:{'6b' * 32}"
    assert is_pinned(default_base(dockerfile.read_text()))


def test_another_base_can_be_pinned(dockerfile: Path, registry: Path) -> None:
    assert run(dockerfile, "pin", "registry.example.com/other:1") == 0
    assert default_base(dockerfile.read_text()) == f"registry.example.com/other:1@{DIGEST}"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("echo no route to host >&2; exit 1", f"the registry does not tell the digest of {TAGGED}: no route to host"),
        ("echo latest", f"the registry's answer for {TAGGED} is not a digest: 'latest'"),
    ],
)
def test_a_registry_that_gives_no_digest_changes_nothing(
    dockerfile: Path, registry: Path, says: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dockerfile.read_text()
    registry.write_text(f"{says}\n")
    assert run(dockerfile, "pin") == 1
    assert capsys.readouterr().err == f"error: {told}\n"
    assert dockerfile.read_text() == before


def test_without_skopeo_it_is_said_what_to_install(
    dockerfile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(dockerfile, "pin") == 1
    assert capsys.readouterr().err == (
        "error: skopeo is missing, which asks registries for digests: install the package skopeo\n"
    )


def test_a_dockerfile_without_a_default_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM scratch\n")
    assert run(path, "base") == 1
    assert capsys.readouterr().err == "error: the Dockerfile has 0 lines 'ARG BASE=...': it must have one\n"
