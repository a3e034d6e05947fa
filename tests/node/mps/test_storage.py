"""What daemons and pods store is bounded: the folders, the operator's file system, logs, and what mounts say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.mps.mounts import KernelMount, KernelMounts, mount_of, read_mounts, sees
from node.mps.storage import MpsStorage, StorageUsage
from node.values import replace
from tests.making.mps import FolderMounts

NAME = "nvidia.com/gpu.shared"
HOST, POD = "pid:[4026531836]", "pid:[4026532701]"
SHM = Path("/dev/shm")


def made(folder: Path, size: int | None = 1 << 20) -> tuple[MpsStorage, FolderMounts, Path]:
    mounts, root = FolderMounts(folder / "mounts.json"), folder / "mps"
    root.mkdir()
    return MpsStorage(root, mounts, size, SHM), mounts, root


def test_a_daemon_gets_folders_in_a_file_system_with_limits(tmp_path: Path) -> None:
    storage, mounts, root = made(tmp_path)
    storage.make(NAME)
    storage.make("claim-1")
    assert mounts.below(root) == (root / NAME, root / "claim-1")
    assert mounts.sizes == [(1 << 20, 64)] * 2
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (root / NAME).iterdir()}
    assert modes == {"pipe": 0o755, "log": 0o755, "shm": 0o1777}
    assert storage.names() == ("claim-1", NAME)
    assert storage.has(NAME)
    assert storage.remove(NAME) == ""
    assert not storage.has(NAME)
    assert mounts.below(root) == (root / "claim-1",)


def test_a_daemon_starts_in_a_new_file_system(tmp_path: Path) -> None:
    storage, mounts, root = made(tmp_path)
    storage.make(NAME)
    (root / NAME / "shm" / "left").touch()
    storage.make(NAME)
    assert [*(root / NAME / "shm").iterdir()] == []
    assert mounts.below(root) == (root / NAME,)
    assert len(mounts.sizes) == 2


def test_folders_of_another_mode_are_removed_before_a_file_system_is_mounted(tmp_path: Path) -> None:
    storage, mounts, root = made(tmp_path)
    (root / NAME / "pipe").mkdir(parents=True)
    (root / NAME / "pipe" / "left").touch()
    storage.make(NAME)
    assert [*(root / NAME / "pipe").iterdir()] == []
    assert mounts.below(root) == (root / NAME,)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"point": Path("/run")}, "is not a file system of its own, so pods could fill the node's; mount a tmpfs with"),
        ({"root": "/nvidia/mps"}, "is not a file system of its own"),
        ({"options": ()}, "has no limit size and nr_inodes, so pods could fill the node's memory; mount it with size="),
        ({"options": ("size=1m",)}, "has no limit nr_inodes"),
        ({"options": ("nr_inodes=64",)}, "has no limit size"),
        ({"kind": "ext4", "options": ()}, ""),
        ({}, ""),
    ],
)
def test_a_file_system_of_the_operator_must_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], problem: str
) -> None:
    storage, mounts, root = made(tmp_path, None)
    mount = replace(KernelMount(1, "0:9", "/", root, "tmpfs", "mps", ("rw", "size=1m", "nr_inodes=64")), **changes)
    monkeypatch.setattr(mounts, "at", lambda _: mount)
    monkeypatch.setattr(MpsStorage, "_is_nodes", lambda *_: False)
    found = storage.hindrance()
    assert (problem in found, bool(found)) == (True, bool(problem))
    if not problem:
        storage.make(NAME)
        assert mounts.sizes == []
        assert storage.has(NAME)
        storage.remove(NAME)
        assert not storage.has(NAME)
        mounts.fault = "Operation not permitted"
        assert storage.hindrance() == (
            "the agent cannot give daemons a /dev/shm of their own: Operation not permitted; give the agent "
            "CAP_SYS_ADMIN and the calls mount, umount2 and unshare (docs/sharing.md says how)"
        )


def test_the_nodes_own_file_system_is_none_of_the_operators(tmp_path: Path) -> None:
    root = Path("/run") if Path("/run").is_dir() else Path("/")
    storage = MpsStorage(root, FolderMounts(tmp_path / "mounts.json"), None, SHM)
    assert storage.hindrance().startswith(
        f"nvidia.mpsFileSystem is provided, but {root} is not a file system of its own"
    )


def test_a_long_log_is_cut_and_its_end_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _, root = made(tmp_path)
    storage.make(NAME)
    monkeypatch.setattr(storage, "usage", lambda _: StorageUsage(1 << 20, 0, 64, 4))
    log, other = storage.log(NAME) / "server.log", storage.log(NAME) / "control.log"
    other.write_text("short")
    (storage.log(NAME) / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(storage.log(NAME) / "fifo")
    log.write_bytes(b"x" * (256 << 10) + b"the end")
    with log.open("ab") as daemon:
        storage.shorten_logs(NAME)
        daemon.write(b"more")
    assert log.read_bytes() == b"more"
    assert other.read_text() == "short"
    kept = (root / NAME / "log" / "server.log.1").read_bytes()
    assert len(kept) == 64 << 10
    assert kept.endswith(b"the end")


@pytest.mark.parametrize(
    ("usage", "ratio", "text"),
    [
        (StorageUsage(4 << 20, 1 << 20, 100, 10), 0.25, "1 of 4 MiB, 10 of 100 files"),
        (StorageUsage(4 << 20, 1 << 20, 100, 90), 0.9, "1 of 4 MiB, 90 of 100 files"),
        (StorageUsage(0, 0, 0, 0), 0.0, "0 of 0 MiB, 0 of 0 files"),
    ],
)
def test_what_is_scarcer_counts(usage: StorageUsage, ratio: float, text: str) -> None:
    assert (usage.ratio, str(usage)) == (ratio, text)


MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:30 / /run rw,nosuid shared:5 master:1 - tmpfs tmpfs rw,size=1024k,mode=755
31 30 0:31 /a\040b /run/with\040blank rw,nosuid - tmpfs ostler-mps rw,size=4k
nonsense
"""


