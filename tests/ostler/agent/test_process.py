"""One agent process on a recorded node against an embedded kubelet: start, change, reload, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from node.sockets import is_socket
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentFailed, AgentProcess
from tests.waiting import eventually

GPU = "nvidia.com/gpu"


def node(name: str = "h100-sxm-8", **flags: str) -> SandboxNode:
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    return SandboxNode(path(name), flags=given, reconcile_interval=0.05)


async def test_an_eight_gpu_node_is_registered_and_serves() -> None:
    async with node() as box:
        status = await box.registered()
        assert [(item.name, item.devices, item.healthy) for item in status.resources] == [(GPU, 8, 8)]
        assert (status.role, status.ready) == ("active", True)
        given = await box.give(GPU, 8)
        assert given.admission.admitted
        assert given.response["envs"] == {"NVIDIA_VISIBLE_DEVICES": ",".join(given.ids)}


async def test_every_mig_profile_is_a_resource_with_strategy_mixed() -> None:
    async with node("a100-mig-4", mig_strategy="mixed") as box:
        await box.registered()
        assert box.kubelet.allocatable() == {
            GPU: 2,
            "nvidia.com/mig-1g.5gb": 9,
            "nvidia.com/mig-2g.10gb": 1,
            "nvidia.com/mig-3g.20gb": 1,
        }
        given = await box.give("nvidia.com/mig-3g.20gb", 1)
        assert given.admission.admitted
        assert given.ids[0].startswith("MIG-")


async def test_strategy_single_on_a_node_with_several_shapes_is_withheld_with_the_reason_and_ready() -> None:
    async with node("a100-mig-4", mig_strategy="single") as box:
        await box.registered()
        assert box.kubelet.allocatable() == {}
        reasons = {str(device.get("offer_reason", "")) for device in await box.devices()}
        assert any("the MIG strategy single needs devices of one kind" in reason for reason in reasons)


async def test_a_lost_gpu_is_withdrawn_alone_and_comes_back_by_itself() -> None:
    async with node() as box:
        await box.registered()
        held = await box.give(GPU, 1)
        assert box.hardware is not None
        index = box.hardware.find(held.ids[0])
        box.hardware.fail(index)
        changes = (await box.agent.rescan()).changes
        assert any("health healthy -> unhealthy (the GPU is lost" in change for change in changes)
        await box.kubelet.wait_for(GPU, healthy=7)
        assert box.kubelet.capacity().capacity[GPU] == 8, "the pod's id stays known"
        box.hardware.heal(index)
        await box.agent.rescan()
        await box.kubelet.wait_for(GPU, healthy=8)


async def test_a_gpu_that_is_lost_before_the_start_keeps_its_id() -> None:
    async with node() as box:
        await box.registered()
        ids = {device.id for device in box.kubelet.devices(GPU)}
        assert box.hardware is not None
        box.hardware.fail(3)
        await box.restart_agent()
        await box.registered()
        await box.kubelet.wait_for(GPU, healthy=7)
        assert {device.id for device in box.kubelet.devices(GPU)} == ids


async def test_term_ends_it_cleanly_and_leaves_no_socket() -> None:
    async with node() as box:
        await box.registered()
        assert await box.agent.stop() == 0
        left = [found for found in box.root.rglob("*") if is_socket(found) and "kubelet.sock" not in found.name]
        assert left == []


async def test_a_kubelet_restart_with_a_running_init_container_costs_no_pod() -> None:
    async with node() as box:
        await box.registered()
        holder = Pod("uid-x", "x", containers=(Container("init", "init", {GPU: 2}), Container("app")))
        assert (await box.kubelet.admit(holder)).admitted
        await box.kubelet.stop()
        await box.kubelet.start()
        await box.kubelet.wait_for(GPU, healthy=8)
        assert (await box.kubelet.admit(holder)).admitted


async def test_hup_reads_the_rules_again_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    text = "apiVersion: ostler.dev/v1alpha1\nkind: Config\nresources:\n- name: {name}\n  devices: {{kind: gpu}}\n"
    config.write_text(text.format(name=GPU))
    box = SandboxNode(path("l4-2"), arguments=["--config", str(config)], reconcile_interval=0.05)
    async with box:
        await box.registered()
        config.write_text(text.format(name="nvidia.com/l4"))
        box.agent.send(signal.SIGHUP)
        await box.kubelet.wait_for("nvidia.com/l4", healthy=2)
        await box.kubelet.wait_for(GPU, healthy=0)
        config.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\nresource: []\n")
        box.agent.send(signal.SIGHUP)
        await eventually(lambda: "old one stays in force" in box.log.read_text())
        status = await box.agent.status()
        assert [item.name for item in status.resources] == ["nvidia.com/l4"]
        assert [event.reason for event in status.events] == ["ConfigRejected"]


async def test_systemd_is_told_that_it_is_ready_alive_and_ending(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_dir / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(short_dir / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        heard: list[str] = []

        def hear() -> str:
            try:
                while True:
                    heard.append(manager.recv(4096).decode())
            except BlockingIOError:
                return "\n".join(heard)

        async with node() as box:
            await box.registered()
            await eventually(lambda: "STATUS=active; ready" in hear())
            await eventually(lambda: hear().count("WATCHDOG=1") > 3)
        assert heard[0].startswith(("READY=1", "WATCHDOG=1"))
        assert "STOPPING=1" in hear()


async def test_a_damaged_memory_of_identities_is_set_aside() -> None:
    async with node() as box:
        await box.registered()
        await box.agent.stop()
        record = box.root / "state" / "identities.json"
        record.write_bytes(b"\x00garbage")
        await box.agent.start()
        await box.registered()
        assert record.read_bytes().startswith(b"{")
        assert list(record.parent.glob("identities.json.damaged*"))


async def test_an_unwritable_state_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    box = node(state_dir=str(tmp_path / "file" / "state"))
    with pytest.raises(AgentFailed) as failed:
        async with box:
            pass
    assert "ostler: the agent failed: " in str(failed.value)
    assert "Traceback" not in str(failed.value)
    assert "the lock file cannot be used" in str(failed.value)
    assert "check the state folder's permissions" in str(failed.value)
    await box.kubelet.stop()
    # After a failure it stays, for its log.
    shutil.rmtree(box.root)


async def test_a_file_where_the_agents_socket_should_be_is_told_and_the_kubelet_served_on(short_dir: Path) -> None:
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
        (short_dir / "ostler.sock").write_text("precious")
        flags = {
            "--kubelet-device-plugin-dir": str(short_dir / "device-plugins"),
            "--kubelet-registry-dir": str(short_dir / "plugins_registry"),
            "--state-dir": str(short_dir / "state"),
            "--socket": str(short_dir / "ostler.sock"),
            "--http": "off",
            "--recorded": str(path("l4-2")),
        }
        agent = AgentProcess(flags, log=short_dir / "log")
        await agent.spawn()
        await kubelet.wait_for(GPU, healthy=2)
        await eventually(
            lambda: "something that is not a socket is in the way; remove it" in (short_dir / "log").read_text()
        )
        assert (short_dir / "ostler.sock").read_text() == "precious"
        assert await agent.stop() == 0


@pytest.mark.timeout(240)  # fifty starts
async def test_killed_in_any_call_fifty_times_it_is_back_and_nothing_is_shown_twice() -> None:
    chance = random.Random(4)
    async with node() as box:
        shown: list[list[str]] = []
        await box.registered()
        for round_ in range(50):
            pod = Pod(f"uid-{round_}", f"p{round_}", containers=(Container("main", limits={GPU: 2}),))
            calls = [asyncio.create_task(box.kubelet.admit(pod)), asyncio.create_task(box.agent.rescan())]
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            await box.restart_agent()
            await asyncio.gather(*calls, return_exceptions=True)
            box.kubelet.terminate(pod.uid)
            await box.registered()
            last = box.kubelet.last_list(GPU)
            assert last is not None
            shown.append([device.ID for device in last.devices])
        assert all(len(set(ids)) == len(ids) == 8 for ids in shown)
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("ostler*"))) == 1
        given = await box.give(GPU, 8)
        assert given.admission.admitted, "no reservation is left behind"


@pytest.mark.needs_root
@pytest.mark.parametrize("strategy", ["envvar", "cdi-cri"])
async def test_a_full_disk_withdraws_only_devices_whose_answers_need_a_file(short_dir: Path, strategy: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small file system")
    disk = short_dir / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs", str(disk)], check=True)
    try:
        with contextlib.suppress(OSError):
            (disk / "filling").write_bytes(b"x" * 65536)
        async with node(device_list_strategy=strategy, state_dir=str(disk), cdi_dir=str(disk / "cdi")) as box:
            status = await box.registered()
            healthy = 8 if strategy == "envvar" else 0
            assert (status.resources[0].devices, status.resources[0].healthy) == (8, healthy)
            log = box.log.read_text()
            assert "No space left on device" in log
            assert "Traceback" not in log
            if strategy == "cdi-cri":
                reasons = [device.offer_reason for device in (await box.agent.devices()).devices if device.resource]
                assert len(reasons) == 8
                assert all("cannot be written" in reason for reason in reasons)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
