"""Cgroups of pods, in folders as the kernel and the kubelet make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.clocks import SystemClocks
from node.ledger.containers import AGAIN, PodCgroups
from tests.making.clock import ManualClock

UID = "0a1b2c3d-0000-4000-8000-0123456789ab"
STATIC = "0123456789abcdef0123456789abcdef"


class CgroupTree:
    """A cgroup file system of either version below ``root``."""

    def __init__(self, root: Path, *, version: int) -> None:
        self.root, self.version = root, version
        self.clock = ManualClock()
        self.top = root if version == 2 else root / "pids"
        self.top.mkdir(parents=True, exist_ok=True)
        (self.top / ("cgroup.controllers" if version == 2 else "cgroup.procs")).touch()

    def put(self, path: str, processes: int) -> None:
        folder = self.top / path
        folder.mkdir(parents=True, exist_ok=True)
        if self.version == 2:
            (folder / "cgroup.events").write_text(f"populated {int(processes > 0)}\nfrozen 0\n")
        else:
            (folder / "pids.current").write_text(f"{processes}\n")

    def remove(self, path: str) -> None:
        for file in (self.top / path).iterdir():
            file.unlink()
        (self.top / path).rmdir()

    def cgroups(self) -> PodCgroups:
        return PodCgroups(self.root, clocks=SystemClocks(monotonic=self.clock))


@pytest.fixture(params=[1, 2])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> CgroupTree:
    return CgroupTree(tmp_path / "cgroup", version=request.param)


SLICE = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        (f"kubepods/pod{UID}", UID),
        (f"kubepods/burstable/pod{UID}", UID),
        (f"kubepods/besteffort/pod{UID}", UID),
        (f"kubepods/burstable/pod{STATIC}", STATIC),
        (f"kubepods.slice/kubepods-pod{SLICE}.slice", UID),
        (f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice", UID),
        (f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC}.slice", STATIC),
        (f"kubelet/kubepods/besteffort/pod{UID}", UID),
        (f"x.slice/x-kubepods.slice/x-kubepods-burstable.slice/x-kubepods-burstable-pod{SLICE}.slice", UID),
        (f"a/b/c/d/kubepods/pod{UID}", UID),
    ],
)
def test_a_pod_has_processes_while_the_kernel_counts_some_below_its_cgroup(
    tree: CgroupTree, path: str, uid: str
) -> None:
    tree.put(path, 3)
    cgroups = tree.cgroups()
    assert cgroups.is_found
    assert cgroups.has_processes(uid) is True
    tree.put(path, 0)
    assert cgroups.has_processes(uid) is False, "a cgroup that is left for ever keeps nobody from anything"
    tree.remove(path)
    assert cgroups.has_processes(uid) is None


def test_another_pods_cgroup_says_nothing(tree: CgroupTree) -> None:
    tree.put(f"kubepods/pod{UID}", 1)
    assert tree.cgroups().has_processes(UID[:-1] + "0") is None


def test_a_folder_for_pods_that_comes_later_is_found_when_it_is_searched_again(tree: CgroupTree) -> None:
    cgroups = tree.cgroups()
    assert not cgroups.is_found
    tree.put(f"kubepods/pod{UID}", 1)
    assert cgroups.has_processes(UID) is None
    tree.clock.now += AGAIN
    assert cgroups.has_processes(UID) is True


def test_folders_that_are_gone_are_searched_anew(tree: CgroupTree) -> None:
    tree.put("kubepods", 0)
    cgroups = tree.cgroups()
    assert cgroups.is_found
    tree.remove("kubepods")
    tree.clock.now += AGAIN
    tree.put(f"kubelet/kubepods/pod{UID}", 1)
    assert cgroups.is_found
    assert cgroups.has_processes(UID) is True


@pytest.mark.parametrize("uid", ["", "../../x", "a/b", "x" * 65, "pod*", UID + "\n"])
def test_what_is_no_uid_names_no_folder(tree: CgroupTree, uid: str) -> None:
    tree.put("kubepods", 1)
    tree.put("x", 1)
    assert tree.cgroups().has_processes(uid) is None


def test_where_no_cgroups_are_mounted_there_is_no_folder(tmp_path: Path) -> None:
    assert not PodCgroups(tmp_path / "nothing", clocks=SystemClocks(monotonic=ManualClock())).is_found


def test_the_search_is_bounded(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path / "cgroup", version=2)
    deep = "/".join("x" * 1 for _ in range(20))
    tree.put(f"{deep}/kubepods", 0)
    assert not tree.cgroups().is_found


def test_what_the_kernel_does_not_count_is_an_error_and_no_answer(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path / "cgroup", version=2)
    tree.put(f"kubepods/pod{UID}", 1)
    (tree.top / f"kubepods/pod{UID}/cgroup.events").unlink()
    (tree.top / f"kubepods/pod{UID}/cgroup.events").mkdir()
    cgroups = tree.cgroups()
    assert cgroups.is_found
    with pytest.raises(OSError, match="directory"):
        cgroups.has_processes(UID)
