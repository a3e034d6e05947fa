"""The file system of each MPS daemon: withheld where it cannot be made, told when it is full or cannot be removed."""

from __future__ import annotations

import pytest

from node.mps.daemon import MpsError
from node.mps.reports import CRASHED, STORAGE_BUSY, STORAGE_FULL
from node.mps.storage import MpsStorage, StorageUsage
from tests.making.mps_node import HELD, NAME, NOBODY, OTHER, RESOURCE, MpsNode, is_clean, until


async def test_a_node_where_nothing_can_be_mounted_says_so_and_recovers(node: MpsNode) -> None:
    node.mounts.fault = "Operation not permitted"
    async with node.agent(RESOURCE) as supervisor:
        assert supervisor.faults()["gpu-0"] == (
            f"MPS does not work: the agent cannot mount a file system in {node.driver.home.root}: Operation not "
            "permitted; give the agent CAP_SYS_ADMIN and the calls mount, umount2 and unshare (docs/sharing.md says "
            "how)"
        )
        with pytest.raises(MpsError, match="cannot mount a file system"):
            await supervisor.ready(NAME)
        assert is_clean(node)
        node.mounts.fault = ""
        await until(lambda: not supervisor.faults())
        await supervisor.ready(NAME)


async def test_mounts_that_pods_do_not_get_are_no_use(node: MpsNode) -> None:
    node.mounts.visible = False
    async with node.agent(RESOURCE) as supervisor:
        fault = supervisor.faults()["gpu-0"]
    assert f"what the agent mounts in {node.driver.home.root} stays in its own mount namespace" in fault
    assert "with mountPropagation: Bidirectional, or, in a systemd unit, give " in fault


async def test_what_an_agent_left_that_was_killed_before_the_daemon_is_removed(node: MpsNode) -> None:
    storage = node.driver.home.storage
    node.driver.home.root.mkdir()
    for name in (NAME, OTHER):
        storage.make(name)
    (node.driver.home.root / "nvidia.com/gpu.empty").mkdir()
    async with node.agent(RESOURCE):
        await until(lambda: storage.names() == ("nvidia.com",))
    assert node.mounts.below(node.driver.home.root) == ()
    assert node.events == []


async def test_a_full_file_system_is_told_once_with_the_pods_that_have_it(
    node: MpsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await node.tell("client")
        pid = node.pid
        monkeypatch.setattr(MpsStorage, "usage", lambda *_: StorageUsage(1 << 20, 1 << 20, 64, 7))
        await until(lambda: bool(node.events))
        looked = len(node.driver.log(NAME))
        await until(lambda: len(node.driver.log(NAME)) > looked + 2)
        assert node.pid == pid
        assert node.metrics.storage.values[(NAME,)] == 1.0
        assert node.metrics.clients.values[(NAME,)] == 2
        assert supervisor.faults() == {}
    assert node.events == [
        (
            STORAGE_FULL,
            (
                f"{NAME} on gpu-0, gpu-1: the file system of its MPS daemon is full (1 of 1 MiB, 7 of 64 files), so "
                "new processes of its pods may fail to use the GPU; one of team/a, team/b fills it: restart that "
                "pod, or raise nvidia.mpsFileSystemSize"
            ),
        )
    ]
    assert node.lost == [], "health policies may evict for lost servers, and none is lost"


async def test_a_full_file_system_of_all_daemons_is_not_laid_to_one(
    node: MpsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MpsStorage, "usage", lambda *_: StorageUsage(1 << 20, 1 << 20, 64, 7, shared=True))
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await until(lambda: bool(node.events))
    assert node.events[0][1].endswith(
        "; a pod of any of the node's MPS daemons, which share it, fills it: restart that pod, or give nvidia.mpsRoot "
        "a larger one"
    )


async def test_a_file_system_in_use_is_detached_and_told(node: MpsNode) -> None:
    node.mounts.busy = True
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
    ((reason, message),) = node.events
    folder = node.driver.home.root / NAME
    assert reason == STORAGE_BUSY
    assert (
        message
        == f"{NAME}: {folder} is still in use on the node; it was detached, and its memory is free when that ends"
    )


async def test_a_crashed_daemons_file_system_in_use_is_told_when_the_next_starts(node: MpsNode) -> None:
    node.mounts.busy = True
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await node.tell("crash")
        await until(lambda: len(node.events) == 2)
        node.mounts.busy = False
    assert [reason for reason, _ in node.events] == [CRASHED, STORAGE_BUSY]
