"""What systemd is told: over a real datagram socket, by a real agent."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostler.agent.edges import PATIENCE, Notifier
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually


class _Manager:
    """systemd's end of the socket: every message, line by line."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(address))
        self.address = address
        self._told: list[str] = []

    @property
    def told(self) -> list[str]:
        """Everything so far."""
        while True:
            try:
                self._told += self._socket.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self._told

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@pytest.fixture
def manager(short_dir: Path) -> Iterator[_Manager]:
    made = _Manager(short_dir / "notify")
    yield made
    made.close()


@pytest.fixture
def as_a_service(manager: _Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that systemd gives to the agent."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.address))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)


@pytest.fixture
def box(as_a_service: None) -> SandboxNode:
    return SandboxNode(path("l4-2"), reconcile_interval=0.1)


async def test_systemd_hears_of_start_reload_and_end_in_order(box: SandboxNode, manager: _Manager) -> None:
    async with box:
        await box.registered()
        await eventually(lambda: "STATUS=active; ready" in manager.told, "the status line")
        before = len(manager.told)
        box.agent.send(signal.SIGHUP)
        await eventually(lambda: "READY=1" in manager.told[before:], "the end of the reload")
        reload = [line for line in manager.told[before:] if line != "WATCHDOG=1"]
        assert reload[0] == "RELOADING=1"
        assert re.fullmatch(r"MONOTONIC_USEC=\d+", reload[1])
        assert reload[2:4] == ["READY=1", "STATUS=active; ready"]
    words = [line for line in manager.told if line != "WATCHDOG=1"]
    assert words[0] == "READY=1"
    assert words[-1] == "STOPPING=1"
    assert words.count("STOPPING=1") == 1


async def test_a_refused_configuration_ends_the_reload_too(
    manager: _Manager, as_a_service: None, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\n")
    node = SandboxNode(path("l4-2"), arguments=("--config", str(config)), reconcile_interval=0.1)
    async with node:
        await node.registered()
        config.write_text("kind: [")
        before = len(manager.told)
        node.agent.send(signal.SIGHUP)
        await eventually(lambda: "READY=1" in manager.told[before:], "the end of the reload")
        assert "RELOADING=1" in manager.told[before:]


async def test_signs_of_life_stop_when_the_process_stands_still(box: SandboxNode, manager: _Manager) -> None:
    async with box:
        await eventually(lambda: manager.told.count("WATCHDOG=1") >= 3, "signs of life, twice as often as asked for")
        box.agent.send(signal.SIGSTOP)
        # What was sent before it stood still.
        seen = manager.told.count("WATCHDOG=1")
        await asyncio.sleep(0.6)  # One and a half times the patience: silence can only be waited for.
        assert manager.told.count("WATCHDOG=1") <= seen + 1
        box.agent.send(signal.SIGCONT)


async def test_sigabrt_leaves_in_the_log_where_it_hung(box: SandboxNode) -> None:
    async with box:
        await box.agent.stop(signal.SIGABRT)
        log = box.log.read_text()
    assert "Fatal Python error: Aborted" in log
    # "Current thread" where the kernel has chosen one of Python's for the signal; all are shown in any case.
    assert re.search(r"^(Current thread|Thread) 0x\w+ .*\(most recent call first\):$", log, re.MULTILINE)
    assert re.search(r'^  File "\S+/asyncio/\S+", line \d+ in run_forever$', log, re.MULTILINE)
    assert re.search(r'^  File "\S+/ostler/cli/main\.py", line \d+ in main$', log, re.MULTILINE)


def test_a_manager_that_does_not_read_holds_nothing_up_for_long(manager: _Manager) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(manager.address)})
    for _ in range(10_000):
        if not notifier.send("STATUS=again"):
            break
    else:
        pytest.fail("the queue never filled")
    assert PATIENCE <= 0.5


def test_what_the_queue_had_no_room_for_is_sent_again(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_dir / "notify"))
        manager.setblocking(False)
        notifier = Notifier({"NOTIFY_SOCKET": str(short_dir / "notify")})
        while notifier.send("WATCHDOG=1"):
            pass
        assert not notifier.send("READY=1", "STATUS=up")
        with contextlib.suppress(BlockingIOError):
            while True:
                assert manager.recv(100) == b"WATCHDOG=1"
        notifier.send_unsent()
        notifier.send_unsent()
        assert manager.recv(100) == b"READY=1\nSTATUS=up"
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_a_manager_that_is_gone_is_no_failure(short_dir: Path) -> None:
    assert not Notifier({"NOTIFY_SOCKET": str(short_dir / "nobody")}).send("READY=1")


def test_without_a_manager_nothing_is_sent_and_nothing_expected() -> None:
    notifier = Notifier({})
    assert notifier.send("READY=1")
    assert notifier.watchdog_interval is None


def test_the_variables_are_taken_and_a_watchdog_for_others_is_not_ours() -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert Notifier(environment).watchdog_interval is None
    assert environment == {"PATH": "/bin"}
    assert Notifier({"WATCHDOG_USEC": "2000000"}).watchdog_interval == 1.0


def test_an_abstract_address_is_understood() -> None:
    name = f"ostler-test-{id(object())}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        assert Notifier({"NOTIFY_SOCKET": "@" + name}).send("READY=1", "STATUS=up")
        assert manager.recv(100) == b"READY=1\nSTATUS=up"
