"""Where a socket may be, and what each refusal says."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from node.sockets import (
    MAX_PATH,
    FileId,
    PlacedSocket,
    SocketError,
    check_place,
    is_answered,
    make_private_directory,
    remove_dead,
)


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


def test_a_path_of_107_bytes_is_taken_and_one_of_108_is_refused_with_its_length(short_dir: Path) -> None:
    room = MAX_PATH - len(str(short_dir)) - 1
    assert len(str(check_place(short_dir, "x" * room))) == MAX_PATH
    with pytest.raises(SocketError) as refused:
        check_place(short_dir, "x" * (room + 1))
    assert "the path has 108 bytes, a socket's may have 107; use a shorter folder" in str(refused.value)


def test_bytes_count_and_not_characters(short_dir: Path) -> None:
    with pytest.raises(SocketError, match="bytes"):
        check_place(short_dir, "ü" * 60)


def test_a_missing_directory_is_named_with_the_fix(short_dir: Path) -> None:
    with pytest.raises(SocketError) as refused:
        check_place(short_dir / "none", "a.sock")
    assert str(refused.value) == f"{short_dir}/none: the folder does not exist; create it or correct the setting"


def test_a_file_instead_of_a_directory_is_refused(short_dir: Path) -> None:
    (short_dir / "file").write_text("")
    with pytest.raises(SocketError, match="is not a folder; remove what is there"):
        check_place(short_dir / "file", "a.sock")


def test_a_world_writable_directory_is_refused_with_the_command_that_mends_it(short_dir: Path) -> None:
    short_dir.chmod(0o777)
    with pytest.raises(SocketError) as refused:
        check_place(short_dir, "a.sock")
    assert "anybody may write to the folder (mode 0777); run 'chmod o-w' on it" in str(refused.value)


def test_a_regular_file_in_the_way_is_refused_and_kept(short_dir: Path) -> None:
    (short_dir / "a.sock").write_text("precious")
    with pytest.raises(SocketError, match="something that is not a socket is in the way; remove it"):
        check_place(short_dir, "a.sock")
    assert (short_dir / "a.sock").read_text() == "precious"


def test_a_dangling_link_in_the_way_is_refused(short_dir: Path) -> None:
    (short_dir / "a.sock").symlink_to(short_dir / "nowhere")
    with pytest.raises(SocketError, match="in the way"):
        check_place(short_dir, "a.sock")


@pytest.mark.needs_root
def test_a_read_only_directory_is_refused(short_dir: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a read-only file system")
    target = short_dir / "ro"
    target.mkdir()
    assert os.system(f"mount -t tmpfs -o ro,mode=755,size=64k tmpfs {target}") == 0
    try:
        with pytest.raises(
            SocketError, match="not writable; check its permissions and whether it is mounted read-only"
        ):
            check_place(target, "a.sock")
    finally:
        os.system(f"umount {target}")


def test_our_own_directory_is_made_private(short_dir: Path) -> None:
    make_private_directory(short_dir / "a" / "b")
    assert (short_dir / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_file_where_our_directory_should_be_is_refused(short_dir: Path) -> None:
    (short_dir / "a").write_text("")
    with pytest.raises(SocketError, match="is not a folder"):
        make_private_directory(short_dir / "a")


def test_a_published_socket_is_closed_to_others_and_known_by_its_inode(short_dir: Path) -> None:
    placed = PlacedSocket(short_dir, "a.sock")
    with listen(placed.temporary):
        placed.publish()
        assert placed.intact
        assert placed.path.stat().st_mode & 0o777 == 0o600
        assert not placed.temporary.exists()
        placed.remove()
        assert not placed.path.exists()


def test_a_successor_under_the_same_name_is_not_removed(short_dir: Path) -> None:
    first, second = PlacedSocket(short_dir, "a.sock"), PlacedSocket(short_dir, "a.sock")
    with listen(first.temporary), listen(second.temporary):
        first.publish()
        second.publish()
        assert not first.intact
        first.remove()
        assert second.intact
        assert is_answered(second.path)


def test_a_deleted_and_recreated_file_is_another_one_even_with_the_same_inode(short_dir: Path) -> None:
    path = short_dir / "f"
    path.write_text("")
    before = FileId.of(path)
    path.unlink()
    path.write_text("")
    assert FileId.of(path) != before


def test_a_new_mode_or_label_makes_no_other_socket(short_dir: Path) -> None:
    placed = PlacedSocket(short_dir, "a.sock")
    with listen(placed.temporary):
        placed.publish()
        placed.path.chmod(0o660)
        os.chown(placed.path, os.geteuid(), os.getegid())
        assert placed.intact
        placed.remove()


def test_names_that_a_socket_replaces_go_when_it_gets_its_own_and_their_listeners_stay(short_dir: Path) -> None:
    old, gone = short_dir / "ostler-old.sock", short_dir / "ostler-gone.sock"
    with socket.socket(socket.AF_UNIX) as predecessor, socket.socket(socket.AF_UNIX) as client:
        predecessor.bind(str(old))
        predecessor.listen()
        client.connect(str(old))
        connection, _ = predecessor.accept()
        placed = PlacedSocket(short_dir, "ostler-new.sock")
        with socket.socket(socket.AF_UNIX) as server, connection:
            server.bind(str(placed.temporary))
            assert old.exists()
            placed.publish(replacing=(old, gone))
            assert (old.exists(), placed.intact) == (False, True)
            client.sendall(b"x")
            assert connection.recv(1) == b"x"
            placed.remove()


def test_publishing_into_a_directory_that_vanished_is_an_error(short_dir: Path) -> None:
    directory = short_dir / "d"
    directory.mkdir()
    placed = PlacedSocket(directory, "a.sock")
    directory.rmdir()
    with pytest.raises(SocketError, match="cannot be put in place"):
        placed.publish()


def test_dead_sockets_of_a_predecessor_are_removed_and_live_or_foreign_ones_kept(short_dir: Path) -> None:
    for name in ("ostler-dead.sock", ".ostler-0123abcd", ".0123abcd", "nvidia-gpu.sock"):
        listen(short_dir / name).close()
    (short_dir / "ostler-file").write_text("")
    with listen(short_dir / "ostler-live.sock"):
        removed = remove_dead(short_dir)
    assert [path.name for path in removed] == [".ostler-0123abcd", "ostler-dead.sock"]
    kept = [".0123abcd", "nvidia-gpu.sock", "ostler-file", "ostler-live.sock"]
    assert sorted(path.name for path in short_dir.iterdir()) == kept


def test_a_missing_directory_has_no_dead_sockets(short_dir: Path) -> None:
    assert remove_dead(short_dir / "none") == []


def test_a_full_backlog_counts_as_answered(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(short_dir / "s"))
        server.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
            first.connect(str(short_dir / "s"))
            assert is_answered(short_dir / "s", seconds=0.05)