def test_the_kernels_list_of_mounts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTINFO)
    _, root, run, blank = read_mounts(path)
    assert (root.group, root.options) == (1, ("rw", "discard"))
    assert run == KernelMount(30, "0:30", "/", Path("/run"), "tmpfs", "tmpfs", ("rw", "size=1024k", "mode=755"), 5)
    assert (blank.root, blank.point, blank.source, blank.group) == ("/a b", Path("/run/with blank"), "ostler-mps", None)


def test_a_folder_is_on_the_mount_that_is_seen_there(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    seen = KernelMount(2, device, "/", tmp_path.parent, "ext4", "x")
    hidden = replace(seen, number=3, device="0:99", point=tmp_path)
    assert mount_of(tmp_path, (replace(seen, number=1, point=Path("/")), seen, hidden)) == seen
    assert mount_of(tmp_path, ()) is None


def test_a_pod_that_holds_a_mount_has_no_part_in_what_the_agent_finds(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    lines = (
        "1 0 0:1 / /mps/claim-1 rw - tmpfs ostler-mps rw",
        "2 0 0:2 / /mps/claim-2 rw - tmpfs another rw",
        "3 0 0:3 / /other/claim-3 rw - tmpfs ostler-mps rw",
        "4 0 0:4 / /mps rw - tmpfs ostler-mps rw",
    )
    (tmp_path / "self/mountinfo").write_text("\n".join(lines))
    assert KernelMounts(tmp_path).below(Path("/mps")) == (Path("/mps/claim-1"),)


OURS = KernelMount(10, "0:1", "/", Path("/run"), "tmpfs", "tmpfs", group=5)
PRIVATE = replace(OURS, group=None)


@pytest.mark.parametrize(
    ("ours", "first", "namespace", "expected"),
    [
        (PRIVATE, (PRIVATE,), HOST, True),  # the node's own namespace
        (OURS, (OURS,), POD, True),  # a pod's first process, Bidirectional
        (PRIVATE, (PRIVATE,), POD, False),  # a pod without it
        (OURS, (replace(OURS, number=11),), HOST, True),  # another namespace, whose mounts propagate
        (OURS, (replace(OURS, number=11, group=6),), HOST, False),  # a systemd unit: shared, but with itself alone
        (PRIVATE, (replace(PRIVATE, number=11),), HOST, False),  # a private namespace
    ],
)
def test_who_sees_the_agents_mounts(
    ours: KernelMount, first: tuple[KernelMount, ...], namespace: str, expected: bool
) -> None:
    assert sees(ours, first, namespace) is expected
