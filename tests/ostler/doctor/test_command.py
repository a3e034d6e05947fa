"""``ostler doctor`` as a person types it: against the sandbox, on this machine, without root, badly configured."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from node.lock import InstanceLock
from ostler.cli.main import main
from ostler.doctor.examination import NAMES
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import ostler_output
from tests.ostler.doctor.nodes import write
from tests.ostler.doctor.test_report import SCHEMA

GPU = "nvidia.com/gpu"
HERE = (
    "kubelet-root",
    "kubelet-health",
    "agent-instances",
    "clock",
    "inotify-instances",
    "inotify-watches",
    "open-files",
)
"""Checks that look at this machine, where other kubelets and agents may be running."""


@pytest.fixture
async def box() -> AsyncIterator[SandboxNode]:
    async with SandboxNode(path("l4-2"), reconcile_interval=0.05) as started:
        await started.registered()
        yield started


async def doctor(box: SandboxNode, *words: str, before: str = "") -> tuple[int, str, str]:
    flags = [word for flag, value in box.agent.flags.items() for word in (flag, value)]
    if not before:
        return await ostler_output("doctor", *words, *flags)
    command = [sys.executable, "-c", before]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, "doctor", *words, *flags, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def verdicts(text: str) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in json.loads(text)["checks"]}


async def test_a_well_node_has_no_failure_and_nothing_is_changed(box: SandboxNode) -> None:
    def tree() -> dict[str, tuple[int, int, int]]:
        return {
            str(each): (each.lstat().st_ino, each.lstat().st_mtime_ns, each.lstat().st_size)
            for each in box.root.rglob("*")
        }

    before = tree()
    _, out, err = await doctor(box, "-o", "json")
    assert tree() == before
    assert err == ""
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert [check["name"] for check in document["checks"]] == list(NAMES)
    bad = [
        check for check in document["checks"] if check["verdict"] in ("failed", "error") and check["name"] not in HERE
    ]
    assert bad == []
    found = verdicts(out)
    well = ("agent-socket", "agent-ready", "agent-lock", "state-folder", "kubelet-socket", "kubelet-registry",
            "kubelet-pod-resources", "registration", "kubelet-devices", "kubelet-checkpoint",
            "foreign-plugins")  # fmt: skip
    assert {name: found[name] for name in well} == dict.fromkeys(well, "ok")
    assert box.kubelet.open_streams(GPU) == 1


async def test_lines_for_people_are_plain_where_nobody_looks_at_them(box: SandboxNode) -> None:
    code, out, _ = await doctor(box, "agent-socket", "kubelet-devices", "nvml")
    assert code == 0, out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("  ")] == [
        ["skipped", "nvml"],
        ["ok", "agent-socket"],
        ["ok", "kubelet-devices"],
    ]
    assert out.endswith("\n\n2 ok, 1 skipped\n")
    assert "\x1b" not in out


async def test_a_stopped_agent_and_kubelet_are_told_and_the_lock_is_left_alone(box: SandboxNode) -> None:
    await box.agent.stop()
    await box.kubelet.stop()
    code, out, _ = await doctor(box, "-o", "json", "agent-socket", "agent-lock", "kubelet-socket", "registration")
    assert code == 1
    assert verdicts(out) == {
        "agent-socket": "warning",
        "agent-lock": "skipped",
        "kubelet-socket": "failed",
        "registration": "skipped",
    }
    lock = InstanceLock(box.root / "state" / "lock")
    assert lock.try_acquire()
    lock.release()
    await box.kubelet.start()


async def test_a_held_lock_without_an_answer_is_told(box: SandboxNode) -> None:
    await box.agent.stop()
    lock = InstanceLock(box.root / "state" / "lock")
    assert lock.try_acquire()
    try:
        _, out, _ = await doctor(box, "agent-lock")
    finally:
        lock.release()
    assert f"process {os.getpid()} holds {box.root}/state/lock, but no agent answers at its socket" in out
    assert f"fix: look at its log; if it hangs, end process {os.getpid()}" in out


@pytest.mark.needs_root
async def test_another_user_gets_what_can_be_seen_and_no_false_failure(box: SandboxNode, short_dir: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    # The sandbox's own copy is closed to others, as all of its folder is.
    recording = short_dir / "node.yaml"
    recording.write_text(path("l4-2").read_text())
    short_dir.chmod(0o755)
    box.agent.flags["--recorded"] = str(recording)
    # Everything is loaded as root first: the interpreter's own files may be closed to others.
    program = (
        "import contextlib, io, os, sys; from ostler.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main()\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); raise SystemExit(main())"
    )
    _, out, err = await doctor(box, "-o", "json", before=program)
    assert err == ""
    checks: dict[str, Any] = {check["name"]: check for check in json.loads(out)["checks"]}
    assert not [check for name, check in checks.items() if check["verdict"] in ("failed", "error") and name not in HERE]
    assert "Permission denied" in checks["agent-socket"]["found"]
    assert checks["rights"]["verdict"] == "warning"
    for name in ("kubelet-socket", "kubelet-checkpoint", "kubelet-registry", "kubelet-pod-resources", "state-folder"):
        assert checks[name]["verdict"] == "skipped", checks[name]
        assert "closed to this user; run this as root" in checks[name]["found"]


def test_this_machine_is_examined_without_an_agent(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "-o", "json", "--socket", str(short_dir / "none"), "--state-dir", str(short_dir / "state")])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert not [check for check in document["checks"] if check["verdict"] == "error"]
    assert code == (1 if document["counts"]["failed"] else 0)
    assert not (short_dir / "state").exists()


def test_a_configuration_that_is_not_usable_is_one_check_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("apiVersion: ostler.dev/v1alpha1\nkind: Config\nlog: {level: loud}\n")
    assert main(["doctor", "--config", str(file), "configuration", "disk-space"]) == 1
    out = capsys.readouterr().out
    assert f"not usable: {file}:3: log.level" in out
    assert "fix: correct it and try 'ostler config check FILE'" in out
    assert "ok       disk-space" in out


def test_a_bad_flag_is_told_by_the_same_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--http", "nowhere", "configuration"]) == 1
    assert "--http" in capsys.readouterr().out


def test_in_the_agents_pod_its_flags_are_taken_over_where_none_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"python\0/opt/bin/ostler\0run\0--state-dir={tmp_path}/state\0--cdi-dir\0/nowhere\0--http=off\0"
    write(tmp_path, {"proc/1/cmdline": command, "proc/9/cmdline": "ostler\0doctor\0", "proc/self/x": ""})
    words = ["doctor", "state-folder", "agent-http", "--proc-root", str(tmp_path / "proc"), "--http", "0.0.0.0:1"]
    main(words)
    assert capsys.readouterr().err == "", "not outside of a pod"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.err == "with the flags of the agent (process 1): --cdi-dir --state-dir\n"
    assert f"{tmp_path}/state does not exist yet and can be created" in printed.out
    assert "no agent answers" in printed.out, "probes are on, as given here"


def test_in_a_pod_that_sees_several_agents_no_flags_are_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = {f"proc/{pid}/cmdline": f"ostler\0run\0--state-dir={tmp_path}/{pid}\0" for pid in (1, 2)}
    write(tmp_path, {**agents, "proc/self/x": ""})
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    main(["doctor", "state-folder", "--proc-root", str(tmp_path / "proc")])
    assert capsys.readouterr().err == ""


def test_a_configuration_that_is_given_stands_against_the_agents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
    given = tmp_path / "given.yaml"
    given.write_text(f"{head}resources: [{{name: a.b/c, devices: {{kind: gpu}}}}]\n")
    write(tmp_path, {"proc/1/cmdline": "ostler\0run\0--config=/nonexistent.yaml\0", "proc/self/x": ""})
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    words = ["doctor", "configuration", "--proc-root", str(tmp_path / "proc")]
    assert main([*words, "--config", str(given)]) == 0
    printed = capsys.readouterr()
    assert (printed.err, "offers a.b/c" in printed.out) == ("", True)
    assert main(words) == 1
    assert "/nonexistent.yaml" in capsys.readouterr().out


def test_an_unknown_check_is_a_mistake_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "kubelt"]) == 2
    assert capsys.readouterr().err == "ostler: no such check: kubelt; 'ostler doctor --help' lists them\n"


def test_help_lists_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)
