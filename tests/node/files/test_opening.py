"""Whatever stands in a file's place: read within a bound, or one error, and never a wait."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from node import named_files
from node.named_files import read_named_file
from node.opening import (
    NotRegular,
    TooLarge,
    open_regular,
    read_kernel_text,
    read_regular,
)

pytestmark = pytest.mark.timeout(120)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _link(path: Path) -> None:
    path.with_name("target").write_text("content")
    path.symlink_to("target")


KINDS: list[tuple[Callable[[Path], None], str]] = [
    (Path.mkdir, "a folder"),
    (os.mkfifo, "a FIFO"),
    (_socket, "a socket"),
    (_link, "a symbolic link"),
]


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_what_is_no_regular_file_is_refused_by_what_it_is(
    short_dir: Path, make: Callable[[Path], None], kind: str
) -> None:
    make(short_dir / "file")
    with pytest.raises(NotRegular) as caught:
        read_regular(short_dir / "file", 100)
    assert caught.value.strerror == f"it is {kind}, not a regular file"
    assert caught.value.kind == kind


@pytest.mark.parametrize("read", [read_regular, read_named_file])
def test_a_device_is_refused(read: Callable[[Path, int], bytes]) -> None:
    with pytest.raises(NotRegular, match="it is a character device, not a regular file"):
        read(Path("/dev/zero"), 100)


def test_a_link_is_followed_only_where_its_reader_says_so(tmp_path: Path) -> None:
    """A mounted ConfigMap: the file is a link through the link ..data to a file."""
    (tmp_path / "..2026_01").mkdir()
    (tmp_path / "..2026_01/config.yaml").write_text("kind: Config")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    assert read_named_file(tmp_path / "config.yaml", 100) == b"kind: Config"
    assert read_regular(tmp_path / "config.yaml", 100, links=True) == b"kind: Config"
    with pytest.raises(NotRegular, match="it is a symbolic link"):
        read_regular(tmp_path / "config.yaml", 100)
    # Links among the folders above it are nobody's attack.
    assert read_regular(tmp_path / "..data/config.yaml", 100) == b"kind: Config"


@pytest.mark.parametrize(("make", "kind"), KINDS[:3])
def test_what_a_link_leads_to_must_be_a_regular_file(short_dir: Path, make: Callable[[Path], None], kind: str) -> None:
    make(short_dir / "target")
    (short_dir / "file").symlink_to("target")
    with pytest.raises(NotRegular, match=f"it is {kind}"):
        read_named_file(short_dir / "file", 100)


def test_a_file_that_is_swapped_for_another_thing_while_it_is_opened_is_refused(tmp_path: Path) -> None:
    """Looked at before and after opening: no moment between the two lets a FIFO or a link through."""
    path = tmp_path / "file"
    stop = threading.Event()
    makers = (lambda: path.write_bytes(b"x"), lambda: os.mkfifo(path), lambda: path.symlink_to("/etc/passwd"))

    def swap() -> None:
        while not stop.is_set():
            for make in makers:
                path.unlink(missing_ok=True)
                make()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(500):
            with contextlib.suppress(NotRegular, FileNotFoundError):
                assert read_regular(path, 10) in (b"", b"x")
    finally:
        stop.set()
        thread.join()


def test_a_sparse_file_of_3_gb_is_refused_by_its_size_with_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(TooLarge) as caught:
        read_regular(tmp_path / "file", 1 << 20)
    assert caught.value.strerror == "the file is 3221225472 bytes; the limit is 1048576"


@pytest.mark.parametrize("size", [0, 99, 100])
def test_a_file_within_its_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert read_regular(tmp_path / "file", 100) == b"x" * size


def test_a_file_that_says_nothing_of_its_size_is_read_up_to_the_limit() -> None:
    assert read_kernel_text(Path("/proc/self/stat")).startswith(f"{os.getpid()} ")
    with pytest.raises(TooLarge, match="the file is larger than it says; the limit is 3"):
        read_regular(Path("/proc/self/stat"), 3)


def test_descriptors_are_not_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"x" * 20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        read_regular(tmp_path / "file", 20)
        with pytest.raises(OSError, match="limit"):
            read_regular(tmp_path / "file", 10)
        with pytest.raises(OSError, match="FIFO"):
            read_regular(tmp_path / "fifo", 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_descriptor_is_closed_when_a_program_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    descriptor = open_regular(tmp_path / "file")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_a_pipe_that_the_shell_made_is_read_to_its_end() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(b"x" * 300_000)

    thread = threading.Thread(target=write)
    thread.start()
    assert read_named_file(Path(f"/dev/fd/{reader}"), 300_000) == b"x" * 300_000
    thread.join()
    os.close(reader)


def test_a_pipe_with_more_than_the_limit_is_refused() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x" * 11)
    with pytest.raises(TooLarge, match="the limit is 10"):
        read_named_file(Path(f"/proc/self/fd/{reader}"), 10)
    os.close(reader)
    os.close(writer)


def test_a_fifo_is_read_only_where_its_reader_says_so_and_somebody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(NotRegular, match="it is a FIFO"):
        read_named_file(path, 10)
    writer = threading.Thread(target=path.write_bytes, args=(b"abc",))
    writer.start()
    assert read_named_file(path, 10, fifo=True) == b"abc"
    writer.join()
    monkeypatch.setattr(named_files, "WRITER_WAIT", 0.05)
    with pytest.raises(TimeoutError, match=re.escape("no process writes into this pipe")):
        read_named_file(path, 10, fifo=True)
