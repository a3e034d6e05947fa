"""Two agents on one address: whoever has the port answers for itself and relays probes of the other one."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from node.clocks import SYSTEM
from node.sockets import is_socket
from ostler.admin import probes
from ostler.admin.http import HttpPage, HttpServer, Pages, listen
from ostler.admin.probes import LONGEST, TIMEOUT, InstanceSocket, ProbeProxy, Probes, remove_gone
from ostler.agent.event_log import EventLog
from ostler.config.errors import ConfigErrors
from ostler.config.load import load
from ostler.config.settings import Settings, instance_socket
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.making.ports import held_port
from tests.waiting import eventually

Answer = tuple[int, str]
SEVERAL = 12
"""Probes at a time: so many that one after the other takes far longer than side by side on a slow machine."""
PAGES: Pages = {
    "/livez/blue": lambda: HttpPage.lines(True, "ok"),
    "/readyz/blue": lambda: HttpPage.lines(False, "not ready"),
}


def get(url: str) -> Answer:
    """Status and text of a page; status 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


async def asked(url: str) -> Answer:
    return await asyncio.to_thread(get, url)


@pytest.fixture
def address() -> Iterator[str]:
    """An address at which only this test's agents may listen."""
    with held_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is late because this machine is slow."""
    monkeypatch.setattr(probes, "TIMEOUT", 120.0)


@asynccontextmanager
async def another(box: SandboxNode, flags: Mapping[str, str], log: Path) -> AsyncIterator[AgentProcess]:
    """One more agent process beside that of ``box``."""
    agent = AgentProcess({**box.agent.flags, **flags}, log=log)
    await agent.spawn()
    try:
        yield agent
    finally:
        await agent.stop(signal.SIGKILL)


def side_by_side(address: str, instance: str) -> dict[str, str]:
    return {"--http": address, "--instance": instance}


async def test_a_standby_is_ready_through_the_relay_and_answers_for_both_after_a_kill(
    address: str, tmp_path: Path
) -> None:
    url = f"http://{address}"
    async with SandboxNode(path("l4-2"), flags=side_by_side(address, "blue"), reconcile_interval=0.05) as box:
        await box.registered()
        await eventually(lambda: get(f"{url}/readyz/blue") == (200, "ready\n"))
        async with another(box, side_by_side(address, "green"), tmp_path / "green.log"):
            standby = (200, "ready\nstandby: another instance is active\n")
            await eventually(lambda: get(f"{url}/readyz/green") == standby, "the standby is ready by the relay")
            await eventually(lambda: get(f"{url}/livez/green") == (200, "ok\n"), "in time on a slow machine, too")
            assert await asked(f"{url}/readyz") == (200, "ready\n"), "without a name: whoever has the port"
            await box.agent.stop(signal.SIGKILL)
            killed = time.monotonic()
            await eventually(lambda: get(f"{url}/livez/green") == (200, "ok\n"), "the port is taken over")
            assert time.monotonic() - killed < 30
            await eventually(lambda: get(f"{url}/readyz/green") == (200, "ready\n"), "the standby is active")
            status, text = await asked(f"{url}/readyz/blue")
            assert (status, text) in {
                (404, "there is no instance blue on this node\n"),
                (503, f"the instance blue is gone: nobody listens at {box.root / 'state/http/blue.sock'}\n"),
            }
            await eventually(lambda: get(f"{url}/readyz/blue")[0] == 404, "the dead socket is removed")


async def test_a_hanging_instance_is_told_as_dead_in_time_while_the_other_one_answers(
    address: str, tmp_path: Path
) -> None:
    url = f"http://{address}"
    async with SandboxNode(path("l4-2"), flags=side_by_side(address, "blue"), reconcile_interval=0.05) as box:
        await box.registered()
        async with another(box, side_by_side(address, "green"), tmp_path / "green.log") as green:
            await eventually(lambda: get(f"{url}/livez/green") == (200, "ok\n"))
            green.send(signal.SIGSTOP)
            begun = time.monotonic()
            answers = await asyncio.gather(
                *(asked(f"{url}/livez/green") for _ in range(SEVERAL)), asked(f"{url}/livez/blue")
            )
            hangs = (503, f"the instance green hangs: no answer within {TIMEOUT:g} s\n")
            assert answers == [*[hangs] * SEVERAL, (200, "ok\n")]
            assert time.monotonic() - begun < SEVERAL * TIMEOUT, "side by side, not one after the other"
            green.send(signal.SIGCONT)
            await eventually(lambda: get(f"{url}/livez/green") == (200, "ok\n"), "it goes on")


async def test_the_socket_is_roots_alone_and_gone_at_the_end(address: str) -> None:
    async with SandboxNode(path("l4-2"), flags={"--http": "off", "--instance": "blue"}) as box:
        await box.registered()
        at = instance_socket(box.root / "state", "blue")
        await eventually(at.exists, "served without an address, too")
        assert stat.S_IMODE(at.stat().st_mode) == 0o600
        assert stat.S_IMODE(at.parent.stat().st_mode) == 0o700
        assert await box.agent.stop() == 0
        assert list(at.parent.iterdir()) == []


async def test_a_dead_predecessors_socket_is_replaced_and_a_removed_one_served_anew(
    short_dir: Path,
) -> None:
    at = instance_socket(short_dir, "blue")
    leave_dead(at)
    probes = Probes(
        Settings(state_dir=short_dir, http=None, instance="blue"), PAGES, EventLog(SYSTEM), socket_check=0.02
    )
    running = asyncio.create_task(probes.run())
    relay = ProbeProxy(short_dir)
    for _ in range(2):
        await eventually(lambda: asyncio.to_thread(relay.answer, "/livez/blue"), "an answer")
        page = await eventually(lambda: answered(relay), "answered by the living one")
        assert page == HttpPage.lines(True, "ok")
        at.unlink()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(at.parent.iterdir()) == []


def answered(relay: ProbeProxy) -> HttpPage | None:
    page = relay.answer("/livez/blue")
    return page if page is not None and page.status == 200 else None


async def test_a_socket_that_cannot_be_is_told_once_and_the_address_is_served_on(short_dir: Path, address: str) -> None:
    at = instance_socket(short_dir, "blue")
    at.parent.mkdir()
    at.write_text("precious")
    events = EventLog(SYSTEM)
    probes = Probes(Settings(state_dir=short_dir, http=address, instance="blue"), PAGES, events, socket_check=0.01)
    running = asyncio.create_task(probes.run())
    await eventually(lambda: get(f"http://{address}/livez/blue") == (200, "ok\n"))
    assert [event.message for event in events.recent] == [
        f"the instance's socket for probes: {at}: something that is not a socket is in the way; remove it"
    ]
    assert probes._replaced(None, at) is None
    assert len(events.recent) == 1, "however often it is tried"
    at.unlink()
    await eventually(lambda: is_socket(at), "served once nothing is in the way")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert get(f"http://{address}/livez/blue")[0] == 0, "the address is free again"


def leave_dead(at: Path) -> None:
    """A socket as a killed process leaves it behind."""
    at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(at))


@pytest.mark.usefixtures("unhurried")
def test_an_answer_is_handed_on_with_its_status(short_dir: Path) -> None:
    served = InstanceSocket(instance_socket(short_dir, "blue"), PAGES)
    try:
        relay = ProbeProxy(short_dir)
        assert relay.answer("/livez/blue") == HttpPage.text(200, "ok")
        assert relay.answer("/readyz/blue") == HttpPage.text(503, "not ready")
    finally:
        served.close()


@pytest.mark.usefixtures("unhurried")
def test_of_an_endless_answer_only_its_beginning_is_handed_on(short_dir: Path) -> None:
    pages: Pages = {"/livez/blue": lambda: HttpPage(200, "text/plain", b"x" * (3 * LONGEST))}
    served = InstanceSocket(instance_socket(short_dir, "blue"), pages)
    try:
        assert ProbeProxy(short_dir).answer("/livez/blue") == HttpPage(200, "text/plain", b"x" * LONGEST)
    finally:
        served.close()


@pytest.mark.usefixtures("unhurried")
def test_an_unknown_instance_is_404_and_a_dead_one_503_with_a_line(short_dir: Path) -> None:
    dead = instance_socket(short_dir, "dead")
    leave_dead(dead)
    relay = ProbeProxy(short_dir)
    assert relay.answer("/readyz/green") == HttpPage.text(404, "there is no instance green on this node")
    assert relay.answer("/readyz/dead") == HttpPage.text(503, f"the instance dead is gone: nobody listens at {dead}")


def test_one_that_has_stopped_accepting_hangs_however_many_asked_before(short_dir: Path) -> None:
    at = instance_socket(short_dir, "stuck")
    at.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, ExitStack() as clients:
        listener.bind(str(at))
        listener.listen(0)
        waiting = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        waiting.connect(str(at))
        assert ProbeProxy(short_dir).answer("/livez/stuck") == HttpPage.text(
            503, f"the instance stuck hangs: no answer within {TIMEOUT:g} s"
        )


@pytest.mark.usefixtures("unhurried")
def test_one_that_answers_garbage_is_503(short_dir: Path) -> None:
    at = instance_socket(short_dir, "odd")
    at.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(at))
        listener.listen()
        relay = ProbeProxy(short_dir)
        answer = asyncio.run(_meet(relay, listener))
    assert answer is not None
    assert answer.status == 503
    assert answer.body.startswith(b"the instance odd cannot be asked: ")


async def _meet(relay: ProbeProxy, listener: socket.socket) -> HttpPage | None:
    asking = asyncio.create_task(asyncio.to_thread(relay.answer, "/livez/odd"))
    client, _ = await asyncio.to_thread(listener.accept)
    with client:
        client.sendall(b"\x00\xff\r\n\r\n")
    return await asking


@pytest.mark.parametrize(
    "asked",
    ["/livez/../blue", "/livez/%2e%2e", "/livez/BLUE", "/livez/", "/livez/a/b", "/metrics/blue", "/readyz/-a", "/blue"],
)
def test_paths_that_name_no_instance_are_nobodys(short_dir: Path, asked: str) -> None:
    leave_dead(instance_socket(short_dir, "blue"))
    assert ProbeProxy(short_dir).answer(asked) is None


@pytest.mark.usefixtures("unhurried")
def test_an_instance_does_not_relay(short_dir: Path) -> None:
    blue = InstanceSocket(instance_socket(short_dir, "blue"), PAGES)
    try:
        instance_socket(short_dir, "green").symlink_to(instance_socket(short_dir, "blue"))
        answer = ProbeProxy(short_dir).answer("/livez/green")
        assert answer == HttpPage.text(404, "no such page; the pages are /livez/blue, /readyz/blue")
    finally:
        blue.close()


@pytest.fixture
def living(short_dir: Path) -> Iterator[Path]:
    served = InstanceSocket(instance_socket(short_dir, "blue"), PAGES)
    yield short_dir
    served.close()


def test_only_sockets_that_nobody_answers_are_removed(living: Path) -> None:
    folder = instance_socket(living, "any").parent
    leave_dead(folder / "dead.sock")
    leave_dead(folder / ".ostler-00000000")
    (folder / "file.sock").write_text("")
    assert remove_gone(living) == [folder / "dead.sock"]
    assert sorted(found.name for found in folder.iterdir()) == [".ostler-00000000", "blue.sock", "file.sock"]
    assert remove_gone(living / "nowhere") == []


@pytest.mark.needs_root
def test_a_dead_socket_that_cannot_be_removed_stays_and_is_no_reason_to_stop(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = instance_socket(short_dir, "dead")
    leave_dead(dead)
    folder = str(dead.parent)
    with ExitStack() as mounted:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        mounted.callback(subprocess.run, ["umount", folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        assert remove_gone(short_dir) == []
        assert is_socket(dead)
    (entry,) = [entry for entry in caplog.records if entry.message == "cannot remove a dead socket"]
    assert vars(entry)["error"] == "Read-only file system"


@pytest.mark.usefixtures("unhurried")
def test_a_server_on_an_address_asks_elsewhere_only_for_what_it_has_not(living: Path) -> None:
    server = HttpServer(
        listen("127.0.0.1:0"), {"/livez": lambda: HttpPage.lines(True, "own")}, ProbeProxy(living).answer
    )
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        assert get(f"{url}/livez") == (200, "own\n")
        assert get(f"{url}/livez/blue") == (200, "ok\n")
        assert get(f"{url}/livez/green") == (404, "there is no instance green on this node\n")
        assert get(f"{url}/other") == (404, "no such page; the pages are /livez\n")
    finally:
        server.close()


def test_the_longest_path_of_a_socket_is_judged_by_the_configuration() -> None:
    folder = "/" + "s" * 60
    fits, over = "i" * 35, "i" * 36
    assert load(None, {"--state-dir": folder, "--instance": fits}, {}).settings.instance == fits
    with pytest.raises(ConfigErrors) as refused:
        load(None, {"--state-dir": folder, "--instance": over}, {})
    assert str(refused.value) == (
        f"--instance: makes the path of its socket in {folder}/http 108 bytes long; "
        "use a shorter name or state folder: a socket's path may have 107 bytes"
    )
    with pytest.raises(ConfigErrors, match="--instance: makes the path of its socket"):
        load(None, {"--state-dir": "/" + "s" * 90, "--instance": "a"}, {})


@pytest.mark.parametrize("name", ["Blue", "-a", "a-", "a.b", "../a", "a" * 64, "a/b"])
def test_an_instance_is_a_dns_label(name: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        load(None, {"--instance": name}, {})
    assert str(refused.value).endswith(
        "write a name of at most 63 lower-case letters, digits and -, such as v1-2-0-5f3a"
    )


def test_an_address_in_use_is_an_error_of_the_system() -> None:
    with listen("127.0.0.1:0") as taken, pytest.raises(OSError, match="in use") as refused:
        listen(f"127.0.0.1:{taken.getsockname()[1]}")
    assert refused.value.errno == errno.EADDRINUSE
