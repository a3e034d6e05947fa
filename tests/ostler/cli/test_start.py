"""What an agent's start leaves out: argparse for a plain line, and modules that libraries import and nobody uses."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ostler.cli.main import GRPC_SETTINGS
from ostler.cli.options import add_settings, given_flags, plain_settings
from tests.making.patience import PATIENCE

PLAIN: tuple[list[str], ...] = (
    ["--node-name", "n1"],
    ["--node-name=n1", "--http", "off"],
    ["--http", "off", "--http=127.0.0.1:0"],
    ["--config", "/etc/a.yaml", "--log-level", ""],
    ["--config=a=b", "--instance="],
    [],
)
OTHERS = (
    ["--help"],
    ["-h"],
    ["--node-name"],
    ["--node-name", "-n1"],
    ["--node-nam", "n1"],
    ["--unknown", "1"],
    ["word"],
    ["--"],
    ["--http", "off", "--version"],
)
DEFERRED = """
import sys
from ostler.cli.imports import left_out
with left_out():
    from protos.deviceplugin.v1beta1 import api_pb2
    import grpc.aio
    import pathlib, logging, plugin.door
left = {"google.protobuf.internal.python_message", "google.protobuf.text_format", "typing_extensions"}
left |= {"ast", "asyncio.sslproto", "inspect", "ipaddress", "linecache", "locale", "ntpath", "pkgutil", "ssl"}
left |= {"calendar", "google.protobuf.text_encoding", "subprocess", "textwrap", "tokenize", "traceback", "urllib.parse"}
assert not left & sys.modules.keys(), left & sys.modules.keys()
request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=["a"])])
assert api_pb2.AllocateRequest.FromString(request.SerializeToString()) == request
"""
LATER = """
from google.protobuf.internal import builder, python_message
assert builder.python_message is not python_message, "it was left out"
assert builder.python_message.GeneratedProtocolMessageType is python_message.GeneratedProtocolMessageType
from google.protobuf.internal import well_known_types
assert well_known_types.WKTBASES and python_message.well_known_types is well_known_types
from google.protobuf import text_format
assert "devices_ids" in text_format.MessageToString(request)
import typing_extensions
assert typing_extensions.override
assert pathlib.Path("/a b").as_uri() == "file:///a%20b"
import urllib.parse
assert urllib.parse.urlsplit("http://[::1]:80/").hostname == "::1"
import asyncio.selector_events, asyncio.sslproto
assert asyncio.selector_events.sslproto.SSLProtocol is asyncio.sslproto.SSLProtocol
"""
ASKED = """
import asyncio, functools, inspect, subprocess, sys, types
from ostler.cli import imports
del sys.modules["inspect"], sys.modules["subprocess"]
with imports.left_out():
    stand_in, processes = sys.modules["inspect"], sys.modules["subprocess"]
    async def coroutine_function(): pass
    async def generator_function(): yield
    def marked(): pass
    marked.mark = 1
    class Handler:
        async def coroutine(self): pass
        async def generator(self): yield
        def plain(self): pass
    handler = Handler()
    plain = [coroutine_function, generator_function, handler.coroutine, handler.generator, handler.plain, Handler.plain]
    names = ("isawaitable", "iscoroutinefunction", "isasyncgenfunction")
    expected = [getattr(inspect, name)(each) for name in names for each in plain]
    assert [getattr(stand_in, name)(each) for name in names for each in plain] == expected
    assert "inspect" in sys.modules and sys.modules["inspect"] is stand_in, "plain functions need no module"
    others = [functools.partial(coroutine_function), marked, 1, len, asyncio.Future(loop=asyncio.new_event_loop())]
    expected = [getattr(inspect, name)(each) for name in names for each in others]
    assert [getattr(stand_in, name)(each) for name in names for each in others] == expected
    for name in ("PIPE", "STDOUT", "DEVNULL"):
        assert vars(processes)[name] == getattr(subprocess, name), name
"""
KNOWN = """
import pathlib
import protos
for stub in pathlib.Path(protos.__path__[0]).rglob("*_pb2.py"):
    __import__(".".join(("protos", *stub.relative_to(protos.__path__[0]).with_suffix("").parts)))
import grpc_health.v1.health_pb2, grpc_reflection.v1alpha.reflection_pb2
from google.protobuf import descriptor_pool
from google.protobuf.internal.well_known_types import WKTBASES
pool, found = descriptor_pool.Default(), []
assert pool.FindMessageTypeByName("v1beta1.AllocateRequest")
for name in WKTBASES:
    try:
        found.append(pool.FindMessageTypeByName(name))
    except KeyError:
        pass
