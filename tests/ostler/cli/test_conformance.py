"""``ostler conformance`` as people run it: on our plugin and driver, and on programs that cannot be judged."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from ostler.cli.main import main
from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.nodes import path
from tests.making.tours import made_once
from tests.waiting import until

OSTLER = [sys.executable, "-m", "ostler"]


def agent(folder: Path, door: str, *more: str) -> list[str]:
    """The command of an agent that offers a recorded node's GPUs at one door; its state is new at each start."""
    rule = {"name": "nvidia.com/gpu", "door": door, "devices": {"kind": "gpu", "vendor": "nvidia"}}
    config = folder / "ostler.yaml"
    config.write_text(yaml.safe_dump({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": [rule]}))
    recorded = ("--recorded", str(path("h100-sxm-8")), "--config", str(config))
    return [
        *OSTLER,
        "run",
        *recorded,
        "--http",
        "off",
        "--state-dir",
        "{state}",
        "--socket",
        str(folder / "a.sock"),
        *more,
    ]


@pytest.fixture
def own(run_dir: Path) -> Mapping[str, Any]:
    """Exit code, output, errors and JUnit file of whole runs on our plugin and driver, made side by side and once."""
    ran: Mapping[str, Any] = json.loads(made_once(run_dir / "conformance.json", lambda: json.dumps(_own())))
    return ran


def _own() -> dict[str, object]:
    """Most of its time is the plugin's own patience with a kubelet that does not ask, and starts of agents."""
    folder = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
    ill = shlex.join([*OSTLER, "health", "set", "gpu-0000-df-00-0", "unhealthy", "--reason", "a test", "--for", "1h"])
    change = f"{ill} --socket {folder}/plugin/a.sock"
    words: dict[str, list[str]] = {"plugin": ["-o", "json", "--change", change], "driver": []}
    flags = {"plugin": (), "driver": ("--kubeconfig", "{kubeconfig}", "--node-name", "{node}")}
    running = {}
    for kind, options in words.items():
        (folder / kind).mkdir()
        command = agent(folder / kind, {"plugin": "plugin", "driver": "dra"}[kind], *flags[kind])
        line = [*OSTLER, "conformance", kind, "--junit", str(folder / kind / "junit"), *options, "--", *command]
        running[kind] = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ran: dict[str, object] = {}
    for kind, process in running.items():
        out, err = process.communicate(timeout=240)
        junit = (folder / kind / "junit").read_text()
        ran[kind] = {"code": process.returncode, "out": out, "err": err, "junit": junit}
    shutil.rmtree(folder, ignore_errors=True)
    return ran


def test_our_own_plugin_keeps_every_rule(own: Mapping[str, Any]) -> None:
    ran = own["plugin"]
    assert (ran["code"], ran["err"]) == (0, ""), ran["out"]
    report = json.loads(ran["out"])
    assert [rule["rule"] for rule in report["rules"]] == [rule.name for rule in PLUGIN_RULES]
    others = {rule["rule"]: rule["seen"] for rule in report["rules"] if rule["outcome"] != "passed"}
    assert others == {
        "cdi-names": "nvidia.com/gpu answers without CDI devices",
        "repeats-pre-start": "nvidia.com/gpu does not ask for PreStartContainer",
    }
    suite = ET.fromstring(ran["junit"])[0]
    assert (suite.get("name"), suite.get("failures"), suite.get("skipped")) == ("ostler conformance plugin", "0", "2")
    assert [case.get("name") for case in suite.iter("testcase")] == [rule.name for rule in PLUGIN_RULES]


def test_our_own_driver_keeps_every_rule(own: Mapping[str, Any]) -> None:
    ran = own["driver"]
    assert (ran["code"], ran["err"]) == (0, ""), ran["out"]
    header, *rows, summary = ran["out"].splitlines()
    assert header.split() == ["RULE", "SOURCE", "RESULT"]
    assert [row.split()[0] for row in rows] == [rule.name for rule in DRIVER_RULES]
    assert [row for row in rows if "passed" not in row] == []
    assert summary.startswith(f"{len(DRIVER_RULES)} rules in ")
    assert summary.endswith(f" s: {len(DRIVER_RULES)} passed")


@pytest.mark.parametrize(("kind", "rules"), [("plugin", PLUGIN_RULES), ("driver", DRIVER_RULES)])
def test_the_rules_are_listed(kind: str, rules: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", kind, "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rules) + 1
    assert main(["conformance", kind, "--list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == len(rules)
    assert all(each["title"] and each["source"]["url"].startswith("https://") for each in listed)


def test_a_rule_that_fails_is_exit_code_1_and_said_in_both_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "junit.xml"
    words = ["conformance", "plugin", "--rule", "registers", "--rule", "api-version", "--junit", str(junit)]
    assert main([*words, "--", "sh", "-c", "echo no devices here; exit 3"]) == 1
    out = capsys.readouterr().out
    seen = "the plugin ended with exit code 3; the end of its log: no devices here"
    assert out.splitlines()[1].endswith(f"FAILED: {seen}")
    again = "the plugin does not register, as was seen before"
    assert out.splitlines()[2].endswith(f"not judged: {again}")
    assert out.splitlines()[3].endswith("s: 1 failed, 1 not judged")
    cases = {case.get("name"): case[0] for case in ET.parse(junit).getroot().iter("testcase")}
    assert (cases["registers"].tag, cases["registers"].get("message")) == ("failure", seen)
    assert (cases["api-version"].tag, cases["api-version"].get("message")) == ("error", again)


def test_a_program_that_does_nothing_does_not_register(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = ["--log", str(log), "--", "sh", "-c", "echo idle; sleep 60"]
    # On a slow machine the program may not have begun in so short a time.
    for patience in ("0.2", "2", "20"):
        assert main(["conformance", "plugin", "--rule", "registers", "--patience", patience, *program]) == 1
        why = f"within {patience} s it put no socket into plugins_registry and did not call Register on kubelet.sock"
        assert f"FAILED: the plugin does not register: {why}\n" in capsys.readouterr().out
        if log.read_text():
            break
    assert log.read_text() == "idle\n"
    words = ["--rule", "registers", "--patience", "0.2", *program]
    assert main(["conformance", "driver", *words]) == 1
    why = "within 0.2 s it put no socket into plugins_registry"
    assert f"FAILED: the driver does not register: {why}\n" in capsys.readouterr().out


def test_a_driver_is_told_of_the_folder_that_its_daemonset_makes(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "listen unix /var/lib/kubelet/plugins/a.example/dra.sock: bind: no such file or directory"
    words = ["--rule", "registers", "--", "sh", "-c", f"echo '{problem}'; exit 1"]
    assert main(["conformance", "driver", *words]) == 1
    advice = (
        "if a DaemonSet makes its folder (a hostPath of type DirectoryOrCreate), let the command make it: "
        "sh -c 'mkdir -p /var/lib/kubelet/plugins/a.example; exec COMMAND'"
    )
    assert f"{problem}; {advice}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["plugin"],
            "give either the command after '--' or its socket: ostler conformance plugin -- COMMAND ..., or ",
        ),
        (["driver", "--socket", "/x", "--", "y"], "give either the command after '--' or its socket: "),
        (["plugin", "--rule", "none", "--", "true"], "--rule: there is no rule 'none'; must be one of registers, "),
        (["plugin", "--", "/no/such/plugin"], "plugin '/no/such/plugin' cannot be started: "),
        (["driver", "--change", "true", "--", "true"], "--change is for a plugin whose command is given"),
        (["plugin", "--log", "/no/such/log", "--", "true"], "--log /no/such/log: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_exit_code_2(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *words]) == 2
    assert f"ostler: {problem}" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_costs_nobody_the_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "plugin", "--rule", "registers", "--junit", "/no/such/file", "--", "true"]) == 2
    out, err = capsys.readouterr()
    assert "FAILED: the plugin ended with exit code 0 and wrote no log" in out
    assert err == "ostler: --junit /no/such/file: No such file or directory\n"


def test_a_wrong_number_of_seconds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["conformance", "plugin", "--patience", "soon", "--", "true"])
    assert ended.value.code == 2
    assert "--patience: is 'soon'; it must be a number of seconds between 0 and 3600" in capsys.readouterr().err


def test_a_signal_ends_the_command_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["conformance", "plugin", "--log", str(log), "--", "sh", "-c", "echo $$; exec sleep 300"]
    running = subprocess.Popen([*OSTLER, *words], stderr=subprocess.PIPE, text=True)
    pid = int(until(lambda: log.exists() and log.read_text(), "the command's log"))
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert err == "ostler: ended by a signal before all rules were judged\n"
    assert running.returncode == 2
    assert not Path(f"/proc/{pid}").exists()
