"""A folder of manifests, and what runs scripts that admit them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.kubelet_scripts import KubeletScript, write_manifests


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each of ``MANIFESTS`` as a file."""
    folder = tmp_path_factory.mktemp("manifests")
    write_manifests(folder)
    return folder


@pytest.fixture
def script(short_dir: Path, manifests: Path, capsys: pytest.CaptureFixture[str]) -> KubeletScript:
    return KubeletScript(short_dir, manifests, capsys)
