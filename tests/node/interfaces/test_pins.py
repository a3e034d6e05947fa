"""Pins: a pod's namespace, and what is in it, outlives the pod until it is let go."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.interfaces.pins import NamespacePins
from tests.making.network_namespaces import TestNamespace, namespaces


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "pins"
    yield made
    NamespacePins(made).keep_only(())


@pytest.fixture
def pod() -> Iterator[TestNamespace]:
    with namespaces(1) as (made,):
        made.ip("link add v0 type veth peer name v1")
        yield made


def links_at(path: Path) -> str:
    """The links of the namespace at the path."""
    command = ["nsenter", f"--net={path}", "ip", "-o", "link"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_is_in_a_pinned_namespace_outlives_the_pod(folder: Path, pod: TestNamespace) -> None:
    pins = NamespacePins(folder)
    pins.pin("claim", pod.path)
    pins.pin("claim", pod.path)
    pod.close()
    # Another process finds it: the agent that made it may be gone.
    pinned = NamespacePins(folder).path("claim")
    assert pinned is not None
    assert "v0" in links_at(pinned)
    pins.release("claim")
    assert pins.path("claim") is None
    assert not list(folder.iterdir())
    pins.release("claim")


def test_a_pin_follows_the_claim_to_the_next_namespace(folder: Path) -> None:
    pins = NamespacePins(folder)
    with namespaces(2) as (old, new):
        new.ip("link add later type veth peer name v1")
        pins.pin("claim", old.path)
        pins.pin("claim", new.path)
    pinned = pins.path("claim")
    assert pinned is not None
    assert "later" in links_at(pinned)


def test_what_is_no_namespace_is_not_pinned(folder: Path, tmp_path: Path) -> None:
    pins = NamespacePins(folder)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "missing"):
        pins.pin("claim", path)
        assert pins.path("claim") is None


def test_pins_of_others_are_released(folder: Path, pod: TestNamespace) -> None:
    pins = NamespacePins(folder)
    for name in ("kept", "left"):
        pins.pin(name, pod.path)
    # A file of an earlier boot, whose mount is gone.
    (folder / "earlier").touch()
    pins.keep_only({"kept"})
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert pins.path("kept") is not None


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path, pod: TestNamespace) -> None:
    (tmp_path / "file").touch()
    pins = NamespacePins(tmp_path / "file" / "pins")
    pins.pin("claim", pod.path)
    assert pins.path("claim") is None
    pins.keep_only(())
