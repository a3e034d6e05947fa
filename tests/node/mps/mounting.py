"""Cases of ``test_mounts``, each in namespaces of its own: ``python -m tests.node.mps.mounting FOLDER``.

The program has namespaces of its own already. It forks a process for each case, since an interpreter for each would
import everything anew, and prints how each has ended: a JSON object of exit codes and outputs.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from node.clocks import SYSTEM
from node.events import EventBus, EventType
from node.mps.daemon import MpsHome
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.mounts import KernelMounts, read_mounts
from node.mps.processes import find_daemons
from node.mps.reports import STORAGE_FULL
from node.mps.service import MpsHolders, MpsPace
from node.mps.storage import MpsStorage
from node.mps.supervisor import MpsSupervisor
from tests.making.mps import GpuModes, MpsStandIn
from tests.node.mps.killed import NAME, RESOURCE

CASES = (
    "a_pod_fills_no_more_than_the_file_system",
    "a_pod_that_keeps_an_old_file_system_stores_nothing_more",
    "a_folder_that_a_runtime_makes_is_on_no_file_system_of_the_node",
    "the_daemon_has_a_shm_of_its_own",
    "a_busy_file_system_is_detached",
    "a_full_file_system_keeps_no_daemon_from_answering",
    "what_a_killed_agent_mounted_is_found",
    "a_kill_between_mount_and_daemon_leaves_nothing",
    "a_daemon_whose_file_system_is_gone_is_not_taken_over",
    "private_mounts_are_seen_by_nobody",
    "the_node_sees_mounts_exactly_where_the_agent_says_so",
    "an_operators_file_system_is_used",
    "without_the_right_to_mount_the_reason_is_told",
)
SIZE = 1 << 20
FULL = os.strerror(errno.ENOSPC)
HELD = MpsHolders({NAME: ("team/a",)}, known=True)
NOBODY = MpsHolders({}, known=True)
KERNEL = KernelMounts()
_CLONE_NEWNS, _CLONE_NEWPID, _PR_SET_PDEATHSIG = 0x00020000, 0x20000000, 1


def storage_of(folder: Path, size: int | None = SIZE) -> MpsStorage:
    root = folder / "mps"
    root.mkdir(exist_ok=True)
    return MpsStorage(root, KERNEL, size, Path("/dev/shm"))


def a_pod_fills_no_more_than_the_file_system(folder: Path) -> None:
    storage = storage_of(folder)
    assert storage.hindrance() == ""
    storage.make(NAME)
    shm = folder / "mps" / NAME / "shm"
    with pytest.raises(OSError, match=FULL):
        (shm / "large").write_bytes(b"x" * (2 * SIZE))
    assert storage.usage(NAME).ratio == 1.0
    (shm / "large").unlink()
    for number in range(60):
        (shm / str(number)).touch()
    with pytest.raises(OSError, match=FULL):
        (shm / "more").touch()
    assert {"nosuid", "nodev", "noexec"} <= flags_of(folder / "mps" / NAME)


def flags_of(point: Path) -> set[str]:
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {flag for line in lines if line[4] == str(point) for flag in line[5].split(",")}


def a_pod_that_keeps_an_old_file_system_stores_nothing_more(folder: Path) -> None:
    storage, pod = storage_of(folder), folder / "pod"
    pod.mkdir()
    storage.make(NAME)
    shm = folder / "mps" / NAME / "shm"
    (shm / "before").write_bytes(b"x" * (SIZE // 2))
    subprocess.run(["mount", "--bind", shm.parent, pod], check=True)
    subprocess.run(["mount", "--make-private", pod], check=True)
    with (pod / "shm" / "before").open("ab", buffering=0) as held:
        assert storage.remove(NAME) == "", "what pods have bound is no obstacle"
        assert KERNEL.below(folder / "mps") == ()
        with pytest.raises(OSError, match=FULL):
            held.write(b"x" * SIZE)
        with pytest.raises(OSError, match=FULL):
            (pod / "more").touch()
    assert [*pod.iterdir()] == []


def a_folder_that_a_runtime_makes_is_on_no_file_system_of_the_node(folder: Path) -> None:
    storage, root = storage_of(folder), folder / "mps"
    storage.make(NAME)
    storage.remove(NAME)
    # A container of a pod starts before the next daemon: its runtime makes the folder that is missing, and binds it.
    made, pod = root / NAME / "pipe", folder / "pod"
    made.mkdir(parents=True)
    pod.mkdir()
    subprocess.run(["mount", "--bind", made, pod], check=True)
    with pytest.raises(OSError, match=FULL):
        (pod / "large").write_bytes(b"x" * (5 << 20))
    storage.make(NAME)
    assert [*(root / NAME / "pipe").iterdir()] == []
    with pytest.raises(FileNotFoundError):
        (pod / "more").touch()
    storage.make("claim-1")
    points = [mount.point for mount in read_mounts(Path("/proc/self/mountinfo"))]
    assert points.count(root) == 1, "one for all daemons"


def the_daemon_has_a_shm_of_its_own(folder: Path) -> None:
    storage = storage_of(folder)
    for name in (NAME, "claim-1"):
        storage.make(name)
    script = "touch /dev/shm/mine; cat /proc/self/mountinfo"
    shown = storage.acting(NAME, lambda: subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE))
    assert (folder / "mps" / NAME / "shm" / "mine").exists()
    assert not Path("/dev/shm/mine").exists()
    assert str(folder / "mps" / "claim-1") not in shown.stdout.decode(), "it would keep the other daemon's memory"
    assert subprocess.run(["sh", "-c", "ls /dev/shm"], check=True, stdout=subprocess.PIPE).stdout.find(b"mine") < 0


def a_busy_file_system_is_detached(folder: Path) -> None:
    storage = storage_of(folder)
    storage.make(NAME)
    with (folder / "mps" / NAME / "log" / "open").open("w") as held:
        told = storage.remove(NAME)
        held.write("still there")
    where = folder / "mps" / NAME
    assert told == f"{where} is still in use on the node; it was detached, and its memory is free when that ends"
    assert KERNEL.below(folder / "mps") == ()
    assert not (folder / "mps" / NAME).exists()


class _Agent:
    """A supervisor with the stand-in daemon and the kernel's mounts; ``events``: what it told."""

    def __init__(self, folder: Path) -> None:
        self.driver = MpsStandIn(folder)
        self.home = MpsHome(self.driver.home.root, self.driver.home.driver_root, size=SIZE)
        self.events: list[tuple[str, str]] = []
        self.supervisor = MpsSupervisor(
            self.home,
            ExclusiveModes(GpuModes("GPU-0", "GPU-1")),
            MpsRecord(folder / "mps.json"),
            clocks=SYSTEM,
            events=self,
            bus=EventBus(),
            on_changed=lambda: None,
            pace=MpsPace(look=0.05, linger=0.0, first_pause=0.05, longest_pause=0.1),
        )
        self.supervisor.use((RESOURCE,))

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """See ``EventRecorder``."""
        assert kind is EventType.WARNING
        self.events.append((reason, message))

    async def during(self, act: Callable[[], object], until: Callable[[], bool], holders: MpsHolders = HELD) -> None:
        """Run until it is so; ``act`` is done when the daemon runs."""
        running = asyncio.create_task(self.supervisor.run())
        try:
            async with asyncio.timeout(60):
                if holders is HELD:
                    await self.supervisor.ready(NAME)
                self.supervisor.hold(holders)
                act()
                while not until():
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def a_full_file_system_keeps_no_daemon_from_answering(folder: Path) -> None:
    agent = _Agent(folder)
    own = agent.home.root / NAME
    log = own / "log" / "server.log"

    def fill() -> None:
        log.touch()
        with pytest.raises(OSError, match=FULL):
            (own / "shm" / "large").write_bytes(b"x" * (2 * SIZE))

    asyncio.run(agent.during(fill, lambda: len(agent.events) == 1))
    ((reason, message),) = agent.events
    assert reason == STORAGE_FULL
    assert "its MPS daemon is full (1 of 1 MiB, " in message
    assert "one of team/a fills it: restart that pod" in message
    assert find_daemons(agent.home.root, Path("/proc")), "it is left to the next agent, since it answers"
    (own / "shm" / "large").unlink()
    follower = _Agent(folder)

    def grow() -> None:
        log.write_bytes(b"x" * (SIZE // 2))

    # The next agent takes it over, and shortens its logs.
    asyncio.run(follower.during(grow, lambda: log.stat().st_size == 0))
    assert follower.events == []
    clean(folder)


def clean(folder: Path) -> None:
    """The next agent, which nobody asks for a share, leaves nothing."""
    agent = _Agent(folder)
    own = agent.home.root / NAME
    asyncio.run(agent.during(lambda: None, lambda: not own.exists() and not (folder / "mps.json").exists(), NOBODY))
    assert own not in KERNEL.below(agent.home.root)
    assert find_daemons(agent.home.root, Path("/proc")) == ()


def what_a_killed_agent_mounted_is_found(folder: Path) -> None:
    storage = storage_of(folder)
    # Mounted, and killed before the folders; with folders, and killed before the daemon; of a resource no longer there.
    own = folder / "mps" / NAME
    own.mkdir(parents=True)
    KERNEL.mount(own, SIZE, 64)
    clean(folder)
    storage.make(NAME)
    storage.make("nvidia.com/gone")
    storage.make("claim-1")
    clean(folder)
    assert KERNEL.below(folder / "mps") == (folder / "mps/claim-1",), "it is the claims' supervisor's"


def a_kill_between_mount_and_daemon_leaves_nothing(folder: Path) -> None:
    left: list[Path] = []
    storage_of(folder).make(NAME)
    clean(folder)  # The root has its file system since then.
    for number in range(5, 9):  # Before that are the steps of two trials.
        (folder / "modes.json").write_text('{"GPU-0": 0, "GPU-1": 0}')
        command = [sys.executable, "-m", "tests.node.mps.killed", str(folder), str(number), "kernel"]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        if find_daemons(folder / "mps", Path("/proc")):
            break
        left += KERNEL.below(folder / "mps")
        clean(folder)
    assert len(left) == 2, "it was killed after the mount, and before the daemon"
    clean(folder)


def a_daemon_whose_file_system_is_gone_is_not_taken_over(folder: Path) -> None:
    first = _Agent(folder)
    asyncio.run(first.during(lambda: None, lambda: True))
    ((_, process),) = find_daemons(first.home.root, Path("/proc"))
    KERNEL.unmount(first.home.root / NAME)
    second = _Agent(folder)
    second.supervisor.hold(HELD)
    asyncio.run(second.during(lambda: None, lambda: True))
    ((_, after),) = find_daemons(second.home.root, Path("/proc"))
    assert process != after
    assert "ended with the agent, or while it was away; team/a lost their GPU contexts" in second.events[0][1]
    clean(folder)


def private_mounts_are_seen_by_nobody(folder: Path) -> None:
    told = storage_of(folder).hindrance()
    assert f"what the agent mounts in {folder / 'mps'} stays in its own mount namespace, so pods do not get it" in told
    assert "mountPropagation: Bidirectional" in told


def the_node_sees_mounts_exactly_where_the_agent_says_so(folder: Path) -> None:
    storage, root = storage_of(folder), folder / "mps"
    # As a container runtime makes them: Bidirectional, HostToContainer, None; and a unit of systemd, which shares its
    # processes with the node and its mounts, made anew, with nobody.
    shared_anew = "mount --make-rshared /"
    kinds = (("unchanged", True, ""), ("slave", True, ""), ("private", True, ""), ("slave", False, shared_anew))
    seen = []
    for propagation, container, then in kinds:
        code = (
            "import sys; from pathlib import Path; from tests.node.mps.mounting import *; "
            f"storage = storage_of(Path({str(folder)!r})); said = storage.hindrance() == ''; storage.make('claim-1'); "
            "print(said, flush=True); sys.stdin.read(); storage.remove('claim-1')"
        )
        names = ["--pid", "--fork", "--mount-proc", "--kill-child"] if container else []
        script = f'{then or "true"} && exec {sys.executable} -c "$0"'
        command = ["unshare", "--mount", "--propagation", propagation, *names, "sh", "-c", script, code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout is not None
            said = agent.stdout.readline().strip()
            seen.append((said, str(bool(KERNEL.below(root)))))
            agent.communicate("")
        assert KERNEL.below(root) == (), "what the agent unmounts is unmounted on the node"
    assert seen == [("True", "True"), ("False", "False"), ("False", "False"), ("False", "False")]
    assert storage.hindrance() == ""


def an_operators_file_system_is_used(folder: Path) -> None:
    storage, root = storage_of(folder, None), folder / "mps"
    assert "is not a file system of its own" in storage.hindrance()
    subprocess.run(["mount", "-t", "tmpfs", "mps", root], check=True)
    assert "has no limit size and nr_inodes" in storage.hindrance()
    subprocess.run(["mount", "-o", "remount,size=1m,nr_inodes=200", root], check=True)
    assert storage.hindrance() == ""
    storage.make(NAME)
    assert storage.usage(NAME).size == SIZE
    assert [each.point for each in read_mounts(Path("/proc/self/mountinfo")) if each.point.is_relative_to(root)] == [
        root
    ]
    # The operator chooses the other way later: what was left is removed, whichever way it was made.
    own = storage_of(folder)
    own.make(NAME)
    assert KERNEL.below(root) == (root / NAME,)
    assert storage.remove(NAME) == ""
    assert not (root / NAME).exists()


def without_the_right_to_mount_the_reason_is_told(folder: Path) -> None:
    root = folder / "mps"
    root.mkdir()
    script = (
        "from pathlib import Path; from node.mps.mounts import KernelMounts; from node.mps.storage import MpsStorage; "
        f"print(MpsStorage(Path({str(root)!r}), KernelMounts(), {SIZE}, Path('/dev/shm')).hindrance())"
    )
    dropping = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run([*dropping, sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.startswith(f"the agent cannot mount a file system in {root}: Operation not permitted; give the")


def ended(case: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a case."""
    (folder / case).mkdir(parents=True, exist_ok=True)
    output = folder / f"{case}.txt"
    output.touch()
    if not (pid := os.fork()):
        code = 1
        try:
            signal.alarm(100)
            descriptor = os.open(output, os.O_WRONLY)
            for number in (1, 2):
                os.dup2(descriptor, number)
            code = _isolated(case, folder / case)
        except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), output.read_text()


def _isolated(case: str, folder: Path) -> int:
    """Run it as the first process of its namespaces, as a node's first process; that one's exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "unshare")
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Private first, or what is mounted here would be mounted for the other cases as well.
    mounts = [["--make-rprivate", "/"], ["-t", "proc", "proc", "/proc"]]
    if not case.startswith("private_"):
        mounts.append(["--make-rshared", "/"])
    for each in mounts:
        subprocess.run(["mount", *each], check=True)
    globals()[case](folder)
    return 0


if __name__ == "__main__":
    print(json.dumps({case: ended(case, Path(sys.argv[1])) for case in CASES}))
