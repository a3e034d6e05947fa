"""The unit: understood whole by systemd, hardened, and every exception explained."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from node.rules import Doors
from ostler.config.load import load_bytes
from ostler.config.settings import Settings
from systemd.release import SOURCE
from tests.systemd.conftest import UNIT

THRESHOLD = 25
"""systemd's scale times ten: 2.5 of 10."""
PAGE = SOURCE / "docs/systemd.md"


def _settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


def test_systemd_understands_every_line(unit: Path) -> None:
    done = _analyze("verify", "--man=no", str(unit))
    # It ends well even for keys that it does not know; what it does not like it writes.
    assert (done.returncode, done.stderr) == (0, "")


def test_a_key_that_systemd_does_not_know_would_be_seen(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("[Service]\n", "[Service]\nRestartStepps=5\n"))
    assert "RestartStepps" in _analyze("verify", "--man=no", str(unit)).stderr


def test_its_exposure_is_low(unit: Path) -> None:
    done = _analyze("security", "--offline=true", f"--threshold={THRESHOLD}", "--no-pager", str(unit))
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_what_remains_open_is_explained_one_by_one(unit: Path) -> None:
    done = _analyze("security", "--offline=true", "--json=short", "--no-pager", str(unit))
    rows = json.loads(done.stdout)
    remaining = {row["name"].rstrip("=") for row in rows if float(row.get("exposure") or 0) > 0}
    page = PAGE.read_text().replace("\\|", "|")
    assert {name for name in remaining if f"`{name}`" not in page} == set()
    table = page[page.index("| What remains") :]
    explained = set(re.findall(r"^\| `([^`]+)`", table[: table.index("\n\n")], re.MULTILINE))
    assert explained == remaining


@pytest.mark.parametrize("name", ["ReadWritePaths", "InaccessiblePaths", "ReadOnlyPaths", "DeviceAllow"])
def test_every_folder_and_device_it_names_is_on_the_page(name: str) -> None:
    values = [value.split(" ")[0].lstrip("-") for value in _settings(name)]
    assert values
    page = PAGE.read_text()
    assert [value for value in values if f"`{value}`" not in page] == []


def test_it_is_there_before_the_kubelet_and_bound_to_nobody() -> None:
    assert "kubelet.service" in _settings("Before")
    assert "systemd-udevd.service" in _settings("After")[0].split()
    assert "nvidia-persistenced.service" in _settings("After")[0].split()
    assert set(_settings("RequiresMountsFor")[0].split()) == {"/var/lib/kubelet", "/var/lib/ostler"}
    for bond in ("Requires", "Requisite", "Wants", "BindsTo", "PartOf", "Upholds", "Conflicts"):
        assert _settings(bond) == []
    assert _settings("WantedBy") == ["multi-user.target"]


def test_it_is_started_again_for_ever_and_told_of_itself_often_enough() -> None:
    assert (_settings("Restart"), _settings("StartLimitIntervalSec")) == (["always"], ["0"])
    assert (_settings("RestartSec"), _settings("WatchdogSec"), _settings("WatchdogSignal")) == (
        ["1"],
        ["30"],
        ["SIGABRT"],
    )
    # The page says how long a kubelet waits at boot.
    (start,) = _settings("TimeoutStartSec")
    assert f"or {start} s at most" in PAGE.read_text()
    # An agent that hands over takes four seconds.
    assert int(_settings("TimeoutStopSec")[0]) > 4
    assert _settings("KillMode") == ["mixed"]


def test_its_folders_are_its_own_and_the_node_keeps_it() -> None:
    assert _settings("RuntimeDirectoryMode") == _settings("StateDirectoryMode") == ["0700"]
    assert _settings("UMask") == ["0077"]
    # The minus: neither has to be there.
    assert _settings("EnvironmentFile") == ["-/etc/default/ostler"]
    assert int(_settings("OOMScoreAdjust")[0]) < -500
    # A core would hold the kubelet's answers and, as the node itself, its token.
    assert _settings("LimitCORE") == ["0"]
    assert _settings("SystemCallErrorNumber") == ["EPERM"]


def test_what_the_defaults_write_to_can_be_written() -> None:
    settings = Settings()
    writable = [Path(value.lstrip("-")) for value in _settings("ReadWritePaths")]
    writable += [Path("/run") / value for value in _settings("RuntimeDirectory")]
    writable += [Path("/var/lib") / value for value in _settings("StateDirectory")]
    needed = [
        settings.kubelet.device_plugin_dir,
        settings.kubelet.registry_dir,
        settings.state_dir,
        settings.socket.parent,
        Path(str(settings.cdi.directory).replace("/var/run/", "/run/")),
    ]
    assert [path for path in needed if not any(path.is_relative_to(folder) for folder in writable)] == []


def test_it_makes_what_it_makes_writable() -> None:
    made = " ".join(_settings("ExecStartPre")).split()
    assert {value.lstrip("-") for value in _settings("ReadWritePaths")} <= set(made)


def test_a_drop_in_for_mig_stays_below_the_threshold(unit: Path) -> None:
    (drop_in,) = re.findall(r"```ini\n(# MIG.*?)```", PAGE.read_text(), re.DOTALL)
    unit.write_text(unit.read_text() + "\n" + drop_in)
    assert _analyze("verify", "--man=no", str(unit)).stderr == ""
    done = _analyze("security", "--offline=true", f"--threshold={THRESHOLD}", "--no-pager", str(unit))
    assert done.returncode == 0, done.stdout


def test_the_example_configuration_is_usable_as_it_is_and_with_its_comments_taken_away() -> None:
    text = (SOURCE / "systemd/config.yaml").read_text()
    assert (
        load_bytes("config.yaml", text.encode(), {}, {}).settings
        == load_bytes("config.yaml", b"apiVersion: ostler.dev/v1alpha1\nkind: Config\n", {}, {}).settings
    )
    everything = re.sub(r"^# (?=nodeName|kubernetes|nvidia|  |resources)", "", text, flags=re.MULTILINE)
    settings = load_bytes("config.yaml", everything.encode(), {}, {}).settings
    assert settings.node_name == "worker-1"
    assert [rule.resource for rule in settings.rules] == [
        "nvidia.com/gpu",
        "nvidia.com/mig-{profile}",
        "example.com/rdma",
        "example.com/nic",
    ]
    assert [rule.door for rule in settings.rules] == [Doors.PLUGIN] * 3 + [Doors.DRA]
    assert settings.kubernetes.kubeconfig == Path("/etc/kubernetes/kubelet.conf")
