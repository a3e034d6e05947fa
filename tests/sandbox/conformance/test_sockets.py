"""What is judged by a socket alone: the calls, and nothing that needs the process, a kubelet or an API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.apiserver.server import ApiServer
from sandbox.conformance.driver_testbed import NODE
from sandbox.conformance.rule import CannotJudge, RuleOutcome, RuleVerdict
from sandbox.conformance.session import JudgedSubject, judge_driver, judge_plugin
from sandbox.conformance.testbed import ConformancePace
from tests.sandbox.conformance.flawed_driver import DriverInProcess
from tests.sandbox.conformance.flawed_plugin import PluginInProcess
from tests.waiting import eventually

PACE = ConformancePace(patience=60, call=60, quiet=0.05, calls=40)


def names(verdicts: list[RuleVerdict], outcome: RuleOutcome) -> set[str]:
    return {verdict.rule for verdict in verdicts if verdict.outcome is outcome}


async def test_a_plugins_calls_are_judged_by_its_socket(short_dir: Path) -> None:
    (short_dir / "device-plugins").mkdir()
    program = PluginInProcess(short_dir, "keeps-order")
    await program.start()
    socket = short_dir / "device-plugins" / "a.example-gpu.sock"
    await eventually(socket.is_socket)
    # Characters that mean something in the URIs by which gRPC takes addresses.
    odd = short_dir / "My Plugin 100%20#1?.sock"
    odd.symlink_to(socket)
    try:
        verdicts = await judge_plugin(JudgedSubject(socket=odd), (), PACE, lambda _: None)
    finally:
        await program.stop()
    assert names(verdicts, RuleOutcome.FAILED) == {"keeps-order"}
    assert names(verdicts, RuleOutcome.NOT_JUDGED) == set()
    passed = names(verdicts, RuleOutcome.PASSED)
    assert passed >= {"full-lists", "device-ids", "allocates", "refuses-unknown", "preferred-legal", "serves-streams"}
    reasons = {verdict.rule: verdict.seen for verdict in verdicts if verdict.outcome is RuleOutcome.NOT_APPLICABLE}
    assert reasons["api-version"] == "no registration was seen; give the command, not a socket"
    assert (
        reasons["ends-in-grace"] == "it needs a kubelet that the plugin registers with; give the command, not a socket"
    )
    assert reasons["does-not-grow"] == "it needs the plugin's process; give the command, not a socket"


async def test_a_drivers_calls_are_judged_by_its_socket(short_dir: Path) -> None:
    with ApiServer() as server:
        server.store.create("nodes", {"metadata": {"name": NODE}})
        program = DriverInProcess(short_dir, server, short_dir, short_dir, "unprepares-unknown")
        await program.start()
        socket = short_dir / "plugins" / "gpu.example.com" / "dra.sock"
        await eventually(socket.is_socket)
        try:
            verdicts = await judge_driver(JudgedSubject(socket=socket), (), PACE, lambda _: None)
        finally:
            await program.stop()
    assert names(verdicts, RuleOutcome.FAILED) == {"unprepares-unknown"}
    assert names(verdicts, RuleOutcome.NOT_JUDGED) == set()
    reasons = {verdict.rule: verdict.seen for verdict in verdicts if verdict.outcome is RuleOutcome.NOT_APPLICABLE}
    assert reasons["prepares"] == "it needs an API server that the driver publishes at; give the command, not a socket"


@pytest.mark.parametrize("kind", ["plugin", "driver"])
async def test_a_socket_that_nobody_serves_cannot_be_judged(short_dir: Path, kind: str) -> None:
    judge, pace = {"plugin": judge_plugin, "driver": judge_driver}[kind], ConformancePace(call=0.1)
    with pytest.raises(CannotJudge, match=f"nobody answers at {short_dir}/x; start the {kind}, or correct the path"):
        await judge(JudgedSubject(socket=short_dir / "x"), (), pace, lambda _: None)


async def test_a_socket_of_another_service_is_no_drivers(short_dir: Path) -> None:
    (short_dir / "device-plugins").mkdir()
    program = PluginInProcess(short_dir)
    await program.start()
    socket = short_dir / "device-plugins" / "a.example-gpu.sock"
    await eventually(socket.is_socket)
    try:
        with pytest.raises(CannotJudge, match=r"serves none of v1.*; give the socket that claims are served on"):
            await judge_driver(JudgedSubject(socket=socket), (), PACE, lambda _: None)
    finally:
        await program.stop()
