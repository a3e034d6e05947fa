"""Checks of limits: inotify, open files, room on disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from node.directories import Inotify, KernelInotify
from ostler.doctor.check import CheckVerdict
from ostler.doctor.limits import (
    FileUse,
    FreeSpace,
    InotifyUse,
    judge_files,
    judge_instances,
    judge_room,
    judge_watches,
    read_files,
    read_inotify,
    read_room,
    refused_inotify,
)
from tests.ostler.doctor.nodes import examined, says, view, write


def test_inotify_instances_and_watches_are_counted_from_proc(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/sys/fs/inotify/max_user_instances": "10\n",
            "proc/sys/fs/inotify/max_user_watches": "3\n",
            "proc/7/fdinfo/3": "pos:\t0\ninotify wd:1 ino:2\ninotify wd:2 ino:3\ninotify wd:3 ino:3\n",
        },
    )
    (tmp_path / "proc/7/fd").mkdir()
    for number, target in (("3", "anon_inode:inotify"), ("4", "anon_inode:[eventpoll]"), ("5", "anon_inode:inotify")):
        (tmp_path / "proc/7/fd" / number).symlink_to(target)
    node = view(tmp_path)
    says(examined(node, "inotify-instances"), CheckVerdict.OK, "2 of 10 inotify instances in use")
    assert read_inotify(tmp_path / "proc", os.geteuid() + 1).instances == 0, "the limit is one of each user"
    finding = examined(node, "inotify-watches")
    says(finding, CheckVerdict.WARNING, "3 of 3 inotify watches", "fs.inotify.max_user_watches=524288")


def test_our_own_instance_is_counted() -> None:
    inotify = KernelInotify()
    try:
        assert read_inotify(Path("/proc"), os.geteuid()).instances > 0
    finally:
        inotify.close()


def test_few_instances_left_are_a_warning() -> None:
    finding = judge_instances(InotifyUse(0, 128, 121, None, 0))
    says(finding, CheckVerdict.WARNING, "121 of 128", "sysctl fs.inotify.max_user_instances=8192")


def test_an_instance_that_the_kernel_refuses_is_a_warning_however_few_are_seen() -> None:
    def refusing() -> Inotify:
        raise OSError(errno.EMFILE, "Too many open files")

    refusal = refused_inotify(refusing)
    finding = judge_instances(InotifyUse(0, 128, 2, None, 0), refusal)
    says(
        finding,
        CheckVerdict.WARNING,
        "cannot get another inotify instance: Too many open files (the limit is 128)",
        "=8192",
    )
    says(judge_instances(InotifyUse(0, None, 0, None, 0), refusal), CheckVerdict.WARNING, "cannot get another", "=8192")


def test_an_instance_that_is_asked_for_is_given_back() -> None:
    before = read_inotify(Path("/proc"), os.geteuid()).instances
    assert refused_inotify() == ""
    assert read_inotify(Path("/proc"), os.geteuid()).instances <= before + 4, "other processes may open some"


def test_limits_that_cannot_be_read_are_skipped() -> None:
    use = InotifyUse(0, None, 0, None, 0)
    says(judge_instances(use), CheckVerdict.SKIPPED, "max_user_instances cannot be read")
    says(judge_watches(use), CheckVerdict.SKIPPED, "max_user_watches cannot be read")
    says(judge_watches(InotifyUse(0, 1, 0, 100, 5)), CheckVerdict.OK, "5 of 100")


def test_open_files_are_read_from_proc(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/limits": "Limit  Soft  Hard\nMax open files            65536     65536     files\n",
            "proc/self/fd/0": "",
            "proc/sys/fs/file-nr": "1000\t0\t100000\n",
        },
    )
    says(examined(view(tmp_path), "open-files"), CheckVerdict.OK, "this command has 1 of 65536 files open")


def test_a_low_or_exhausted_limit_of_files_is_a_warning() -> None:
    says(judge_files(FileUse(10, 256, 1, 100), "the agent"), CheckVerdict.WARNING, "10 of 256", "raise LimitNOFILE")
    says(
        judge_files(FileUse(1000, 1024, 1, 100), "the agent"), CheckVerdict.WARNING, "1000 of 1024", "raise LimitNOFILE"
    )
    says(
        judge_files(FileUse(1, 9999, 95, 100), "the agent"),
        CheckVerdict.WARNING,
        "95 of 100 files of the machine",
        "fs.file-max",
    )
    says(judge_files(FileUse(None, None, None, None), "the agent"), CheckVerdict.SKIPPED, "cannot be seen from here")
    assert (read_files(Path("/proc"), "self").opened or 0) > 0


def test_room_on_disk_is_well_and_named(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "disk-space"), CheckVerdict.OK, f"{tmp_path}/state has ")


def test_a_full_disk_has_failed_and_a_nearly_full_one_is_a_warning() -> None:
    folder, good = Path("/var/lib/ostler"), FreeSpace(Path("/run/cdi"), 1 << 40, 10**6)
    says(
        judge_room([good, FreeSpace(folder, 4096, None)]),
        CheckVerdict.FAILED,
        "/var/lib/ostler has 4 KiB free",
        "free space",
    )
    says(judge_room([good, FreeSpace(folder, 1 << 30, 5)]), CheckVerdict.FAILED, "5 inodes free", "free space")
    says(judge_room([good, FreeSpace(folder, 30 << 20, None)]), CheckVerdict.WARNING, "only 30 MiB free", "free space")
    says(judge_room([good]), CheckVerdict.OK, "/run/cdi has 1 TiB free")


def test_room_of_a_folder_that_is_not_there_is_that_above_it(tmp_path: Path) -> None:
    room = read_room(tmp_path / "a" / "b")
    assert room is not None
    assert room.bytes > 0
