"""Pods' containers by cgroups, and by processes where pods have no cgroup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from node.clocks import SystemClocks
from node.ledger.containers import NodeContainers, processes_of
from node.opening import read_kernel_text
from tests.making.clock import ManualClock
from tests.node.ledger.test_cgroups import UID, CgroupTree

OTHER = "ffffffff-0000-4000-8000-0123456789ab"


class Proc:
    """A ``/proc`` with the processes that a test puts there."""

    def __init__(self, root: Path, *, own: bool) -> None:
        self.root = root
        (root / "self/ns").mkdir(parents=True)
        (root / "self/ns/pid").symlink_to("pid:[4026531836]" if own else "pid:[4026532000]")

    def put(
        self, pid: int, *, cgroup: str = "0::/init.scope\n", mounts: str = "", view: tuple[int, str] | None = None
    ) -> None:
        """``view``: its mount namespace and its root, where the kernel tells us."""
        folder = self.root / str(pid)
        folder.mkdir()
        if view is not None:
            (folder / "ns").mkdir()
            (folder / "ns/mnt").symlink_to(f"mnt:[{view[0]}]")
            (folder / "root").symlink_to(view[1])
        (folder / "cgroup").write_text(cgroup)
        (folder / "mountinfo").write_text(mounts)

    def end(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc", own=True)


def containers(tmp_path: Path, proc: Proc) -> NodeContainers:
    return NodeContainers(tmp_path / "cgroup", proc.root, clocks=SystemClocks(monotonic=ManualClock()))


def mount(uid: str) -> str:
    return f"900 899 8:1 /lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw - ext4 /dev/sda rw\n"


def test_a_pod_without_a_cgroup_is_told_by_what_its_processes_have_mounted(tmp_path: Path, proc: Proc) -> None:
    """As under a kubelet with cgroupsPerQOS: false."""
    proc.put(1)
    proc.put(17, cgroup="0::/k8s.io/abc\n", mounts=mount(UID))
    seen = containers(tmp_path, proc)
    assert seen.left([UID, OTHER]) == {UID}
    proc.end(17)
    assert not seen.left([UID, OTHER])


class Reads:
    """Counts the processes whose mounts are read; ``after`` is done after each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.after: Callable[[Path], object] = lambda _: None
        monkeypatch.setattr("node.ledger.containers.read_kernel_text", self._read)

    def _read(self, path: Path) -> str:
        text = read_kernel_text(path)
        if path.name == "mountinfo":
            self.count += 1
            self.after(path.parent)
        return text


def test_mounts_are_read_once_for_all_processes_that_see_the_same(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [f"{number:08x}-0000-4000-8000-0123456789ab" for number in range(5)]
    views = [(7, "/"), (8, "/"), (7, "/srv/jail"), None, None]
    for number, (pod, view) in enumerate(zip(pods, views, strict=True)):
        proc.put(100 + number, mounts=mount(pod), view=view)
    for pid in range(200, 220):
        proc.put(pid, mounts=mount(pods[0]), view=views[0])
    proc.put(300, cgroup=f"0::/pod{OTHER}/abc\n", mounts=mount(pods[0]), view=views[0])
    reads = Reads(monkeypatch)
    assert processes_of([*pods, OTHER, UID], proc.root) == {*pods, OTHER}
    assert reads.count == len(views)


def test_mounts_of_a_process_that_changes_its_namespace_meanwhile_stand_for_no_other(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(17, 20):
        proc.put(pid, mounts=mount(OTHER), view=(7, "/"))
    reads = Reads(monkeypatch)

    def enters_another(process: Path) -> None:
        (process / "ns/mnt").unlink()
        (process / "ns/mnt").symlink_to("mnt:[8]")

    reads.after = enters_another
    assert processes_of([OTHER, UID], proc.root) == {OTHER}
    assert reads.count == 3


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/../../burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-abc.scope\n",
    ],
)
def test_a_pod_is_told_by_the_cgroups_of_its_processes_where_the_tree_is_not_seen(
    tmp_path: Path, proc: Proc, cgroup: str
) -> None:
    proc.put(17, cgroup=cgroup)
    assert processes_of([UID], proc.root) == {UID}


def test_processes_are_not_looked_through_where_cgroups_are_proved_to_tell(tmp_path: Path, proc: Proc) -> None:
    tree = CgroupTree(tmp_path / "cgroup", version=2)
    tree.put(f"kubepods/pod{OTHER}", 1)
    proc.put(17, mounts=mount(UID))
    seen = containers(tmp_path, proc)
    assert seen.left([OTHER]) == {OTHER}
    assert not seen.left([UID])


def test_processes_are_looked_through_while_no_pod_was_ever_found_below_a_folder_of_before(
    tmp_path: Path, proc: Proc
) -> None:
    """A kubelet whose cgroupsPerQOS was turned off leaves the folder."""
    CgroupTree(tmp_path / "cgroup", version=2).put("kubepods", 0)
    proc.put(17, mounts=mount(UID))
    assert containers(tmp_path, proc).left([UID]) == {UID}


def test_pods_that_live_and_are_not_found_take_the_proof_from_the_tree(tmp_path: Path, proc: Proc) -> None:
    tree = CgroupTree(tmp_path / "cgroup", version=2)
    tree.put(f"kubepods/pod{OTHER}", 1)
    proc.put(17, mounts=mount(UID))
    seen = containers(tmp_path, proc)
    assert seen.left([OTHER]) == {OTHER}
    seen.confirm([UID])
    assert seen.left([UID]) == {UID}
    assert seen.off == ""


def test_where_neither_is_seen_that_is_told_and_no_device_is_kept(tmp_path: Path) -> None:
    proc = Proc(tmp_path / "proc", own=False)
    seen = containers(tmp_path, proc)
    seen.confirm([UID])
    assert seen.off == (
        "ostler does not check for containers of pods that were deleted by force: it finds no cgroups of pods below "
        f"{tmp_path / 'cgroup'} and does not see the node's processes; mount the node's /sys/fs/cgroup there"
    )
    assert not seen.left([UID])


def test_a_node_in_a_pid_namespace_of_its_own_is_seen_if_a_living_pod_is(tmp_path: Path) -> None:
    proc = Proc(tmp_path / "proc", own=False)
    proc.put(17, mounts=mount(UID))
    seen = containers(tmp_path, proc)
    seen.confirm([])
    assert seen.off
    assert seen.left([UID]) == {UID}
    seen.confirm([UID])
    assert seen.off == ""
    assert seen.left([UID]) == {UID}


def test_volumes_that_the_node_itself_has_mounted_for_a_pod_are_none_of_its_containers(
    tmp_path: Path, proc: Proc
) -> None:
    volumes = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~projected/token"
    below = f"/var/lib/kubelet/pods/{UID}/volume-subpaths/data/main/0"
    mounts = f"77 25 0:50 / {volumes} rw - tmpfs tmpfs rw\n78 25 8:1 {volumes}/sub {below} rw - ext4 /dev/sda rw\n\nx\n"
    proc.put(17, mounts=mounts)
    assert not processes_of([UID], proc.root)
    proc.put(18, mounts=mounts + mount(UID))
    assert processes_of([UID], proc.root) == {UID}


def test_processes_that_end_or_are_hidden_meanwhile_are_passed_over(tmp_path: Path, proc: Proc) -> None:
    (proc.root / "23").mkdir()
    (proc.root / "23/cgroup").symlink_to("/nowhere")
    proc.put(17, mounts=mount(UID))
    assert processes_of([UID], proc.root) == {UID}
