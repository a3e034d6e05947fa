"""The image of the sources, made once for all runs, and unpacked once for each worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.image.archive import Image, read_image, unpack
from tests.deploy.image.base import ToolMissing
from tests.deploy.image.build import image_archive


@pytest.fixture(scope="session")
def archive() -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root: builds an image")
    try:
        return image_archive()
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def image(archive: Path) -> Image:
    return read_image(archive)


@pytest.fixture(scope="session")
def root(archive: Path) -> Iterator[Path]:
    """The image's file system in a folder."""
    made = Path(tempfile.mkdtemp(prefix="ostler-image-"))
    # Anybody may go through it, as through a container's root.
    made.chmod(0o755)
    unpack(archive, made)
    yield made
    shutil.rmtree(made)
