"""Files that cannot be read at all: one clear error each."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ostler.config.document import MAX_BYTES, MOST_ERRORS
from ostler.config.errors import ConfigErrors
from ostler.config.load import SourceFormat, load
from ostler.config.settings import Settings


def message(path: Path) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(path, {}, {})
    return str(caught.value)


@contextmanager
def without_root_rights() -> Iterator[None]:
    """Be somebody else for a moment where the tests run as root, who may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_missing_file(short_dir: Path) -> None:
    path = short_dir / "none.yaml"
    assert message(path) == f"{path}: does not exist; correct the path, or leave it out for the defaults"


def test_directory(short_dir: Path) -> None:
    assert message(short_dir) == f"{short_dir}: is a directory; give the file inside it"


def test_file_that_may_not_be_read(short_dir: Path) -> None:
    path = short_dir / "secret.yaml"
    path.write_text("kind: Config\n")
    path.chmod(0)
    with without_root_rights():
        assert (
            message(path) == f"{path}: is not readable by this user; check its permissions, or run this as another user"
        )


def test_something_that_is_no_file(short_dir: Path) -> None:
    path = short_dir / "some.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        expected = f"{path}: is a socket, not a regular file; give a regular file"
        assert message(path) == expected


def test_file_below_a_file(short_dir: Path) -> None:
    (short_dir / "file").write_text("")
    path = short_dir / "file" / "config.yaml"
    assert message(path) == f"{path}: cannot be read (Not a directory); check the path and what is there"


def test_path_with_a_zero_byte() -> None:
    assert message(Path("a\0b")) == "a\\x00b: is not a path; correct the path"


def test_file_that_is_too_large(short_dir: Path) -> None:
    path = short_dir / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 5))
    problem = f"cannot be read: the file is {MAX_BYTES + 5} bytes; the limit is {MAX_BYTES}"
    assert message(path) == f"{path}: {problem}; no configuration needs that many"


def test_without_a_file_there_are_the_defaults() -> None:
    loaded = load(None, {}, {})
    assert loaded.source_format is SourceFormat.DEFAULTS
    assert loaded.notes == ()
    assert loaded.settings == Settings(rules=loaded.settings.rules)
    assert [rule.resource for rule in loaded.settings.rules] == [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
    ]


@pytest.mark.timeout(10)
def test_a_fifo_is_refused_and_not_waited_for(short_dir: Path) -> None:
    path = short_dir / "fifo"
    os.mkfifo(path)
    assert message(path) == f"{path}: is a FIFO, not a regular file; give a regular file"


def test_a_file_of_a_mounted_configmap_is_a_link_and_is_read(short_dir: Path) -> None:
    (short_dir / "..2026_01").mkdir()
    (short_dir / "..2026_01/config.yaml").write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\n")
    (short_dir / "..data").symlink_to("..2026_01")
    (short_dir / "config.yaml").symlink_to("..data/config.yaml")
    assert load(short_dir / "config.yaml", {}, {}).source_format is SourceFormat.OSTLER


def test_a_file_may_be_a_pipe_that_the_shell_made() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"apiVersion: ostler.dev/v1alpha1\nkind: Config\n")
    os.close(writer)
    assert load(Path(f"/dev/fd/{reader}"), {}, {}).source_format is SourceFormat.OSTLER
    os.close(reader)


def test_after_very_many_problems_no_more_are_looked_for(short_dir: Path) -> None:
    path = short_dir / "aliases.yaml"
    path.write_bytes(b"- *a\n" * 200_000)
    with pytest.raises(ConfigErrors) as caught:
        load(path, {}, {})
    assert len(caught.value.errors) == MOST_ERRORS
    assert len(str(caught.value)) < 16_384