assert not found
"""
"""No message of an agent is one of protobuf's own, nor has one."""
TAKEN = """
import sys, threading
from node.stand_ins import DeferredModule
stand_in = DeferredModule("typing_extensions", {"Self": 1})
sys.modules["typing_extensions"] = stand_in
assert stand_in.Self == 1
assert not hasattr(stand_in, "__path__")
assert sys.modules["typing_extensions"] is stand_in
threads = [threading.Thread(target=lambda: found.append(stand_in.override)) for _ in range(8)]
found = []
for thread in threads: thread.start()
for thread in threads: thread.join()
import typing_extensions
assert found == [typing_extensions.override] * 8
try:
    stand_in.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError
"""

HEAPS = """
import ctypes, sys, threading
from ostler.cli.main import main
if sys.argv[1] == "run":
    main(["run", "--config", "/nowhere.yaml"])
allocate = ctypes.CDLL(None).malloc
for thread in [threading.Thread(target=allocate, args=(4096,)) for _ in range(4)]:
    thread.start()
    thread.join()
library = ctypes.CDLL(None)
library.malloc_info(0, ctypes.c_void_p.in_dll(library, "stdout"))
"""


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_plain_line_is_read_as_argparse_reads_it(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    expected, found = parser.parse_args(words), plain_settings(words)
    assert found is not None
    assert found.config == expected.config
    assert given_flags(found) == given_flags(expected)


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_any_other_line_is_left_to_argparse(words: list[str]) -> None:
    assert plain_settings(words) is None


@pytest.mark.parametrize("code", [DEFERRED + LATER, ASKED, TAKEN, KNOWN], ids=["deferred", "asked", "taken", "known"])
def test_modules_that_are_left_out_can_be_had_afterwards(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_line_that_argparse_refuses_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ostler", "run", "--state-dir", str(tmp_path), "--no-such-flag"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in done.stderr


@pytest.mark.parametrize(("command", "is_one"), [("run", True), ("", False)])
def test_threads_of_an_agent_share_one_heap(command: str, is_one: bool) -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc has a heap for each thread")
    run = subprocess.run([sys.executable, "-c", HEAPS, command], capture_output=True, text=True, check=True)
    assert (run.stdout.count("<heap nr=") == 1) is is_one


SERVER = """
import asyncio, os, sys
from ostler.cli.main import GRPC_SETTINGS, main
main(["run", "--config", "/nowhere.yaml"])
for name in GRPC_SETTINGS:
    print(f"{name}={os.environ.get(name)}")
import grpc.aio
async def serve():
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    await server.start()
    await server.stop(None)
asyncio.run(serve())
"""


CLIENT = """
import asyncio, os, signal, subprocess, sys
from ostler.cli.main import main
main(["run", "--config", "/nowhere.yaml"])
import grpc.aio
async def watch():
    server = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE)
    server.stdout.readline()
    async with grpc.aio.insecure_channel(f"unix:{sys.argv[1]}") as channel:
        await channel.channel_ready()
        server.kill()
        server.wait()
        # Only looked at: to wait for a change would have gRPC poll the connection.
        while channel.get_state() is grpc.ChannelConnectivity.READY:
            await asyncio.sleep(0.01)
    print("noticed")
asyncio.run(watch())
"""
LASTING = """
import asyncio, sys, grpc.aio
async def serve():
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    await server.start()
    print("serves", flush=True)
    await server.wait_for_termination()
asyncio.run(serve())
"""
EXPERIMENTS, BACKUP_POLL = "GRPC_EXPERIMENTS", "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS"


def _without_settings(**chosen: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in GRPC_SETTINGS} | chosen


def _started(tmp_path: Path, **chosen: str) -> tuple[dict[str, str], str]:
    """gRPC's settings in a process of ostler's, and what its server said."""
    command = [sys.executable, "-c", SERVER, str(tmp_path / "socket")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=_without_settings(**chosen))
    settings = dict(line.split("=", 1) for line in run.stdout.splitlines())
    return settings, run.stderr


def test_grpc_knows_the_experiments_that_ostler_turns_off(tmp_path: Path) -> None:
    settings, remarks = _started(tmp_path)
    assert settings == GRPC_SETTINGS
    assert "Unknown experiment" not in remarks


@pytest.mark.parametrize("chosen", ["", "-no_such_experiment"])
def test_whoever_chooses_the_experiments_keeps_the_interval_of_grpc(chosen: str, tmp_path: Path) -> None:
    settings, remarks = _started(tmp_path, GRPC_EXPERIMENTS=chosen)
    assert (settings[EXPERIMENTS], settings[BACKUP_POLL]) == (chosen, "None")
    assert ("Unknown experiment" in remarks) is bool(chosen)


def test_an_interval_that_a_person_chose_stays(tmp_path: Path) -> None:
    settings, _ = _started(tmp_path, GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS="7000")
    assert (settings[EXPERIMENTS], settings[BACKUP_POLL]) == (GRPC_SETTINGS[EXPERIMENTS], "7000")


def test_an_idle_client_notices_that_its_server_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLIENT, str(tmp_path / "socket"), LASTING]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE, env=_without_settings())
    assert run.stdout.splitlines() == ["noticed"]
