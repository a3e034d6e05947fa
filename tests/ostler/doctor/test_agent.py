"""Checks of the agent: pure verdicts, and a real agent in the sandbox."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.lock import FolderLock, holder_of
from ostler import __version__
from ostler.doctor.agent import (
    FolderFacts,
    LockFacts,
    ask_http,
    instances,
    judge_http,
    judge_instances,
    judge_kubelet_lock,
    judge_lock,
    judge_quiesced,
    judge_readiness,
    judge_socket,
    judge_state,
    judge_version,
    read_lock,
)
from ostler.doctor.answers import AgentAnswers, ask_agent
from ostler.doctor.check import CheckVerdict
from ostler.doctor.reading import RunningProcess
from protos.agent.v1alpha1 import agent_pb2
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.kube.server import CannedAnswer, StubApiServer
from tests.ostler.doctor.nodes import examined, says, view

LOCK = Path("/var/lib/ostler/lock")
NOBODY = AgentAnswers(fault="no agent answers at /x (there is no such socket)", listening=False)


def agent(**fields: object) -> AgentAnswers:
    status = agent_pb2.GetStatusResponse(version=__version__, pid=7, role="active", ready=True)
    status.MergeFrom(agent_pb2.GetStatusResponse(**fields))  # type: ignore[arg-type]
    return AgentAnswers(status, agent_pb2.ListDevicesResponse())


def unready(reason: str) -> AgentAnswers:
    return AgentAnswers(agent_pb2.GetStatusResponse(ready=False, reasons=[reason]))


def test_an_agent_that_answers_is_well() -> None:
    says(judge_socket(agent()), CheckVerdict.OK, f"ostler {__version__}, process 7, active")


def test_no_agent_is_a_warning_and_the_rest_is_skipped(short_dir: Path) -> None:
    node = view(short_dir)
    says(
        examined(node, "agent-socket"), CheckVerdict.WARNING, "there is no such socket", "give its socket with --socket"
    )
    for name in ("agent-ready", "agent-quiesced", "agent-version", "agent-lock", "agent-instances"):
        says(examined(node, name), CheckVerdict.SKIPPED, "no agent answers")
    says(examined(node, "agent-http"), CheckVerdict.SKIPPED, "switched off")


def test_an_agent_that_answers_with_an_error_has_failed() -> None:
    finding = judge_socket(AgentAnswers(fault="the call took too long"))
    says(finding, CheckVerdict.FAILED, "answers with an error: the call took too long", "look at its log")


def test_readiness_is_told_with_its_reasons() -> None:
    says(judge_readiness(agent(reasons=["standby: another instance is active"])), CheckVerdict.OK, "ready: standby")
    finding = judge_readiness(unready("nvidia.com/gpu: no stream"))
    says(finding, CheckVerdict.FAILED, "not ready: nvidia.com/gpu: no stream", "ostler status")
    sources = [agent_pb2.SourceStatus(name="nvml", state="failed", detail="GPU 0 is lost")]
    says(
        judge_readiness(agent(sources=sources)),
        CheckVerdict.WARNING,
        "nvml: GPU 0 is lost",
        "follow the source's message",
    )


def test_quiesce_is_told_by_agent_or_file() -> None:
    says(judge_quiesced(agent(), None), CheckVerdict.OK, "not quiesced")
    says(judge_quiesced(agent(quiesced=True), None), CheckVerdict.WARNING, "no reason given", "ostler resume")
    says(judge_quiesced(NOBODY, "driver 580"), CheckVerdict.WARNING, "quiesced (driver 580)", "ostler resume")


def test_versions_of_agent_and_command_are_compared() -> None:
    says(judge_version(agent()), CheckVerdict.OK, __version__)
    says(
        judge_version(agent(version="0.0.9")),
        CheckVerdict.WARNING,
        f"0.0.9, this command {__version__}",
        "restart the agent",
    )


def test_a_lock_that_is_held_by_a_process_that_answers_is_well() -> None:
    says(judge_lock(LockFacts(True, 7), agent(), LOCK, agent_visible=True), CheckVerdict.OK, "held by process 7")


def test_a_lock_without_an_answer_and_an_answer_without_a_lock_are_told() -> None:
    silent = judge_lock(LockFacts(True, 9), NOBODY, LOCK, agent_visible=False)
    says(silent, CheckVerdict.WARNING, "process 9 holds /var/lib/ostler/lock, but no agent answers", "end process 9")
    gone = judge_lock(LockFacts(False), agent(), LOCK, agent_visible=True)
    says(
        gone,
        CheckVerdict.FAILED,
        "its lock file /var/lib/ostler/lock is gone: a second agent",
        "never remove or replace",
    )
    free = judge_lock(LockFacts(True), agent(), LOCK, agent_visible=True)
    says(free, CheckVerdict.FAILED, "is not held by any process", "restart the agent")
    says(
        judge_lock(LockFacts(True), agent(), LOCK, agent_visible=False),
        CheckVerdict.SKIPPED,
        "cannot be seen from here",
    )


def test_an_agent_that_waits_for_one_with_another_state_folder_is_told(tmp_path: Path) -> None:
    folder = FolderLock(tmp_path)
    says(judge_kubelet_lock(folder, NOBODY, active=False), CheckVerdict.SKIPPED, "no agent answers")
    says(
        judge_kubelet_lock(folder, agent(), active=True),
        CheckVerdict.SKIPPED,
        "no process visible from here holds",
    )
    assert folder.try_acquire()
    mine = f"process {os.getpid()}"
    says(judge_kubelet_lock(folder, agent(), active=True), CheckVerdict.OK, f"held by {mine}")
    waits = judge_kubelet_lock(folder, agent(), active=False)
    says(waits, CheckVerdict.WARNING, f"{mine} serves the kubelet of {tmp_path}", "give both the same state folder")
    folder.release()


def test_the_holder_of_a_lock_is_found_in_the_kernels_table_without_touching_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("w") as held:
        assert read_lock(file, Path("/proc")) == LockFacts(True, None)
        fcntl.flock(held, fcntl.LOCK_EX)
        assert read_lock(file, Path("/proc")) == LockFacts(True, os.getpid())
    assert read_lock(tmp_path / "none", Path("/proc")) == LockFacts(False)


def test_a_holder_that_the_kernels_table_hides_is_found_by_its_open_files(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("")
    (tmp_path / "proc/7/fd").mkdir(parents=True)
    (tmp_path / "proc/7/fd/3").symlink_to(file)
    assert read_lock(file, tmp_path / "proc", 7) == LockFacts(True, 7)
    assert read_lock(file, tmp_path / "proc", 8) == LockFacts(True)


def test_waiters_and_other_kinds_of_locks_are_no_holders() -> None:
    table = "1: POSIX  ADVISORY  WRITE 5 08:01:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 6 08:01:77 0 EOF\n"
    assert holder_of(77, table) is None
    assert holder_of(77, table + "2: FLOCK  ADVISORY  WRITE 8 08:01:77 0 EOF\n") == 8


def process(pid: int, *words: str) -> RunningProcess:
    return RunningProcess(pid, words)


def test_instances_are_told_by_their_command_line_and_state_folder() -> None:
    seen = (
        process(7, "/venv/bin/python", "-m", "ostler", "run"),
        process(8, "/venv/bin/python", "/venv/bin/ostler", "run", "--config", "x"),
        process(9, "python", "-m", "ostler", "run", "--state-dir", "/tmp/other"),
        process(10, "ostler", "status"),
        process(11, "vim", "ostler"),
    )
    found = instances(seen, Path("/var/lib/ostler"), {7})
    assert [each.pid for each in found] == [8]
    says(judge_instances(found, agent()), CheckVerdict.OK, "one standby (process 8)")
    says(judge_instances((), agent()), CheckVerdict.OK, "no standby")
    two = judge_instances((seen[1], seen[2]), agent())
    says(two, CheckVerdict.WARNING, "2 more instances run (processes 8, 9)", "end those that neither a DaemonSet")
    silent = judge_instances(found, NOBODY)
    says(silent, CheckVerdict.WARNING, "'ostler run' runs (process 8) and does not answer", "--socket")


def test_probes_are_asked() -> None:
    with StubApiServer() as server:
        address = server.url.removeprefix("http://")
        says(judge_http(ask_http(address), address, agent()), CheckVerdict.OK, "answers /healthz")
        assert server.asked[0].path == "/healthz"
        server.respond = lambda _: CannedAnswer(503, b"the loop hangs")
        finding = judge_http(ask_http(address), address, agent())
        says(finding, CheckVerdict.FAILED, "503 the loop hangs", "ss -ltnp")
    assert "refused" in ask_http(f"0.0.0.0:{server.port}")
    says(judge_http(None, "0.0.0.0:1", NOBODY), CheckVerdict.SKIPPED, "no agent answers")


def test_a_state_folder_is_judged_by_its_rights(tmp_path: Path) -> None:
    node = view(tmp_path)
    says(examined(node, "state-folder"), CheckVerdict.OK, "can be created")
    (tmp_path / "state").mkdir(mode=0o700)
    says(examined(node, "state-folder"), CheckVerdict.OK, "is writable, mode 0700")
    (tmp_path / "state").chmod(0o777)
    says(examined(node, "state-folder"), CheckVerdict.FAILED, "others may write", f"chmod 0700 {tmp_path}/state")
    closed = FolderFacts(Path("/var/lib/ostler"), 0o700, 0, writable=False)
    says(judge_state(closed), CheckVerdict.FAILED, "/var/lib/ostler is not writable", "--state-dir")
    says(judge_state(replace_mode(closed)), CheckVerdict.FAILED, "cannot be created", "mounted read-only")


def replace_mode(facts: FolderFacts) -> FolderFacts:
    return FolderFacts(facts.path, None, None, facts.writable)


def test_a_file_in_the_place_of_the_state_folder_has_failed(tmp_path: Path) -> None:
    node = view(tmp_path)
    (tmp_path / "state").write_text("")
    says(examined(node, "state-folder"), CheckVerdict.FAILED, "is not writable", "check its permissions")


@pytest.fixture
async def box() -> AsyncIterator[SandboxNode]:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as started:
        await started.registered()
        yield started


async def test_a_real_agent_answers_and_holds_its_lock(box: SandboxNode) -> None:
    answers = await asyncio.to_thread(ask_agent, Path(box.agent.flags["--socket"]))
    assert {resource: len(ids) for resource, ids in answers.healthy_ids().items()} == {"nvidia.com/gpu": 2}
    lock = read_lock(box.root / "state" / "lock", Path("/proc"))
    finding = judge_lock(lock, answers, box.root / "state" / "lock", agent_visible=True)
    says(finding, CheckVerdict.OK, f"held by process {box.agent.pid}")
    says(judge_readiness(answers), CheckVerdict.OK, "ready")


async def test_a_dead_socket_is_nobody(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "dead.sock"))
    answers = await asyncio.to_thread(ask_agent, short_dir / "dead.sock")
    assert not answers.listening
