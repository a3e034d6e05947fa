"""Names, endpoints, sockets and checkpoints that no plugin and no kubelet should leave behind, but some do."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.kubelet.events import CheckpointFailed, KubeletEvent, RegistrationFailed
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.registration import OTHER_NAMES
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from tests.making.recorded_cases import cases_in
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, next_event, pod
from tests.sandbox.kubelet.scripted_plugin import devices, register

_DAMAGED = [
    case
    for case in cases_in(Path(__file__).parents[2] / "vectors" / "kubelet" / "state_files.jsonl")
    if case["file"] == "device-manager" and not case["valid"]
]


NAMES = [
    "",
    "/",
    "gpu",
    "a/b/c",
    "../../etc/passwd",
    "A.example/gpu",
    "a.example/",
    "a.example/gpu\n",
    "\u2028/x",
    "é/é",
]


@pytest.mark.parametrize("name", NAMES)
async def test_bad_name_is_refused_with_the_kubelets_words(node: KubeletNode, name: str) -> None:
    kubelet = await node.kubelet()
    assert await register(kubelet.settings.device_plugin_dir, name, "p.sock") == f'the ResourceName "{name}" is invalid'
    assert kubelet.resources() == ()


async def test_names_without_end_are_counted_and_shown_within_bounds(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    folder = kubelet.settings.device_plugin_dir
    huge = "x" * 1_500_000
    message = await register(folder, huge, huge)
    assert message.startswith('the ResourceName "xxx')
    assert message.endswith('xxx... (1500000 characters)" is invalid')
    event = await next_event(stream, RegistrationFailed)
    assert len(event.resource) + len(event.socket) + len(event.message) < 2_000
    for start in range(0, 1200, 100):
        await asyncio.gather(*(register(folder, f"name{start + number}", "p.sock") for number in range(100)))
    assert len(kubelet.register_calls) <= 1001
    assert kubelet.register_calls[OTHER_NAMES] == 201
    assert kubelet.register_calls.total() == 1201


@pytest.mark.parametrize(
    "endpoint", ["", ".", "a\0b.sock", "x" * 200, "../" * 40, "%2e%2e/p.sock", "p.sock#", "é.sock"]
)
async def test_endpoint_that_is_no_socket_fails_the_dial(node: KubeletNode, endpoint: str) -> None:
    kubelet = await node.kubelet(dial_timeout=0.05)
    await node.plugin(devices("d", 1), door=None)
    message = await register(kubelet.settings.device_plugin_dir, GPU, endpoint)
    assert message == "failed to dial device plugin: context deadline exceeded"


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


async def test_odd_names_in_the_registry_are_dialled_as_they_are_and_stop_nobody(node: KubeletNode) -> None:
    kubelet = await node.kubelet(dial_timeout=0.1)
    registry = kubelet.settings.registry_dir
    deep = registry
    for _ in range(40):
        deep /= "deeper"
    deep.mkdir(parents=True)
    odd = [b"\xff\xfe.sock", b"%41.sock", b"a#b?c.sock", b"new\nline.sock", b"x" * 100]
    dead = []
    stream = kubelet.events()
    with _inside(registry):
        for name in odd:
            dead.append(socket.socket(socket.AF_UNIX))
            dead[-1].bind(name)
    failed: set[bytes] = set()
    async for event in stream:
        if isinstance(event, RegistrationFailed):
            assert "dial failed" in event.message
            failed.add(os.fsencode(Path(event.socket).name))
            if failed == set(odd):
                break
    for each in dead:
        each.close()
    for sound in ("100%41.sock", "a#b?.sock"):
        async with PluginStub([listed("d0")], registry / sound, GPU):
            await kubelet.wait_for(GPU, healthy=1)
        await kubelet.wait_for(GPU, healthy=0)


@pytest.mark.parametrize("case", _DAMAGED, ids=lambda case: f"{case['id']}-{case['theme']}")
async def test_damaged_checkpoint_starts_without_state_and_is_told(short_dir: Path, case: dict[str, Any]) -> None:
    await _starts_without_state(short_dir, lambda path: path.write_text(case["text"]))


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 31)


def _folder(path: Path) -> None:
    (path / "sub").mkdir(parents=True)


@pytest.mark.parametrize("damage", [_fifo, _huge, _folder, lambda path: path.write_bytes(os.urandom(5000))])
async def test_checkpoint_that_is_no_file_of_text_starts_without_state(
    short_dir: Path, damage: Callable[[Path], object]
) -> None:
    await _starts_without_state(short_dir, damage)


async def _starts_without_state(root: Path, damage: Callable[[Path], object]) -> None:
    kubelet = Kubelet(root)
    told: list[KubeletEvent] = []
    kubelet.on_event(told.append)
    path = root / "device-plugins" / "kubelet_internal_checkpoint"
    path.parent.mkdir()
    damage(path)
    async with kubelet:
        assert kubelet.resources() == ()
        (event,) = told
        assert isinstance(event, CheckpointFailed)
        assert str(event).startswith(f"the checkpoint {path} cannot be read: {event.error}; ")
        assert str(event).endswith("restore the file, or end those pods")
        assert event.error
        if stat.S_ISREG(path.stat().st_mode):
            kubelet.manager.state.write_checkpoint()
    told.clear()
    if stat.S_ISREG(path.stat().st_mode):
        async with kubelet:
            assert told == [], "the next checkpoint is sound"


async def test_any_flipped_byte_of_a_checkpoint_is_seen_or_harmless(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    await kubelet.admit(pod("p1"))
    await kubelet.stop()
    path = kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint"
    sound = path.read_bytes()
    chance = random.Random(0)
    held = {GPU: {"d0": None}}
    for _ in range(25):
        text = bytearray(sound)
        text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
        path.write_bytes(text)
        async with Kubelet(node.root) as other:
            assert other.allocated("p1", "c") in ({}, held)


async def test_checkpoint_that_cannot_be_written_is_told(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    (kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint" / "x").mkdir(parents=True)
    await node.plugin(devices("d", 1))
    event = await next_event(stream, CheckpointFailed)
    assert str(event).startswith(
        f"the checkpoint {kubelet.settings.device_plugin_dir}/kubelet_internal_checkpoint cannot be written: "
    )
    assert str(event).endswith("see whether the folder is writable and the disk has room")
    await kubelet.wait_for(GPU, healthy=1)
